"""Convolutions and pools: an output looks at the input along windows.

    conv       x[step*i + gap*k - edge]           the places of output i, as k goes along the window
    transposed x[(i + edge - gap*k)//step]        the outputs that reach place i, where step divides

What lies outside counts as 0, or not at all: the place stands behind a condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from derive.analysis.affine import simplify_place
from derive.frontend.torch import exprs
from derive.frontend.torch.call import Call, Op, op
from derive.frontend.torch.exprs import add, multiply, subtract
from derive.frontend.torch.numbers import plain, to_expr
from derive.frontend.torch.ops.views import insert_axis, to_list
from derive.frontend.torch.trace import RestartError, Shadow, Trace, at, hint_of
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, divide_wholly
from derive.ir.walk import walk

_NN = "torch.nn.functional"


@dataclass(frozen=True)
class Window:
    """One axis of a window: its length, how far it moves, and what is put beside the input."""

    length: ir.Expr
    step: int
    gap: int
    before: int
    after: int


@dataclass
class Opened:
    """Indices of the outputs, indices in the windows, the places, and the conditions on them."""

    outer: list[ir.Index]
    inner: list[ir.Index]
    places: list[ir.Expr]
    inside: list[ir.Expr]

    def sum(self, part: Sequence[ir.Index], *factors: ir.Expr, kind: str = "sum") -> ir.Expr:
        """The product reduced, 0 where a condition does not hold."""
        inside = ir.all_of(*self.inside)
        bracket = () if inside is ir.TRUE else (exprs.choose(inside, ir.ONE, ir.ZERO),)
        return exprs.fold(kind, [*part, *self.inner], multiply(*bracket, *factors))


def _spell(value: Any, count: int) -> list[Any]:
    """One number for each of the axes."""
    given = to_list(value)
    return given * count if len(given) == 1 else given


def _find_windows(
    trace: Trace, lengths: Sequence[ir.Expr], steps: Any, gaps: Any, padding: Any
) -> list[Window]:
    count, found = len(lengths), []
    edges = _spell(0 if padding == "valid" else padding, count)
    spelt = zip(lengths, _spell(steps, count), _spell(gaps, count), edges, strict=False)
    for length, step, gap, edge in spelt:
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
    more = (room.terms.get((), 0) - 1) // window.step  # (H + 3)//2 is (H + 1)//2 + 1
    rest = room - Polynomial.of(1 + more * window.step)
    if rest.constant is not None:
        return to_expr(int(rest.constant // window.step + more + 1))
    quotient = ir.Call("floordiv", (exprs.write_place(rest.to_expr(), ()), to_expr(window.step)))
    return add(quotient, to_expr(int(more) + 1))


def _index_like(trace: Trace, index: ir.Index, extent: ir.Expr) -> ir.Index:
    """A fresh index of another extent, for what was counted by an index."""
    size = index.extent.name if isinstance(index.extent, ir.Size) else ""
    return trace.index(extent, hint_of(index) or (size.lower() if size.isupper() else ""))


def _index_named(trace: Trace, extent: ir.Expr, hint: str) -> ir.Index:
    """A fresh index, under a name of its own where no size names it."""
    return trace.index(extent, "" if isinstance(extent, ir.Size) else hint)


def _open(trace: Trace, axes: Sequence[ir.Index], windows: Sequence[Window]) -> Opened:
    found = Opened([], [], [], [])
    for own, window in zip(axes, windows, strict=True):
        found.outer.append(_index_like(trace, own, _count(own.extent, window)))
        found.inner.append(_index_named(trace, window.length, "k"))
        moved = multiply(to_expr(window.step), at(found.outer[-1]))
        far = multiply(to_expr(window.gap), at(found.inner[-1]))
        place = Polynomial.of(add(moved, far, to_expr(-window.before))).to_expr()
        found.places.append(place)
        found.inside.append(exprs.within(place, own.extent))
    return found


def _open_back(
    trace: Trace, axes: Sequence[ir.Index], windows: Sequence[Window], more: Sequence[Any]
) -> Opened:
    """The same of a transposed convolution; `more` is put behind the outputs."""
    found = Opened([], [], [], [])
    for own, window, extra in zip(axes, windows, more, strict=True):
        step, gap = to_expr(window.step), to_expr(window.gap)
        reach = multiply(gap, subtract(window.length, ir.ONE))
        far = multiply(step, subtract(own.extent, ir.ONE))
        length = add(far, reach, to_expr(1 + plain(extra) - 2 * window.before))
        found.outer.append(_index_like(trace, own, trace.extent(Polynomial.of(length))))
        found.inner.append(_index_named(trace, window.length, "k"))
        moved = add(at(found.outer[-1]), to_expr(window.before))
        place = Polynomial.of(subtract(moved, multiply(gap, at(found.inner[-1])))).to_expr()
        if window.step != 1:
            rest = ir.Call("mod", (place, step))
            found.inside.append(exprs.compare("==", rest, ir.ZERO))
            place = ir.Call("floordiv", (place, step))
        found.places.append(place)
        found.inside.append(exprs.within(place, own.extent))
    return found


@op(
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    f"x[B, C, S]; w[O, C, 2]; b[O]: {_NN}.conv1d(x, w, b)",
    f"x[B, C, S]; w[O, C, 2]: {_NN}.conv1d(x, w, padding=1)",
    f"x[C, S]; w[O, C, 2]: {_NN}.conv1d(x, w, padding='same')",
    f"x[B, 4, S]; w[6, 2, K]: {_NN}.conv1d(x, w, groups=2)",
    f"x[B, C, S, T]; w[O, C, 2, 2]; b[O]: {_NN}.conv2d(x, w, b)",
    f"x[B, C, S, T]; w[O, C, 2, 3]: {_NN}.conv2d(x, w, stride=(2, 1), padding=(1, 2))",
    f"x[B, C, S + 2, T, U + 2]; w[O, C, 2, 1, 2]: {_NN}.conv3d(x, w, dilation=2)",
    f"x[B, C, S]; w[C, O, K]; b[O]: {_NN}.conv_transpose1d(x, w, b)",
    f"x[B, 4, S]; w[4, 3, K]: {_NN}.conv_transpose1d(x, w, stride=2, groups=2)",
    f"x[C, S]; w[C, O, K]: {_NN}.conv_transpose1d(x, w, stride=3, padding=1, dilation=2)",
    f"x[B, C, S, T]; w[C, O, 2, 3]: {_NN}.conv_transpose2d(x, w, None, 2, 1, 1)",
    f"x[B, C, S, T, U]; w[C, O, 2, 1, 2]: {_NN}.conv_transpose3d(x, w)",
)
def _convolve(call: Call) -> Shadow:
    """A convolution; in a transposed one every output gathers the inputs that reach it."""
    trace, given, weight = call.trace, call.shadow(0), call.shadow(1, "weight")
    is_transposed = "transpose" in call.name
    value = given if given.rank == weight.rank else insert_axis(trace, given, 0)
    batch, channel = trace.like(*value.indices[:2])
    first, second = weight.indices[:2]
    groups = int(plain(call.get(6, "groups", 1)))
    how = call.get(7 if is_transposed else 5, "dilation", 1), call.get(4, "padding", 0)
    windows = _find_windows(trace, weight.shape[2:], call.get(3, "stride", 1), *how)

    def group(out: ir.Index, each: int, length: int, part: ir.Index) -> ir.Expr:
        """The channel that stands at a part of the group of an output."""
        number = ir.Call("floordiv", (at(out), to_expr(each)))
        return simplify_place(add(multiply(to_expr(length), number), at(part)))

    def index_number(index: ir.Index, hint: str) -> ir.Index:
        """A fresh index like another, under a name of its own where its extent is a number."""
        return trace.index(index.extent, hint if isinstance(index.extent, ir.Number) else "")

    if is_transposed:
        more = _spell(call.get(5, "output_padding", 0), weight.rank - 2)
        opened = _open_back(trace, value.indices[2:], windows, more)
        trace.unify(channel.extent, first.extent)
        part, out = channel, index_number(second, "o")
        source, which = at(part), at(out)
        if groups != 1:
            length, each = _fix(trace, channel.extent) // groups, _fix(trace, second.extent)
            part, out = trace.index(length, "c"), trace.index(each * groups, "o")
            source = group(out, each, length, part)
            which = simplify_place(ir.Call("mod", (at(out), second.extent)))
        rows = source, which
    else:
        opened = _open(trace, value.indices[2:], windows)
        part, out = channel, index_number(first, "o")
        if groups == 1:
            trace.unify(channel.extent, second.extent)
            source = at(part)
        elif second.extent is ir.ONE and trace.number(out.extent) == groups:
            trace.unify(channel.extent, out.extent)  # each channel by itself
            part, source = second, at(out)
        else:
            part = index_number(second, "c")
            length, each = _fix(trace, channel.extent) // groups, _fix(trace, out.extent) // groups
            _fix(trace, part.extent)
            source = group(out, each, length, part)
        rows = at(out), at(part)
    taken = trace.read_number(value, [at(batch), source, *opened.places])
    kernel = trace.read_number(weight, [*rows, *map(at, opened.inner)])
    total = opened.sum([part], taken, kernel)
    if call.get(2, "bias") is not None:
        bias = call.shadow(2, "bias")
        trace.unify(bias.shape[0], out.extent)
        total = add(total, trace.read_number(bias, [at(out)]))
    return trace.make((*([batch] if value is given else []), out, *opened.outer), total, "real")


_MAX = "kernel_size stride padding dilation ceil_mode return_indices"
_MEAN = "kernel_size stride padding ceil_mode count_include_pad divisor_override"


def _pool(call: Call, kind: str, count: int) -> Shadow:
    """The largest or the mean of each window."""
    trace, value = call.trace, call.shadow(0)
    words = (_MAX if kind == "max" else _MEAN).split()
    given = {name: call.get(k, name) for k, name in enumerate(words, 1)}
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
    opened = _open(trace, own, windows)
    rest = trace.like(*value.indices[:-count])
    taken = trace.read_number(value, [*map(at, rest), *opened.places])
    if kind == "max" or given["count_include_pad"] is False:
        found = exprs.fold(kind, opened.inner, taken, ir.all_of(*opened.inside))
    elif given["divisor_override"] is not None:
        found = exprs.divide(opened.sum([], taken), to_expr(given["divisor_override"]))
    else:
        found = opened.sum([], taken, kind="mean")
    return trace.make((*rest, *opened.outer), found, "real")


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
        indices[axis] = _index_like(trace, own, trace.extent(size))
        bound.append(inner)
        places[axis] = inner
        number = to_expr(size)
        if number is ir.ONE:
            continue
        start = multiply(own.extent, indices[axis])
        end = add(start, own.extent, number, ir.MINUS_ONE)
        inside.append(exprs.compare("<=", ir.Call("floordiv", (start, number)), inner))
        inside.append(exprs.compare("<", inner, ir.Call("floordiv", (end, number))))
    taken = trace.read_number(value, places)
    return trace.make(indices, exprs.fold(kind, bound, taken, ir.all_of(*inside)), "real")


def _list_pools() -> list[Op]:
    found = []
    for count, shape in enumerate(("S + 2", "S + 2, T + 2", "S + 2, T + 2, U + 2"), 1):
        for kind, name in (("mean", "avg"), ("max", "max")):
            for word, act, *more in (
                (f"{name}_pool{count}d", _pool, "2, 1", "3, 2, padding=1"),
                (f"adaptive_{name}_pool{count}d", _adapt, "1", "2"),
            ):
                examples = (f"x[B, C, {shape}]: {_NN}.{word}(x, {each})" for each in more)
                found.append(Op(word, partial(act, kind=kind, count=count), tuple(examples)))
    return found


ROWS = _list_pools()
