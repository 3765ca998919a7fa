"""Rules on squares: a squared difference that is summed becomes products that meet in pairs.

    sum_d (x_id - y_jd)**2 = max(sum_d u_id**2 + sum_d v_jd**2 - 2 * sum_d u_id * v_jd, 0)

with u = x - c and v = y - c for the mean c_d of the y_jd. What rounding leaves is a few parts in
the number of digits of the largest u**2 and v**2: an offset that x and y have in common costs
nothing, and points much closer together than all of them are spread lose the digits of their
distance. A value that has no such mean for sure is not moved.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import TypeAlias

from derive.analysis.facts import is_finite_where_defined, is_never_negative, is_safe
from derive.ir import nodes as ir
from derive.ir.functions import holds_complex
from derive.ir.walk import find_free
from derive.rewrite.rule import rule
from derive.rewrite.rules import chains, sums
from derive.rewrite.rules.products import rename_bound

MOST_TERMS = 4  # in a square; so many have ten products
TWO = ir.Number(Fraction(2))

_Terms: TypeAlias = tuple[tuple[Fraction, ir.Expr], ...]


@rule(
    law="sum_d (x - y)**2 = sum_d x**2 + sum_d y**2 - 2 * sum_d x * y",
    before="x[M, D]; y[N, D]; z[i,j] = sum[d]((x[i,d] - y[j,d])**2)",
    after="x[M, D]; y[N, D]; "
    "z[i,j] = max(sum[d]((x[i,d] - mean[k](y[k,d]))**2) + sum[d]((y[j,d] - mean[k](y[k,d]))**2) "
    "- 2 * sum[d]((x[i,d] - mean[k](y[k,d])) * (y[j,d] - mean[k](y[k,d]))), 0)",
    refuses="x[M, D]; y[D]; z[i] = sum[d]((x[i,d] - y[d])**2)",
    loses="digits where x is near y: it rounds as the largest of all the distances does",
    keeps_sign=True,
)
def expand_square(expr: ir.Expr) -> ir.Expr | None:
    """A square that is wider than each of its terms is multiplied out under a sum or a mean.

    First all terms are moved so that the means of all but one are 0. Where the other factors are
    never negative, neither is the sum.
    """
    found = multiply_out(expr)
    if found is None or holds_complex(expr):
        return None
    outer, rest, terms = found
    whole = ir.Call("max", (terms, ir.ZERO)) if all(map(is_never_negative, rest)) else terms
    return ir.product_of([*outer, whole])


@rule(
    law="(a * b)**p = a**p * b**p where neither a nor b is negative",
    before="a[M, D]; b[N, D]; z[i,j] = 1 / sqrt(sum[d](a[i,d]**2) * sum[d](b[j,d]**2))",
    after="a[M, D]; b[N, D]; z[i,j] = sum[d](a[i,d]**2)**(-1/2) * sum[d](b[j,d]**2)**(-1/2)",
    refuses="a[M]; b[N, D]; z[i,j] = 1 / sqrt(a[i] * sum[d](b[j,d]**2))",
)
def split_power(expr: ir.Expr) -> ir.Expr | None:
    """A power of a product that is wider than each of its factors, as those of narrow ones."""
    if not isinstance(expr, ir.Pow):
        return None
    parts, wide = chains.part_product(expr.base), {*find_free(expr.base)}
    is_narrow = all({*find_free(part)} < wide and is_never_negative(part) for part in parts)
    return ir.Mul(tuple(ir.Pow(p, expr.exponent) for p in parts)) if is_narrow else None


def multiply_out(expr: ir.Expr) -> tuple[list[ir.Expr], list[ir.Expr], ir.Expr] | None:
    """(factors free of what is summed, the others beside the square, the sum multiplied out)."""
    match expr:
        case ir.Reduce("sum" | "mean", bound, condition, body):
            factors = sums.find_factors(body)
        case _:
            return None
    if not all(map(is_finite_where_defined, factors)):
        return None
    for k, factor in enumerate(factors):
        again = next((m for m, f in enumerate(factors) if m > k and f is factor), k)
        terms = _find_terms(factor if again == k else ir.Pow(factor, TWO))
        if terms is not None:
            others = tuple(f for m, f in enumerate(factors) if m not in {k, again})
            inside = {*bound, *find_free(condition)}
            outer = [f for f in others if condition is ir.TRUE and not inside & {*find_free(f)}]
            rest = [f for f in others if f not in outer]
            return outer, rest, _expand(expr, tuple(rest), _centre(terms, expr))
    return None


def _centre(terms: _Terms, square: ir.Reduce) -> _Terms:
    """The terms less their means over the indices that only they have; the first takes those up."""
    common = set.intersection(*({*find_free(term)} for _, term in terms))
    taken = {i.name for i in (*square.bound, *find_free(square))}
    moved, shifts = [terms[0]], list[ir.Expr]()
    for number, term in terms[1:]:
        own = tuple(i for i in find_free(term) if i not in common)
        if not own or not is_safe(term):
            moved.append((number, term))
            continue
        bound, _, body = rename_bound(ir.Reduce("mean", own, ir.TRUE, term), taken)
        centre = ir.Reduce("mean", bound, ir.TRUE, body)
        moved.append((number, ir.Add((term, ir.Mul((ir.MINUS_ONE, centre))))))
        scale = number / terms[0][0]
        shifts.append(centre if scale == 1 else ir.Mul((ir.Number(scale), centre)))
    if shifts:
        moved[0] = (terms[0][0], ir.Add((terms[0][1], *shifts)))
    return tuple(moved)


def _find_terms(factor: ir.Expr) -> _Terms | None:
    """The terms of a wide sum that is squared, each as (number, the rest)."""
    match factor:
        case ir.Pow(ir.Add(terms) as whole, ir.Number(power)) if (
            power == 2 and len(terms) <= MOST_TERMS
        ):
            wide = {*find_free(whole)}
        case _:
            return None
    if any(wide <= {*find_free(term)} for term in terms):
        return None
    return tuple(sums.split_number(term) for term in terms)


def _expand(
    square: ir.Reduce, rest: tuple[ir.Expr, ...], terms: tuple[tuple[Fraction, ir.Expr], ...]
) -> ir.Expr:
    """The squares of the terms, and twice the products of each two."""

    def take(number: Fraction, *factors: ir.Expr) -> ir.Expr:
        kept = [f for f in (*rest, *factors) if f is not ir.ONE] or [ir.ONE]
        whole = ir.Reduce(square.kind, square.bound, square.condition, ir.product_of(kept))
        return whole if number == 1 else ir.Mul((ir.Number(number), whole))

    squares = [take(number**2, ir.Pow(term, TWO)) for number, term in terms]
    products = [take(2 * a * b, one, other) for (a, one), (b, other) in combinations(terms, 2)]
    return ir.Add((*squares, *products))
