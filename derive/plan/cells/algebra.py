"""Operations as algebra: the terms of a sum, the factors of a product, and whether two are equal.

Equality is told by the normal form, so that a cell is known whichever way its parts are spelled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, reduce
from typing import TYPE_CHECKING

from derive.ir.nodes import ONE
from derive.ir.polynomial import Polynomial
from derive.plan.align import align, find_union
from derive.plan.meaning import to_expr
from derive.plan.ops import Apply, Arrange, Num, Op, axes_of
from derive.prove.normal import GivesUp, to_normal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from derive.ir.nodes import Expr, Index
    from derive.plan.cells.opening import Opener

STEPS = 4000  # of the normal form: what takes more is not told to be equal


def is_same(one: Op, other: Op) -> bool:
    """Are both equal for all sizes, as far as the normal form tells?"""
    if one is other:
        return True
    key = _to_key(to_expr(one))
    return key is not None and key == _to_key(to_expr(other))


@cache
def _to_key(expr: Expr) -> str | None:
    try:
        return to_normal(expr, steps=STEPS).key
    except (GivesUp, RecursionError):
        return None


def strip(op: Op) -> Op:
    """The operation without the order of its axes."""
    return strip(op.arg) if isinstance(op, Arrange) else op


@dataclass(frozen=True, slots=True)
class Signed:
    """A term of a sum."""

    op: Op
    negative: bool = False


def split_sum(op: Op, see: Callable[[Op], Op]) -> tuple[Signed, ...]:
    """The terms; `see` looks through the names that may be opened."""
    match see(op):
        case Apply("+", (one, other)):
            return (*split_sum(one, see), *split_sum(other, see))
        case Apply("-", (one, other)):
            return (*split_sum(one, see), *_turn(split_sum(other, see)))
        case Apply("neg", (arg,)):
            return _turn(split_sum(arg, see))
        case _:
            return (Signed(strip(op)),)


def _turn(terms: Sequence[Signed]) -> tuple[Signed, ...]:
    return tuple(Signed(term.op, not term.negative) for term in terms)


def join_sum(terms: Sequence[Signed], order: tuple[Index, ...]) -> Op:
    """The terms added up, one that is not negative first."""
    first, *others = sorted(terms, key=lambda term: term.negative)
    total = Apply("neg", (first.op,), axes_of(first.op)) if first.negative else first.op
    for term in others:
        total = _combine("-" if term.negative else "+", total, term.op, order)
    return total


@dataclass(slots=True)
class Factors:
    """A product: what is multiplied, what divides, the sign."""

    over: list[Op] = field(default_factory=list)
    under: list[Op] = field(default_factory=list)
    negative: bool = False


def split_product(op: Op, see: Callable[[Op], Op]) -> Factors:
    """The factors; `see` looks through the names that may be opened."""
    found = Factors()
    _sort_factor(op, found, see, is_under=False)
    return found


def _sort_factor(op: Op, found: Factors, see: Callable[[Op], Op], *, is_under: bool) -> None:
    match see(op):
        case Apply("*", (one, other)):
            _sort_factor(one, found, see, is_under=is_under)
            _sort_factor(other, found, see, is_under=is_under)
        case Apply("/", (one, other)):
            _sort_factor(one, found, see, is_under=is_under)
            _sort_factor(other, found, see, is_under=not is_under)
        case Apply("neg", (arg,)):
            found.negative = not found.negative
            _sort_factor(arg, found, see, is_under=is_under)
        case Apply("rsqrt", (arg,)):
            root = Apply("sqrt", (arg,), axes_of(arg))
            (found.over if is_under else found.under).append(root)
        case Num(value) if value is ONE:
            pass
        case Apply("sqrt") as root:
            (found.under if is_under else found.over).append(root)
        case _:
            (found.under if is_under else found.over).append(strip(op))


def join_product(factors: Sequence[Op], order: tuple[Index, ...]) -> Op | None:
    """The factors multiplied, numbers last; None where there are none."""
    ordered = sorted(factors, key=lambda op: isinstance(op, Num))
    return reduce(lambda one, other: _combine("*", one, other, order), ordered) if ordered else None


def divide(op: Op, under: Sequence[Op], order: tuple[Index, ...]) -> Op:
    """The operation over each of the divisors."""
    return reduce(lambda one, other: _combine("/", one, other, order), under, op)


def multiply(one: Op, other: Op, order: tuple[Index, ...]) -> Op:
    """The product of two, aligned."""
    return _combine("*", one, other, order)


def _combine(function: str, one: Op, other: Op, order: tuple[Index, ...]) -> Op:
    pair = align((one, other), order)
    return Apply(function, pair, find_union(pair, order))


def split_scale(term: Signed, opener: Opener | None = None) -> tuple[Op, Fraction]:
    """(the term without its sign and its constant factors, those): c * 2 as c and 2.

    A number over sizes or scalars is no constant: torch takes no tensor for one, and a traced
    graph would fix it. With an opener, names are looked through.
    """
    number = Fraction(-1 if term.negative else 1)
    op = term.op
    while True:
        op = strip(opener.peel(op) if opener else op)
        match op:
            case Apply("*" | "/" as function, (arg, Num(value))):
                constant = Polynomial.of(value).constant
                if not constant:
                    return op, number
                number = number * constant if function == "*" else number / constant
                op = arg
            case _:
                return op, number
