"""How views are made: other letters, the same buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from derive.frontend.torch.exprs import add, multiply
from derive.frontend.torch.numbers import plain, to_expr
from derive.frontend.torch.places import put
from derive.frontend.torch.shadow import Shadow, at, hint_of
from derive.ir.nodes import ONE, ZERO, Expr, Index

if TYPE_CHECKING:
    from derive.frontend.torch.trace import Trace


def remap(shadow: Shadow, letters: Sequence[Index], olds: Sequence[Expr]) -> Shadow:
    """The view whose element at new letters is the old one's at `olds`."""
    places = tuple(put(place, shadow.letters, tuple(olds)) for place in shadow.places)
    return Shadow(tuple(letters), places, shadow.buffer)


def reorder(shadow: Shadow, order: Sequence[int]) -> Shadow:
    """The axes in another order."""
    return replace(shadow, letters=tuple(shadow.letters[k] for k in order))


def find_axis(number: Any, rank: int) -> int:
    """An axis counted from the first."""
    return int(number) % max(rank, 1)


def insert_axis(trace: Trace, shadow: Shadow, axis: int) -> Shadow:
    """A new axis of length 1."""
    letters = list(shadow.letters)
    letters.insert(axis, trace.letter(ONE))
    return replace(shadow, letters=tuple(letters))


def drop_axis(shadow: Shadow, axis: int, place: Expr = ZERO) -> Shadow:
    """One place of an axis."""
    letters = tuple(letter for k, letter in enumerate(shadow.letters) if k != axis)
    olds = [place if k == axis else letter for k, letter in enumerate(shadow.letters)]
    return remap(shadow, letters, olds)


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
    trace: Trace, shadow: Shadow, axis: int, length: Any, line: tuple[Any, int] = (0, 1)
) -> Shadow:
    """A part of an axis: the places start + step * letter of a line (start, step)."""
    old = shadow.letters[axis]
    fresh = trace.letter(trace.extent(length), hint_of(old))
    place = add(multiply(to_expr(line[1]), at(fresh)), to_expr_of(line[0]))
    olds: list[Expr] = [place if k == axis else letter for k, letter in enumerate(shadow.letters)]
    letters = [fresh if k == axis else letter for k, letter in enumerate(shadow.letters)]
    return remap(shadow, letters, olds)


def to_expr_of(value: Any) -> Expr:
    """A number or an expression as an expression."""
    return to_expr(value) if isinstance(value, (int, float)) else value


def find_place(number: int, extent: Expr) -> Expr:
    """A place of an axis, counted from the end where it is negative."""
    place = to_expr(number)
    return add(place, extent) if number < 0 else place


def clamp(value: Any, total: int) -> int:
    """A bound of a slice: from the end where it is negative, no further than the axis."""
    if value < 0:
        value = total + value
    if value > total:
        return total
    number: int = 0 if value < 0 else value
    return number
