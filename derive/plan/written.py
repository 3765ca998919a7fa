"""What a formula costs as it is written: loops over single numbers, equation by equation.

Operations as they are counted of plans (`plan.costs`). A row of a softmax is computed once, reading
costs nothing, and a condition does not make a loop shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.ir.nodes import (
    MINUS_ONE,
    Add,
    Along,
    Call,
    Expr,
    Mul,
    Number,
    Pow,
    Reduce,
    Where,
)
from derive.ir.polynomial import Polynomial, add_all
from derive.ir.walk import find_free
from derive.plan.costs import SOFTMAX_FLOPS, count_elements
from derive.plan.numbers import is_number
from derive.rewrite.rules.products import is_bracket

if TYPE_CHECKING:
    from derive.ir.nodes import Equation, System

NONE = Polynomial({})
EACH = {"logsumexp": 4, "var": 3, "sample_var": 3}  # operations an element; of other kinds one


@dataclass(frozen=True, slots=True)
class Written:
    """The loops of one equation: their operations, and the elements that they fill."""

    equation: str
    operations: Polynomial
    elements: Polynomial


def count_written(system: System) -> tuple[Written, ...]:
    """The loops of each equation."""
    return tuple(map(_count_equation, system.equations))


def _count_equation(equation: Equation) -> Written:
    letters = dict.fromkeys(i for place in equation.target.places for i in find_free(place))
    elements = count_elements(letters)
    return Written(equation.target.tensor.name, elements * _count(equation.value), elements)


def _count(expr: Expr) -> Polynomial:
    """Operations for one value of the free indices."""
    match expr:
        case _ if is_number(expr):
            return NONE
        case Add(parts):
            return _of(len(parts) - 1) + add_all(map(_count, parts))
        case Mul(factors):
            return _count_product(factors)
        case Pow(base, exponent):
            return _of(1) + _count(base) + _count(exponent)
        case Call(_, arguments):
            return _of(1 if arguments else 0) + add_all(map(_count, arguments))
        case Where(_, then, other):
            return _of(0 if is_bracket(expr) else 1) + _count(then) + _count(other)
        case Reduce(kind, bound, _, body):
            return count_elements(bound) * (_count(body) + _of(EACH.get(kind, 1)))
        case Along(kind, _, _, body):
            return _count(body) + _of(1 if kind == "cumsum" else SOFTMAX_FLOPS)
        case _:
            return NONE


def _count_product(factors: tuple[Expr, ...]) -> Polynomial:
    """A sign costs nothing, and dividing no more than multiplying."""
    kept = [factor for factor in factors if factor is not MINUS_ONE]
    parts = [
        factor.base if isinstance(factor, Pow) and _is_inverse(factor) and len(kept) > 1 else factor
        for factor in kept
    ]
    return _of(max(0, len(kept) - 1)) + add_all(map(_count, parts))


def _is_inverse(factor: Pow) -> bool:
    return isinstance(factor.exponent, Number) and factor.exponent.value == -1


def _of(number: int) -> Polynomial:
    return Polynomial.of(number)
