"""A readable order for what SymPy has sorted by its own.

Where nobody wrote the order down (equations made with SymPy, not read from text), a product reads:
number, sizes and scalars, tensors, sums, indices, brackets, divisors; and a sum: tensors, indices,
sizes, numbers. Tensors stand by declaration, those that the formula defines before its arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import (
    MINUS_ONE,
    ONE,
    ZERO,
    Access,
    Add,
    Compare,
    Expr,
    Index,
    Mul,
    Number,
    Pow,
    Reduce,
    Scalar,
    Size,
    Where,
)
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Order: TypeAlias = Callable[[str], tuple[bool, int, str]]

_LARGEST_DIVISOR = 1000  # a fraction with a larger one is a decimal to its reader

_NUMBER, _SIZE, _TENSOR, _SUM, _INDEX, _BRACKET, _DIVISOR = range(7)


def to_readable_product(factors: tuple[Expr, ...], order: Order) -> tuple[Expr, ...]:
    """The factors in readable order; a fraction becomes a number before and a divisor behind."""
    parts: list[Expr] = []
    for factor in factors:
        parts += _split_fraction(factor) if isinstance(factor, Number) else [factor]
    bare = not any(find_accesses(part) for part in parts)
    return tuple(sorted(parts, key=lambda part: _rank_factor(part, bare, order)))


def to_readable_sum(terms: tuple[Expr, ...], order: Order) -> tuple[Expr, ...]:
    """The terms in readable order; the first one has no minus sign if any has none."""
    parts = sorted(terms, key=lambda part: _rank_term(part, order))
    first = next((part for part in parts if not is_negative(part)), None)
    if first is not None and is_negative(parts[0]):
        parts.remove(first)
        parts.insert(0, first)
    return tuple(parts)


def to_readable_conditions(parts: tuple[Expr, ...], order: Order) -> tuple[Expr, ...]:
    """The parts of an `and` in readable order; two that make a chain `0 <= t < T` stand as one."""
    ranked = tuple(sorted(parts, key=lambda part: (_first_tensor(part, order), to_text(part))))
    match ranked:
        case (Compare(_, left, _), Compare(_, _, right)) if left is right:
            return (ranked[1], ranked[0])
    return ranked


def is_negative(expr: Expr) -> bool:
    """Is the expression written with a minus sign?"""
    match expr:
        case Number(value):
            return value < 0
        case Mul((Number(value), *_)):
            return value < 0
    return False


def _split_fraction(number: Number) -> list[Expr]:
    value = number.value
    if value.denominator == 1:
        return [number]
    sign: list[Expr] = [MINUS_ONE] if value < 0 else []
    if value.denominator > _LARGEST_DIVISOR:
        return [*sign, Number(abs(value))]
    above = abs(value.numerator)
    over: list[Expr] = [Number(value.__class__(above))] if above != 1 else []
    return [*sign, *over, Pow(Number(value.__class__(value.denominator)), MINUS_ONE)]


def _rank_factor(part: Expr, bare: bool, order: Order) -> tuple[object, ...]:
    rank = _find_rank(part, bare)
    return (rank, not _is_atom(part), *_first_tensor(part, order), to_text(part))


def _find_rank(part: Expr, bare: bool) -> int:
    match part:
        case Number(value):
            return _NUMBER - (value < 0)
        case Pow(_, Number(value)) if value < 0:
            return _DIVISOR
        case Where(_, then, other) if then is ONE and other is ZERO:
            return _BRACKET
        case Reduce():
            return _SUM
        case _ if find_accesses(part):
            return _TENSOR
    inside = tuple(walk(part))
    if any(isinstance(here, Index) for here in inside):
        return _SIZE - 1 if bare and isinstance(part, Index) else _INDEX
    return _SIZE


def _rank_term(part: Expr, order: Order) -> tuple[object, ...]:
    inside = tuple(walk(part))
    kinds = (Access, Index, Size, Scalar)
    kind = next((k for k, cls in enumerate(kinds) if any(isinstance(e, cls) for e in inside)), 4)
    degree = sum(isinstance(e, (Index, Size)) for e in inside) if kind else 0
    return (
        kind,
        *_first_tensor(part, order),
        -degree,
        is_negative(part),
        not _is_atom(part),
        to_text(part),
    )


def _first_tensor(part: Expr, order: Order) -> tuple[bool, int, str]:
    accesses = find_accesses(part)
    return order(accesses[0].tensor.name) if accesses else (True, 1 << 30, "")


def _is_atom(part: Expr) -> bool:
    return not isinstance(part, (Add, Mul, Reduce))
