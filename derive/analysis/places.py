"""What kind of place an access reads: those that are built, and those that only have a meaning.

plain      i                    one index
fixed      0, S - 1             no index
merged     h*D + d              a mixed-radix number that meets every position once
affine     i + k, 2*t + k       shifted or strided
divided    i // r               cyclic    i % n              clipped   clip(i, 0, n)
gathered   tok[b, s]            an integer tensor tells the position, alone or within
other      anything else
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from derive.errors import Diagnostic
from derive.ir.nodes import Access, Call, Equation, Expr, Index, System
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.text import find_marks, to_text, write_extent
from derive.ir.walk import find_accesses, find_free, walk

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class PlainPlace:
    """One index."""

    index: Index


@dataclass(frozen=True, slots=True)
class FixedPlace:
    """A position that no index changes."""

    value: Expr


@dataclass(frozen=True, slots=True)
class MergedPlace:
    """A mixed-radix number over its parts, slowest first, that meets every position once."""

    parts: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class AffinePlace:
    """`offset` plus a step times each index: shifted where the steps are 1, else strided."""

    steps: tuple[tuple[Index, Expr], ...]
    offset: Expr


@dataclass(frozen=True, slots=True)
class DividedPlace:
    """A quotient without remainder."""

    over: Expr
    under: Expr


@dataclass(frozen=True, slots=True)
class CyclicPlace:
    """A remainder."""

    over: Expr
    under: Expr


@dataclass(frozen=True, slots=True)
class ClippedPlace:
    """A position kept between two bounds."""

    value: Expr


@dataclass(frozen=True, slots=True)
class GatheredPlace:
    """A position that integer tensors tell."""

    by: tuple[Access, ...]


@dataclass(frozen=True, slots=True)
class OtherPlace:
    """A position of no kind that has a name."""

    value: Expr


Place: TypeAlias = (
    PlainPlace
    | FixedPlace
    | MergedPlace
    | AffinePlace
    | DividedPlace
    | CyclicPlace
    | ClippedPlace
    | GatheredPlace
    | OtherPlace
)


def find_place(place: Expr, extent: Expr) -> Place:
    """The kind of a place in a position of that extent."""
    match place:
        case Index():
            return PlainPlace(place)
        case Call("floordiv", (over, under)) if not find_accesses(place):
            return DividedPlace(over, under)
        case Call("mod", (over, under)) if not find_accesses(place):
            return CyclicPlace(over, under)
    gathers = find_accesses(place)
    if gathers:
        return GatheredPlace(gathers)
    if not find_free(place):
        return FixedPlace(place)
    affine = _find_affine(place)
    if affine is not None:
        parts = _find_radix(affine, extent)
        return MergedPlace(parts) if parts else affine
    if any(isinstance(here, Call) and here.function == "clip" for here in walk(place)):
        return ClippedPlace(place)
    return OtherPlace(place)


def fills_once(place: Expr, extent: Expr) -> bool:
    """Does a place of a left side meet every position once: an index, merged ones, one back?"""
    match find_place(place, extent):
        case PlainPlace() | MergedPlace():
            return True
        case AffinePlace(((index, step),), offset):
            is_back = Polynomial.of(step).constant == -1
            last = Polynomial.of(extent) - Polynomial.of(1)
            return (
                is_back and is_same_extent(index.extent, extent) and Polynomial.of(offset) == last
            )
    return False


def _find_affine(place: Expr) -> AffinePlace | None:
    rest = Polynomial.of(place)
    steps = []
    for index in find_free(place):
        split = rest.split(index)
        if split is None or any(find_free(atom) for atom in split[0].atoms):
            return None
        steps.append((index, split[0].to_expr()))
        rest = split[1]
    if any(find_free(atom) for atom in rest.atoms):
        return None
    return AffinePlace(tuple(steps), rest.to_expr())


def _find_radix(affine: AffinePlace, extent: Expr) -> tuple[Index, ...]:
    """The indices, slowest first, if each step is the product of the extents behind it."""
    if Polynomial.of(affine.offset).terms:
        return ()
    left = list(affine.steps)
    ordered: list[Index] = []
    stride = Polynomial.of(1)
    while left:
        found = next((step for step in left if Polynomial.of(step[1]) == stride), None)
        if found is None:
            return ()
        left.remove(found)
        ordered.insert(0, found[0])
        stride = stride * Polynomial.of(found[0].extent)
    return tuple(ordered) if is_same_extent(stride.to_expr(), extent) else ()


_NAMES: tuple[tuple[type[Place], str], ...] = (
    (DividedPlace, "divided"),
    (CyclicPlace, "cyclic"),
    (ClippedPlace, "clipped"),
    (GatheredPlace, "gathered"),
    (OtherPlace, "computed"),
)


def to_word(place: Place) -> str:
    """The word for the kind of a place, as messages use it."""
    match place:
        case PlainPlace():
            return "plain"
        case FixedPlace():
            return "fixed"
        case MergedPlace():
            return "merged"
        case AffinePlace(steps, _):
            is_shifted = all(Polynomial.of(step).constant in {1, -1} for _, step in steps)
            return "shifted" if is_shifted else "strided"
    return next(word for kind, word in _NAMES if isinstance(place, kind))


def find_unplanned(system: System) -> Diagnostic | None:
    """The refusal of the first place that has a meaning but no code yet, or nothing."""
    return next(_find_unplanned(system), None)


def _find_unplanned(system: System) -> Iterator[Diagnostic]:
    for equation in system.equations:
        for access in (equation.target, *find_accesses(equation.value)):
            for number, place in enumerate(access.places):
                kind = find_place(place, access.tensor.shape[number])
                if not isinstance(kind, (PlainPlace, FixedPlace, MergedPlace)):
                    yield _not_yet(access, place, kind, equation)
        if equation.target.tensor.kind == "bool":
            yield Diagnostic(
                "not-yet",
                f"{equation.target.tensor.name} is a result of truth values, which has no code yet",
                find_marks(equation, equation.target),
                help=f"define it as numbers, {to_text(equation.target)} = [...]",
            )


def _not_yet(access: Access, place: Expr, kind: Place, equation: Equation) -> Diagnostic:
    return Diagnostic(
        "not-yet",
        f"the place {write_extent(place)} of {access.tensor.name} is {to_word(kind)}, "
        "which has a meaning but no code yet",
        find_marks(equation, access, place),
        help="places that are built: one index (a diagonal too), a fixed number, "
        "and merged indices, W[h*D + d]",
    )
