"""Rules on softmax rows: a shift of a whole row has no effect, and the division can come last.

Both sides stay finite however large the logits are: the largest of a row is taken off before the
exponential.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from derive.analysis.facts import is_finite_where_defined, is_safe
from derive.ir import nodes as ir
from derive.ir.walk import find_brackets, find_free, map_children, rename_apart, substitute, walk
from derive.rewrite.rows import is_filled, is_never_empty
from derive.rewrite.rule import rule
from derive.rewrite.rules import products, squares, sums


@rule(
    law="softmax_j(e_j + b) = softmax_j(e_j), and so for log_softmax",
    before="q[M, D]; k[N, D]; b[D]; c[M]; size H; "
    "p[i,j] = softmax[j]((sum[d](q[i,d] * (k[j,d] + b[d])) - c[i]) / sqrt(H))",
    after="q[M, D]; k[N, D]; b[D]; c[M]; size H; "
    "p[i,j] = softmax[j](sum[d](q[i,d] * k[j,d]) / sqrt(H))",
    refuses="q[M, N]; c[M]; p[i,j] = softmax[j](q[i,j] + where(c[i] > 0, 0, -oo))",
)
def drop_shift(expr: ir.Expr) -> ir.Expr | None:
    """Finite terms of the logits that are the same along the row are left out."""
    return _leave_in_row(expr, _leave_shift)


@rule(
    law="softmax_j(a * sum_d (x_d - y_jd)**2) = softmax_j(a * sum_d (y_jd**2 - 2 * x_d * y_jd))",
    before="x[M, D]; y[N, D]; p[i,j] = softmax[j](-sum[d]((x[i,d] - y[j,d])**2))",
    after="x[M, D]; y[N, D]; p[i,j] = softmax[j](-(sum[d]((y[j,d] - mean[k](y[k,d]))**2) "
    "- 2 * sum[d]((x[i,d] - mean[k](y[k,d])) * (y[j,d] - mean[k](y[k,d])))))",
    refuses="x[M, D]; y[D]; index j < D; p[i,j] = softmax[i](-sum[d]((x[i,d] - y[d])**2) * y[j])",
    loses="digits where x is near y: it rounds as the largest of all the distances does",
)
def drop_square_shift(expr: ir.Expr) -> ir.Expr | None:
    """The same where such a term stands in a squared difference."""
    return _leave_in_row(expr, _leave_in_squares)


def _leave_in_row(expr: ir.Expr, leave: Callable[[ir.Expr, ir.Index], ir.Expr]) -> ir.Expr | None:
    match expr:
        case ir.Along("softmax" | "log_softmax" as kind, index, condition, body):
            left = leave(body, index) if index in find_free(body) else body
            return None if left is body else ir.Along(kind, index, condition, left)
        case _:
            return None


def _leave_in_squares(expr: ir.Expr, index: ir.Index) -> ir.Expr:
    """The logits with squared differences multiplied out, less what of those is the same."""
    match expr:
        case ir.Add():
            return map_children(expr, lambda part: _leave_in_squares(part, index))
        case ir.Mul(factors) if sum(index in find_free(factor) for factor in factors) == 1:
            return map_children(expr, lambda part: _leave_in_squares(part, index))
        case ir.Reduce() if index in find_free(expr):
            found = squares.multiply_out(expr)
            if found is None or not isinstance(found[2], ir.Add):
                return expr
            kept = [t for t in found[2].terms if index in find_free(t) or not is_safe(t)]
            is_same = len(kept) in {0, len(found[2].terms)}
            return expr if is_same else products.make_product([*found[0], sums.make_sum(kept)])
        case _:
            return expr


def _leave_shift(expr: ir.Expr, index: ir.Index, *, inside: bool = False) -> ir.Expr:
    """The expression less what in it does not depend on the index; it depends on it itself.

    Inside of a sum a mean that is taken off stays: without it products have fewer digits.
    """
    match expr:
        case ir.Add(terms):
            kept = [
                t
                for t in terms
                if index in find_free(t) or not is_safe(t) or (inside and _is_taken_off(t))
            ]
            left = [
                _leave_shift(t, index, inside=inside) if index in find_free(t) else t for t in kept
            ]
            return sums.make_sum(left) if left != list(terms) else expr
        case ir.Mul(factors):
            return _leave_in_product(expr, factors, index, inside=inside)
        case ir.Reduce("sum", bound, condition, body):
            if index not in find_free(condition):
                return ir.Reduce("sum", bound, condition, _leave_shift(body, index, inside=True))
        case ir.Where(condition, then, other) if other is ir.MINUS_INFINITY and index in find_free(
            then
        ):
            return ir.Where(condition, _leave_shift(then, index, inside=inside), other)
    return expr


def _leave_in_product(
    expr: ir.Expr, factors: Sequence[ir.Expr], index: ir.Index, *, inside: bool
) -> ir.Expr:
    """A shift of the one factor that depends on the index is a shift of the product."""
    spots = [k for k, factor in enumerate(factors) if index in find_free(factor)]
    others = [factor for k, factor in enumerate(factors) if k not in spots]
    if len(spots) != 1 or not all(map(is_safe, others)):
        return expr
    (k,) = spots
    left = _leave_shift(factors[k], index, inside=inside)
    return ir.Mul((*factors[:k], left, *factors[k + 1 :]))


def _is_taken_off(term: ir.Expr) -> bool:
    match term:
        case ir.Mul((ir.Number(number), ir.Reduce("mean"))):
            return number < 0
        case _:
            return False


@rule(
    law="sum_j softmax_j(e) * v_j = sum_j exp(e - m) * v_j / sum_j exp(e - m), m = max_j e",
    before="x[M, N + 1]; v[N + 1, D]; y[i,d] = sum[j](softmax[j](x[i,j]) * v[j,d])",
    after="x[M, N + 1]; v[N + 1, D]; y[i,d] = "
    "sum[j](exp(x[i,j] - max[k](x[i,k])) * v[j,d]) / sum[j](exp(x[i,j] - max[k](x[i,k])))",
    refuses="x[M, N]; v[N, D]; y[i,d] = sum[j](softmax[j](x[i,j]) * v[j,d])   # N may be 0",
    nan_rows=True,
)
def delay_division(expr: ir.Expr) -> ir.Expr | None:
    """A row that is summed is divided by its total after the sum, not entry by entry.

    Only rows that always hold an entry: torch has no largest of nothing, and the quotient would be
    nan. It is nan too for a row of nothing but -oo, as the softmax itself where it is not zeros.
    """
    if not isinstance(expr, ir.Reduce) or expr.kind != "sum":
        return None
    factors = sums.find_factors(expr.body)
    for k, factor in enumerate(factors):
        if isinstance(factor, ir.Along) and factor.kind == "softmax":
            rest = (*factors[:k], *factors[k + 1 :])
            if _can_wait(factor, expr, rest):
                weight, total = _split_row(factor)
                condition = ir.all_of(expr.condition, factor.condition)
                body = products.make_product([*factors[:k], weight, *factors[k + 1 :]])
                over = ir.Reduce("sum", expr.bound, condition, body)
                return ir.Mul((over, ir.Pow(total, ir.MINUS_ONE)))
    return None


def _can_wait(row: ir.Along, expr: ir.Reduce, rest: Sequence[ir.Expr]) -> bool:
    """Is the total of the row free of the bound indices, and always a number above 0?"""
    if row.index not in expr.bound or set(find_free(row)) & set(expr.bound) != {row.index}:
        return False
    if not (is_filled(row.index) and is_never_empty(row.condition, row.index)):
        return False
    if row.condition is not ir.TRUE and not all(map(is_finite_where_defined, rest)):
        return False  # where the row is 0 the others are no longer read, and 0 * oo is nan
    guarded = expr.condition is not ir.TRUE or any(map(find_brackets, rest))
    return is_safe(row.body) if guarded else is_finite_where_defined(row.body)


def _split_row(row: ir.Along) -> tuple[ir.Expr, ir.Expr]:
    """The weight of an entry before the division, and the total of the weights."""
    index = row.index
    indices = {part.name for part in walk(row) if isinstance(part, ir.Index)}
    indices |= {i.name for part in walk(row) if isinstance(part, ir.Reduce) for i in part.bound}
    other = rename_apart(index, indices | {index.name})
    there: dict[ir.Expr, ir.Expr] = {index: other}
    condition, body = substitute(row.condition, there), substitute(row.body, there)
    largest = ir.Reduce("max", (other,), condition, body)
    weight = ir.Call("exp", (ir.Add((row.body, ir.Mul((ir.MINUS_ONE, largest)))),))
    return weight, ir.Reduce("sum", (index,), row.condition, weight)
