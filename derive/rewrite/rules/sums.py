"""Rules on sums: common factors, and what does not depend on the reduced index, go outside.

    sum_e u*k + sum_e q*k = sum_e (u + q)*k        sum_j a_i*f_j = a_i * sum_j f_j

A term is taken as a product, or as a sum of one; its bound indices are renamed where that helps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, TypeAlias

from derive.analysis.reads import find_brackets
from derive.ir.nodes import TRUE, ZERO, Add, Expr, Index, Mul, Reduce, Where, all_of, split_and
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import find_accesses, find_free, substitute
from derive.rewrite.finite import is_finite_where_defined, is_positive, is_safe
from derive.rewrite.rule import apply_rules, rule
from derive.rewrite.rules.products import (
    count_unused,
    distribute_product,
    is_bracket,
    is_negative,
    make_product,
    may_go_in,
    rename_bound,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_TERMS = 8  # of one sum among which common factors are looked for in every way
_LINEAR = ("sum", "mean")
_SHIFTED = ("max", "min", "mean", "logsumexp")


@dataclass(frozen=True, slots=True)
class Term:
    """A product, or the sum of one, with all its factors inside."""

    bound: tuple[Index, ...]
    condition: Expr
    factors: tuple[Expr, ...]

    def to_expr(self, factors: Sequence[Expr]) -> Expr:
        """The sum of another product over the same indices."""
        body = make_product(list(factors))
        return Reduce("sum", self.bound, self.condition, body) if self.bound else body


def find_factors(expr: Expr) -> tuple[Expr, ...]:
    """The factors of a product, those of products inside it too."""
    if isinstance(expr, Mul):
        return tuple(inner for factor in expr.factors for inner in find_factors(factor))
    return (expr,)


def make_sum(terms: Sequence[Expr]) -> Expr:
    """The sum, without a wrapper around a single term."""
    return terms[0] if len(terms) == 1 else Add(tuple(terms))


def split_term(expr: Expr) -> Term:
    """The expression as the sum of one product; a lone sum among its factors goes around them.

    Not where a sum of nothing would hide what they are: see `may_go_in`.
    """
    factors = find_factors(expr)
    sums = [k for k, f in enumerate(factors) if isinstance(f, Reduce) and f.kind == "sum"]
    if len(sums) != 1:
        return Term((), TRUE, factors)
    (k,) = sums
    others = (*factors[:k], *factors[k + 1 :])
    summed = factors[k]
    assert isinstance(summed, Reduce)
    if not may_go_in(others, summed):
        return Term((), TRUE, factors)
    taken = {i.name for f in others for i in find_free(f)}
    bound, condition, body = rename_bound(summed, taken)
    return Term(bound, condition, (*factors[:k], *find_factors(body), *factors[k + 1 :]))


def is_number(expr: Expr) -> bool:
    """Is it the same number wherever it stands?"""
    return not find_free(expr) and not find_accesses(expr)


@rule(
    law="sum_e u * k + sum_e q * k = sum_e (u + q) * k",
    before="q[M, D]; u, w[D]; k, r[N, D]; s[i,j] = sum[e](q[i,e] * k[j,e])"
    " + sum[e](q[i,e] * r[j,e]) + sum[d](u[d] * k[j,d]) + sum[d](w[d] * r[j,d])",
    after="q[M, D]; u, w[D]; k, r[N, D]; s[i,j] = sum[e]((q[i,e] + u[e]) * k[j,e])"
    " + sum[e]((q[i,e] + w[e]) * r[j,e])",
    refuses="q[M, D]; u[N, D]; k[N, D]; s[i,j] = sum[e](q[i,e] * k[j,e]) + sum[e](u[j,e] * k[j,e])",
)
def factor_sum(expr: Expr) -> Expr | None:
    """Terms that are alike up to a factor become one product with the sum of these factors.

    The sum is no wider than the widest of its terms: what distribute_product parts stays apart.
    """
    if not isinstance(expr, Add) or len(expr.terms) > MOST_TERMS:
        return None
    terms = tuple(split_term(term) for term in expr.terms)
    if not any(len(term.factors) > 1 for term in terms):
        return None
    best = _find_partition(terms, tuple(range(len(terms))), {})
    if len(best) == len(terms):
        return None
    first = {group[0]: whole for group, whole in best}
    return make_sum([first[k] or expr.terms[k] for k in sorted(first)])


_Group: TypeAlias = tuple[tuple[int, ...], Expr | None]


def _find_partition(
    terms: tuple[Term, ...], left: tuple[int, ...], known: dict[tuple[int, ...], list[_Group]]
) -> list[_Group]:
    """The terms in groups, as few as can be, each with what it becomes: None for a lone term."""
    if not left:
        return []
    if left not in known:
        best: list[_Group] | None = None
        alone: _Group = ((left[0],), None)
        for group in (*_find_groups(terms, left), alone):
            rest = tuple(k for k in left if k not in group[0])
            found = [group, *_find_partition(terms, rest, known)]
            if best is None or len(found) < len(best):
                best = found
        assert best is not None
        known[left] = best
    return known[left]


def _find_groups(terms: tuple[Term, ...], left: tuple[int, ...]) -> Iterator[_Group]:
    """Groups of the first term and others with factors in common, and their one product."""
    one, *others = left
    seen: dict[tuple[int, ...], None] = {}
    for other in others:
        common = _find_common(terms[one], terms[other])
        if common is None:
            continue
        alike = [k for k in others if _find_rest(terms[one], terms[k], common) is not None]
        for members in ((one, *alike), (one, other)):
            if members in seen:
                continue
            seen[members] = None
            whole = _merge(terms[one], [terms[k] for k in members], common)
            if whole is not None:
                yield members, whole


def _find_common(one: Term, other: Term) -> Counter[Expr] | None:
    """The factors that both have, under the renaming that makes them most; not numbers alone."""
    best: Counter[Expr] = Counter()
    for factors in _align(one, other):
        common = Counter(one.factors) & Counter(factors)
        if common.total() > best.total():
            best = common
    return None if all(map(is_number, best)) else best


def _find_rest(one: Term, other: Term, common: Counter[Expr]) -> list[Expr] | None:
    """The other factors of a term that has the common ones, under the indices of `one`."""
    for factors in _align(one, other):
        if common <= Counter(factors):
            left = Counter(common)
            rest = []
            for factor in factors:
                if left[factor]:
                    left[factor] -= 1
                else:
                    rest.append(factor)
            return rest
    return None


def _align(one: Term, other: Term) -> Iterator[tuple[Expr, ...]]:
    """The factors of `other` under the bound indices of `one`, in each way that can be."""
    if len(one.bound) != len(other.bound):
        return
    free = {i for f in (other.condition, *other.factors) for i in find_free(f)} - {*other.bound}
    if free & {*one.bound}:
        return
    for indices in permutations(one.bound):
        pairs = tuple(zip(other.bound, indices, strict=True))
        if not all(is_same_extent(old.extent, new.extent) for old, new in pairs):
            continue
        try:
            if _find_parts(substitute(other.condition, dict(pairs))) == _find_parts(one.condition):
                yield tuple(substitute(factor, dict(pairs)) for factor in other.factors)
        except ValueError:  # the index of a row cannot be renamed there
            continue


def _find_parts(condition: Expr) -> set[Expr]:
    return set(split_and(condition))


def _merge(one: Term, group: Sequence[Term], common: Counter[Expr]) -> Expr | None:
    """The group as one product, unless the sum in it would be too wide or read too much."""
    rests = [_find_rest(one, term, common) for term in group]
    if not all(is_finite_where_defined(factor) for term in group for factor in term.factors):
        return None
    found = [rest for rest in rests if rest is not None]
    if all(is_number(factor) for rest in found for factor in rest):
        return None
    is_guarded = all(any(map(find_brackets, rest)) for rest in found)
    if is_guarded and not all(map(is_safe, common)):  # nothing reads them unguarded so far
        return None
    bracket = Add(tuple(make_product(rest) for rest in found))
    if not _is_narrow(bracket, one, found):
        return None
    left = Counter(common)
    factors: list[Expr] = []
    is_placed = False
    for factor in one.factors:
        if left[factor]:
            left[factor] -= 1
            factors.append(factor)
        elif not is_placed:
            factors.append(bracket)
            is_placed = True
    if not is_placed:
        factors.append(bracket)
    whole = one.to_expr(factors)
    return whole if distribute_product(whole) is None else None


def _is_narrow(bracket: Add, one: Term, rests: Sequence[Sequence[Expr]]) -> bool:
    """Does a tensor of these indices stand there already?

    The terms of a plain sum do; of a product that is summed only the factors do.
    """
    wide = {*find_free(bracket)}
    if not one.bound:
        return any(wide <= {*find_free(make_product([*one.factors, *rest]))} for rest in rests)
    return any(wide <= {*find_free(factor)} for rest in rests for factor in rest)


@rule(
    law="sum_j (f_j + g_j) = sum_j f_j + sum_j g_j",
    before="A[M, N]; x, b[N]; y[i] = sum[j](A[i,j] * x[j] + b[j])",
    after="A[M, N]; x, b[N]; y[i] = sum[j](A[i,j] * x[j]) + sum[j](b[j])",
    refuses="A[M, N]; x, b[N]; y[i] = sum[j](A[i,j] * x[j] - b[j])   # a difference loses digits",
)
def split_sum(expr: Expr) -> Expr | None:
    """A sum of terms is added up term by term, where one of them is then a contraction."""
    match expr:
        case Reduce("sum", bound, condition, Add(terms)) if not any(map(is_negative, terms)):
            contracted = any(_is_contraction(term, bound) for term in terms)
            if not contracted or not all(map(is_finite_where_defined, terms)):
                return None
            parts = (Reduce("sum", bound, condition, term) for term in terms)
            return Add(tuple(apply_rules(part, (count_unused,)) for part in parts))
        case _:
            return None


def _is_contraction(term: Expr, bound: tuple[Index, ...]) -> bool:
    """Is it a product of several factors that depend on the bound indices?"""
    return sum(bool(set(find_free(f)) & set(bound)) for f in find_factors(term)) > 1


@rule(
    law="sum_j a_i * f_j = a_i * sum_j f_j",
    before="A[M, N]; y[M]; z[i] = sum[j](y[i] * A[i,j] / 2)",
    after="A[M, N]; y[M]; z[i] = y[i] / 2 * sum[j](A[i,j])",
    refuses="A[M, N]; y[M]; z[i] = sum[j, j < i](A[i,j] * y[i - 1])",
)
def hoist_factor(expr: Expr) -> Expr | None:
    """Factors that do not depend on the bound indices go out of a sum or a mean.

    Where a condition leaves entries out, only what could be read there, and is finite, goes out.
    """
    match expr:
        case Reduce(kind, bound, condition, Mul() as body) if kind in _LINEAR:
            factors = find_factors(body)
        case _:
            return None
    outside = [f for f in factors if not set(find_free(f)) & set(bound)]
    inside = [f for f in factors if f not in outside]
    if condition is not TRUE or any(map(find_brackets, inside)):
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
    whole = make_product([*free, Reduce(kind, bound, condition, make_product(inside))])
    # A guard of this sum alone: as a factor it would guard what the sum is multiplied by.
    return Where(all_of(*guards), whole, ZERO) if guards else whole


@rule(
    law="max_j (a_i + f_j) = a_i + max_j f_j, and so for min, mean and logsumexp",
    before="a[M]; f[M, N]; y[i] = logsumexp[j](f[i,j] + a[i])",
    after="a[M]; f[M, N]; y[i] = a[i] + logsumexp[j](f[i,j])",
    refuses="a[M]; f[M, N]; y[i] = logsumexp[j](f[i,j] + where(a[i] > 0, 0, -oo))",
)
def hoist_term(expr: Expr) -> Expr | None:
    """Terms that do not depend on the bound indices go out of a reduction that keeps shifts."""
    match expr:
        case Reduce(kind, bound, condition, Add(terms)) if kind in _SHIFTED:
            steady = [t for t in terms if not set(find_free(t)) & set(bound)]
        case _:
            return None
    outside = [t for t in steady if is_safe(t)]
    inside = [t for t in terms if t not in outside]
    if not outside or not inside:
        return None
    return Add((*outside, Reduce(kind, bound, condition, make_sum(inside))))


@rule(
    law="max_j c * f_j = c * max_j f_j where c > 0, and so for min",
    before="f[M, N]; size D; y[i] = max[j](f[i,j] / sqrt(D))",
    after="f[M, N]; size D; y[i] = 1 / sqrt(D) * max[j](f[i,j])",
    refuses="f[M, N]; y[i] = max[j](-2 * f[i,j])",
)
def hoist_scale(expr: Expr) -> Expr | None:
    """Positive numbers go out of a largest or smallest entry."""
    match expr:
        case Reduce("max" | "min" as kind, bound, condition, Mul() as body):
            factors = find_factors(body)
        case _:
            return None
    outside = [f for f in factors if is_positive(f) and is_number(f)]
    inside = [f for f in factors if f not in outside]
    if not outside or not inside:
        return None
    return Mul((*outside, Reduce(kind, bound, condition, make_product(inside))))
