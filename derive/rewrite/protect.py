"""Guards carried inward: what is read only where a condition holds is harmless elsewhere.

where(c, 1/x, 0)  computes  1/where(c, x, 1)  before it chooses, so that neither the value nor the
gradient of the branch that is not taken can be nan.
"""

from __future__ import annotations

from derive.ir.nodes import (
    ONE,
    TRUE,
    Along,
    And,
    Call,
    Compare,
    Expr,
    Not,
    Number,
    Or,
    Pow,
    Reduce,
    Scalar,
    Where,
)
from derive.ir.walk import find_accesses, find_free, map_children, walk

PARTIAL = {"log", "exp"}  # exp overflows, and 0 * inf is nan in its gradient


def protect(expr: Expr, condition: Expr, *, whole: bool = False) -> Expr:
    """Arguments of partial functions inside, with `whole` the expression itself, made harmless."""
    if condition is TRUE or not _is_told_of(expr, condition) or _is_guarded(expr, condition):
        return expr
    if isinstance(expr, (Compare, And, Or, Not)):
        return expr  # truth values have no gradient, and stay the keys by which guards are found
    if isinstance(expr, Reduce) and set(expr.bound) & set(find_free(condition)):
        return expr
    if isinstance(expr, Along) and expr.index in find_free(condition):
        return expr  # the row is read whole, also where the condition is false
    inside = map_children(expr, lambda child: protect(child, condition))
    match inside:
        case Pow(base, exponent) if not is_natural(exponent):
            return Pow(_guard(base, condition), exponent)
        case Call(function, (argument,)) if function in PARTIAL:
            return Call(function, (_guard(argument, condition),))
        case _:
            return _guard(inside, condition) if whole else inside


def _is_told_of(expr: Expr, condition: Expr) -> bool:
    """Does it read tensors, or scalars that the condition is about, or whose indices are?

    Other scalars are as harmless where the condition is false as where it holds.
    """
    if find_accesses(expr):
        return True
    scalars = {part for part in walk(expr) if isinstance(part, Scalar)}
    told = scalars & set(walk(condition))
    return bool(told or (scalars and set(find_free(expr)) & set(find_free(condition))))


def is_natural(exponent: Expr) -> bool:
    """Is it a whole number from 0 on?"""
    match exponent:
        case Number(value):
            return value >= 0 and value.denominator == 1
        case _:
            return False


def _guard(expr: Expr, condition: Expr) -> Expr:
    return expr if _is_guarded(expr, condition) else Where(condition, expr, ONE)


def _is_guarded(expr: Expr, condition: Expr) -> bool:
    """Does it stand in a guard of this condition already, at whatever layer?"""
    while isinstance(expr, Where) and expr.other is ONE:
        if expr.condition is condition:
            return True
        expr = expr.then
    return False
