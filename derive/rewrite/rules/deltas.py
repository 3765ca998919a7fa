"""Rules on deltas: a sum under an equation of its index with a position is one entry.

sum_j [i == j] * f_j = f_i          sum_v [v == tok[n]] * E[v,d] = E[tok[n],d]
"""

from collections.abc import Iterator

from derive.analysis.safety import is_finite_where_defined
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.walk import (
    find_free,
    find_indices,
    is_bracket,
    rename_apart,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.rewrite.needs import is_position
from derive.rewrite.rule import rule
from derive.rewrite.rules.sums import find_factors


@rule(
    law="sum_j [j == i] * f_j = f_i where i is a position that j takes",
    before="int tok[L] < N; E[N, D]; w[N]; y[l,d] = sum[j](E[j,d] * [j == tok[l]] * w[j])",
    after="int tok[L] < N; E[N, D]; w[N]; y[l,d] = E[tok[l],d] * w[tok[l]]",
    refuses="A[M, N]; y[i] = sum[j](A[i,j] * [i == j])",
)
def sift_delta(expr: ir.Reduce) -> ir.Expr | None:
    """Replace a summed index by the position that a delta equates it with.

    If an integer tensor may be outside of the index's extent, the sum is 0 there. If an index may
    be, the sum stays. A read entry of a log_softmax becomes x[i] - logsumexp_j x[j].
    """
    for index, label, sifted in _find_deltas(expr):
        inside: ir.Expr = ir.TRUE
        place = label
        if not is_position(place, index):
            if not isinstance(place, ir.Access) or place.tensor.kind != "int":
                continue
            inside = ir.And(
                (ir.Compare("<=", ir.ZERO, label), ir.Compare("<", label, index.extent))
            )
            place = ir.Call("clip", (label, ir.ZERO, ir.Add((index.extent, ir.MINUS_ONE))))
        opened = (_expand_rows(part, index) for part in (sifted.condition, sifted.body))
        try:
            condition, body = (substitute(part, {index: place}) for part in opened)
        except ValueError:  # the index of a row cannot be replaced
            continue
        parts = (part for part in ir.split_and(condition) if not _is_equal(part))
        condition = ir.all_of(inside, *parts)
        bound = tuple(i for i in sifted.bound if i is not index)
        return ir.sum_over(bound, body, condition)
    return None


def _is_equal(condition: ir.Expr) -> bool:
    """Whether the condition equates an integer tensor's entry with itself."""
    match condition:
        case ir.Compare("==", ir.Access(tensor) as one, other):
            return one is other and tensor.kind == "int"
    return False


@rule(
    law="sum_j [i == j] * f_j = f_i where i and j have one extent",
    before="A[M, N]; x[N]; z[N]; y[i] = z[i] * sum[j](x[j] * [i == j])",
    after="A[M, N]; x[N]; z[N]; y[i] = z[i] * x[i]",
    refuses="A[M, N]; x[N]; z[M]; y[i] = z[i] * sum[j](x[j] * [i == j])",
)
def sift_index(expr: ir.Reduce) -> ir.Expr | None:
    """Replace a summed index by an index of the same extent that a delta equates it with."""
    return sift_delta(expr) if _is_index_tied(expr) else None


@rule(
    law="sum_c [c == t_n] * f_nc = f_n,t_n where t_n is a value of c, and else 0",
    before="x[M, N]; int t[M]; y[i] = sum[c]([c == t[i]] * x[i,c])",
    after="x[M, N]; int t[M]; y[i] = where(0 <= t[i] < N, x[i,clip(t[i], 0, N - 1)], 0)",
    refuses="x[M, N]; int t[N]; y[i] = sum[c]([i == t[c]] * x[i,c])",
)
def sift_label(expr: ir.Reduce) -> ir.Expr | None:
    """Replace a summed index by the entry of a tensor that a delta equates it with."""
    is_label = any(isinstance(place, ir.Access) for _, place, _ in _find_deltas(expr))
    return sift_delta(expr) if is_label else None


@rule(
    law="where(j == t_i, f(x_ij), z) = where(j == t_i, f(x_i,t_i), z)",
    before="x[M, N]; int t[M] < N; y[i,j] = where(j == t[i], exp(x[i,j]), x[i,j])",
    after="x[M, N]; int t[M] < N; y[i,j] = where(j == t[i], exp(x[i,t[i]]), x[i,j])",
    refuses="x[M, N]; int t[M] < N; y[i,j] = where(j == t[i], x[i,j], exp(x[i,j]))",
)
def take_at_label(expr: ir.Where) -> ir.Expr | None:
    """Write [j == t[n]] * f(j) as [j == t[n]] * f(t[n]), where f is not computed for each j."""
    calls = [part for part in walk(expr.then) if isinstance(part, (ir.Call, ir.Pow))]
    for _, index, place in _split_deltas(expr.condition, find_free(expr.then)):
        is_fewer = {*find_free(place)} <= {*find_free(expr.then)}
        is_work = any(index in find_free(call) for call in calls)
        if not (is_fewer and is_work and is_position(place, index)):
            continue
        try:
            then = substitute(expr.then, {index: place})
        except ValueError:  # a row needs all values of the index
            continue
        return ir.Where(expr.condition, then, expr.other)
    return None


@rule(
    law="sum_j (a_ij + [i == j]) * x_j = sum_j a_ij * x_j + sum_j [i == j] * x_j",
    before="A[N, N]; x[N]; y[i] = sum[j]((A[i,j] + [i == j]) * x[j])",
    after="A[N, N]; x[N]; y[i] = sum[j](A[i,j] * x[j]) + sum[j]([i == j] * x[j])",
    refuses="A[N, N]; x[N]; y[i] = sum[j]((A[i,j] + 1) * x[j])",
)
def split_delta(expr: ir.Reduce) -> ir.Expr | None:
    """Distribute a sum of a product over terms with a delta, whose sum is one entry."""
    if expr.kind != "sum" or expr.condition is not ir.TRUE:
        return None
    factors = find_factors(expr.body)
    for k, factor in enumerate(factors):
        if not isinstance(factor, ir.Add):
            continue
        products = (ir.product_of([*factors[:k], t, *factors[k + 1 :]]) for t in factor.terms)
        parts = [ir.Reduce("sum", expr.bound, ir.TRUE, product) for product in products]
        if any(_is_index_tied(part) or sift_label(part) for part in parts):
            return ir.Add(tuple(parts))
    return None


def _expand_rows(expr: ir.Expr, index: ir.Index) -> ir.Expr:
    """The expression with normalized rows along an index, and their logarithms, expanded.

    One entry of such a row is exp(x[i] - logsumexp_j x[j]).
    """

    def act(here: ir.Expr) -> ir.Expr:
        match here:
            case ir.Along(kind, along, ir.Truth(True), body) if (
                along is index and ROWS[kind].ignores_shift and is_finite_where_defined(body)
            ):
                taken = {i.name for i in find_indices(expr)}
                fresh = rename_apart(index, taken)
                whole = ir.Reduce("logsumexp", (fresh,), ir.TRUE, substitute(body, {index: fresh}))
                row: ir.Expr = ir.Add((body, ir.Mul((ir.MINUS_ONE, whole))))
                return ir.Call("exp", (row,)) if ROWS[kind].normalizes else row
        return here

    return rewrite_bottom_up(expr, act)


def _is_index_tied(expr: ir.Expr) -> bool:
    return any(
        isinstance(place, ir.Index) and place.extent is index.extent
        for index, place, _ in _find_deltas(expr)
    )


def _find_deltas(expr: ir.Expr) -> Iterator[tuple[ir.Index, ir.Expr, ir.Reduce]]:
    """Yield (index that a delta equates, its position, the sum without the delta)."""
    if not isinstance(expr, ir.Reduce) or expr.kind != "sum":
        return
    for condition, index, place in _split_deltas(expr.condition, expr.bound):
        yield index, place, ir.Reduce("sum", expr.bound, condition, expr.body)
    if isinstance(expr.body, ir.Where) and expr.body.other is ir.ZERO and not is_bracket(expr.body):
        for condition, index, place in _split_deltas(expr.body.condition, expr.bound):
            whole = ir.all_of(expr.condition, condition)
            yield index, place, ir.Reduce("sum", expr.bound, whole, expr.body.then)
    factors = find_factors(expr.body)
    for k, factor in enumerate(factors):
        if not isinstance(factor, ir.Where) or factor.other is not ir.ZERO:
            continue
        for condition, index, place in _split_deltas(factor.condition, expr.bound):
            kept = ir.sum_over((), factor.then, condition)
            left = [] if kept is ir.ONE else [kept]
            body = ir.product_of([*factors[:k], *left, *factors[k + 1 :]])
            yield index, place, ir.Reduce("sum", expr.bound, expr.condition, body)


def _split_deltas(
    condition: ir.Expr, bound: tuple[ir.Index, ...]
) -> Iterator[tuple[ir.Expr, ir.Index, ir.Expr]]:
    """(the other parts, the bound index, the place) for each part `index == place`."""
    parts = ir.split_and(condition)
    for k, part in enumerate(parts):
        if not isinstance(part, ir.Compare) or part.relation != "==":
            continue
        rest = ir.all_of(*parts[:k], *parts[k + 1 :])
        for one, other in ((part.left, part.right), (part.right, part.left)):
            if isinstance(one, ir.Index) and one in bound and one not in find_free(other):
                yield rest, one, other
