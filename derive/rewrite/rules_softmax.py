"""Rules that keep exponentials stable: softmax, logsumexp and masks are recognised and kept whole.

A quotient of exponentials overflows where softmax does not, so the written-out forms become the
functions that shift by the largest logit.
"""

from __future__ import annotations

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
)
from derive.ir.walk import find_free, substitute
from derive.rewrite.rule import rule
from derive.rewrite.rules_products import join_conditions, make_product


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
    return Where(join_conditions(*conditions), body, MINUS_INFINITY)


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
                return Along(kind, index, join_conditions(condition, c), body)
        case Reduce("logsumexp", bound, condition, Where(c, body, other)):
            if other is MINUS_INFINITY:
                return Reduce("logsumexp", bound, join_conditions(condition, c), body)
    return None


@rule(
    law="exp(e_j) / sum_j exp(e_j) = softmax_j(e)",
    before="x[M, N]; y[i,j] = exp(x[i,j]) / sum[k](exp(x[i,k]))",
    after="x[M, N]; y[i,j] = softmax[j](x[i,j])",
    refuses="x, z[M, N]; y[i,j] = exp(z[i,j]) / sum[k](exp(x[i,k]))",
)
def find_softmax(expr: Expr) -> Expr | None:
    """An exponential over the sum of the same exponentials is a softmax."""
    if not isinstance(expr, Mul) or (found := _find_quotient(expr.factors)) is None:
        return None
    soft, rest, guard = found
    return make_product([*rest, soft]) if soft.condition is guard else None


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
            if guard is not TRUE or join_conditions(condition, soft.condition) is not condition:
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
                    index = _match_letter(same, logit, summed)
                case Where(guard, Call("exp", (same,)), other) if other is ZERO:
                    index = _match_letter(same, logit, summed)
                case _:
                    continue
            if index is not None:
                rest = [f for m, f in enumerate(factors) if m not in (k, n)]
                kept = substitute(condition, {summed: index})
                return Along("softmax", index, kept, same), rest, guard
    return None


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
    law="e_j - logsumexp_j(e) = log_softmax_j(e);  log(softmax_j(e)) = log_softmax_j(e)",
    before="x[M, N]; y[i,j] = x[i,j] - logsumexp[k](x[i,k])",
    after="x[M, N]; y[i,j] = log_softmax[j](x[i,j])",
    refuses="x, z[M, N]; y[i,j] = z[i,j] - logsumexp[k](x[i,k])",
)
def find_log_softmax(expr: Expr) -> Expr | None:
    """A logit less the logsumexp of its row, or the logarithm of a softmax, is a log_softmax."""
    match expr:
        case Call("log", (Along("softmax", index, condition, body),)):
            return Along("log_softmax", index, condition, body)
        case Add((one, Mul((sign, Reduce("logsumexp", (summed,), condition, logit))))):
            if sign is not MINUS_ONE or find_free(condition):
                return None
            letter = _match_letter(one, logit, summed)
            return None if letter is None else Along("log_softmax", letter, condition, one)
        case _:
            return None


def _added_mask(term: Expr) -> Expr | None:
    """The condition of a term that is 0 where it holds and -oo where it fails."""
    match term:
        case Where(condition, then, other) if then is ZERO and other is MINUS_INFINITY:
            return condition
        case _:
            return None


def _match_letter(one: Expr, other: Expr, summed: Index) -> Index | None:
    """The index of `one` that plays the part of `summed` in `other`, if they are else the same."""
    for index in find_free(one):
        if index.extent is summed.extent and index not in find_free(other):
            if substitute(other, {summed: index}) is one:
                return index
        elif index is summed and one is other:
            return index
    return None
