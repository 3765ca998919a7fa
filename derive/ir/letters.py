"""Which index letters of a system need a line that says their extent.

A reader of the text takes the extent of a letter from its first plain use, alone in a place of a
tensor whose extent there is known; where that gives another extent, or none, an `index` line must
tell it. The reading is repeated here, so that the text holds the lines it needs and no others.
A letter that stands on a left side only has such a line in any case: a reader could think that it
was forgotten on the right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import Access, Along, Expr, Index, Reduce, Tensor
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import find_accesses, find_free, walk

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from derive.ir.nodes import Equation, System


def find_untold(system: System) -> tuple[Index, ...]:
    """The indices whose extent no plain use tells, in order of appearance."""
    uses = tuple(_find_uses(system))
    letters = {index.name: index for index in reversed(tuple(_find_indices(system)))}
    ordered = dict.fromkeys(index.name for index in _find_indices(system))
    untold = {index.name: index for e in system.equations for index in _find_left_only(e)}
    untold |= {name: letters[name] for name in system.declared if name in letters}
    while True:
        told = _read_extents(system, uses, {n: i.extent for n, i in untold.items()})
        missing = (n for n in ordered if n not in told or not _is_told(letters[n], told[n]))
        name = next((n for n in missing if n not in untold), None)
        if name is None:
            return tuple(letters[n] for n in ordered if n in untold)
        untold[name] = letters[name]


def find_winning(system: System, declared: Collection[str]) -> tuple[str, ...]:
    """The declared letters whose line wins: a place that one reads has another extent."""
    reads = (
        (place, access.tensor.shape[number])
        for access in _find_uses(system)
        for number, place in enumerate(access.places)
        if isinstance(place, Index) and number < len(access.tensor.shape)
    )
    winning = (i.name for i, extent in reads if i.name in declared and not _is_told(i, extent))
    return tuple(dict.fromkeys(winning))


def _find_left_only(equation: Equation) -> Iterator[Index]:
    """The letters of the left side that the right side does not hold."""
    free = find_free(equation.value)
    for place in equation.target.places:
        yield from (index for index in find_free(place) if index not in free)


def _is_told(index: Index, extent: Expr) -> bool:
    return is_same_extent(index.extent, extent)


def _find_uses(system: System) -> Iterator[Access]:
    """The accesses in the order of the text, the left side behind the value."""
    for equation in system.equations:
        yield from find_accesses(equation.value)
        yield equation.target


def _find_indices(system: System) -> Iterator[Index]:
    """The indices in order of appearance, bound ones with them; some more than once."""
    for equation in system.equations:
        for place in equation.target.places:
            yield from (here for here in walk(place) if isinstance(here, Index))
        for here in walk(equation.value):
            match here:
                case Reduce(_, bound, _, _):
                    yield from bound
                case Along(_, index, _, _):
                    yield index
                case Index():
                    yield here


def _read_extents(
    system: System, uses: tuple[Access, ...], given: Mapping[str, Expr]
) -> dict[str, Expr]:
    """What plain uses tell of each letter, in rounds until nothing more is told."""
    told = dict(given)
    defined = {equation.target.tensor.name: equation.target for equation in system.equations}
    while True:
        before = len(told)
        for access in uses:
            for number, place in enumerate(access.places):
                if isinstance(place, Index) and place.name not in told:
                    extent = _find_extent(access.tensor, number, defined, told)
                    if extent is not None:
                        told[place.name] = extent
        if len(told) == before:
            return told


def _find_extent(
    tensor: Tensor, number: int, defined: Mapping[str, Access], told: Mapping[str, Expr]
) -> Expr | None:
    """The extent of one place, as far as it is known: a declared one, or that of the left side."""
    target = defined.get(tensor.name)
    if target is None:
        return tensor.shape[number] if number < len(tensor.shape) else None
    if number >= len(target.places):
        return None
    place = target.places[number]
    letters = [here for here in walk(place) if isinstance(here, Index)]
    if not letters or any(letter.name not in told for letter in letters):
        return None
    if isinstance(place, Index):
        return told[place.name]
    last = Polynomial.of(place)
    for letter in letters:
        parts = last.split(letter)
        if parts is None:
            return None
        last = parts[0] * (Polynomial.of(told[letter.name]) - Polynomial.of(1)) + parts[1]
    return (last + Polynomial.of(1)).to_expr()
