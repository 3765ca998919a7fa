"""The extents of index letters and the shapes of tensors, as far as one tells the other.

A letter's extent is its own range, or what the limits of its sum or the place it reads tell; where
nothing tells it, a size is made up that the shapes of the given tensors will tell. A result is as
long as the places on its left sides reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sympy import Idx, Indexed, Product, Sum, Symbol, expand

from derive.errors import refuse
from derive.judge.loops.names import (
    Names,
    find_letters,
    find_roles,
    is_same,
    label_of,
    name_of_left,
    places_of_left,
    spell,
    two_extents,
    union_letters,
    walk,
)
from derive.notation.functions import Reduction

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from derive.notation.formula import Formula


def read_names(formula: Formula) -> Names:
    """Every name with its role, extent or shape, and spelling."""
    names = find_roles(formula)
    nodes = [node for equation in formula.equations for node in walk(equation)]
    _find_extents(formula, nodes, names)
    spell(names)
    return names


def _find_extents(formula: Formula, nodes: list[Any], names: Names) -> None:
    """The extent of each letter and the shape of each tensor, as far as one tells the other."""
    needed = _find_needed(formula, nodes, names)
    told = {letter for letter, extent in names.letters.items() if extent is not None}
    reads = [node for node in nodes if isinstance(node, Indexed)]
    while True:
        _note_limits(nodes, names)
        _read_extents(reads, names, told, needed)
        shaped = _shape_results(formula, names) | _shape_inputs(reads, names)
        if shaped:
            continue
        missing = next((k for k in needed if names.letters[k] is None), None)
        if missing is None:
            return
        names.letters[missing] = Symbol(_make_up(missing, names), integer=True, positive=True)
        names.sizes[names.letters[missing].name] = None


def _find_needed(formula: Formula, nodes: list[Any], names: Names) -> dict[str, None]:
    """The letters that loop over their whole extent; the limits of a sum need none."""
    left = [place for equation in formula.equations for place in places_of_left(equation)]
    whole = [index for node in nodes if isinstance(node, Reduction) for index in node.bound]
    for node in nodes:
        if isinstance(node, (Sum, Product)):
            whole += [limits[0] for limits in node.args[1:] if len(limits) == 1]
    return union_letters(left, names) | {label_of(index): None for index in whole}


def _note_limits(nodes: list[Any], names: Names) -> None:
    for node in nodes:
        if isinstance(node, (Sum, Product)):
            for index, *limits in (tuple(limits) for limits in node.args[1:]):
                letter = label_of(index)
                free = limits and find_letters(limits[-1], names)
                if len(limits) == 2 and limits[0] == 0 and not free:
                    names.letters[letter] = _or(names.letters[letter], limits[1] + 1)


def _read_extents(reads: list[Any], names: Names, told: set[str], needed: Container[str]) -> None:
    """A letter alone in a place runs over that place, if it has no range of its own."""
    for read in reads:
        shape = names.shapes.get(label_of(read.base), [])
        for place, extent in zip(read.indices, shape, strict=False):
            letter = label_of(place) if isinstance(place, (Idx, Symbol)) else ""
            if letter not in names.letters or letter in told or extent is None:
                continue
            known = names.letters[letter] = _or(names.letters[letter], extent)
            if letter in needed and not is_same(known, extent):
                raise two_extents(letter, known, extent)


def _shape_results(formula: Formula, names: Names) -> bool:
    """Give the results their shapes, where all letters on their left sides are known."""
    changed = False
    for name in names.defined:
        sides = [places_of_left(e) for e in formula.equations if name_of_left(e) == name]
        letters = {k for side in sides for place in side for k in find_letters(place, names)}
        if name in names.shapes or any(names.letters[letter] is None for letter in letters):
            continue
        reaches = [[_find_reach(place, name, names) for place in side] for side in sides]
        if len({len(reach) for reach in reaches}) > 1:
            raise refuse("rank-differs", f"{name} stands on the left with two numbers of places")
        names.shapes[name] = [_find_longest(column) for column in zip(*reaches, strict=True)]
        changed = True
    return changed


def _shape_inputs(reads: list[Any], names: Names) -> bool:
    """Give arguments without a shape the extents of the letters that read them."""
    changed = False
    for read in reads:
        name = label_of(read.base)
        if name in names.defined or names.bases[name].shape is not None:
            continue
        shape = names.shapes.setdefault(name, [None] * len(read.indices))
        for number, place in enumerate(read.indices[: len(shape)]):
            letter = label_of(place) if isinstance(place, (Idx, Symbol)) else ""
            extent = names.letters.get(letter)
            if shape[number] is None and extent is not None:
                shape[number] = extent
                changed = True
    return changed


def _find_reach(place: Any, name: str, names: Names) -> Any:
    """One more than the largest value of a place on the left."""
    whole = expand(place)
    ends = {}
    for atom in walk(whole):
        if isinstance(atom, (Idx, Symbol)) and label_of(atom) in names.letters:
            slope = whole.coeff(atom)
            if whole.has(atom) and (slope == 0 or whole.diff(atom).has(atom)):
                raise refuse(
                    "extent-unknown",
                    f"the place {place} on the left does not tell how long {name} is",
                    help=f"give {name} a shape",
                )
            ends[atom] = 0 if slope.is_negative else names.letters[label_of(atom)] - 1
    return expand(whole.subs(ends, simultaneous=True) + 1)


def _find_longest(extents: Iterable[Any]) -> Any:
    first, *rest = extents
    for extent in rest:
        first = extent if (extent - first).is_positive else first
    return first


def _or(known: Any, new: Any) -> Any:
    return new if known is None else known


def _make_up(letter: str, names: Names) -> str:
    """A size for a letter whose extent nothing names: the capital, or `size_x`."""
    used = {*names.bases, *names.defined, *names.letters, *names.sizes, *names.scalars}
    options = (letter.upper(), *(f"size_{letter}{'_' * k}" for k in range(len(used) + 1)))
    return next(name for name in options if name not in used)
