"""Reductions over bound letters, and functions along a letter that stays free, opened to sums.

mean_j x = sum_j x / J            var_j x = mean_j x**2 - (mean_j x)**2
logsumexp_j x = log(sum_j exp(x_j))                 cumsum_j x = sum_k [k <= j] x_k
softmax_j x = exp(x_j) / sum_k exp(x_k)             log_softmax_j x = x_j - logsumexp_k x_k
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from derive.analysis.affine import to_affine
from derive.ir.nodes import Along, Expr, Index, Reduce
from derive.prove.functions import number, scale
from derive.prove.literals import Cubes, check_count, decide_affine, deny, join, to_cubes
from derive.prove.terms import (
    ONE,
    Algebra,
    Endless,
    Factor,
    GivesUp,
    Poly,
    Term,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.analysis.affine_form import Affine


class Reads(Protocol):
    """What reads expressions."""

    algebra: Algebra
    empty_row: str

    def read(self, expr: Expr, env: Mapping[Index, Affine]) -> Poly:
        """The value of an expression."""

    def condition(self, expr: Expr, env: Mapping[Index, Affine]) -> Cubes:
        """The cubes of a condition."""


def sum_over(poly: Poly, bound: tuple[Index, ...]) -> Poly:
    """The terms summed over letters that are used nowhere else."""
    return tuple(
        Term(t.coefficient, (*t.bound, *bound), t.guards, t.numeric, t.factors, t.power)
        for t in poly
    )


def reduce(reader: Reads, expr: Reduce, env: Mapping[Index, Affine]) -> Poly:
    """A reduction over bound letters."""
    algebra = reader.algebra
    fresh = {index: algebra.fresh(index) for index in expr.bound}
    bound = tuple(fresh.values())
    inner = {**env, **{old: to_affine(new) for old, new in fresh.items()}}
    cubes = reader.condition(expr.condition, inner)
    body = reader.read(expr.body, inner)
    match expr.kind:
        case "sum":
            _refuse_endless_sum(body)
            return _total(algebra, cubes, body, bound)
        case "mean":
            return _mean(algebra, cubes, body, bound)
        case "var" | "sample_var":
            return _variance(algebra, cubes, body, bound, biased=expr.kind == "var")
        case "logsumexp":
            powers = algebra.exponential(body)
            return algebra.logarithm(_total(algebra, cubes, powers, bound))
    return algebra.fold(expr.kind, bound, body, cubes)


def _refuse_endless_sum(body: Poly) -> None:
    if any(isinstance(factor.atom, Endless) for term in body for factor in term.factors):
        raise GivesUp("a sum of what is infinite")


def _total(algebra: Algebra, cubes: Cubes, body: Poly, bound: tuple[Index, ...]) -> Poly:
    return algebra.finish(sum_over(algebra.guard(cubes, body), bound)).terms


def _count(algebra: Algebra, cubes: Cubes, bound: tuple[Index, ...]) -> Poly:
    return _total(algebra, cubes, ONE, bound)


def _mean(algebra: Algebra, cubes: Cubes, body: Poly, bound: tuple[Index, ...]) -> Poly:
    share = algebra.power(_count(algebra, cubes, bound), Fraction(-1))
    return algebra.multiply(_total(algebra, cubes, body, bound), share)


def _variance(
    algebra: Algebra, cubes: Cubes, body: Poly, bound: tuple[Index, ...], *, biased: bool
) -> Poly:
    entries = _count(algebra, cubes, bound)
    share = algebra.power(entries, Fraction(-1))
    whole = _total(algebra, cubes, body, bound)
    squares = _total(algebra, cubes, algebra.multiply(body, body), bound)
    middle = algebra.multiply(algebra.multiply(whole, whole), share)
    off = (*squares, *scale(middle, -1))
    if not biased:
        share = algebra.power((*entries, *number(-1)), Fraction(-1))
    return algebra.multiply(off, share)


def along(reader: Reads, expr: Along, env: Mapping[Index, Affine]) -> Poly:
    """A function along a letter that stays free."""
    algebra = reader.algebra
    fresh = algebra.fresh(expr.index)
    here = env.get(expr.index, to_affine(expr.index))
    row = {**env, expr.index: to_affine(fresh)}
    cubes = reader.condition(expr.condition, row)
    body = reader.read(expr.body, row)
    if expr.kind == "cumsum":
        before = to_cubes(decide_affine("least", here - to_affine(fresh)))
        return _total(algebra, check_count(join([cubes, before])), body, (fresh,))
    powers = algebra.exponential(body)
    total = _total(algebra, cubes, powers, (fresh,))
    own = reader.condition(expr.condition, env)
    entry = reader.read(expr.body, env)
    if expr.kind == "log_softmax":
        left_out = scale((Term(factors=(Factor(Endless(), Fraction(1)),)),), -1)
        logs = (*entry, *scale(algebra.logarithm(total), -1))
        return (
            *algebra.guard(own, logs),
            *algebra.guard(check_count(deny(own)), left_out),
        )
    chosen = algebra.guard(own, algebra.exponential(entry))
    return algebra.multiply(chosen, _share(reader, total))


def _share(reader: Reads, total: Poly) -> Poly:
    """1 / total; where empty rows are zeros, a total that may be 0 has a 0 for it."""
    if reader.empty_row == "nan":
        return reader.algebra.power(total, Fraction(-1))
    return reader.algebra.apply("share", (total,))
