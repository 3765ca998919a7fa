"""Rules on sums: what does not depend on the reduced index goes outside.

sum_j a_i * f_j = a_i * sum_j f_j
"""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING

from derive.analysis.finite import is_finite_where_defined, is_positive, is_safe
from derive.analysis.reads import find_brackets
from derive.ir import nodes as ir
from derive.ir.walk import find_accesses, find_free
from derive.rewrite.rule import rule
from derive.rewrite.rules.products import (
    is_bracket,
    make_product,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINEAR = ("sum", "mean")
_SHIFTED = ("max", "min", "mean", "logsumexp")


def find_factors(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The factors of a product, those of products inside it too."""
    if isinstance(expr, ir.Mul):
        return tuple(inner for factor in expr.factors for inner in find_factors(factor))
    return (expr,)


def make_sum(terms: Sequence[ir.Expr]) -> ir.Expr:
    """The sum, without a wrapper around a single term."""
    return terms[0] if len(terms) == 1 else ir.Add(tuple(terms))


def is_number(expr: ir.Expr) -> bool:
    """Is it the same number wherever it stands?"""
    return not find_free(expr) and not find_accesses(expr)


def is_contraction(term: ir.Expr, bound: tuple[ir.Index, ...]) -> bool:
    """Is it a product of several factors that depend on the bound indices?"""
    return sum(bool(set(find_free(f)) & set(bound)) for f in find_factors(term)) > 1


@rule(
    law="sum_j a_i * f_j = a_i * sum_j f_j",
    before="A[M, N]; y[M]; z[i] = sum[j](y[i] * A[i,j] / 2)",
    after="A[M, N]; y[M]; z[i] = y[i] / 2 * sum[j](A[i,j])",
    refuses="A[M, N]; y[M]; z[i] = sum[j, j < i](A[i,j] * y[i - 1])",
)
def hoist_factor(expr: ir.Expr) -> ir.Expr | None:
    """Factors that do not depend on the bound indices go out of a sum or a mean.

    Where a condition leaves entries out, only what could be read there, and is finite, goes out.
    """
    match expr:
        case ir.Reduce(kind, bound, condition, ir.Mul() as body) if kind in _LINEAR:
            factors = find_factors(body)
        case _:
            return None
    outside = [f for f in factors if not set(find_free(f)) & set(bound)]
    inside = [f for f in factors if f not in outside]
    if condition is not ir.TRUE or any(map(find_brackets, inside)):
        outside = [f for f in outside if is_safe(f)]
        if kind == "mean":  # a bracket outside would hide that there is none of nothing
            outside = [f for f in outside if not find_brackets(f)]
        inside = [f for f in factors if f not in outside]
    if not outside or not inside or not all(map(is_finite_where_defined, factors)):
        return None
    if kind == "sum" and all(map(is_number, outside)):
        return None  # a plan puts numbers where they cost least
    guards = [f.condition for f in outside if is_bracket(f)]
    free = [f for f in outside if not is_bracket(f)]
    whole = make_product([*free, ir.Reduce(kind, bound, condition, make_product(inside))])
    # A guard of this sum alone: as a factor it would guard what the sum is multiplied by.
    return ir.Where(ir.all_of(*guards), whole, ir.ZERO) if guards else whole


@rule(
    law="sum_j |a_i - b_j| = sum_j (b_j - a_i) + 2 * sum_{j: b_j < a_i} (a_i - b_j), "
    "and so for relu, max and min",
    before="x[M]; y, w[N]; z[i] = sum[j](relu(x[i] - y[j]) * w[j])",
    after="x[M]; y, w[N]; z[i] = x[i] * sum[j, y[j] < x[i]](w[j]) "
    "- sum[j, y[j] < x[i]](y[j] * w[j])",
    refuses="x[M]; A[M, N]; z[i] = sum[j](relu(x[i] - A[i,j]))",
    loses="as many digits as the values are larger than their differences",
    cancels=True,
)
def open_kink(expr: ir.Expr) -> ir.Expr | None:
    """The size of differences of two vectors by which of them are smaller: these can be sorted."""
    match expr:
        case ir.Reduce("sum" | "mean" as kind, bound, ir.Truth(True), body):
            factors = find_factors(body)
        case _:
            return None
    for k, factor in enumerate(factors):
        others = [*factors[:k], *factors[k + 1 :]]
        for index in bound:
            found = _open_kink(factor, others, index)
            if found is None or not all(map(is_safe, factors)):
                continue
            terms = [_sum_apart(each, index, bound) for each in found]
            counts = [ir.Pow(i.extent, ir.MINUS_ONE) for i in bound] if kind == "mean" else []
            return make_product([*counts, make_sum(terms)])
    return None


def _open_kink(
    factor: ir.Expr, others: Sequence[ir.Expr], index: ir.Index
) -> list[tuple[ir.Expr, list[ir.Expr]]] | None:
    """The terms of a product, each with the condition under which it counts."""
    match factor:
        case ir.Call("abs" | "relu" as name, (ir.Add(parts),)):
            above = [part for part in parts if index not in find_free(part)]
            below = [_turn(part) for part in parts if part not in above]
        case ir.Call("max" | "min" as name, (one, other)):
            if index in find_free(one):
                one, other = other, one
            above, below = [one], [other]
        case _:
            return None
    if not above or not below or index in find_free(make_sum(above)):
        return None
    one, other = make_sum(above), make_sum(below)
    own = {*find_free(one)} - {*find_free(other)}
    if len(below) > 1 or not own or any(own & {*find_free(part)} for part in (other, *others)):
        return None
    is_less: ir.Expr = ir.Compare("<", other, one)
    minus: list[ir.Expr] = [ir.MINUS_ONE]
    kink = [(is_less, [one, *others]), (is_less, [*minus, other, *others])]
    whole: dict[str, list[tuple[ir.Expr, list[ir.Expr]]]] = {
        "relu": kink,
        "max": [*kink, (ir.TRUE, [other, *others])],
        "min": [(c, [*minus, *f]) for c, f in kink] + [(ir.TRUE, [one, *others])],
        "abs": [(c, [ir.Number(Fraction(2)), *f]) for c, f in kink]
        + [(ir.TRUE, [*minus, one, *others]), (ir.TRUE, [other, *others])],
    }
    return whole[name]


def _turn(term: ir.Expr) -> ir.Expr:
    """The term with the contrary sign."""
    factors = find_factors(term)
    number = -prod((f.value for f in factors if isinstance(f, ir.Number)), start=Fraction(1))
    rest = [f for f in factors if not isinstance(f, ir.Number)]
    return make_product([*([] if number == 1 else [ir.Number(number)]), *rest])


def _sum_apart(
    term: tuple[ir.Expr, list[ir.Expr]], index: ir.Index, bound: tuple[ir.Index, ...]
) -> ir.Expr:
    """A term summed over one index first, and what does not depend on it outside."""
    condition, factors = term
    inside = [f for f in factors if index in find_free(f)]
    outside = [f for f in factors if f not in inside]
    inner = ir.Reduce("sum", (index,), condition, make_product(inside or [ir.ONE]))
    numbers = [f for f in outside if is_number(f)]
    rest = [f for f in outside if not is_number(f)]
    outer = tuple(i for i in bound if i is not index)
    whole = make_product([*rest, inner])
    return make_product([*numbers, ir.Reduce("sum", outer, ir.TRUE, whole) if outer else whole])


@rule(
    law="max_j (a_i + f_j) = a_i + max_j f_j, and so for min, mean and logsumexp",
    before="a[M]; f[M, N]; y[i] = logsumexp[j](f[i,j] + a[i])",
    after="a[M]; f[M, N]; y[i] = a[i] + logsumexp[j](f[i,j])",
    refuses="a[M]; f[M, N]; y[i] = logsumexp[j](f[i,j] + where(a[i] > 0, 0, -oo))",
)
def hoist_term(expr: ir.Expr) -> ir.Expr | None:
    """Terms that do not depend on the bound indices go out of a reduction that keeps shifts."""
    match expr:
        case ir.Reduce(kind, bound, condition, ir.Add(terms)) if kind in _SHIFTED:
            steady = [t for t in terms if not set(find_free(t)) & set(bound)]
        case _:
            return None
    outside = [t for t in steady if is_safe(t)]
    inside = [t for t in terms if t not in outside]
    if not outside or not inside:
        return None
    return ir.Add((*outside, ir.Reduce(kind, bound, condition, make_sum(inside))))


@rule(
    law="max_j c * f_j = c * max_j f_j where c > 0, and so for min",
    before="f[M, N]; size D; y[i] = max[j](f[i,j] / sqrt(D))",
    after="f[M, N]; size D; y[i] = 1 / sqrt(D) * max[j](f[i,j])",
    refuses="f[M, N]; y[i] = max[j](-2 * f[i,j])",
)
def hoist_scale(expr: ir.Expr) -> ir.Expr | None:
    """Positive numbers go out of a largest or smallest entry."""
    match expr:
        case ir.Reduce("max" | "min" as kind, bound, condition, ir.Mul() as body):
            factors = find_factors(body)
        case _:
            return None
    outside = [f for f in factors if is_positive(f) and is_number(f)]
    inside = [f for f in factors if f not in outside]
    if not outside or not inside:
        return None
    return ir.Mul((*outside, ir.Reduce(kind, bound, condition, make_product(inside))))
