"""Sums of terms: signs become differences, numbers stay numbers, operands are aligned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import ONE, Add, Expr, Index, Mul, Number, Reduce
from derive.plan.align import align, find_union
from derive.plan.lower.number import lower_number
from derive.plan.numbers import is_number
from derive.plan.ops import Apply, Op, axes_of
from derive.rewrite.rules.products import make_product

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.plan.context import Context


def lower_sum(terms: Sequence[Expr], context: Context, order: tuple[Index, ...]) -> Op:
    """The terms added up from left to right; a term that is not negative goes first."""
    numbers = [t for t in terms if is_number(t)]
    signed = [split_sign(t) for t in terms if not is_number(t)]
    signed.sort(key=lambda pair: pair[0])
    ops = align([context.lower(term, order) for _, term in signed], order)
    result: Op | None = None
    for (negative, _), op in zip(signed, ops, strict=True):
        if result is None:
            result = Apply("neg", (op,), axes_of(op)) if negative else op
        else:
            pair = (result, op)
            result = Apply("-" if negative else "+", pair, find_union(pair, order))
    if result is None:
        return lower_number(Add(tuple(numbers)))
    for number in numbers:
        negative, size = split_sign(number)
        result = Apply("-" if negative else "+", (result, lower_number(size)), axes_of(result))
    return result


def split_sign(term: Expr) -> tuple[bool, Expr]:
    """(is it negative, the term without its sign)."""
    match term:
        case Number(value) if value < 0:
            return True, Number(-value)
        case Mul(factors) if any(_is_negative(f) for f in factors):
            k = next(k for k, f in enumerate(factors) if _is_negative(f))
            _, size = split_sign(factors[k])
            left = [size] if size is not ONE or len(factors) == 1 else []
            return True, make_product([*factors[:k], *left, *factors[k + 1 :]])
        case Reduce("sum", bound, condition, Mul() as body):
            negative, inside = split_sign(body)
            return negative, Reduce("sum", bound, condition, inside) if negative else term
        case _:
            return False, term


def _is_negative(factor: Expr) -> bool:
    return isinstance(factor, Number) and factor.value < 0
