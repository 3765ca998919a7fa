"""Parts of axes: slices, pieces, diagonals, windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from derive.analysis.affine import unravel
from derive.analysis.ranges import divide_exactly
from derive.frontend.torch.call import Call, composite, op
from derive.frontend.torch.exprs import add, multiply
from derive.frontend.torch.numbers import plain, to_expr, to_form
from derive.frontend.torch.trace import (
    Shadow,
    at,
    clamp,
    drop_axis,
    find_axis,
    find_place,
    narrow,
    remap,
)
from derive.ir.nodes import Expr

if TYPE_CHECKING:
    from derive.frontend.torch.trace import Trace


def _narrow(call: Call) -> Shadow:
    shadow = call.shadow(0)
    axis = find_axis(call.get(1, "dim"), shadow.rank)
    line = (find_place(call.get(2, "start"), shadow.shape[axis]), 1)
    return narrow(call.trace, shadow, axis, call.get(3, "length"), line)


def _select(call: Call) -> Shadow:
    shadow = call.shadow(0)
    axis = find_axis(call.get(1, "dim"), shadow.rank)
    return drop_axis(shadow, axis, find_place(call.get(2, "index"), shadow.shape[axis]))


def _diagonal(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    offset = int(call.get(1, "offset", 0))
    one = find_axis(call.get(2, "dim1", 0 if call.name != "diagonal_last" else -2), shadow.rank)
    other = find_axis(call.get(3, "dim2", 1), shadow.rank)
    length = trace.to_int(trace.unify(shadow.shape[one], shadow.shape[other])) - abs(offset)
    fresh = trace.letter(trace.extent(length))
    olds: list[Expr] = list(shadow.letters)
    olds[one] = add(at(fresh), to_expr(max(-offset, 0)))
    olds[other] = add(at(fresh), to_expr(max(offset, 0)))
    letters = [letter for k, letter in enumerate(shadow.letters) if k not in {one, other}]
    return remap(shadow, [*letters, fresh], olds)


def _unfold(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    axis = find_axis(call.get(1, "dimension"), shadow.rank)
    size, step = call.get(2, "size"), call.get(3, "step")
    count = (trace.to_int(shadow.shape[axis]) - size) // step + 1
    outer, inner = trace.letter(trace.extent(count)), trace.letter(trace.extent(size))
    olds: list[Expr] = list(shadow.letters)
    olds[axis] = add(multiply(to_expr(step), at(outer)), at(inner))
    letters = list(shadow.letters)
    letters[axis] = outer
    return remap(shadow, [*letters, inner], olds)


def _split(call: Call) -> tuple[Shadow, ...]:
    trace, shadow = call.trace, call.shadow(0)
    asked = call.get(
        1, "split_size_or_sections" if "split_size" not in call.named else "split_size"
    )
    axis = find_axis(call.get(2, "dim", 0), shadow.rank)
    total = trace.to_int(shadow.shape[axis])
    lengths = list(asked) if isinstance(asked, (tuple, list)) else _cut(trace, total, asked)
    return _cut_at(trace, shadow, axis, lengths)


def _cut(trace: Trace, total: int, each: int) -> list[int]:
    """Lengths of pieces of one size; how many there are is a matter of this run."""
    number = -(-int(plain(total)) // int(plain(each)))
    count = divide_exactly(to_form(total), to_form(each))
    if count is not None:
        trace.watch.lose(count.to_expr())
        return [each] * number
    trace.watch.lose(to_expr(total), to_expr(each))
    left = int(plain(total)) - (number - 1) * int(plain(each))
    return [int(plain(each))] * (number - 1) + [left]


def _cut_at(trace: Trace, shadow: Shadow, axis: int, lengths: Sequence[int]) -> tuple[Shadow, ...]:
    start: int = 0
    found = []
    for length in lengths:
        found.append(narrow(trace, shadow, axis, length, (start, 1)))
        start = start + length
    return tuple(found)


def _chunk(call: Call) -> tuple[Shadow, ...]:
    trace, shadow = call.trace, call.shadow(0)
    count = int(call.get(1, "chunks"))
    axis = find_axis(call.get(2, "dim", 0), shadow.rank)
    total = trace.to_int(shadow.shape[axis])
    if total % count == 0:
        return _cut_at(trace, shadow, axis, [total // count] * count)
    trace.watch.lose(shadow.shape[axis])
    each = -(-int(plain(total)) // count)
    return _cut_at(trace, shadow, axis, _cut(trace, int(plain(total)), each))


def _split_evenly(call: Call) -> tuple[Shadow, ...]:
    """tensor_split: into so many pieces, the first ones longer by one, or at places."""
    trace, shadow = call.trace, call.shadow(0)
    asked = call.get(1, "indices_or_sections")
    axis = find_axis(call.get(2, "dim", 0), shadow.rank)
    total = trace.to_int(shadow.shape[axis])
    if isinstance(asked, (tuple, list)):
        ends = [*(clamp(each, total) for each in asked), total]
        lengths = [end - start for start, end in zip((0, *ends), ends, strict=False)]
        if any(length < 0 for length in lengths):
            raise trace.refuse("lift-op", "pieces that overlap are not known")
        return _cut_at(trace, shadow, axis, lengths)
    count = int(asked)
    if total % count == 0:
        return _cut_at(trace, shadow, axis, [total // count] * count)
    trace.watch.lose(shadow.shape[axis])
    each, more = divmod(int(plain(total)), count)
    lengths = [each + 1] * more + [each] * (count - more)
    return _cut_at(trace, shadow, axis, lengths)


def _stride(call: Call) -> Shadow:
    """as_strided of a tensor that lies in memory in order."""
    trace, shadow = call.trace, call.shadow(0)
    tensor, size, steps = call.args[0], call.get(1, "size"), call.get(2, "stride")
    start = call.get(3, "storage_offset", 0) or 0
    if not tensor.is_contiguous() or tensor.storage_offset():
        raise trace.refuse("lift-op", "as_strided of a view is not known")
    letters = [trace.letter(trace.extent(length)) for length in size]
    terms = [multiply(to_expr(s), at(i)) for s, i in zip(steps, letters, strict=True)]
    places = unravel(add(*terms, to_expr(start)), shadow.shape)
    return remap(shadow, letters, [place.to_expr() for place in places])


def _unbind(call: Call) -> tuple[Shadow, ...]:
    trace, shadow = call.trace, call.shadow(0)
    axis = find_axis(call.get(1, "dim", 0), shadow.rank)
    extent = shadow.shape[axis]
    trace.watch.lose(extent)
    count = trace.number(extent)
    return tuple(drop_axis(shadow, axis, to_expr(number)) for number in range(count))


def _trace(input: Any) -> Any:
    return input.diagonal().sum()


OPS = (
    op(
        "narrow",
        _narrow,
        "x[B, S]: x.narrow(1, 1, x.shape[1] - 1)",
        "x[B, S]: x.narrow(-1, -1, 1)",
        is_view=True,
    ),
    op("select", _select, "x[B, S]: x.select(1, -1)", is_view=True),
    op("diagonal", _diagonal, "x[S, S]: x.diagonal()", "x[S, S]: x.diagonal(1)", is_view=True),
    op("unfold", _unfold, "x[B, S]: x.unfold(1, 2, 1)", is_view=True),
    op("split split_with_sizes", _split, "x[B, S]: x.split(1, 1)[0]", is_view=True),
    op("chunk", _chunk, "x[B, S]: torch.cat((x, x), 1).chunk(2, 1)[1]", is_view=True),
    op("tensor_split", _split_evenly, "x[B, S]: torch.cat((x, x), 1).tensor_split(2, 1)[1]"),
    op(
        "as_strided",
        _stride,
        "x[B, S]: x.as_strided((x.shape[0], x.shape[1] - 1, 2), (x.shape[1], 1, 1))",
        is_view=True,
    ),
    op("unbind", _unbind, "x[B, S]: x.unbind(0)[1]", is_view=True),
    composite("trace", _trace, "x[S, S]: x.trace()"),
)
