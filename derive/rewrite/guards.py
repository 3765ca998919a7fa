"""Guards carried through definitions: a tensor that is read only where a condition holds.

    r[i,j] = sqrt(s[i,j]); z = sum[i, j, i < j](1 / r[i,j])

reads r above the diagonal alone, so the definition of r is protected by i < j: on the diagonal the
gradient of the root is infinite, and 0 * inf is nan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from derive.analysis.reads import find_brackets
from derive.ir.nodes import (
    TRUE,
    Access,
    Along,
    And,
    Compare,
    Equation,
    Expr,
    Index,
    Infinity,
    Mul,
    Not,
    Or,
    Reduce,
    System,
    Tensor,
    Where,
)
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import find_accesses, find_children, find_free, substitute
from derive.rewrite.protect import is_harmless, protect
from derive.rewrite.tame import find_wild, mark_wild

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Guards = tuple[Expr, ...]


def carry_guards(system: System) -> System:
    """The system with each definition protected by the condition under which it is needed."""
    wild, conditions = find_wild(system), _find_conditions(system)
    tame = {likeness: tensor for tensor, likeness in wild.items()}
    equations = []
    for equation in system.equations:
        value, condition = mark_wild(equation.value, wild), conditions[equation.target.tensor]
        value = protect(value, condition, zeros=system.empty_row == "zeros")
        equations.append(Equation(equation.target, mark_wild(value, tame)))
    return replace(system, equations=tuple(equations))


def mark_harmful(system: System) -> System:
    """The tensors marked as infinite that may be so, or nan, where no one needs their value."""
    conditions = _find_conditions(system)
    harmful: dict[Tensor, Tensor] = {}
    equations: list[Equation] = []
    for equation in system.equations:
        value, tensor = mark_wild(equation.value, harmful), equation.target.tensor
        if not is_harmless(value, conditions[tensor], zeros=system.empty_row == "zeros"):
            harmful[tensor] = replace(tensor, upper=Infinity(False))
        equations.append(Equation(equation.target, value))
    return replace(system, equations=tuple(equations))


def _find_conditions(system: System) -> dict[Tensor, Expr]:
    """Where each tensor that is defined is needed, over the letters of its definition.

    A result is needed everywhere; another one where a later equation reads it and is itself needed.
    """
    found: dict[Tensor, Expr] = dict.fromkeys(system.results, TRUE)
    later: list[Equation] = []
    for equation in reversed(system.equations):
        target = equation.target
        undefined = {target.tensor, *(each.target.tensor for each in later)}
        conditions: dict[Expr, None] = {}
        for reader in later:
            needed = found[reader.target.tensor]
            for access, guards in find_reads(reader.value, () if needed is TRUE else (needed,)):
                if access.tensor is target.tensor:
                    conditions[_rename(guards, access, target, undefined)] = None
        if target.tensor not in found:
            is_always = not conditions or TRUE in conditions
            several = Or(tuple(conditions)) if len(conditions) > 1 else next(iter(conditions), TRUE)
            found[target.tensor] = TRUE if is_always else several
        later.insert(0, equation)
    return found


def _rename(guards: Guards, access: Access, target: Access, undefined: Collection[Tensor]) -> Expr:
    """The guards of one access as far as they can be told where the tensor is defined."""
    new: dict[Expr, Expr] = {}
    for here, there in zip(access.places, target.places, strict=True):
        if not isinstance(here, Index) or not isinstance(there, Index) or here in new:
            return TRUE
        if not is_same_extent(here.extent, there.extent):
            return TRUE
        new[here] = there
    kept = [
        substitute(part, new)
        for guard in guards
        for part in (guard.parts if isinstance(guard, And) else (guard,))
        if set(find_free(part)) <= set(new)
        and not any(read.tensor in undefined for read in find_accesses(part))
    ]
    if len(kept) < 2:
        return kept[0] if kept else TRUE
    return And(tuple(dict.fromkeys(kept)))


def find_reads(expr: Expr, guards: Guards) -> Iterator[tuple[Access, Guards]]:
    """Every access with the conditions around it."""
    match expr:
        case Access(_, places):
            yield expr, guards
            for place in places:
                yield from find_reads(place, guards)
        case Where(condition, then, other):
            yield from find_reads(condition, guards)
            yield from find_reads(then, (*guards, condition))
            yield from find_reads(other, (*guards, _negate(condition)))
        case Reduce(_, bound, condition, body):
            yield from _find_inside(bound, condition, body, guards)
        case Along(_, index, condition, body):
            yield from _find_inside((index,), condition, body, guards)
        case Mul(factors):
            yield from _find_in_product(factors, guards)
        case _:
            for child in find_children(expr):
                yield from find_reads(child, guards)


def _negate(condition: Expr) -> Expr:
    match condition:
        case Compare("==", left, right):
            return Compare("!=", left, right)
        case Compare("!=", left, right):
            return Compare("==", left, right)
        case _:
            return Not(condition)


def _find_inside(
    bound: tuple[Index, ...], condition: Expr, body: Expr, guards: Guards
) -> Iterator[tuple[Access, Guards]]:
    """A row is read whole: what is known of its letter outside does not hold inside."""
    around = tuple(guard for guard in guards if not set(find_free(guard)) & set(bound))
    yield from find_reads(condition, around)
    yield from find_reads(body, around if condition is TRUE else (*around, condition))


def _find_in_product(factors: tuple[Expr, ...], guards: Guards) -> Iterator[tuple[Access, Guards]]:
    brackets = [bracket for factor in factors for bracket in find_brackets(factor)]
    for factor in factors:
        own = find_brackets(factor)
        around = (bracket.condition for bracket in brackets if bracket not in own)
        yield from find_reads(factor, (*guards, *around))
