"""What the limits of a SymPy sum say in the index language, where a sum runs over whole indices.

Laws:
- Limits that are those of the index say nothing; others become the condition of the sum.
- A sum of `where(c, f, 0)` is the sum of f over the entries where c holds; so is a product, with 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.analysis.ranges import is_nonnegative
from derive.errors import refuse
from derive.ir.nodes import (
    MINUS_ONE,
    ONE,
    TRUE,
    ZERO,
    Add,
    And,
    Compare,
    Expr,
    Index,
    Number,
    Reduce,
    Where,
)
from derive.ir.polynomial import Polynomial
from derive.ir.text import to_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    Limits: TypeAlias = tuple[Index, Expr, Expr]


def to_reduce(kind: str, limits: Iterable[Limits], body: Expr, *, is_literal: bool) -> Reduce:
    """The sum or product over (index, low, high); literal limits must keep to the index's range."""
    bound, conditions = [], []
    for index, low, high in limits:
        if is_literal:
            _check_limits(index, low, high)
        bound.append(index)
        conditions += _find_conditions(index, low, high)
    other = ZERO if kind == "sum" else ONE
    match body:
        case Where(condition, then, last) if last is other and then is not ONE:
            return Reduce(kind, tuple(bound), _all((*conditions, condition)), then)
    return Reduce(kind, tuple(bound), _all(tuple(conditions)), body)


def _all(conditions: tuple[Expr, ...]) -> Expr:
    match conditions:
        case ():
            return TRUE
        case (condition,):
            return condition
    return And(conditions)


def _find_conditions(index: Index, low: Expr, high: Expr) -> list[Expr]:
    """What the limits ask of the index beyond its extent, `low <= j <= high` if both do."""
    gap = Polynomial.of(index.extent) - Polynomial.of(high)
    found: list[Expr] = []
    if low is not ZERO:
        found.append(Compare("<=", low, index))
    if gap.constant != 1:
        found.append(_below(index, high))
    return [And(tuple(found))] if len(found) > 1 else found


def _below(index: Index, high: Expr) -> Expr:
    """`j <= high`, as `j < e` where high is e - 1."""
    match high:
        case Add((*terms, last)) if last is MINUS_ONE:
            return Compare("<", index, terms[0] if len(terms) == 1 else Add(tuple(terms)))
    return Compare("<=", index, high)


def _check_limits(index: Index, low: Expr, high: Expr) -> None:
    """Refuse limits that leave the range of the index, since SymPy means them literally."""
    last = Polynomial.of(index.extent) - Polynomial.of(1)
    starts = low is ZERO or is_nonnegative(Polynomial.of(low))
    if starts and is_nonnegative(last - Polynomial.of(high)):
        return
    raise refuse(
        "limits-outside",
        f"the limits of {index.name}, {to_text(low)} to {to_text(high)}, may leave its range",
        facts=[f"{index.name} runs from 0 to {to_text(last.to_expr())}"],
        help="places count from 0; limits that depend on an index go into a condition, "
        f"Sum(Piecewise((x, {index.name} <= ...), (0, True)), {index.name})"
        if not isinstance(high, Number)
        else "places count from 0",
    )
