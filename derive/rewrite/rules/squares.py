"""Rules on squares: a squared difference that is summed becomes products that meet in pairs."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import TypeAlias

from derive.ir.nodes import ONE, Add, Expr, Mul, Number, Pow, Reduce
from derive.ir.walk import find_free
from derive.rewrite.finite import is_finite_where_defined
from derive.rewrite.rule import rule
from derive.rewrite.rules.products import make_product
from derive.rewrite.rules.sums import find_factors

MOST_TERMS = 4  # in a square; so many have ten products
TWO = Number(Fraction(2))

_Terms: TypeAlias = tuple[tuple[Fraction, Expr], ...]


@rule(
    law="sum_d (x - y)**2 = sum_d x**2 + sum_d y**2 - 2 * sum_d x * y",
    before="x[M, D]; y[N, D]; z[i,j] = sum[d]((x[i,d] - y[j,d])**2)",
    after="x[M, D]; y[N, D]; "
    "z[i,j] = sum[d](x[i,d]**2) + sum[d](y[j,d]**2) - 2 * sum[d](x[i,d] * y[j,d])",
    refuses="x[M, D]; y[D]; z[i] = sum[d]((x[i,d] - y[d])**2)",
    loses="digits where x is near y",
)
def expand_square(expr: Expr) -> Expr | None:
    """A square that is wider than each of its terms is multiplied out under a sum or a mean."""
    match expr:
        case Reduce("sum" | "mean", _, _, body):
            factors = find_factors(body)
        case _:
            return None
    if not all(map(is_finite_where_defined, factors)):
        return None
    for k, factor in enumerate(factors):
        terms = _find_terms(factor)
        if terms is not None:
            return _expand(expr, (*factors[:k], *factors[k + 1 :]), terms)
    return None


def _find_terms(factor: Expr) -> _Terms | None:
    """The terms of a wide sum that is squared, each as (number, the rest)."""
    match factor:
        case Pow(Add(terms) as whole, Number(power)) if power == 2 and len(terms) <= MOST_TERMS:
            wide = {*find_free(whole)}
        case _:
            return None
    if any(wide <= {*find_free(term)} for term in terms):
        return None
    return tuple(split_number(term) for term in terms)


def split_number(term: Expr) -> tuple[Fraction, Expr]:
    """(the product of the rational factors, the product of the others)."""
    number = Fraction(1)
    others: list[Expr] = []
    for factor in find_factors(term):
        if isinstance(factor, Number):
            number *= factor.value
        else:
            others.append(factor)
    return number, make_product(others)


def _expand(
    square: Reduce, rest: tuple[Expr, ...], terms: tuple[tuple[Fraction, Expr], ...]
) -> Expr:
    """The squares of the terms, and twice the products of each two."""

    def take(number: Fraction, *factors: Expr) -> Expr:
        kept = [f for f in (*rest, *factors) if f is not ONE] or [ONE]
        whole = Reduce(square.kind, square.bound, square.condition, make_product(kept))
        return whole if number == 1 else Mul((Number(number), whole))

    squares = [take(number**2, Pow(term, TWO)) for number, term in terms]
    products = [take(2 * a * b, one, other) for (a, one), (b, other) in combinations(terms, 2)]
    return Add((*squares, *products))
