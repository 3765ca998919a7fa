"""Guards carried inward: what is read only where a condition holds is harmless elsewhere.

where(c, 1/x, 0)  computes  1/where(c, x, 1)  before it chooses, so that neither the value nor the
gradient of the branch that is not taken can be nan.
"""

from __future__ import annotations

from derive.ir.nodes import (
    MINUS_ONE,
    ONE,
    TRUE,
    Access,
    Along,
    And,
    Call,
    Compare,
    Expr,
    Mul,
    Not,
    Number,
    Or,
    Pow,
    Reduce,
    Scalar,
    Where,
)
from derive.ir.walk import find_accesses, find_free, map_children, rewrite_bottom_up, walk
from derive.rewrite.tame import is_finite

PARTIAL = {"log", "exp"}  # exp overflows, and 0 * inf is nan in its gradient
LINEAR = {"sum", "mean", "cumsum"}  # their gradient does not ask for the value


def protect(expr: Expr, condition: Expr, *, whole: bool = False, zeros: bool = False) -> Expr:
    """The expression with whatever could harm where the condition is false made harmless there.

    The arguments of partial functions become 1, and so does the expression itself, with `whole`: it
    is a divisor then.
    What may still be infinite, or nan as the softmax of nothing is, becomes 1 wherever a gradient
    is multiplied by it. `zeros`: the softmax of nothing is 0.
    """
    asked = Pow(expr, MINUS_ONE) if whole else expr  # a divisor may be 0
    if condition is TRUE or not _is_told_of(asked, condition) or is_guarded(expr, condition):
        return expr
    if isinstance(expr, (Compare, And, Or, Not)):
        return expr  # truth values have no gradient, and stay the keys by which guards are found

    inner = _narrow(condition, expr)
    inside = map_children(expr, lambda child: protect(child, inner, zeros=zeros))
    match inside:
        case Pow(base, exponent) if not is_natural(exponent):
            exponent = guard_unless_finite(exponent, condition, zeros=zeros)
            inside = Pow(_guard(base, condition), exponent)
        case Call(function, (argument,)) if function in PARTIAL:
            inside = Call(function, (_guard(argument, condition),))
        case Mul(factors) if sum(map(is_variable, factors)) < 2:
            pass
        case Mul() | Pow() | Call():
            inside = map_children(
                inside, lambda child: guard_unless_finite(child, condition, zeros=zeros)
            )
        case Reduce("sample_var", bound, rows, body) if inner is not TRUE:
            inside = Reduce("sample_var", bound, rows, _guard(body, inner))  # of one entry, 0 / 0
        case Reduce(kind, bound, rows, body) if kind not in LINEAR:
            inside = Reduce(kind, bound, rows, guard_unless_finite(body, inner, zeros=zeros))
        case Along(kind, index, rows, body) if kind not in LINEAR:
            inside = Along(kind, index, rows, guard_unless_finite(body, inner, zeros=zeros))
    return _guard(inside, condition) if whole else inside


def guard_unless_finite(expr: Expr, condition: Expr, *, zeros: bool = False) -> Expr:
    """A protected expression; it is 1 where the condition is false, if it may be infinite there."""
    if condition is TRUE or is_harmless(expr, condition, zeros=zeros):
        return expr
    return _guard(expr, condition)


def _narrow(condition: Expr, expr: Expr) -> Expr:
    """What of the condition holds inside: a row is read whole, also where its letter is guarded."""
    match expr:
        case Reduce(_, bound):
            letters = set(bound)
        case Along(_, index):
            letters = {index}
        case _:
            return condition
    parts = condition.parts if isinstance(condition, And) else (condition,)
    kept = tuple(part for part in parts if not letters & set(find_free(part)))
    return And(kept) if len(kept) > 1 else kept[0] if kept else TRUE


def is_harmless(expr: Expr, condition: Expr, *, zeros: bool = False) -> bool:
    """Is a protected expression finite where the condition is false?"""

    def open_guard(here: Expr) -> Expr:
        return ONE if isinstance(here, Where) and is_guarded(here, condition) else here

    bare = expr if condition is TRUE else rewrite_bottom_up(expr, open_guard)
    return is_finite(bare, zeros=zeros)


def is_variable(expr: Expr) -> bool:
    """Does it read what may have a gradient?"""
    return any(isinstance(part, (Access, Scalar)) for part in walk(expr))


def _is_told_of(expr: Expr, condition: Expr) -> bool:
    """Does it read tensors, scalars that the condition is about, or whose indices are?

    Other scalars are as harmless where the condition is false as where it holds, and so are numbers
    of positions and sizes that are finite anyhow.
    """
    if find_accesses(expr):
        return True
    scalars = {part for part in walk(expr) if isinstance(part, Scalar)}
    told = scalars & set(walk(condition))
    if told or (scalars and set(find_free(expr)) & set(find_free(condition))):
        return True
    return not scalars and not is_finite(expr)


def is_natural(exponent: Expr) -> bool:
    """Is it a whole number from 0 on?"""
    match exponent:
        case Number(value):
            return value >= 0 and value.denominator == 1
        case _:
            return False


def _guard(expr: Expr, condition: Expr) -> Expr:
    return expr if is_guarded(expr, condition) else Where(condition, expr, ONE)


def is_guarded(expr: Expr, condition: Expr) -> bool:
    """Does it stand in a guard of this condition already, at whatever layer?"""
    while isinstance(expr, Where) and expr.other is ONE:
        if expr.condition is condition:
            return True
        expr = expr.then
    return False
