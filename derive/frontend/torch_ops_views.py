"""Views: the same memory under other letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from derive.analysis.affine import ravel, unravel
from derive.frontend.torch_call import Call, op
from derive.frontend.torch_exprs import add, multiply
from derive.frontend.torch_numbers import divide_sizes, plain, to_expr, to_form
from derive.frontend.torch_places import put
from derive.frontend.torch_shadow import Shadow, at, hint_of
from derive.ir.nodes import ONE, ZERO, Expr, Index
from derive.ir.polynomial import Polynomial

if TYPE_CHECKING:
    from derive.frontend.torch_trace import Trace


def remap(shadow: Shadow, letters: Sequence[Index], olds: Sequence[Expr]) -> Shadow:
    """The view whose element at new letters is the old one's at `olds`."""
    places = tuple(put(place, shadow.letters, tuple(olds)) for place in shadow.places)
    return Shadow(tuple(letters), places, shadow.buffer)


def reorder(shadow: Shadow, order: Sequence[int]) -> Shadow:
    """The axes in another order."""
    return replace(shadow, letters=tuple(shadow.letters[k] for k in order))


def find_axis(number: Any, rank: int) -> int:
    """An axis counted from the first."""
    return int(plain(number)) % max(rank, 1)


def _permute(call: Call) -> Shadow:
    shadow = call.shadow(0)
    order = call.spread_args(1, "dims")
    return reorder(shadow, [find_axis(k, shadow.rank) for k in order])


def _transpose(call: Call) -> Shadow:
    shadow = call.shadow(0)
    names = ("dim0", "dim1") if "dim0" in call.named else ("axis0", "axis1")
    one, other = (find_axis(call.get(k + 1, names[k]), shadow.rank) for k in range(2))
    order = list(range(shadow.rank))
    if order:
        order[one], order[other] = order[other], order[one]
    return reorder(shadow, order)


def _transpose_last(call: Call) -> Shadow:
    shadow = call.shadow(0)
    order = list(range(shadow.rank))
    if call.name in {"mT", "adjoint", "mH"} or shadow.rank == 2:
        order[-2:] = order[-2:][::-1]
    elif call.name == "T":
        order.reverse()
    return reorder(shadow, order)


def _move(call: Call) -> Shadow:
    shadow = call.shadow(0)
    names = ("source", "destination")
    given = [call.get(k + 1, names[k]) for k in range(2)]
    source, target = (
        [find_axis(k, shadow.rank) for k in (each if isinstance(each, (tuple, list)) else (each,))]
        for each in given
    )
    order: dict[int, int] = dict(zip(target, source, strict=True))
    rest = iter(k for k in range(shadow.rank) if k not in source)
    return reorder(shadow, [order[k] if k in order else next(rest) for k in range(shadow.rank)])


def insert_axis(trace: Trace, shadow: Shadow, axis: int) -> Shadow:
    """A new axis of length 1."""
    letters = list(shadow.letters)
    letters.insert(axis, trace.letter(ONE))
    return replace(shadow, letters=tuple(letters))


def _unsqueeze(call: Call) -> Shadow:
    shadow = call.shadow(0)
    return insert_axis(call.trace, shadow, find_axis(call.get(1, "dim"), shadow.rank + 1))


def drop_axis(shadow: Shadow, axis: int, place: Expr = ZERO) -> Shadow:
    """One place of an axis."""
    letters = tuple(letter for k, letter in enumerate(shadow.letters) if k != axis)
    olds = [place if k == axis else letter for k, letter in enumerate(shadow.letters)]
    return remap(shadow, letters, olds)


def _squeeze(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    asked = call.get(1, "dim")
    if asked is None:
        axes = range(shadow.rank)
    else:
        axes = [
            find_axis(k, shadow.rank)
            for k in (asked if isinstance(asked, (tuple, list)) else (asked,))
        ]
    for axis in sorted(axes, reverse=True):
        if trace.number(shadow.shape[axis]) == 1:
            if shadow.shape[axis] is not ONE:
                trace.unify(shadow.shape[axis], ONE)
            shadow = drop_axis(shadow, axis)
        elif asked is None:
            trace.watch.assume("an axis that squeeze keeps is not 1")
    return shadow


def _reshape(call: Call) -> Shadow:
    shape = call.spread_args(1, "shape" if "shape" in call.named else "size")
    if len(shape) == 1 and hasattr(shape[0], "shape"):
        return _like(call)
    return reshape(call.trace, call.shadow(0), shape)


def _like(call: Call) -> Shadow:
    return reshape(call.trace, call.shadow(0), call.trace.shadow(call.get(1, "other")).shape)


def reshape(trace: Trace, shadow: Shadow, shape: Sequence[Any]) -> Shadow:
    """The elements in order under other axes; letters that stay stay themselves."""
    extents = _fill_shape(trace, shadow, shape)
    kept = _match_axes(shadow, extents)
    letters: list[Index] = []
    olds: dict[Index, Expr] = {}
    for own, new in kept:
        if len(own) == 1 and len(new) == 1:
            letters.append(own[0])
            olds[own[0]] = own[0]
            continue
        if len(new) == 1:
            fresh = [trace.letter(new[0])]
        else:
            fresh = [trace.letter(extent) for extent in new]
        letters += fresh
        flat = ravel([at(letter) for letter in fresh], [letter.extent for letter in fresh])
        places = unravel(flat, [letter.extent for letter in own])
        olds |= {letter: place.to_expr() for letter, place in zip(own, places, strict=True)}
    return remap(shadow, letters, [olds[letter] for letter in shadow.letters])


def _fill_shape(trace: Trace, shadow: Shadow, shape: Sequence[Any]) -> list[Expr]:
    """The new extents, the one that is -1 found from the others."""
    extents: list[Expr | None] = []
    rest = Polynomial.of(1)
    for each in shape:
        if isinstance(each, int) and plain(each) == -1:
            extents.append(None)
            continue
        extent = trace.extent(each if isinstance(each, int) else each)
        extents.append(extent)
        rest = rest * Polynomial.of(extent)
    if None in extents:
        whole = Polynomial.of(1)
        for extent in shadow.shape:
            whole = whole * Polynomial.of(extent)
        return [trace.extent(divide_sizes(whole, rest)) if e is None else e for e in extents]
    return [extent for extent in extents if extent is not None]


def _match_axes(
    shadow: Shadow, extents: Sequence[Expr]
) -> list[tuple[tuple[Index, ...], tuple[Expr, ...]]]:
    """Groups of old and new axes with the same product, as small as they can be seen to be."""
    groups: list[tuple[tuple[Index, ...], tuple[Expr, ...]]] = []
    old, new = list(shadow.letters), list(extents)
    while old or new:
        best = _find_group(old, new)
        groups.append((tuple(old[: best[0]]), tuple(new[: best[1]])))
        old, new = old[best[0] :], new[best[1] :]
    return groups


def _find_group(old: Sequence[Index], new: Sequence[Expr]) -> tuple[int, int]:
    for total in range(1, len(old) + len(new) + 1):
        for one in range(max(0, total - len(new)), min(len(old), total) + 1):
            left = right = Polynomial.of(1)
            for letter in old[:one]:
                left = left * Polynomial.of(letter.extent)
            for extent in new[: total - one]:
                right = right * Polynomial.of(extent)
            if not (left - right).terms:
                return one, total - one
    return len(old), len(new)


def _flatten(call: Call) -> Shadow:
    shadow = call.shadow(0)
    start = find_axis(call.get(1, "start_dim", 0), shadow.rank)
    end = find_axis(call.get(2, "end_dim", -1), shadow.rank)
    shape: list[Any] = [*shadow.shape[:start], -1, *shadow.shape[end + 1 :]]
    return reshape(call.trace, shadow, shape if shadow.rank else [-1])


def _unflatten(call: Call) -> Shadow:
    shadow = call.shadow(0)
    axis = find_axis(call.get(1, "dim"), shadow.rank)
    sizes = call.spread_args(2, "sizes")
    part = Shadow((shadow.letters[axis],), (), shadow.buffer)
    extents = _fill_shape(call.trace, part, sizes)
    return reshape(call.trace, shadow, [*shadow.shape[:axis], *extents, *shadow.shape[axis + 1 :]])


def _expand(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    if call.name in {"expand_as", "view_as_expand"}:
        shape: Sequence[Any] = trace.shadow(call.get(1, "other")).shape
    else:
        shape = call.spread_args(1, "size")
    return expand(trace, shadow, shape)


def expand(trace: Trace, shadow: Shadow, shape: Sequence[Any]) -> Shadow:
    """Axes of length 1 repeated, further ones in front."""
    extra = len(shape) - shadow.rank
    letters: list[Index] = []
    olds: list[Expr] = []
    for number, asked in enumerate(shape):
        own = shadow.letters[number - extra] if number >= extra else None
        if own is not None and (isinstance(asked, int) and plain(asked) == -1):
            letters.append(own)
            olds.append(own)
            continue
        extent = trace.extent(asked)
        if own is None:
            letters.append(trace.letter(extent))
            continue
        if trace.number(own.extent) == 1 and trace.number(extent) != 1:
            if own.extent is not ONE:
                trace.unify(own.extent, ONE)
            letters.append(trace.letter(extent))
            olds.append(ZERO)
        else:
            trace.unify(own.extent, extent)
            letters.append(own)
            olds.append(own)
    return remap(shadow, letters, olds)


def narrow(
    trace: Trace, shadow: Shadow, axis: int, start: Any, length: Any, step: int = 1
) -> Shadow:
    """A part of an axis: `start + step * letter`."""
    old = shadow.letters[axis]
    fresh = trace.letter(trace.extent(length), hint_of(old))
    place = add(multiply(to_expr(step), at(fresh)), to_expr_of(start))
    olds: list[Expr] = [place if k == axis else letter for k, letter in enumerate(shadow.letters)]
    letters = [fresh if k == axis else letter for k, letter in enumerate(shadow.letters)]
    return remap(shadow, letters, olds)


def to_expr_of(value: Any) -> Expr:
    """A number or an expression as an expression."""
    return to_expr(value) if isinstance(value, (int, float)) else value


def _narrow(call: Call) -> Shadow:
    shadow = call.shadow(0)
    axis = find_axis(call.get(1, "dim"), shadow.rank)
    return narrow(call.trace, shadow, axis, call.get(2, "start"), call.get(3, "length"))


def _select(call: Call) -> Shadow:
    shadow = call.shadow(0)
    axis = find_axis(call.get(1, "dim"), shadow.rank)
    return drop_axis(shadow, axis, find_place(call.get(2, "index"), shadow.shape[axis]))


def find_place(number: int, extent: Expr) -> Expr:
    """A place of an axis, counted from the end where it is negative."""
    place = to_expr(number)
    return add(place, extent) if plain(number) < 0 else place


def _diagonal(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    offset = int(plain(call.get(1, "offset", 0)))
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
    if isinstance(asked, (tuple, list)):
        lengths = list(asked)
    else:
        lengths = _cut(trace, total, asked)
    return _cut_at(trace, shadow, axis, lengths)


def _cut(trace: Trace, total: int, each: int) -> list[int]:
    """Lengths of pieces of one size; how many there are is a matter of this run."""
    number = -(-int(plain(total)) // int(plain(each)))
    if (total - each * number) == 0 and _is_whole(total, each, number):
        return [each] * number
    trace.watch.lose(to_expr(total), to_expr(each))
    left = int(plain(total)) - (number - 1) * int(plain(each))
    return [int(plain(each))] * (number - 1) + [left]


def _is_whole(total: int, each: int, number: int) -> bool:
    return not (to_form(total) - to_form(each) * to_form(number)).terms


def _cut_at(trace: Trace, shadow: Shadow, axis: int, lengths: Sequence[int]) -> tuple[Shadow, ...]:
    start: int = 0
    found = []
    for length in lengths:
        found.append(narrow(trace, shadow, axis, start, length))
        start = start + length
    return tuple(found)


def _chunk(call: Call) -> tuple[Shadow, ...]:
    trace, shadow = call.trace, call.shadow(0)
    count = int(plain(call.get(1, "chunks")))
    axis = find_axis(call.get(2, "dim", 0), shadow.rank)
    total = trace.to_int(shadow.shape[axis])
    if total % count == 0:
        return _cut_at(trace, shadow, axis, [total // count] * count)
    trace.watch.lose(shadow.shape[axis])
    each = -(-int(plain(total)) // count)
    return _cut_at(trace, shadow, axis, _cut(trace, int(plain(total)), each))


def _unbind(call: Call) -> tuple[Shadow, ...]:
    trace, shadow = call.trace, call.shadow(0)
    axis = find_axis(call.get(1, "dim", 0), shadow.rank)
    extent = shadow.shape[axis]
    trace.watch.lose(extent)
    count = trace.number(extent)
    return tuple(drop_axis(shadow, axis, to_expr(number)) for number in range(count))


OPS = (
    op("permute", _permute, "x[B, S, D]: x.permute(2, 0, 1)", is_view=True),
    op("transpose swapaxes swapdims", _transpose, "x[B, S]: x.transpose(-1, 0)", is_view=True),
    op("t T mT", _transpose_last, "x[B, S]: x.T", "x[B, S, D]: x.mT", is_view=True),
    op("movedim moveaxis", _move, "x[B, S, D]: x.movedim(0, -1)", is_view=True),
    op("unsqueeze", _unsqueeze, "x[B, S]: x.unsqueeze(-1)", is_view=True),
    op("squeeze", _squeeze, "x[B, S]: x.unsqueeze(1).squeeze(1)", is_view=True),
    op(
        "view reshape",
        _reshape,
        "x[B, S, D]: x.reshape(-1, x.shape[-1])",
        "x[B, S, D]: x.reshape(x.shape[0] * x.shape[1], -1).view(x.shape[0], -1, x.shape[2])",
        is_view=True,
    ),
    op("view_as reshape_as", _like, "x[B, S]; y[B, S]: (x + 1).view_as(y)", is_view=True),
    op("flatten ravel", _flatten, "x[B, S, D]: x.flatten(1)", is_view=True),
    op(
        "unflatten",
        _unflatten,
        "x[B, S, D]: x.flatten(1).unflatten(1, (x.shape[1], x.shape[2]))",
        is_view=True,
    ),
    op("expand broadcast_to expand_as", _expand, "x[S]: x.expand(2, -1)", is_view=True),
    op("narrow", _narrow, "x[B, S]: x.narrow(1, 1, x.shape[1] - 1)", is_view=True),
    op("select", _select, "x[B, S]: x.select(1, -1)", is_view=True),
    op("diagonal", _diagonal, "x[S, S]: x.diagonal()", "x[S, S]: x.diagonal(1)", is_view=True),
    op("unfold", _unfold, "x[B, S]: x.unfold(1, 2, 1)", is_view=True),
    op("split split_with_sizes", _split, "x[B, S]: x.split(1, 1)[0]", is_view=True),
    op("chunk", _chunk, "x[B, S]: torch.cat((x, x), 1).chunk(2, 1)[1]", is_view=True),
    op("unbind", _unbind, "x[B, S]: x.unbind(0)[1]", is_view=True),
)
