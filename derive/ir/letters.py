"""Which index letters need an `index` line: those whose extent the text would not tell otherwise.

A reader of the text takes the extent of a letter from its first plain use, alone in a place of a
tensor whose extent there is known: an argument's, or that of a tensor whose left side is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import Access, Along, Expr, Index, Reduce, System, Tensor
from derive.ir.walk import find_accesses, walk

if TYPE_CHECKING:
    from collections.abc import Mapping


def find_letters(system: System) -> tuple[Index, ...]:
    """Every index of the system, in order of appearance; a letter with two extents comes twice."""
    found: dict[Index, None] = {}
    for equation in system.equations:
        for place in equation.target.places:
            found |= dict.fromkeys(_find_here(place))
        found |= dict.fromkeys(_find_here(equation.value))
    return tuple(found)


def _find_here(expr: Expr) -> tuple[Index, ...]:
    indices: list[Index] = []
    for here in walk(expr):
        match here:
            case Index():
                indices.append(here)
            case Reduce(_, bound, _, _):
                indices += bound
            case Along(_, index, _, _):
                indices.append(index)
    return tuple(indices)


def find_index_lines(system: System) -> tuple[Index, ...]:
    """The indices that need an `index` line, in order of appearance."""
    uses = _find_plain_uses(system)
    letters = {index.name: index for index in find_letters(system)}
    declared: dict[str, Expr] = {}
    while True:
        told = _read_extents(uses, system, declared)
        wrong = (
            index
            for name, index in letters.items()
            if name not in told or told[name] is not index.extent
        )
        first = next(wrong, None)
        if first is None:
            return tuple(index for index in letters.values() if index.name in declared)
        declared[first.name] = first.extent


def _find_plain_uses(system: System) -> tuple[tuple[Access, int, Index], ...]:
    """(access, place, index) for each index that stands alone in a place, in reading order."""
    return tuple(
        (access, number, place)
        for equation in system.equations
        for access in (*find_accesses(equation.value), equation.target)
        for number, place in enumerate(access.places)
        if isinstance(place, Index)
    )


def _read_extents(
    uses: tuple[tuple[Access, int, Index], ...], system: System, declared: Mapping[str, Expr]
) -> dict[str, Expr]:
    """What a reader of the text knows of the letters, given the index lines."""
    told = dict(declared)
    given = {entry for entry in system.inputs if isinstance(entry, Tensor)}
    targets = {equation.target.tensor: equation.target for equation in reversed(system.equations)}
    changed = True
    while changed:
        changed = False
        for access, number, index in uses:
            if index.name in told or number >= len(access.tensor.shape):
                continue
            places = targets[access.tensor].places if access.tensor in targets else ()
            known = access.tensor in given or (
                number < len(places)
                and all(i.name in told for i in walk(places[number]) if isinstance(i, Index))
            )
            if known:
                told[index.name] = access.tensor.shape[number]
                changed = True
    return told
