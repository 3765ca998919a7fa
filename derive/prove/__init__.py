"""A proof that two systems give equal results, for all sizes, by their normal forms.

    prove(code, formula) -> Proof | None

Inputs are matched by name, results one by one. First both are multiplied out as a whole; where that
does not do, intermediates that agree are cut: both are replaced by one symbol.

Laws:
- Unequal systems are never proved equal; that equal ones are is not promised.
- The budget is counted in steps, so that the answer hangs on no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from derive.analysis.affine import simplify_place, to_affine
from derive.ir.nodes import (
    Access,
    Along,
    Equation,
    Expr,
    Index,
    Number,
    Reduce,
    Size,
    System,
    Tensor,
)
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import map_children
from derive.prove.cuts import find_cuts
from derive.prove.differences import is_equal
from derive.prove.normal import GivesUp, Workshop
from derive.prove.values import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping

# Steps, and whether intermediates are cut: small systems go as a whole, large ones by parts.
ATTEMPTS = ((8_000, False), (60_000, True), (40_000, False))
FEW = 12  # equations; more are not multiplied out as a whole at length
STEPS_EACH = 2_000  # more for each equation of the code


@dataclass(frozen=True, slots=True)
class Proof:
    """What a proof rests on: all sizes or the given ones, and the intermediates that were cut."""

    every_size: bool
    cuts: tuple[tuple[str, str], ...] = ()


def prove(code: System, formula: System, sizes: Mapping[str, int] | None = None) -> Proof | None:
    """A proof that the results are equal; None where none was found.

    `sizes` are those of the formula that are numbers in the code.
    """
    told = {Size(name): Number(Fraction(number)) for name, number in (sizes or {}).items()}
    matched = _match_sizes(code, formula)
    if matched is None:
        return None
    fixed = {**matched, **told}
    formula = _fix_sizes(formula, fixed)
    if not _is_same_shape(code, formula):
        return None
    few = len(code.equations) <= FEW
    for steps, cutting in ATTEMPTS if few else ATTEMPTS[:2]:
        try:
            more = STEPS_EACH * len(code.equations) if cutting else 0
            found = _prove(code, formula, steps + more, cutting=cutting)
        except (GivesUp, RecursionError):
            continue
        if found is not None:
            return Proof(not fixed, found)
    return None


def _prove(
    code: System, formula: System, steps: int, *, cutting: bool
) -> tuple[tuple[str, str], ...] | None:
    """The cuts with which all results agree."""
    algebra = Workshop(steps)
    readers = Reader(algebra, code), Reader(algebra, formula)
    cuts = find_cuts(algebra, code, formula, readers) if cutting else ()
    for one, other in zip(code.results, formula.results, strict=True):
        letters = tuple(Index(f"@{k}", extent) for k, extent in enumerate(other.shape))
        places = tuple(map(to_affine, letters))
        ours, theirs = (
            algebra.finish(reader.define(tensor.name, places))
            for reader, tensor in zip(readers, (one, other), strict=True)
        )
        if ours.free.union(theirs.free).difference(letters):
            raise GivesUp("a letter that was left over")
        if not is_equal(algebra, ours, theirs, letters):
            return None
    return cuts


def _match_sizes(code: System, formula: System) -> dict[Size, Number] | None:
    """The formula's sizes that the code has as numbers; None where inputs do not fit."""
    theirs = {entry.name: entry for entry in formula.inputs if isinstance(entry, Tensor)}
    fixed: dict[Size, Number] = {}
    for entry in code.inputs:
        if not isinstance(entry, Tensor) or entry.name not in theirs:
            continue
        other = theirs[entry.name]
        if len(entry.shape) != len(other.shape) or entry.kind != other.kind:
            return None
        for ours, wanted in zip(entry.shape, other.shape, strict=True):
            number = simplify_place(ours)
            if not isinstance(wanted, Size) or not isinstance(number, Number):
                continue
            if fixed.setdefault(wanted, number) is not number:
                return None
    return fixed


def _is_same_shape(code: System, formula: System) -> bool:
    """Have inputs of one name, and the results in order, one shape?"""
    if len(code.results) != len(formula.results):
        return False
    theirs = {entry.name: entry for entry in formula.inputs if isinstance(entry, Tensor)}
    pairs = [
        (entry, theirs[entry.name])
        for entry in code.inputs
        if isinstance(entry, Tensor) and entry.name in theirs
    ]
    pairs += zip(code.results, formula.results, strict=True)
    return all(
        len(one.shape) == len(other.shape) and all(map(_is_equal_extent, one.shape, other.shape))
        for one, other in pairs
    )


def _is_equal_extent(one: Expr, other: Expr) -> bool:
    return is_same_extent(one, other) or simplify_place(one) is simplify_place(other)


def _fix_sizes(system: System, fixed: Mapping[Size, Number]) -> System:
    """The system with numbers in place of some sizes."""
    if not fixed:
        return system

    def visit(here: Expr) -> Expr:
        match here:
            case Size():
                return fixed.get(here, here)
            case Index(name, extent):
                return Index(name, visit(extent))
            case Access(tensor, places):
                return Access(put(tensor), tuple(map(visit, places)))
            case Reduce(kind, bound, condition, body):
                letters = tuple(Index(i.name, visit(i.extent)) for i in bound)
                return Reduce(kind, letters, visit(condition), visit(body))
            case Along(kind, index, condition, body):
                letter = Index(index.name, visit(index.extent))
                return Along(kind, letter, visit(condition), visit(body))
        return map_children(here, visit)

    def put(tensor: Tensor) -> Tensor:
        shape = tuple(simplify_place(visit(extent)) for extent in tensor.shape)
        below = visit(tensor.below) if tensor.below is not None else None
        domain = tensor.lower, tensor.upper, tensor.strict
        return Tensor(tensor.name, shape, tensor.kind, below, *domain)

    equations = []
    for equation in system.equations:
        target = visit(equation.target)
        assert isinstance(target, Access)
        equations.append(Equation(target, visit(equation.value)))
    inputs = tuple(put(entry) if isinstance(entry, Tensor) else entry for entry in system.inputs)
    results = tuple(map(put, system.results))
    return replace(system, inputs=inputs, equations=tuple(equations), results=results)
