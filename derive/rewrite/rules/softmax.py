"""Rules that keep exponentials stable: softmax, logsumexp and masks are recognised and kept whole.

A quotient of exponentials overflows where softmax does not, so the written-out forms become the
functions that shift by the largest logit.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from derive.ir.nodes import (
    MINUS_INFINITY,
    MINUS_ONE,
    TRUE,
    ZERO,
    Add,
    Along,
    Call,
    Expr,
    Index,
    Mul,
    Number,
    Pow,
    Reduce,
    Where,
    all_of,
    split_and,
)
from derive.ir.walk import find_free, substitute
from derive.rewrite.finite import is_finite_where_defined, is_safe
from derive.rewrite.rows import is_alike, is_never_empty, match_index
from derive.rewrite.rule import rule
from derive.rewrite.rules.products import make_product
from derive.rewrite.rules.sums import find_factors, make_sum

if TYPE_CHECKING:
    from collections.abc import Sequence


@rule(
    law="x + where(c, 0, -oo) = where(c, x, -oo)",
    before="x[M, N]; y[i,j] = x[i,j] + where(j <= i, 0, -oo)",
    after="x[M, N]; y[i,j] = where(j <= i, x[i,j], -oo)",
    refuses="x[M, N]; y[i,j] = x[i,j] + where(j <= i, 1, -oo)",
)
def merge_mask(expr: Expr) -> Expr | None:
    """A mask that is added becomes a mask that is chosen by."""
    if not isinstance(expr, Add):
        return None
    conditions = [condition for term in expr.terms if (condition := _added_mask(term)) is not None]
    rest = [term for term in expr.terms if _added_mask(term) is None]
    if not conditions or not rest:
        return None
    body = rest[0] if len(rest) == 1 else Add(tuple(rest))
    return Where(all_of(*conditions), body, MINUS_INFINITY)


@rule(
    law="exp(where(c, x, -oo)) = where(c, exp(x), 0)",
    before="x[M, N]; y[i,j] = exp(where(j <= i, x[i,j], -oo))",
    after="x[M, N]; y[i,j] = where(j <= i, exp(x[i,j]), 0)",
    refuses="x[M, N]; y[i,j] = exp(where(j <= i, x[i,j], 0))",
)
def exponentiate_mask(expr: Expr) -> Expr | None:
    """The exponential of a masked logit is a guarded exponential."""
    match expr:
        case Call("exp", (Where(condition, then, other),)) if other is MINUS_INFINITY:
            return Where(condition, Call("exp", (then,)), ZERO)
        case _:
            return None


@rule(
    law="softmax_j(where(c, e, -oo)) = softmax_{j: c}(e)",
    before="x[M, N]; y[i,j] = softmax[j](where(j <= i, x[i,j], -oo))",
    after="x[M, N]; y[i,j] = softmax[j, j <= i](x[i,j])",
    refuses="x[M, N]; y[i,j] = softmax[j](where(j <= i, x[i,j], 0))",
)
def restrict_softmax(expr: Expr) -> Expr | None:
    """A mask of -oo directly under a softmax, or a logsumexp, leaves entries out."""
    match expr:
        case Along("softmax" | "log_softmax" as kind, index, condition, Where(c, body, other)):
            if other is MINUS_INFINITY:
                return Along(kind, index, all_of(condition, c), body)
        case Reduce("logsumexp", bound, condition, Where(c, body, other)):
            if other is MINUS_INFINITY:
                return Reduce("logsumexp", bound, all_of(condition, c), body)
    return None


@rule(
    law="exp(e_j) / sum_j exp(e_j) = softmax_j(e)",
    before="x[M, N]; y[i,j] = exp(x[i,j]) / sum[k](exp(x[i,k]))",
    after="x[M, N]; y[i,j] = softmax[j](x[i,j])",
    refuses="x, z[M, N]; y[i,j] = exp(z[i,j]) / sum[k](exp(x[i,k]))",
    nan_rows=True,
)
def find_softmax(expr: Expr) -> Expr | None:
    """An exponential over the sum of the same exponentials is a softmax."""
    if not isinstance(expr, Mul) or (found := _find_quotient(expr.factors)) is None:
        return None
    soft, rest, guard = found
    return make_product([*rest, soft]) if soft.condition is guard else None


@rule(
    law="exp(e_j) / sum_j exp(e_j) = softmax_j(e) where e is finite, and no row empty",
    before="x[N, N]; y[i,j] = where(j <= i, exp(x[i,j]), 0) / sum[k, k <= i](exp(x[i,k]))",
    after="x[N, N]; y[i,j] = softmax[j, j <= i](x[i,j])",
    refuses="x[N, N]; y[i,j] = where(j < i, exp(x[i,j]), 0) / sum[k, k < i](exp(x[i,k]))",
)
def find_full_softmax(expr: Expr) -> Expr | None:
    """The same where a softmax of nothing is zeros: the quotient would be nan."""
    new = find_softmax(expr)
    for part in (new.factors if isinstance(new, Mul) else (new,)) if new is not None else ():
        if isinstance(part, Along) and part.kind == "softmax":
            full = is_never_empty(part.condition, part.index) and is_finite_where_defined(part.body)
            return new if full else None
    return None


@rule(
    law="where(c, exp(e_j) / sum_{j: c} exp(e_j), 0) = where(c, softmax_{j: c}(e), 0)",
    before="x[M, N]; y[i,j] = where(j <= i, exp(x[i,j]) / sum[k, k <= i](exp(x[i,k])), 0)",
    after="x[M, N]; y[i,j] = where(j <= i, softmax[j, j <= i](x[i,j]), 0)",
    refuses="x[M, N]; y[i,j] = where(i <= j, exp(x[i,j]) / sum[k, k <= i](exp(x[i,k])), 0)",
)
def find_masked_softmax(expr: Expr) -> Expr | None:
    """The same with entries left out, where the numerator is guarded by the same condition."""
    match expr:
        case Where(condition, Mul(factors), other) if other is ZERO:
            if (found := _find_quotient(factors)) is None:
                return None
            soft, rest, guard = found
            if guard is not TRUE or all_of(condition, soft.condition) is not condition:
                return None
            return Where(condition, make_product([*rest, soft]), ZERO)
        case _:
            return None


def _find_quotient(factors: tuple[Expr, ...]) -> tuple[Along, list[Expr], Expr] | None:
    """The softmax among the factors of a product, the others, and the numerator's own condition."""
    for k, under in enumerate(factors):
        match under:
            case Pow(Reduce("sum", (summed,), condition, Call("exp", (logit,))), Number(power)):
                if power != -1:
                    continue
            case _:
                continue
        for n, over in enumerate(factors):
            guard: Expr = TRUE
            match over:
                case Call("exp", (same,)):
                    index = match_index(same, logit, summed)
                case Where(guard, Call("exp", (same,)), other) if other is ZERO:
                    index = match_index(same, logit, summed)
                case _:
                    continue
            if index is not None:
                rest = [f for m, f in enumerate(factors) if m not in (k, n)]
                kept = substitute(condition, {summed: index})
                return Along("softmax", index, kept, same), rest, guard
    return None


@rule(
    law="sum_{j: c} exp(e_j) * v_j / sum_{j: c} exp(e_j) = sum_j softmax_{j: c}(e) * v_j",
    before="x[M, N]; v[N]; bool m[M, N]; "
    "y[i] = sum[j, m[i,j]](exp(x[i,j]) * v[j]) / sum[j, m[i,j]](exp(x[i,j]))",
    after="x[M, N]; v[N]; bool m[M, N]; y[i] = sum[j](softmax[j, m[i,j]](x[i,j]) * v[j])",
    refuses="x[M, N]; v[N]; bool m[M, N]; "
    "y[i] = sum[j, m[i,j]](exp(x[i,j]) / v[j]) / sum[j, m[i,j]](exp(x[i,j]))",
    nan_rows=True,
)
def find_weighted_softmax(expr: Expr) -> Expr | None:
    """Entries weighted by exponentials over the sum of these: of an empty row it is 0/0.

    What stands beside the weights must be finite where the condition is false, or else keep it.
    """
    if not isinstance(expr, Mul):
        return None
    for k, over in enumerate(expr.factors):
        for n, under in enumerate(expr.factors):
            match over, under:
                case Reduce("sum"), Pow(Reduce("sum") as total, Number(power)) if power == -1:
                    found = _find_weighted(over, total)
                    if found is not None:
                        rest = [f for m, f in enumerate(expr.factors) if m not in (k, n)]
                        return make_product([*rest, found])
    return None


def _find_weighted(over: Reduce, total: Reduce) -> Expr | None:
    """The sum of a softmax times the rest, from a sum under a condition and the total of a row."""
    match total:
        case Reduce("sum", (summed,), condition, Call("exp", (logit,))):
            factors = find_factors(over.body)
        case _:
            return None
    if over.condition is TRUE or set(find_free(total)) & set(over.bound):
        return None
    for k, factor in enumerate(factors):
        if not isinstance(factor, Call) or factor.function != "exp":
            continue
        (same,) = factor.arguments
        index = match_index(same, logit, summed)
        if index is None or index not in over.bound:
            continue
        kept = substitute(condition, {summed: index})
        rest = [*factors[:k], *factors[k + 1 :]]
        left = _leave_condition(over.condition, kept)
        full = is_never_empty(kept, index)
        if left is None or not (full or all(map(is_safe, rest))):
            continue
        if left is not TRUE and not (full and is_finite_where_defined(logit)):
            continue  # 0/0 of an empty row, also where nothing of it is added up
        around = left if all(map(is_safe, rest)) else over.condition
        soft = Along("softmax", index, kept, same)
        return Reduce("sum", over.bound, around, make_product([soft, *rest]))
    return None


def _leave_condition(whole: Expr, part: Expr) -> Expr | None:
    """What a condition says beyond another one, if that is part of it."""
    said = split_and(whole)
    known = split_and(part)
    if not set(known) - {TRUE} <= set(said):
        return None
    return all_of(*(each for each in said if each not in known))


@rule(
    law="exp(log_softmax_j(e)) = softmax_j(e)",
    before="x[M, N]; y[i,j] = exp(log_softmax[j](x[i,j]))",
    after="x[M, N]; y[i,j] = softmax[j](x[i,j])",
    refuses="x[M, N]; y[i,j] = exp(2 * log_softmax[j](x[i,j]))",
    nan_rows=True,
)
def exponentiate_row(expr: Expr) -> Expr | None:
    """The exponential of a log_softmax is a softmax."""
    match expr:
        case Call("exp", (Along("log_softmax", index, condition, body),)):
            return Along("softmax", index, condition, body)
        case _:
            return None


@rule(
    law="softmax_j(e - max_j e) = softmax_j(e), and so for log_softmax",
    before="x[M, N]; y[i,j] = softmax[j](x[i,j] - max[k](x[i,k]))",
    after="x[M, N]; y[i,j] = softmax[j](x[i,j])",
    refuses="x, z[M, N]; y[i,j] = softmax[j](x[i,j] - max[k](z[i,k]))",
    nan_rows=True,
)
def drop_largest(expr: Expr) -> Expr | None:
    """The largest logit of a row is taken off by the softmax itself."""
    match expr:
        case Along("softmax" | "log_softmax" as kind, index, condition, Add(terms)):
            for k, term in enumerate(terms):
                left = make_sum([*terms[:k], *terms[k + 1 :]])
                if _is_largest(term, left, index, condition):
                    return Along(kind, index, condition, left)
    return None


def _is_largest(term: Expr, body: Expr, index: Index, condition: Expr) -> bool:
    """Is it less the largest entry of this row?"""
    match term:
        case Mul((sign, Reduce("max", (inner,), kept, entry))) if sign is MINUS_ONE:
            if index in find_free(term) or inner.extent is not index.extent:
                return False
            there: dict[Expr, Expr] = {index: inner}
            if inner is not index and inner in find_free(body):
                return False
            try:
                pairs = ((substitute(condition, there), kept), (substitute(body, there), entry))
            except ValueError:  # the index of a row stands for itself
                return False
            return all(is_alike(one, other) for one, other in pairs)
    return False


@rule(
    law="log(sum_j exp(e_j)) = logsumexp_j(e)",
    before="x[M, N]; y[i] = log(sum[j](exp(x[i,j])))",
    after="x[M, N]; y[i] = logsumexp[j](x[i,j])",
    refuses="x[M, N]; y[i] = log(1 + sum[j](exp(x[i,j])))",
)
def find_logsumexp(expr: Expr) -> Expr | None:
    """The logarithm of a sum of exponentials is a logsumexp."""
    match expr:
        case Call("log", (Reduce("sum", bound, condition, Call("exp", (logit,))),)):
            return Reduce("logsumexp", bound, condition, logit)
        case _:
            return None


@rule(
    law="c + logsumexp_j(e_j - c) = logsumexp_j(e)",
    before="x[M, N]; c[M]; y[i] = logsumexp[j](x[i,j] - c[i]) + c[i]",
    after="x[M, N]; c[M]; y[i] = logsumexp[j](x[i,j])",
    refuses="x[M, N]; c[M]; y[i] = logsumexp[j](x[i,j] - c[i]) + 2 * c[i]",
)
def return_shift(expr: Expr) -> Expr | None:
    """What is taken off every logit and added again has no effect, where it is finite."""
    if not isinstance(expr, Add):
        return None
    for k, term in enumerate(expr.terms):
        match term:
            case Reduce("logsumexp", bound, condition, Add(logits)):
                others = [*expr.terms[:k], *expr.terms[k + 1 :]]
            case _:
                continue
        for n, logit in enumerate(logits):
            spot = next((m for m, o in enumerate(others) if is_alike(o, negate(logit))), None)
            if spot is None or set(find_free(logit)) & set(bound) or not is_safe(logit):
                continue
            left = make_sum([*logits[:n], *logits[n + 1 :]])
            whole = Reduce("logsumexp", bound, condition, left)
            return make_sum([*others[:spot], *others[spot + 1 :], whole])
    return None


@rule(
    law="e_j - logsumexp_j(e) = log_softmax_j(e);  log(softmax_j(e)) = log_softmax_j(e)",
    before="x[M, N]; b[N]; y[i,j] = x[i,j] + b[j] - logsumexp[k](x[i,k])",
    after="x[M, N]; b[N]; y[i,j] = b[j] + log_softmax[j](x[i,j])",
    refuses="x, z[M, N]; y[i,j] = z[i,j] - logsumexp[k](x[i,k])",
)
def find_log_softmax(expr: Expr) -> Expr | None:
    """A logit less the logsumexp of its row, or the logarithm of a softmax, is a log_softmax."""
    match expr:
        case Call("log", (Along("softmax", index, condition, body),)):
            return Along("log_softmax", index, condition, body)
        case Add(terms):
            for k, term in enumerate(terms):
                found = _find_normalised(term, [*terms[:k], *terms[k + 1 :]])
                if found is not None:
                    return found
    return None


def _find_normalised(term: Expr, others: Sequence[Expr]) -> Expr | None:
    """The log_softmax of those terms that the logsumexp is of, plus the others."""
    match term:
        case Mul((sign, Reduce("logsumexp", (summed,), condition, logit))) if sign is MINUS_ONE:
            if find_free(condition):
                return None
        case _:
            return None
    wanted = logit.terms if isinstance(logit, Add) else (logit,)
    for chosen in combinations(range(len(others)), len(wanted)):
        one = make_sum([others[k] for k in chosen])
        index = match_index(one, logit, summed)
        if index is not None:
            rest = [other for k, other in enumerate(others) if k not in chosen]
            return make_sum([*rest, Along("log_softmax", index, condition, one)])
    return None


def negate(term: Expr) -> Expr:
    """The term with the contrary sign."""
    match term:
        case Mul((sign, other)) if sign is MINUS_ONE:
            return other
        case Mul((sign, *others)) if sign is MINUS_ONE:
            return Mul(tuple(others))
        case _:
            return Mul((MINUS_ONE, term))


def _added_mask(term: Expr) -> Expr | None:
    """The condition of a term that is 0 where it holds and -oo where it fails."""
    match term:
        case Where(condition, then, other) if then is ZERO and other is MINUS_INFINITY:
            return condition
        case _:
            return None
