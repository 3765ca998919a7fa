"""Rules on products and sums: flatten, guard, pull sums out, distribute, count unused indices."""

from collections.abc import Sequence

from derive.analysis.extents import is_never_empty
from derive.analysis.safety import is_safe
from derive.ir import nodes as ir
from derive.ir.walk import find_brackets, find_free, is_bracket, substitute, walk
from derive.rewrite.rule import rename_all, rule


@rule(
    law="(a * b) * c = a * b * c",
    before="A[M, N]; y[i,j] = A[i,j] * (A[i,j] * 2)",
    after="A[M, N]; y[i,j] = A[i,j] * A[i,j] * 2",
    refuses="A[M, N]; y[i,j] = A[i,j] * (A[i,j] + 2)",
)
def flatten_product(expr: ir.Mul) -> ir.Expr | None:
    """Flatten a product inside a product, and a quotient by a product."""
    factors: list[ir.Expr] = []
    for factor in expr.factors:
        match factor:
            case ir.Mul(inner):
                factors += inner
            case ir.Pow(ir.Mul(inner) as under, ir.Number(power)) if power == -1:
                guarded = bool(find_brackets(under))  # 1/0 where the bracket is 0
                factors += [factor] if guarded else [ir.Pow(f, factor.exponent) for f in inner]
            case ir.Pow(ir.Pow(base, ir.Number(power)), ir.Number(outer)) if (
                power == -1 and outer == -1
            ):
                factors.append(factor if is_bracket(base) else base)
            case _:
                factors.append(factor)
    return ir.Mul(tuple(factors))


@rule(
    law="(a + b) + c = a + b + c",
    before="A, B[N]; y[i] = A[i] + (B[i] + A[i])",
    after="A, B[N]; y[i] = A[i] + B[i] + A[i]",
    refuses="A, B[N]; y[i] = A[i] + exp(B[i] + A[i])",
)
def flatten_sum(expr: ir.Add) -> ir.Expr | None:
    """Flatten a sum inside a sum."""
    return ir.Add(tuple(part for term in expr.terms for part in ir.split_sum(term)))


@rule(
    law="x * [c] = where(c, x, 0): a bracket guards all of its product",
    before="x, y[N]; z[i,j] = x[i] * [j <= i] / y[j]",
    after="x, y[N]; z[i,j] = where(j <= i, x[i] / y[j], 0)",
    refuses="x, y[N]; z[i,j] = x[i] * y[j] + [j <= i] + exp([i <= j])",
)
def guard_product(expr: ir.Mul) -> ir.Expr | None:
    """Move the brackets among the factors of a product into one guard around the others."""
    if len(expr.factors) == 1:
        return None
    conditions = [f.condition for f in expr.factors if is_bracket(f)]
    if not conditions:
        return None
    rest = [f for f in expr.factors if not is_bracket(f)]
    return ir.Where(ir.all_of(*conditions), ir.product_of(rest), ir.ZERO)


@rule(
    law="sum_j where(c, f, 0) = sum_{j: c} f",
    before="x[N]; s = sum[j, j >= 1](where(x[j] > 0, x[j], 0))",
    after="x[N]; s = sum[j, j >= 1 and x[j] > 0](x[j])",
    refuses="x[N]; s = sum[j](where(j <= 3, x[j], 1))",
)
def restrict_sum(expr: ir.Reduce) -> ir.Expr | None:
    """Move a guard directly under a sum into its condition."""
    match expr:
        case ir.Reduce("sum", bound, condition, ir.Where(guard, body, other)) if other is ir.ZERO:
            return ir.Reduce("sum", bound, ir.all_of(condition, guard), body)
    return None


@rule(
    law="a * sum_j f_j = sum_j a * f_j",
    before="A[M, N]; x[N]; y[M]; z[i] = y[i] * sum[j](A[i,j] * x[j])",
    after="A[M, N]; x[N]; y[M]; z[i] = sum[j](y[i] * (A[i,j] * x[j]))",
    refuses="A[M, N]; x[N]; y[M]; z[i] = sum[j, x[j] > 0](A[i,j]) / y[i]   # 0/0 of nothing",
)
def pull_sum_out(expr: ir.Mul) -> ir.Expr | None:
    """Move a sum among the factors of a product to the outside.

    An empty sum is 0 whatever its factors are, so only finite factors go under a condition.
    """
    if len(expr.factors) == 1:
        return None
    for k, summed in enumerate(expr.factors):
        rest = expr.factors[:k] + expr.factors[k + 1 :]
        if not isinstance(summed, ir.Reduce) or summed.kind != "sum" or summed.body is ir.ONE:
            continue  # a count, which gains nothing
        if may_go_in(rest, summed):
            taken = {i.name for f in rest for i in find_free(f)}
            bound, condition, body = rename_bound(summed, taken)
            product = ir.Mul((*expr.factors[:k], body, *expr.factors[k + 1 :]))
            return ir.Reduce("sum", bound, condition, product)
    return None


@rule(
    law="sum_i sum_j f = sum_ij f",
    before="A[M, N]; s = sum[i](sum[j](A[i,j]))",
    after="A[M, N]; s = sum[i, j](A[i,j])",
    refuses="A[M, N]; s = sum[i](max[j](A[i,j]))",
)
def merge_sums(expr: ir.Reduce) -> ir.Expr | None:
    """Merge a sum directly inside a sum."""
    match expr:
        case ir.Reduce("sum", outer, condition, ir.Reduce("sum", _, _, _) as inner):
            taken = {i.name for i in outer} | {i.name for i in find_free(condition)}
            bound, inside, body = rename_bound(inner, taken)
            return ir.Reduce("sum", outer + bound, ir.all_of(condition, inside), body)
    return None


@rule(
    law="sum_j f = extent(j) * f and prod_j f = f**extent(j) where j does not occur in f",
    before="x[M]; y[N]; index j < N; s[i] = sum[j](x[i] * 2) + prod[j](x[i]) + y[0]",
    after="x[M]; y[N]; s[i] = N * (x[i] * 2) + x[i]**N + y[0]",
    refuses="x[M]; index i < M; s[i] = sum[j, j <= i](x[j])",
)
def count_unused(expr: ir.Reduce) -> ir.Expr | None:
    """Replace an unused bound index by a factor or an exponent: its extent."""
    match expr:
        case ir.Reduce("sum" | "prod" as kind, bound, condition, body):
            used = {*find_free(body), *find_free(condition)}
            idle = tuple(i.extent for i in bound if i not in used)
            left = tuple(i for i in bound if i in used)
            if idle and kind == "sum":
                return ir.Mul((*idle, ir.sum_over(left, body, condition)))
            if idle and (left or condition is ir.TRUE):
                once = ir.Reduce("prod", left, condition, body) if left else body
                return ir.Pow(once, ir.product_of(idle))
    return None


@rule(
    law="sum_e q * (k + a) = sum_e q * k + sum_e q * a",
    before="q[M, D]; k[N, D]; a[M, N, D]; s[i,j] = sum[e](q[i,e] * (k[j,e] + a[i,j,e]))",
    after="q[M, D]; k[N, D]; a[M, N, D]; "
    "s[i,j] = sum[e](q[i,e] * k[j,e]) + sum[e](q[i,e] * a[i,j,e])",
    refuses="q, u[M, D]; k[N, D]; s[i,j] = sum[e]((q[i,e] + u[i,e]) * k[j,e])",
)
def distribute_product(expr: ir.Reduce) -> ir.Expr | None:
    """Distribute a product over a sum that is wider than some of its terms.

    The sum spans all indices of the product, so its tensor would be large, while each term is
    contracted with the other factors. A difference stays: distributing it loses digits.
    """
    match expr:
        case ir.Reduce("sum", bound, condition, ir.Mul(factors)):
            volume = {*bound, *(i for f in factors for i in find_free(f))}
        case _:
            return None
    for k, factor in enumerate(factors):
        others = factors[:k] + factors[k + 1 :]
        if not isinstance(factor, ir.Add) or not _has_narrow_terms(factor, volume):
            continue
        if any(find_free(f) for f in others):
            parts = (ir.product_of([*factors[:k], t, *factors[k + 1 :]]) for t in factor.terms)
            return ir.Add(tuple(ir.Reduce("sum", bound, condition, part) for part in parts))
    return None


def _has_narrow_terms(wide: ir.Add, volume: set[ir.Index]) -> bool:
    """Whether a sum has all indices of `volume`, but a term lacks one, and no term is negative."""
    terms = [set(find_free(term)) for term in wide.terms]
    spans = volume <= set().union(*terms) and not all(volume <= term for term in terms)
    return spans and not any(map(is_negative, wide.terms))


def is_negative(term: ir.Expr) -> bool:
    """Whether the term has a negative number as a factor."""
    factors = ir.split_product(term)
    return any(isinstance(f, ir.Number) and f.value < 0 for f in factors)


@rule(
    law="mean_j a * b = sum_j a * b / extent(j); mean_{c} f = sum_{c} f / sum_{c} 1",
    before="a, b[M, N]; y[i,k] = mean[j](a[i,j] * b[k,j])",
    after="a, b[M, N]; y[i,k] = sum[j](a[i,j] * b[k,j]) / N",
    refuses="a[M, N]; y[i] = mean[j](2 * a[i,j])",
)
def contract_mean(expr: ir.Reduce) -> ir.Expr | None:
    """Write a mean of a product that no factor spans as a contraction over the number of entries.

    A mean under a condition becomes the sum over the number of its entries.
    """
    match expr:
        case ir.Reduce("mean", bound, condition, body) if condition is not ir.TRUE:
            count = ir.Reduce("sum", bound, condition, ir.ONE)
            return ir.Mul((ir.Reduce("sum", bound, condition, body), ir.Pow(count, ir.MINUS_ONE)))
        case ir.Reduce("mean", bound, condition, ir.Mul(factors) as body) if condition is ir.TRUE:
            volume = set(find_free(body))
            if any(volume <= set(find_free(f)) for f in factors):
                return None  # nothing to contract: the mean of an elementwise product
            total = ir.Reduce("sum", bound, ir.TRUE, body)
            return ir.Mul((total, *(ir.Pow(i.extent, ir.MINUS_ONE) for i in bound)))
    return None


def rename_bound(
    reduce: ir.Reduce, taken: set[str]
) -> tuple[tuple[ir.Index, ...], ir.Expr, ir.Expr]:
    """(bound, condition, body) of a reduction, with bound indices renamed whose names are taken."""
    nodes = [*walk(reduce.body), *walk(reduce.condition)]
    inside = [i for part in nodes if isinstance(part, ir.Reduce) for i in part.bound]
    inside += [*reduce.bound, *find_free(reduce.body), *find_free(reduce.condition)]
    used = {*taken, *(i.name for i in inside)}
    new = rename_all((i for i in reduce.bound if i.name in taken), used)
    bound = tuple(new.get(i, i) for i in reduce.bound)
    return bound, substitute(reduce.condition, new), substitute(reduce.body, new)


def may_go_in(factors: Sequence[ir.Expr], summed: ir.Reduce) -> bool:
    """Whether factors may go into a sum: it is never empty, or they are safe."""
    guarded = isinstance(summed.body, ir.Where) and summed.body.other is ir.ZERO
    full = any(is_never_empty(summed.condition, index) for index in summed.bound)
    return (full and not guarded) or all(map(is_safe, factors))
