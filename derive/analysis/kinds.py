"""Numbers where numbers are asked for, conditions where conditions are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.analysis.marks import find_marks, write_extent
from derive.errors import Diagnostic
from derive.ir.nodes import (
    Access,
    Along,
    And,
    Compare,
    Equation,
    Expr,
    Not,
    Or,
    Reduce,
    System,
    Truth,
    Where,
)
from derive.ir.text import to_text
from derive.ir.walk import find_children

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_condition(expr: Expr) -> bool:
    """Is the expression true or false, and no number?"""
    match expr:
        case Access(tensor, _):
            return tensor.kind == "bool"
        case Truth() | Compare() | And() | Or() | Not():
            return True
    return False


def find_kind_mistakes(system: System) -> Iterator[Diagnostic]:
    """Truth values used as numbers, and numbers used as conditions."""
    for equation in system.equations:
        wants_condition = equation.target.tensor.kind == "bool"
        yield from _find_mistakes(equation.value, equation, wants_condition=wants_condition)
        for place in equation.target.places:
            yield from _find_mistakes(place, equation, wants_condition=False)


def _find_mistakes(
    expr: Expr, equation: Equation, *, wants_condition: bool
) -> Iterator[Diagnostic]:
    if wants_condition and not is_condition(expr):
        yield _no_condition(expr, equation)
    elif is_condition(expr) and not wants_condition:
        yield _no_number(expr, equation)
    conditions = _find_conditions(expr)
    for child in find_children(expr):
        wanted = any(child is condition for condition in conditions)
        yield from _find_mistakes(child, equation, wants_condition=wanted)


def _find_conditions(expr: Expr) -> tuple[Expr, ...]:
    """The children that must be conditions."""
    match expr:
        case Where(condition, _, _) | Reduce(_, _, condition, _) | Along(_, _, condition, _):
            return (condition,)
        case And(parts) | Or(parts):
            return parts
        case Not(part):
            return (part,)
    return ()


def _no_condition(expr: Expr, equation: Equation) -> Diagnostic:
    facts: tuple[str, ...] = ()
    written = to_text(expr)
    if isinstance(expr, Access):
        facts = (f"{expr.tensor.name} is {_describe(expr.tensor.kind)}",)
    return Diagnostic(
        "mask-not-boolean",
        "a number stands where a condition is needed",
        find_marks(equation, expr),
        facts,
        f"compare it, {written} > 0, or declare a tensor of truth values: "
        + (_declare(expr) if isinstance(expr, Access) else "bool m[B, S]"),
    )


def _declare(access: Access) -> str:
    return f"bool {access.tensor.name}[{', '.join(map(write_extent, access.tensor.shape))}]"


def _describe(kind: str) -> str:
    return {"int": "a tensor of integers", "bool": "a tensor of truth values"}.get(
        kind, "a tensor of real numbers"
    )


def _no_number(expr: Expr, equation: Equation) -> Diagnostic:
    facts: tuple[str, ...] = ()
    if isinstance(expr, Access):
        facts = (f"{expr.tensor.name} is {_describe(expr.tensor.kind)}",)
    return Diagnostic(
        "condition-as-number",
        "a truth value stands where a number is needed",
        find_marks(equation, expr),
        facts,
        f"write [{to_text(expr)}] for 1 or 0",
    )
