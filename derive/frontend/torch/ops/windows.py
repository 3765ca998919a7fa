"""Convolutions and pools: an output looks at the input along windows.

    conv       x[step*i + gap*k - edge]           the places of output i, as k goes along the window
    transposed x[(i + edge - gap*k)//step]        the outputs that reach place i, where step divides

What lies outside counts as 0, or not at all: the place stands behind a condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.analysis.affine import simplify_place
from derive.frontend.torch.call import Call, op
from derive.frontend.torch.exprs import (
    add,
    choose,
    compare,
    divide,
    multiply,
    subtract,
    write_place,
)
from derive.frontend.torch.exprs import within as is_within
from derive.frontend.torch.numbers import plain, to_expr
from derive.frontend.torch.ops.sums import fold
from derive.frontend.torch.trace import RestartError, Shadow, at, insert_axis, name_like
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, divide_wholly
from derive.ir.walk import walk

if TYPE_CHECKING:
    from derive.frontend.torch.trace import Trace

_NN = "torch.nn.functional"


@dataclass(frozen=True)
class Window:
    """One axis of a window: its length, how far it moves, and what is put beside the input."""

    length: ir.Expr
    step: int
    gap: int
    before: int
    after: int


def _spell(value: Any, count: int) -> tuple[Any, ...]:
    """One number for each of the axes."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return given * count if len(given) == 1 else given


def _find_windows(
    trace: Trace, lengths: Sequence[ir.Expr], steps: Any, gaps: Any, padding: Any
) -> list[Window]:
    count = len(lengths)
    spelt = (_spell(each, count) for each in (steps, gaps))
    found = []
    edges: Sequence[Any] = _spell(0 if padding == "valid" else padding, count)
    for length, step, gap, edge in zip(lengths, *spelt, edges, strict=False):
        before = after = plain(edge)
        if padding == "same":
            if step != 1:
                raise trace.refuse("lift-op", "padding='same' with a stride is not known")
            total = gap * (_fix(trace, length) - 1)
            before, after = total // 2, total - total // 2
        found.append(Window(length, plain(step), plain(gap), before, after))
    return found


def _fix(trace: Trace, extent: ir.Expr) -> int:
    """An extent that is used as a number."""
    names = [part.name for part in walk(extent) if isinstance(part, ir.Size)]
    if names:
        raise RestartError(tuple(dict.fromkeys(names)))
    return trace.number(extent)


def _count(extent: ir.Expr, window: Window) -> ir.Expr:
    """How many places a window has."""
    reach = multiply(to_expr(window.gap), subtract(window.length, ir.ONE))
    room = Polynomial.of(subtract(add(extent, to_expr(window.before + window.after)), reach))
    whole = divide_wholly(room - Polynomial.of(1), Polynomial.of(window.step))
    if whole is not None:
        return (whole + Polynomial.of(1)).to_expr()
    constant = room.terms.get((), 0) - 1
    more = constant // window.step  # (H + 3)//2 is (H + 1)//2 + 1
    rest = room - Polynomial.of(1 + more * window.step)
    if rest.constant is not None:
        return to_expr(int(rest.constant // window.step + more + 1))
    quotient = ir.Call("floordiv", (write_place(rest.to_expr(), ()), to_expr(window.step)))
    return add(quotient, to_expr(int(more) + 1))


Opened = tuple[list[ir.Index], list[ir.Index], list[ir.Expr], ir.Expr]


def _open(trace: Trace, axes: Sequence[ir.Index], windows: Sequence[Window]) -> Opened:
    """Indices of the outputs, indices in the window, the places, and the condition on them."""
    outer, inner, places, inside = [], [], [], []
    for own, window in zip(axes, windows, strict=True):
        outer.append(name_like(trace, own, _count(own.extent, window)))
        inner.append(_index_window(trace, window))
        moved = multiply(to_expr(window.step), at(outer[-1]))
        place = add(moved, multiply(to_expr(window.gap), at(inner[-1])), to_expr(-window.before))
        places.append(Polynomial.of(place).to_expr())
        inside.append(is_within(places[-1], own.extent))
    return outer, inner, places, ir.all_of(*inside)


def _open_back(
    trace: Trace, axes: Sequence[ir.Index], windows: Sequence[Window], more: Sequence[Any]
) -> Opened:
    """The same of a transposed convolution; `more` is put behind the outputs."""
    outer, inner, places, inside = [], [], [], []
    for own, window, extra in zip(axes, windows, more, strict=True):
        step, gap = to_expr(window.step), to_expr(window.gap)
        reach = multiply(gap, subtract(window.length, ir.ONE))
        far = multiply(step, subtract(own.extent, ir.ONE))
        length = add(far, reach, to_expr(1 + plain(extra) - 2 * window.before))
        outer.append(name_like(trace, own, trace.extent(Polynomial.of(length))))
        inner.append(_index_window(trace, window))
        place = subtract(add(at(outer[-1]), to_expr(window.before)), multiply(gap, at(inner[-1])))
        place = Polynomial.of(place).to_expr()
        if window.step != 1:
            inside.append(compare("==", ir.Call("mod", (place, step)), ir.ZERO))
            place = ir.Call("floordiv", (place, step))
        places.append(place)
        inside.append(is_within(place, own.extent))
    return outer, inner, places, ir.all_of(*inside)


def _index_window(trace: Trace, window: Window) -> ir.Index:
    return trace.index(window.length, "" if isinstance(window.length, ir.Size) else "k")


def _sum(
    bound: Sequence[ir.Index], inside: ir.Expr, *factors: ir.Expr, kind: str = "sum"
) -> ir.Expr:
    """The product reduced, 0 where the condition does not hold."""
    bracket = () if inside is ir.TRUE else (choose(inside, ir.ONE, ir.ZERO),)
    return fold(kind, [k for k in bound if k.extent is not ir.ONE], multiply(*bracket, *factors))


def _convolve(call: Call, is_transposed: bool = False) -> Shadow:
    """A convolution; in a transposed one every output gathers the inputs that reach it."""
    trace, given, weight = call.trace, call.shadow(0), call.shadow(1, "weight")
    value = given if given.rank == weight.rank else insert_axis(trace, given, 0)
    batch, channel = trace.like(*value.indices[:2])
    first, second = weight.indices[:2]
    groups = int(plain(call.get(6, "groups", 1)))
    how = call.get(7 if is_transposed else 5, "dilation", 1), call.get(4, "padding", 0)
    windows = _find_windows(trace, weight.shape[2:], call.get(3, "stride", 1), *how)
    if is_transposed:
        more = _spell(call.get(5, "output_padding", 0), weight.rank - 2)
        outer, inner, places, inside = _open_back(trace, value.indices[2:], windows, more)
        trace.unify(channel.extent, first.extent)
        part, out = channel, _name(trace, second, "o")
        source, which = at(part), at(out)
        if groups != 1:
            length, each = _fix(trace, channel.extent) // groups, _fix(trace, second.extent)
            part, out = trace.index(length, "c"), trace.index(each * groups, "o")
            group = ir.Call("floordiv", (at(out), to_expr(each)))
            source = simplify_place(add(multiply(to_expr(length), group), at(part)))
            which = simplify_place(ir.Call("mod", (at(out), second.extent)))
        rows = source, which
    else:
        outer, inner, places, inside = _open(trace, value.indices[2:], windows)
        part, out = channel, _name(trace, first, "o")
        if groups == 1:
            trace.unify(channel.extent, second.extent)
            source = at(part)
        elif second.extent is ir.ONE and trace.number(out.extent) == groups:
            trace.unify(channel.extent, out.extent)  # each channel by itself
            part, source = second, at(out)
        else:
            part = _name(trace, second, "c")
            length, each = _fix(trace, channel.extent) // groups, _fix(trace, out.extent) // groups
            _fix(trace, part.extent)
            group = ir.Call("floordiv", (at(out), to_expr(each)))
            source = simplify_place(add(multiply(to_expr(length), group), at(part)))
        rows = at(out), at(part)
    taken = trace.read_number(value, [at(batch), source, *places])
    kernel = trace.read_number(weight, [*rows, *map(at, inner)])
    total = _sum([part, *inner], inside, taken, kernel)
    if call.get(2, "bias") is not None:
        bias = call.shadow(2, "bias")
        trace.unify(bias.shape[0], out.extent)
        total = add(total, trace.read_number(bias, [at(out)]))
    return trace.make((*([batch] if value is given else []), out, *outer), total, "real")


def _name(trace: Trace, index: ir.Index, wish: str) -> ir.Index:
    """A fresh index like another, under a name of its own where its extent is a number."""
    return trace.index(index.extent, wish if isinstance(index.extent, ir.Number) else "")


_ARGUMENTS = {
    "max": ["kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"],
    "mean": [
        "kernel_size",
        "stride",
        "padding",
        "ceil_mode",
        "count_include_pad",
        "divisor_override",
    ],
}


def _pool(call: Call, kind: str, count: int) -> Shadow:
    """The largest or the mean of each window."""
    trace, value = call.trace, call.shadow(0)
    given = {name: call.get(k, name) for k, name in enumerate(_ARGUMENTS[kind], 1)}
    lengths = [to_expr(n) for n in _spell(given["kernel_size"], count)]
    how = given["stride"] or given["kernel_size"], given.get("dilation") or 1, given["padding"] or 0
    windows = _find_windows(trace, lengths, *how)
    if given.get("return_indices"):
        raise trace.refuse("lift-op", "the places of a pool's largest elements are not known")
    own = value.indices[-count:]
    if given["ceil_mode"] and any(
        (_fix(trace, i.extent) + 2 * w.before - w.gap * (trace.number(w.length) - 1) - 1) % w.step
        for i, w in zip(own, windows, strict=True)
    ):
        raise trace.refuse("lift-op", "a pool whose last window reaches over the end is not known")
    outer, bound, places, inside = _open(trace, own, windows)
    rest = trace.like(*value.indices[:-count])
    taken = trace.read_number(value, [*map(at, rest), *places])
    if kind == "max" or given["count_include_pad"] is False:
        bound = [index for index in bound if index.extent is not ir.ONE]
        found = ir.Reduce(kind, tuple(bound), inside, taken) if bound else taken
    elif given["divisor_override"] is not None:
        found = divide(_sum(bound, inside, taken), to_expr(given["divisor_override"]))
    else:
        found = _sum(bound, inside, taken, kind="mean")
    return trace.make((*rest, *outer), found, "real")


def _adapt(call: Call, kind: str, count: int) -> Shadow:
    """A pool to so many places: place i looks from i*H//n up to (i + 1)*H/n, rounded up."""
    trace, value = call.trace, call.shadow(0)
    if call.get(2, "return_indices", False):
        raise trace.refuse("lift-op", "the places of a pool's largest elements are not known")
    sizes = _spell(call.get(1, "output_size"), count)
    indices = list(trace.like(*value.indices))
    places: list[ir.Expr] = [at(index) for index in indices]
    bound, inside = [], []
    for axis, size in zip(range(value.rank - count, value.rank), sizes, strict=True):
        own = indices[axis]
        if size is None or own.extent is ir.ONE:
            continue
        inner = trace.indices.copy(own)
        indices[axis] = name_like(trace, own, trace.extent(size))
        bound.append(inner)
        places[axis] = at(inner)
        count_ = to_expr(size)
        if count_ is ir.ONE:
            continue
        first = multiply(own.extent, indices[axis])
        last = add(first, own.extent, count_, ir.Number(-1))  # type: ignore[arg-type]
        inside.append(compare("<=", ir.Call("floordiv", (first, count_)), inner))
        inside.append(compare("<", inner, ir.Call("floordiv", (last, count_))))
    taken = trace.read_number(value, places)
    found = ir.Reduce(kind, tuple(bound), ir.all_of(*inside), taken) if bound else taken
    return trace.make(indices, found, "real")


def _join_pools() -> list[Any]:
    found = []
    for count, shape in enumerate(("S + 2", "S + 2, T + 2", "S + 2, T + 2, U + 2"), 1):
        for kind, name in (("mean", "avg"), ("max", "max")):
            found.append(
                op(
                    f"{name}_pool{count}d",
                    partial(_pool, kind=kind, count=count),
                    f"x[B, C, {shape}]: {_NN}.{name}_pool{count}d(x, 2, 1)",
                    f"x[B, C, {shape}]: {_NN}.{name}_pool{count}d(x, 3, 2, padding=1)",
                )
            )
            found.append(
                op(
                    f"adaptive_{name}_pool{count}d",
                    partial(_adapt, kind=kind, count=count),
                    f"x[B, C, {shape}]: {_NN}.adaptive_{name}_pool{count}d(x, 1)",
                    f"x[B, C, {shape}]: {_NN}.adaptive_{name}_pool{count}d(x, 2)",
                )
            )
    return found


OPS = (
    op(
        "conv1d",
        _convolve,
        f"x[B, C, S]; w[O, C, 2]; b[O]: {_NN}.conv1d(x, w, b)",
        f"x[B, C, S]; w[O, C, 2]: {_NN}.conv1d(x, w, padding=1)",
        f"x[C, S]; w[O, C, 2]: {_NN}.conv1d(x, w, padding='same')",
        f"x[B, 4, S]; w[6, 2, K]: {_NN}.conv1d(x, w, groups=2)",
    ),
    op(
        "conv2d",
        _convolve,
        f"x[B, C, S, T]; w[O, C, 2, 2]; b[O]: {_NN}.conv2d(x, w, b)",
        f"x[B, C, S, T]; w[O, C, 2, 3]: {_NN}.conv2d(x, w, stride=(2, 1), padding=(1, 2))",
    ),
    op(
        "conv3d",
        _convolve,
        f"x[B, C, S + 2, T, U + 2]; w[O, C, 2, 1, 2]: {_NN}.conv3d(x, w, dilation=2)",
    ),
    op(
        "conv_transpose1d",
        partial(_convolve, is_transposed=True),
        f"x[B, C, S]; w[C, O, K]; b[O]: {_NN}.conv_transpose1d(x, w, b)",
        f"x[B, 4, S]; w[4, 3, K]: {_NN}.conv_transpose1d(x, w, stride=2, groups=2)",
        f"x[C, S]; w[C, O, K]: {_NN}.conv_transpose1d(x, w, stride=3, padding=1, dilation=2)",
    ),
    op(
        "conv_transpose2d",
        partial(_convolve, is_transposed=True),
        f"x[B, C, S, T]; w[C, O, 2, 3]: {_NN}.conv_transpose2d(x, w, None, 2, 1, 1)",
    ),
    op(
        "conv_transpose3d",
        partial(_convolve, is_transposed=True),
        f"x[B, C, S, T, U]; w[C, O, 2, 1, 2]: {_NN}.conv_transpose3d(x, w)",
    ),
    *_join_pools(),
)
