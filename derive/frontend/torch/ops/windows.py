"""Operations over windows: convolutions and pools.

    conv       x[step*i + gap*k - edge]           position k of the window of output i
    transposed x[(i + edge - gap*k)//step]        the inputs that reach output i, if step divides

A position outside the input counts as 0 or is left out, so every read has a condition.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from derive.analysis import affine
from derive.frontend.torch import exprs
from derive.frontend.torch.call import Call, Op, composite, op
from derive.frontend.torch.exprs import add, multiply, subtract
from derive.frontend.torch.numbers import is_symbolic, to_expr, to_form
from derive.frontend.torch.ops.composites import unknown
from derive.frontend.torch.ops.views import insert_axis, to_list
from derive.frontend.torch.trace import RestartError, Shadow, Trace, at, hint_of
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, divide_wholly
from derive.ir.walk import find_size_names

_NN = "torch.nn.functional"


@dataclass(frozen=True)
class Window:
    """One axis of a window: length, stride, dilation, and the padding before and after."""

    length: ir.Expr
    step: int  # step, gap, before and after may be symbolic
    gap: int
    before: int
    after: int


@dataclass
class Opened:
    """Indices of the outputs, indices in the windows, the places read, and their conditions."""

    outer: list[ir.Index]
    inner: list[ir.Index]
    places: list[ir.Expr]
    inside: list[ir.Expr]

    def sum(self, part: Sequence[ir.Index], *factors: ir.Expr, kind: str = "sum") -> ir.Expr:
        """Reduce the product, with 0 where a condition fails."""
        inside = ir.all_of(*self.inside)
        bracket = () if inside is ir.TRUE else (exprs.choose(inside, ir.ONE, ir.ZERO),)
        return exprs.reduce_over(kind, [*part, *self.inner], multiply(*bracket, *factors))


def _repeat_for_axes(value: Any, count: int) -> list[Any]:
    """Return a list with one number for each axis."""
    given = to_list(value)
    return given * count if len(given) == 1 else given


def _find_windows(
    trace: Trace, lengths: Sequence[ir.Expr], steps: Any, gaps: Any, padding: Any
) -> list[Window]:
    count, found = len(lengths), []
    edges = _repeat_for_axes(0 if padding == "valid" else padding, count)
    spelt = zip(
        lengths, _repeat_for_axes(steps, count), _repeat_for_axes(gaps, count), edges, strict=False
    )
    for length, step, gap, edge in spelt:
        before = after = edge
        if padding == "same":
            if step != 1:
                raise trace.refuse("lift-op", "padding='same' with a stride is not known")
            total = gap * (trace.to_int(length) - 1)
            before, after = total // 2, total - total // 2
        found.append(Window(length, step, gap, before, after))
    return found


def _fix(trace: Trace, extent: ir.Expr) -> int:
    """Return an extent as a number; restart with its sizes fixed."""
    if names := find_size_names(extent):
        raise RestartError(names)
    return trace.number(extent)


def _count_positions(trace: Trace, extent: ir.Expr, window: Window) -> ir.Expr:
    """Return the number of positions of a window."""
    room = trace.to_int(extent) + window.before + window.after
    room -= window.gap * (trace.to_int(window.length) - 1) + 1
    form, step = to_form(room), to_form(window.step)
    count = divide_wholly(form, step)
    if count is None:  # (H + 3)//2 is (H + 1)//2 + 1
        more = Polynomial.of(0 if step.constant is None else form.terms.get((), 0) // step.constant)
        rest = exprs.write_place((form - more * step).to_expr(), ())
        count = more + Polynomial.of(ir.Call("floordiv", (rest, step.to_expr())))
    return trace.extent(count + Polynomial.of(1))


def _index_like(trace: Trace, index: ir.Index, extent: ir.Expr) -> ir.Index:
    """Return a fresh index of another extent with the hint of an index."""
    size = index.extent.name if isinstance(index.extent, ir.Size) else ""
    return trace.index(extent, hint_of(index) or (size.lower() if size.isupper() else ""))


def _index_inside(trace: Trace, window: Window) -> ir.Index:
    """Return a fresh index in a window, named k unless its extent is a size."""
    return trace.index(window.length, "" if isinstance(window.length, ir.Size) else "k")


def _open_windows(trace: Trace, axes: Sequence[ir.Index], windows: Sequence[Window]) -> Opened:
    found = Opened([], [], [], [])
    for own, window in zip(axes, windows, strict=True):
        found.outer.append(_index_like(trace, own, _count_positions(trace, own.extent, window)))
        found.inner.append(_index_inside(trace, window))
        moved = multiply(to_expr(window.step), at(found.outer[-1]))
        far = multiply(to_expr(window.gap), at(found.inner[-1]))
        place = Polynomial.of(add(moved, far, to_expr(-window.before))).to_expr()
        found.places.append(place)
        found.inside.append(exprs.within(place, own.extent))
    return found


def _open_transposed(
    trace: Trace, axes: Sequence[ir.Index], windows: Sequence[Window], more: Sequence[Any]
) -> Opened:
    """Return the places that a transposed convolution reads; `more` is the output padding."""
    outer = []
    for own, window, extra in zip(axes, windows, more, strict=True):
        step, gap = to_expr(window.step), to_expr(window.gap)
        reach = multiply(gap, subtract(window.length, ir.ONE))
        far = multiply(step, subtract(own.extent, ir.ONE))
        length = add(far, reach, to_expr(1 + extra - 2 * window.before))
        outer.append(_index_like(trace, own, trace.extent(Polynomial.of(length))))
    found = Opened(outer, [], [], [])
    for own, old, window in zip(outer, axes, windows, strict=True):
        step = to_expr(window.step)
        found.inner.append(_index_inside(trace, window))
        far = multiply(to_expr(window.gap), at(found.inner[-1]))
        place = Polynomial.of(subtract(add(at(own), to_expr(window.before)), far)).to_expr()
        if is_symbolic(window.step) or window.step != 1:
            rest = ir.Call("mod", (place, step))
            found.inside.append(exprs.compare("==", rest, ir.ZERO))
            place = ir.Call("floordiv", (place, step))
        found.places.append(place)
        found.inside.append(exprs.within(place, old.extent))
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
    """Return a convolution; in a transposed one every output gathers the inputs that reach it."""
    trace, given, weight = call.trace, call.shadow(0), call.shadow(1, "weight")
    is_transposed = "transpose" in call.name
    value = given if given.rank == weight.rank else insert_axis(trace, given, 0)
    batch, channel = trace.like(*value.indices[:2])
    first, second = weight.indices[:2]
    groups = call.argument(6, "groups", 1)
    number = trace.extent(groups)
    how = call.argument(7 if is_transposed else 5, "dilation", 1), call.argument(4, "padding", 0)
    windows = _find_windows(trace, weight.shape[2:], call.argument(3, "stride", 1), *how)

    def group(out: ir.Index, each: int, length: int, part: ir.Index) -> ir.Expr:
        """Return the channel at position `part` in the group of an output."""
        number = ir.Call("floordiv", (at(out), to_expr(each)))
        return affine.simplify_place(add(multiply(to_expr(length), number), at(part)))

    def index_number(index: ir.Index, hint: str) -> ir.Index:
        """Return a fresh index like another, with this hint if its extent is a number."""
        return trace.index(index.extent, hint if isinstance(index.extent, ir.Number) else "")

    if is_transposed:
        more = _repeat_for_axes(call.argument(5, "output_padding", 0), weight.rank - 2)
        opened = _open_transposed(trace, value.indices[2:], windows, more)
        trace.unify(channel.extent, first.extent)
        part, out = channel, index_number(second, "o")
        source, which = at(part), at(out)
        if is_symbolic(groups) or groups != 1:
            groups = int(groups)
            length, each = _fix(trace, channel.extent) // groups, _fix(trace, second.extent)
            part, out = trace.index(length, "c"), trace.index(each * groups, "o")
            source = group(out, each, length, part)
            which = affine.simplify_place(ir.Call("mod", (at(out), second.extent)))
        rows = source, which
    else:
        opened = _open_windows(trace, value.indices[2:], windows)
        part, out = channel, index_number(first, "o")
        if not is_symbolic(groups) and groups == 1:
            trace.unify(channel.extent, second.extent)
            source = at(part)
        elif second.extent is ir.ONE and trace.number(out.extent) == trace.number(number):
            for extent in (number, channel.extent):  # a depthwise convolution
                trace.unify(extent, out.extent)
            part, source = second, at(out)
        else:
            part, groups = index_number(second, "c"), int(groups)
            length, each = _fix(trace, channel.extent) // groups, _fix(trace, out.extent) // groups
            _fix(trace, part.extent)
            source = group(out, each, length, part)
        rows = at(out), at(part)
    taken = trace.read_number(value, [at(batch), source, *opened.places])
    kernel = trace.read_number(weight, [*rows, *map(at, opened.inner)])
    total = opened.sum([part], taken, kernel)
    if call.argument(2, "bias") is not None:
        bias = call.shadow(2, "bias")
        trace.unify(bias.shape[0], out.extent)
        total = add(total, trace.read_number(bias, [at(out)]))
    return trace.make_tensor(
        (*([batch] if value is given else []), out, *opened.outer), total, "real"
    )


_MAX = "kernel_size stride padding dilation ceil_mode return_indices"
_MEAN = "kernel_size stride padding ceil_mode count_include_pad divisor_override"


def _pool(call: Call, kind: str, count: int) -> Shadow:
    """Return the maximum or the mean of each window."""
    trace, value = call.trace, call.shadow(0)
    words = (_MAX if kind == "max" else _MEAN).split()
    defaults = {"dilation": 1, "padding": 0}
    given = {name: call.argument(k, name, defaults.get(name)) for k, name in enumerate(words, 1)}
    lengths = [to_expr(n) for n in _repeat_for_axes(given["kernel_size"], count)]
    stride = given["kernel_size"] if given["stride"] in (None, [], ()) else given["stride"]
    windows = _find_windows(trace, lengths, stride, given.get("dilation", 1), given["padding"])
    if given.get("return_indices"):
        raise trace.refuse("lift-op", "the places of a pool's largest elements are not known")
    own = value.indices[-count:]
    # a last window may reach past the end if it begins inside or in the padding before
    if given["ceil_mode"]:
        reach = [w.gap * (trace.to_int(w.length) - 1) for w in windows]
        more = [min(w.after + w.step - 1, r) for w, r in zip(windows, reach, strict=True)]
        windows = [replace(w, after=n) for w, n in zip(windows, more, strict=True)]
    opened = _open_windows(trace, own, windows)
    rest = trace.like(*value.indices[:-count])
    taken = trace.read_number(value, [*map(at, rest), *opened.places])
    if given.get("divisor_override") is not None:
        found = exprs.divide(opened.sum([], taken), to_expr(given["divisor_override"]))
    elif kind == "max" or given["count_include_pad"] is False:
        found = exprs.reduce_over(kind, opened.inner, taken, ir.all_of(*opened.inside))
    else:  # the padding counts in the mean; positions beyond it do not
        ends = [add(i.extent, to_expr(w.before)) for i, w in zip(own, windows, strict=True)]
        counted = [exprs.decide("<", *pair) for pair in zip(opened.places, ends, strict=True)]
        bracket = exprs.choose(ir.all_of(*opened.inside), ir.ONE, ir.ZERO)
        whole = multiply(bracket, taken)
        found = exprs.reduce_over(kind, opened.inner, whole, ir.all_of(*counted))
    return trace.make_tensor((*rest, *opened.outer), found, "real")


def _pool_wholly(
    input: Any, output_size: Any, return_indices: bool = False, *, kind: str, count: int
) -> Any:
    """Pool each channel to one place."""
    if return_indices or any(is_symbolic(n) or n != 1 for n in to_list(output_size)):
        unknown("an adaptive pool is known for one place, without positions")
    return getattr(input, kind)(tuple(range(-count, 0)), True)


def _list_pools() -> Iterator[Op]:
    for count, shape in enumerate(("S + 2", "S + 2, T + 2", "S + 2, T + 2, U + 2"), 1):
        for kind, name, whole in (("mean", "avg", "mean"), ("max", "max", "amax")):
            given, word = f"x[B, C, {shape}]: {_NN}.", f"{name}_pool{count}d"
            examples = (f"{given}{word}(x, {each})" for each in ("2, 1", "3, 2, padding=1"))
            yield Op(word, partial(_pool, kind=kind, count=count), tuple(examples))
            word = f"adaptive_{word}"
            act = partial(_pool_wholly, kind=whole, count=count)
            yield composite(word, act, f"{given}{word}(x, 1)")


ROWS = tuple(_list_pools())
