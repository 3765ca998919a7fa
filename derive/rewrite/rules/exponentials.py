"""Rules that keep exponentials stable: they recognise softmax, logsumexp and masks.

A quotient of exponentials overflows where softmax does not. So expanded forms become the functions
that shift by the largest logit. A shift of a whole row has no effect.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

from derive.analysis.extents import align_condition, is_alike, is_never_empty, match_index
from derive.analysis.facts import is_never_negative, is_positive
from derive.analysis.safety import is_finite_where_defined, is_safe
from derive.ir import nodes as ir
from derive.ir.functions import ROWS, is_complex
from derive.ir.walk import find_accesses, find_free, map_children, substitute
from derive.rewrite.rule import rule
from derive.rewrite.rules import sums
from derive.rewrite.rules.logarithms import split_logits


@rule(
    law="x + where(c, 0, -oo) = where(c, x, -oo)",
    before="x[M, N]; y[i,j] = x[i,j] + where(j <= i, 0, -oo)",
    after="x[M, N]; y[i,j] = where(j <= i, x[i,j], -oo)",
    refuses="x[M, N]; y[i,j] = x[i,j] + where(j <= i, 1, -oo)",
)
def merge_mask(expr: ir.Add) -> ir.Expr | None:
    """Replace an added mask by a choice between the logit and -oo."""
    conditions = [condition for term in expr.terms if (condition := _read_mask(term)) is not None]
    rest = [term for term in expr.terms if _read_mask(term) is None]
    if not conditions or not rest:
        return None
    body = ir.sum_of(rest)
    return ir.Where(ir.all_of(*conditions), body, ir.MINUS_INFINITY)


@rule(
    law="exp(where(c, x, -oo)) = where(c, exp(x), 0)",
    before="x[M, N]; y[i,j] = exp(where(j <= i, x[i,j], -oo))",
    after="x[M, N]; y[i,j] = where(j <= i, exp(x[i,j]), 0)",
    refuses="x[M, N]; y[i,j] = exp(where(j <= i, x[i,j], 0))",
)
def exponentiate_mask(expr: ir.Call) -> ir.Expr | None:
    """Move the mask of a logit out of its exponential, as a guard."""
    match expr:
        case ir.Call("exp", (ir.Where(condition, then, other),)) if other is ir.MINUS_INFINITY:
            return ir.Where(condition, ir.Call("exp", (then,)), ir.ZERO)
    return None


@rule(
    law="softmax_j(where(c, e, -oo)) = softmax_{j: c}(e)",
    before="x[M, N]; y[i,j] = softmax[j](where(j <= i, x[i,j], -oo))",
    after="x[M, N]; y[i,j] = softmax[j, j <= i](x[i,j])",
    refuses="x[M, N]; y[i,j] = softmax[j](where(j <= i, x[i,j], 0))",
)
def restrict_softmax(expr: ir.Along | ir.Reduce) -> ir.Expr | None:
    """Move a mask of -oo directly under a softmax or a logsumexp into its condition."""
    match expr.body:
        case ir.Where(mask, body, other) if other is ir.MINUS_INFINITY:
            if expr.kind in {"softmax", "log_softmax", "logsumexp"}:
                return replace(expr, condition=ir.all_of(expr.condition, mask), body=body)
    return None


@rule(
    law="softmax_{j: c}(e)**p = where(c, softmax_{j: c}(e)**p, softmax_{j: c}(e)) where 0 < p < 1",
    before="x[M, N]; bool m[N]; y[i,j] = sqrt(softmax[j, m[j]](x[i,j]))",
    after="x[M, N]; bool m[N]; y[i,j] = "
    "where(m[j], sqrt(where(m[j], softmax[j, m[j]](x[i,j]), 1)), softmax[j, m[j]](x[i,j]))",
    refuses="x[M, N]; bool m[N]; y[i,j] = softmax[j, m[j]](x[i,j])**2",
)
def guard_root(expr: ir.Pow) -> ir.Expr | None:
    """Guard a root of a softmax at masked entries, where its slope is infinite."""
    match expr:
        case ir.Pow(ir.Along("softmax", _, condition) as soft, ir.Number(power)):
            if condition is not ir.TRUE and 0 < power < 1:
                root = ir.Pow(ir.Where(condition, soft, ir.ONE), expr.exponent)
                return ir.Where(condition, root, soft)
    return None


@rule(
    law="exp(e_j) / sum_j exp(e_j) = softmax_j(e)",
    before="x[M, N]; y[i,j] = exp(x[i,j]) / sum[k](exp(x[i,k]))",
    after="x[M, N]; y[i,j] = softmax[j](x[i,j])",
    refuses="x, z[M, N]; y[i,j] = exp(z[i,j]) / sum[k](exp(x[i,k]))",
    nan_rows=True,
)
def find_softmax(expr: ir.Mul) -> ir.Expr | None:
    """Recognise an exponential over the sum of the same exponentials as a softmax."""
    if (found := _find_quotient(expr.factors)) is None:
        return None
    soft, rest, guard = found
    return ir.product_of([*rest, soft]) if soft.condition is guard else None


@rule(
    law="exp(e_j) / sum_{j: c} exp(e_j) = softmax_{j: c}(e) where no row is empty, or c holds",
    before="x[M, N]; y[i,j] = where(j <= i, exp(x[i,j]) / sum[k, k <= i](exp(x[i,k])), 0)",
    after="x[M, N]; y[i,j] = where(j <= i, softmax[j, j <= i](x[i,j]), 0)",
    refuses="x[M, N]; y[i,j] = where(i <= j, exp(x[i,j]) / sum[k, k <= i](exp(x[i,k])), 0)",
)
def find_full_softmax(expr: ir.Where | ir.Mul) -> ir.Expr | None:
    """Recognise a softmax where an empty softmax is zeros and an empty quotient would be nan.

    The numerator is guarded by the condition of its row, or each row has a finite entry.
    """
    match expr:
        case ir.Where(condition, ir.Mul(factors), other) if other is ir.ZERO and (
            found := _find_quotient(factors)
        ):
            soft, rest, guard = found
            kept = align_condition(soft.condition, condition)
            soft = ir.Along("softmax", soft.index, kept, soft.body)
            is_guarded = guard is ir.TRUE and ir.all_of(condition, kept) is condition
            return ir.Where(condition, ir.product_of([*rest, soft]), other) if is_guarded else None
    new = find_softmax(expr)
    for part in ir.split_product(new) if new is not None else ():
        if isinstance(part, ir.Along) and part.kind == "softmax":
            full = is_never_empty(part.condition, part.index) and is_finite_where_defined(part.body)
            return new if full else None
    return None


def _find_quotient(factors: tuple[ir.Expr, ...]) -> tuple[ir.Along, list[ir.Expr], ir.Expr] | None:
    """(a softmax among the factors, the other factors, the numerator's condition), or None."""
    for k, under in enumerate(factors):
        match under:
            case ir.Pow(
                ir.Reduce("sum", (summed,), condition, ir.Call("exp", (logit,))), ir.Number(power)
            ):
                if power != -1 or is_complex(logit):
                    continue
            case _:
                continue
        for n, over in enumerate(factors):
            guard: ir.Expr = ir.TRUE
            match over:
                case ir.Call("exp", (same,)):
                    index = match_index(same, logit, summed)
                case ir.Where(guard, ir.Call("exp", (same,)), other) if other is ir.ZERO:
                    index = match_index(same, logit, summed)
                case _:
                    continue
            if index is not None:
                rest = [f for m, f in enumerate(factors) if m not in (k, n)]
                kept = align_condition(substitute(condition, {summed: index}), guard)
                return ir.Along("softmax", index, kept, same), rest, guard
    return None


@rule(
    law="exp(e_k) / sum_j exp(e_j) = exp(e_k - logsumexp_j(e)), also of several indices",
    before="x[M, N]; y[i,j] = exp(x[i,j]) / sum[k, l](exp(x[k,l]))",
    after="x[M, N]; y[i,j] = exp(x[i,j] - logsumexp[k, l](x[k,l]))",
    refuses="x, z[M, N]; y[i,j] = exp(z[i,j]) / sum[k, l](exp(x[k,l]))",
)
def find_share(expr: ir.Mul) -> ir.Expr | None:
    """Write an exponential over a sum of exponentials as the exponential of a difference.

    A sum under a data-dependent condition on its row stays: it may become a running sum.
    """
    if is_complex(expr):
        return None
    for k, n in permutations(range(len(expr.factors)), 2):
        match expr.factors[k], expr.factors[n]:
            case over, ir.Pow(ir.Reduce("sum", bound, condition, ir.Call("exp", (logit,))), power):
                is_ordered = find_accesses(condition) and not {*find_free(condition)} <= {*bound}
            case _:
                continue
        guard = over.condition if isinstance(over, ir.Where) and over.other is ir.ZERO else ir.TRUE
        match over.then if isinstance(over, ir.Where) and guard is not ir.TRUE else over:
            case ir.Call("exp", (same,)) if power is ir.MINUS_ONE and not is_ordered:
                reads = map(find_accesses, (same, logit))
                one, other = ([a.tensor for a in each if a.tensor.kind != "int"] for each in reads)
            case _:
                continue
        if one == other:
            whole = ir.Reduce("logsumexp", bound, condition, logit)
            if guard is not ir.TRUE:  # nan for an empty sum, as 0 / 0 is
                same = ir.Where(guard, same, ir.MINUS_INFINITY)
            soft = ir.Call("exp", (ir.Add((same, ir.Mul((ir.MINUS_ONE, whole)))),))
            rest = (f for m, f in enumerate(expr.factors) if m not in (k, n))
            return ir.product_of([soft, *rest])
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
def find_weighted_softmax(expr: ir.Mul) -> ir.Expr | None:
    """Recognise a sum weighted by exponentials over their sum; an empty row is 0/0.

    The other factors are finite where the condition is false, or keep the condition.
    """
    for over, under in permutations(range(len(expr.factors)), 2):
        match expr.factors[over], expr.factors[under]:
            case ir.Reduce("sum") as whole, ir.Pow(ir.Reduce("sum") as total, power):
                found = _find_weighted(whole, total) if power is ir.MINUS_ONE else None
                if found is not None:
                    rest = [f for k, f in enumerate(expr.factors) if k not in (over, under)]
                    return ir.product_of([*rest, found])
    return None


def _find_weighted(over: ir.Reduce, total: ir.Reduce) -> ir.Expr | None:
    """sum_j exp(e_j) * v_j (`over`) / sum_j exp(e_j) (`total`) as a sum of softmax * v; or None."""
    match total:
        case ir.Reduce("sum", (summed,), condition, ir.Call("exp", (logit,))):
            factors = sums.find_factors(over.body)
        case _:
            return None
    if over.condition is ir.TRUE or set(find_free(total)) & set(over.bound) or is_complex(logit):
        return None
    for k, factor in enumerate(factors):
        if not isinstance(factor, ir.Call) or factor.function != "exp":
            continue
        (same,) = factor.arguments
        index = match_index(same, logit, summed)
        if index is None or index not in over.bound:
            continue
        kept = align_condition(substitute(condition, {summed: index}), over.condition)
        rest = [*factors[:k], *factors[k + 1 :]]
        is_same = {*ir.split_and(kept)} == {*ir.split_and(over.condition)}
        if not is_same or not (is_never_empty(kept, index) or all(map(is_safe, rest))):
            continue
        around = ir.TRUE if all(map(is_safe, rest)) else over.condition
        soft = ir.Along("softmax", index, kept, same)
        return ir.Reduce("sum", over.bound, around, ir.product_of([soft, *rest]))
    return None


@rule(
    law="exp(log_softmax_j(e)) = softmax_j(e)",
    before="x[M, N]; y[i,j] = exp(log_softmax[j](x[i,j]))",
    after="x[M, N]; y[i,j] = softmax[j](x[i,j])",
    refuses="x[M, N]; y[i,j] = exp(2 * log_softmax[j](x[i,j]))",
    nan_rows=True,
)
def exponentiate_row(expr: ir.Call) -> ir.Expr | None:
    """Write the exponential of a log_softmax as a softmax."""
    match expr:
        case ir.Call("exp", (ir.Along("log_softmax", index, condition, body),)):
            return ir.Along("softmax", index, condition, body)
    return None


@rule(
    law="softmax_j(e - max_j e) = softmax_j(e), and so for log_softmax",
    before="x[M, N]; y[i,j] = softmax[j](x[i,j] - max[k](x[i,k]))",
    after="x[M, N]; y[i,j] = softmax[j](x[i,j])",
    refuses="x, z[M, N]; y[i,j] = softmax[j](x[i,j] - max[k](z[i,k]))",
    nan_rows=True,
)
def drop_largest(expr: ir.Along) -> ir.Expr | None:
    """Drop a subtracted maximum of a row under a softmax, which subtracts it anyway."""
    match expr:
        case ir.Along(kind, index, condition, ir.Add(terms)) if ROWS[kind].ignores_shift:
            for k, term in enumerate(terms):
                left = ir.sum_of([*terms[:k], *terms[k + 1 :]])
                if _is_largest(term, left, index, condition):
                    return ir.Along(kind, index, condition, left)
    return None


def _is_largest(term: ir.Expr, body: ir.Expr, index: ir.Index, condition: ir.Expr) -> bool:
    """Whether the term subtracts the largest entry of this row."""
    match term:
        case ir.Mul((sign, ir.Reduce("max", (inner,), kept, entry))) if sign is ir.MINUS_ONE:
            if index in find_free(term) or inner.extent is not index.extent:
                return False
            there: dict[ir.Expr, ir.Expr] = {index: inner}
            if inner is not index and inner in find_free(body):
                return False
            try:
                pairs = ((substitute(condition, there), kept), (substitute(body, there), entry))
            except ValueError:  # the index of a row cannot be replaced
                return False
            return all(is_alike(one, other) for one, other in pairs)
    return False


@rule(
    law="prod_j exp(e_j) * g_j = exp(sum_j e_j) * prod_j g_j",
    before="x, s[M, N]; y[i] = prod[j](exp(x[i,j]) / s[i,j])",
    after="x, s[M, N]; y[i] = exp(sum[j](x[i,j])) * prod[j](s[i,j]**(-1))",
    refuses="x[M, N]; y[i] = prod[j](1 + exp(x[i,j]))",
)
def join_exponents(expr: ir.Reduce) -> ir.Expr | None:
    """Write a product of exponentials as one exponential of a sum."""
    match expr:
        case ir.Reduce("prod", bound, condition, body):
            powers, rest = split_logits(body)
        case _:
            return None
    if not powers:
        return None
    whole = ir.Call("exp", (ir.Reduce("sum", bound, condition, ir.sum_of(powers)),))
    left = [ir.Reduce("prod", bound, condition, ir.product_of(rest))] if rest else []
    return ir.product_of([whole, *left])


def _read_mask(term: ir.Expr) -> ir.Expr | None:
    """The condition c of a term where(c, 0, -oo), or None."""
    match term:
        case ir.Where(condition, then, other) if then is ir.ZERO and other is ir.MINUS_INFINITY:
            return condition
    return None


@rule(
    law="softmax_j(e_j + b) = softmax_j(e_j), and so for log_softmax and argmax",
    before="q[M, D]; k[N, D]; b[D]; c[M]; size H; "
    "p[i,j] = softmax[j]((sum[d](q[i,d] * (k[j,d] + b[d])) - c[i]) / sqrt(H))",
    after="q[M, D]; k[N, D]; b[D]; c[M]; size H; "
    "p[i,j] = softmax[j](sum[d](q[i,d] * k[j,d]) / sqrt(H))",
    refuses="q[M, N]; c[M]; p[i,j] = softmax[j](q[i,j] + where(c[i] > 0, 0, -oo))",
)
def drop_shift(expr: ir.Along | ir.Reduce) -> ir.Expr | None:
    """Drop finite terms of the logits that are constant along the row."""
    return _drop_in_row(expr, _drop_terms)


@rule(
    law="softmax_j(a * sum_d (x_d - y_jd)**2) = softmax_j(a * sum_d (y_jd**2 - 2 * x_d * y_jd)), "
    "and so for argmax; with sum_d x_d**2 added again for min and max",
    before="x[M, D]; y[N, D]; p[i,j] = softmax[j](-sum[d]((x[i,d] - y[j,d])**2))",
    after="x[M, D]; y[N, D]; m(d) = sum[k](y[k,d]) / max(N, 1); p[i,j] = softmax[j]("
    "-(sum[d]((y[j,d] - m(d))**2) - 2 * sum[d]((x[i,d] - m(d)) * (y[j,d] - m(d)))))",
    refuses="x[M, D]; y[D]; index j < D; p[i,j] = softmax[i](-sum[d]((x[i,d] - y[d])**2) * y[j])",
    loses="digits where x is near y: it rounds as the largest of all the distances does",
    keeps_sign=True,
)
def drop_square_shift(expr: ir.Along | ir.Reduce) -> ir.Expr | None:
    """Drop terms constant along the row from a squared difference."""
    match expr:
        case ir.Reduce("min" | "max" as kind, bound, condition, body):
            outer, rest, terms = sums.multiply_out(body) or ([], [], ir.ZERO)
        case _:
            return _drop_in_row(expr, _drop_in_squares)
    same, own = list[ir.Expr](), list[ir.Expr]()
    for term in ir.split_sum(terms):
        (same if is_safe(term) and not {*find_free(term)} & {*bound} else own).append(term)
    if not same or not own or not all(is_positive(f) and sums.is_constant(f) for f in outer):
        return None
    whole: ir.Expr = ir.Add((*same, ir.Reduce(kind, bound, condition, ir.sum_of(own))))
    whole = ir.Call("max", (whole, ir.ZERO)) if all(map(is_never_negative, rest)) else whole
    return ir.product_of([*outer, whole])


def _drop_in_row(
    expr: ir.Along | ir.Reduce, drop: Callable[[ir.Expr, ir.Index], ir.Expr]
) -> ir.Expr | None:
    """A softmax or argmax with its logits changed by `drop`; None if that changes nothing."""
    body, index = expr.body, expr.indices[0]
    if index in find_free(body) and (ROWS[expr.kind].ignores_shift or expr.kind == "argmax"):
        left = drop(body, index)
        return None if left is body else replace(expr, body=left)
    return None


def _drop_in_squares(expr: ir.Expr, index: ir.Index) -> ir.Expr:
    """The logits with squared differences multiplied out and constant terms dropped."""
    match expr:
        case ir.Mul(factors) if sum(index in find_free(factor) for factor in factors) != 1:
            return expr
        case ir.Add() | ir.Mul():
            return map_children(expr, lambda part: _drop_in_squares(part, index))
        case ir.Reduce() if index in find_free(expr):
            found = sums.multiply_out(expr)
            if found is None or not isinstance(found[2], ir.Add):
                return expr
            if any(index in find_free(factor) for factor in found[0]):
                return expr  # a shift times a weight of each entry is no shift
            kept = [t for t in found[2].terms if index in find_free(t) or not is_safe(t)]
            is_same = len(kept) in {0, len(found[2].terms)}
            return expr if is_same else ir.product_of([*found[0], ir.sum_of(kept)])
    return expr


def _drop_terms(expr: ir.Expr, index: ir.Index, *, inside: bool = False) -> ir.Expr:
    """An expression that depends on the index, without the terms that do not.

    With `inside`, in a sum, a subtracted mean stays: without it, products lose digits.
    """
    match expr:
        case ir.Add(terms):
            own = {t: _drop_terms(t, index, inside=inside) for t in terms if index in find_free(t)}
            left = [
                own.get(t, t)
                for t in terms
                if t in own or not is_safe(t) or (inside and _is_subtracted_mean(t))
            ]
            return ir.sum_of(left) if left != list(terms) else expr
        case ir.Mul(factors):  # a shift of the one factor that depends on it is one of the product
            spots = [k for k, factor in enumerate(factors) if index in find_free(factor)]
            if len(spots) == 1 and all(is_safe(f) for k, f in enumerate(factors) if k not in spots):
                left = [*factors]
                left[spots[0]] = _drop_terms(factors[spots[0]], index, inside=inside)
                return ir.Mul(tuple(left))
        case ir.Reduce("sum", bound, condition, body):
            if index not in find_free(condition):
                return ir.Reduce("sum", bound, condition, _drop_terms(body, index, inside=True))
        case ir.Where(condition, then, other) if other is ir.MINUS_INFINITY and index in find_free(
            then
        ):
            return ir.Where(condition, _drop_terms(then, index, inside=inside), other)
    return expr


def _is_subtracted_mean(term: ir.Expr) -> bool:
    match term:
        case ir.Mul((ir.Number(number), ir.Reduce("mean"))):
            return number < 0
    return False
