"""The indices of a system: all of them, and those that stand on a left side only."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from derive.errors import DeriveError, Diagnostic, suggest
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, evaluate_atom, is_same_extent
from derive.ir.text import find_marks, write_extent
from derive.ir.walk import find_accesses, find_all_indices, find_free, find_sizes, walk


def find_left(equation: ir.Equation) -> tuple[ir.Index, ...]:
    """The indices of the left side, in order, each once."""
    inside = (index for place in equation.target.places for index in find_free(place))
    return tuple(dict.fromkeys(inside))


def find_broadcast(equation: ir.Equation) -> tuple[ir.Index, ...]:
    """The indices that the left side holds and the right side does not."""
    free = find_free(equation.value)
    return tuple(index for index in find_left(equation) if index not in free)


# Sizes and extents: which size comes from which shape, and one extent for each index.


@dataclass(frozen=True, slots=True)
class FromShape:
    """The size is the extent of one place of an argument."""

    name: str
    tensor: ir.Tensor
    place: int


@dataclass(frozen=True, slots=True)
class FromEquation:
    """The size solves `coefficient * size + rest == extent of that place`."""

    name: str
    tensor: ir.Tensor
    place: int
    coefficient: ir.Expr
    rest: ir.Expr


@dataclass(frozen=True, slots=True)
class FromKeyword:
    """The size is an argument."""

    name: str
    default: int | None


SizeSource: TypeAlias = FromShape | FromEquation | FromKeyword


def find_size_sources(system: ir.System) -> tuple[SizeSource, ...]:
    """How each size is obtained, in an order in which each needs only those before it.

    Raises DeriveError (`size-untold`) for a size that nothing tells.
    """
    for mistake in find_size_mistakes(system):
        raise DeriveError(mistake)
    return _find_told(system)


def find_size_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """Sizes that nothing tells."""
    told = sorted(source.name for source in _find_told(system))
    for name in find_sizes(system):
        if name not in told:
            yield _untold(name, system, told)


def find_open_sizes(system: ir.System) -> tuple[str, ...]:
    """The sizes that nothing tells: they must be arguments.

    An extent with several unknowns, `H*D`, is solved for its last one if the others are arguments.
    """
    keywords: dict[str, None] = {}
    while True:
        arguments = (*system.sizes, *map(ir.SizeInput, keywords))
        told = {source.name for source in _find_told(replace(system, sizes=arguments))}
        missing = [name for name in find_sizes(system) if name not in told]
        if not missing:
            return tuple(keywords)
        keywords[missing[0]] = None


def _find_told(system: ir.System) -> tuple[SizeSource, ...]:
    sources: dict[str, SizeSource] = {
        size.name: FromKeyword(size.name, size.default) for size in system.sizes
    }
    places = [
        (tensor, place, extent)
        for tensor in system.inputs
        if isinstance(tensor, ir.Tensor)
        for place, extent in enumerate(tensor.shape)
    ]
    for tensor, place, extent in places:
        if isinstance(extent, ir.Size):
            sources.setdefault(extent.name, FromShape(extent.name, tensor, place))
    count = -1
    while count != len(sources):
        count = len(sources)
        for tensor, place, extent in places:
            solved = _solve(tensor, place, extent, sources)
            if solved is not None:
                sources.setdefault(solved.name, solved)
    return tuple(sources.values())


def _solve(
    tensor: ir.Tensor, place: int, extent: ir.Expr, known: dict[str, SizeSource]
) -> FromEquation | None:
    """The one unknown size of an extent that is linear in it."""
    inside = dict.fromkeys(here for here in walk(extent) if isinstance(here, ir.Size))
    unknown = [size for size in inside if size.name not in known]
    if len(unknown) != 1:
        return None
    value = Polynomial.of(extent)
    if any(atom is not unknown[0] and unknown[0] in walk(atom) for atom in value.atoms):
        return None
    split = value.split(unknown[0])
    if split is None:
        return None
    coefficient, rest = split
    return FromEquation(unknown[0].name, tensor, place, coefficient.to_expr(), rest.to_expr())


def _untold(name: str, system: ir.System, told: list[str]) -> Diagnostic:
    facts = []
    for tensor in system.inputs:
        for place, extent in enumerate(tensor.shape if isinstance(tensor, ir.Tensor) else ()):
            if any(isinstance(here, ir.Size) and here.name == name for here in walk(extent)):
                facts.append(
                    f"place {place} of {tensor.name} has extent {write_extent(extent)}, "
                    f"which alone does not tell {name}"
                )
    for index in find_all_indices(system):
        if any(isinstance(here, ir.Size) and here.name == name for here in walk(index.extent)):
            facts.append(f"index {index.name} has extent {write_extent(index.extent)}")
    return Diagnostic(
        "size-untold",
        f"no shape tells the size {name}",
        facts=tuple(facts),
        help=("" if facts else suggest(name, told))
        or f"make it an argument by a line before: size {name}",
    )


def find_extent_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """Indices with two extents, and extents that are no whole numbers."""
    first: dict[str, ir.Index] = {}
    for index in find_all_indices(system):
        if not is_whole(index.extent):
            yield _say_fraction(index.extent, f"index {index.name}")
        known = first.setdefault(index.name, index)
        if not is_same_extent(known.extent, index.extent):
            yield _two_extents(known, index, system)
    for tensor in system.inputs:
        for place, length in enumerate(tensor.shape if isinstance(tensor, ir.Tensor) else ()):
            if not is_whole(length):
                yield _say_fraction(length, f"place {place} of {tensor.name}")


def _say_fraction(extent: ir.Expr, what: str) -> Diagnostic:
    says = f"the extent {write_extent(extent)} of {what} is no whole number"
    return Diagnostic("extent-form", says, help="divide with //: floor(a/b) in SymPy")


def is_whole(extent: ir.Expr) -> bool:
    """Is the extent a whole number at a few sizes?"""
    value = Polynomial.of(extent)
    sizes = dict.fromkeys(here.name for here in walk(extent) if isinstance(here, ir.Size))
    for start in range(1, 7):
        chosen = {name: start + k for k, name in enumerate(sizes)}
        try:
            if value.evaluate(lambda atom, at=chosen: evaluate_atom(atom, at)).denominator != 1:  # type: ignore[misc]
                return False
        except (TypeError, KeyError, ZeroDivisionError, OverflowError):
            return True  # no arithmetic over sizes; judged where it is used
    return True


def _two_extents(one: ir.Index, other: ir.Index, system: ir.System) -> Diagnostic:
    equation = next((e for e in system.equations if find_marks(e, other)), system.equations[-1])
    return Diagnostic(
        "index-extents",
        f"index {one.name} has two extents, "
        f"{write_extent(one.extent)} and {write_extent(other.extent)}",
        find_marks(equation, other),
        (say_extent(one, system), say_extent(other, system)),
        "give one of them a name of its own",
    )


def say_extent(index: ir.Index, system: ir.System) -> str:
    """`c has extent 64, from place 2 of K`."""
    says = f"{index.name} has extent {write_extent(index.extent)}"
    origin = find_origin(index, system)
    if origin is None:
        return f"{says}, as declared"
    return f"{says}, from place {origin[1]} of {origin[0].name}"


def find_origin(index: ir.Index, system: ir.System) -> tuple[ir.Tensor, int] | None:
    """The first plain use that has the index's extent: its tensor and place, arguments first."""
    given = {entry for entry in system.inputs if isinstance(entry, ir.Tensor)}
    uses = [
        (access.tensor, number)
        for equation in system.equations
        for access in find_accesses(equation.value)
        for number, place in enumerate(access.places)
        if place is index and number < len(access.tensor.shape)
    ]
    fitting = [
        (tensor, number)
        for tensor, number in uses
        if is_same_extent(tensor.shape[number], index.extent)
    ]
    fitting.sort(key=lambda use: use[0] not in given)
    return fitting[0] if fitting else None
