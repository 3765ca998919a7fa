"""Rules on products and sums: flatten, guard, pull sums out, distribute, count unused indices."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain, combinations
from typing import TypeAlias, TypeGuard

from derive.analysis.extents import is_implied_by_facts, is_never_empty
from derive.analysis.facts import find_facts, is_never_negative, read_bound
from derive.analysis.safety import is_safe
from derive.ir import nodes as ir
from derive.ir.functions import is_complex
from derive.ir.polynomial import NOTHING, ONE, Polynomial
from derive.ir.walk import (
    Names,
    exchange,
    find_accesses,
    find_brackets,
    find_children,
    find_free,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.rewrite.guards import is_harmless
from derive.rewrite.rule import rename_all, rule, system_rule

Powers: TypeAlias = dict[ir.Expr, Fraction]  # the exponent of each base of a product
Site: TypeAlias = tuple[ir.Equation, ir.Expr, Powers]  # the equation, a product in it, its powers


@rule(
    law="(a * b) * c = a * b * c",
    before="A[M, N]; y[i,j] = A[i,j] * (A[i,j] * 2)",
    after="A[M, N]; y[i,j] = A[i,j] * A[i,j] * 2",
    refuses="A[M, N]; y[i,j] = A[i,j] * (A[i,j] + 2)",
)
def flatten_product(expr: ir.Expr) -> ir.Expr | None:
    """Flatten a product inside a product, and a quotient by a product."""
    if not isinstance(expr, ir.Mul):
        return None
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
def flatten_sum(expr: ir.Expr) -> ir.Expr | None:
    """Flatten a sum inside a sum."""
    if not isinstance(expr, ir.Add):
        return None
    return ir.Add(tuple(part for term in expr.terms for part in ir.split_sum(term)))


@rule(
    law="x * [c] = where(c, x, 0): a bracket guards all of its product",
    before="x, y[N]; z[i,j] = x[i] * [j <= i] / y[j]",
    after="x, y[N]; z[i,j] = where(j <= i, x[i] / y[j], 0)",
    refuses="x, y[N]; z[i,j] = x[i] * y[j] + [j <= i] + exp([i <= j])",
)
def guard_product(expr: ir.Expr) -> ir.Expr | None:
    """Move the brackets among the factors of a product into one guard around the others."""
    if not isinstance(expr, ir.Mul) or len(expr.factors) == 1:
        return None
    conditions = [f.condition for f in expr.factors if is_bracket(f)]
    if not conditions:
        return None
    rest = [f for f in expr.factors if not is_bracket(f)]
    return ir.Where(ir.all_of(*conditions), ir.product_of(rest), ir.ZERO)


@rule(
    law="where(c, f(a), f(b)) = f(where(c, a, b)), and so for powers",
    before="x, y[N]; bool m[N]; z[i] = where(m[i], log(x[i]), log(1 - y[i]))",
    after="x, y[N]; bool m[N]; z[i] = log(where(m[i], x[i], 1 - y[i]))",
    refuses="x[M]; y[N]; bool m[M, N]; z[i,j] = where(m[i,j], exp(x[i]), exp(y[j]))",
)
def choose_argument(expr: ir.Expr) -> ir.Expr | None:
    """Move a choice between two values of a function into the argument, if that adds no entries."""
    chosen: ir.Expr
    match expr:
        case ir.Where(condition, ir.Call(name, (one,)), ir.Call(same, (other,))) if name == same:
            chosen = ir.Call(name, (ir.Where(condition, one, other),))
        case ir.Where(condition, ir.Pow(one, ir.Number() as n), ir.Pow(other, same)) if n is same:
            chosen = ir.Pow(ir.Where(condition, one, other), n)
        case _:
            return None
    own = {*find_free(one)}
    return chosen if own and own == {*find_free(other)} >= {*find_free(condition)} else None


@rule(
    law="where(x < c, f(x), f(c)) = f(min(x, c)), and so for max",
    before="x[N]; y[i] = where(x[i] < 2, (2 - x[i])**3, 0)",
    after="x[N]; y[i] = (2 - min(x[i], 2))**3",
    refuses="x[N]; y[i] = where(x[i] < 2, (1 - x[i])**3, 0)",
)
def clip_argument(expr: ir.Expr) -> ir.Expr | None:
    """Clip the argument of a function that is constant beyond a number."""
    if not isinstance(expr, ir.Where):
        return None
    value, rest = expr.then, list[ir.Expr]()
    for part in ir.split_and(expr.condition):
        for name, argument, end in _find_ends(part):
            there = _exchange_factors(expr.then, argument, end)
            is_end = there is not expr.then and Polynomial.of(there) == Polynomial.of(expr.other)
            if is_end and is_harmless(argument, part) and is_harmless(there, part):
                value = _exchange_factors(value, argument, ir.Call(name, (argument, end)))
                break
        else:
            rest.append(part)
    if value is expr.then:
        return None
    return ir.Where(ir.all_of(*rest), value, expr.other) if rest else value


def _find_ends(condition: ir.Expr) -> Iterator[tuple[str, ir.Expr, ir.Expr]]:
    """(min or max, the compared argument, the bound); for an abs, also of its square."""
    if not isinstance(condition, ir.Compare) or condition.relation in {"==", "!="}:
        return
    relation, one, other = condition.relation, condition.left, condition.right
    if not find_accesses(one):
        relation, one, other = ir.MIRRORED[relation], other, one
    if find_accesses(one) and not find_accesses(other) and not find_free(other):
        name = "min" if relation in {"<", "<="} else "max"
        yield name, one, other
        match one, other:
            case ir.Call("abs", (inside,)), ir.Number(number) if number >= 0:
                yield name, ir.Pow(inside, ir.Number(Fraction(2))), ir.Number(number**2)


def _exchange_factors(expr: ir.Expr, site: ir.Expr, new: ir.Expr) -> ir.Expr:
    """The expression with a site replaced, also where the site is some factors of a product."""

    def exchange_site(here: ir.Expr) -> ir.Expr:
        match here, site:
            case ir.Mul(factors), ir.Mul(own) if not Counter(own) - Counter(factors):
                return ir.product_of([*(Counter(factors) - Counter(own)).elements(), new])
        return new if here is site else here

    return rewrite_bottom_up(expr, exchange_site)


@rule(
    law="sum_j where(c, f, 0) = sum_{j: c} f",
    before="x[N]; s = sum[j, j >= 1](where(x[j] > 0, x[j], 0))",
    after="x[N]; s = sum[j, j >= 1 and x[j] > 0](x[j])",
    refuses="x[N]; s = sum[j](where(j <= 3, x[j], 1))",
)
def restrict_sum(expr: ir.Expr) -> ir.Expr | None:
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
def pull_sum_out(expr: ir.Expr) -> ir.Expr | None:
    """Move a sum among the factors of a product to the outside.

    An empty sum is 0 whatever its factors are, so only finite factors go under a condition.
    """
    if not isinstance(expr, ir.Mul) or len(expr.factors) == 1:
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
def merge_sums(expr: ir.Expr) -> ir.Expr | None:
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
def count_unused(expr: ir.Expr) -> ir.Expr | None:
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
            if kind == "sum" and body is ir.ONE:
                return _split_count(bound, ir.split_and(condition))
    return None


def _split_count(bound: tuple[ir.Index, ...], parts: Sequence[ir.Expr]) -> ir.Expr:
    """The number of index values under conditions, as a product over independent groups of indices.

    Each index occurs in a condition.
    """
    group, grows = {bound[0]}, True
    while grows:
        tied = [{*find_free(p)} & {*bound} for p in parts]
        grows = not group >= (new := group.union(*(each for each in tied if each & group)))
        group = new
    if len(group) == len(bound):
        return ir.Reduce("sum", bound, ir.all_of(*parts), ir.ONE)
    inside = [p for p, own in zip(parts, tied, strict=True) if own <= group]
    outside = [p for p in parts if p not in inside]
    one, other = (tuple(i for i in bound if (i in group) is is_in) for is_in in (True, False))
    return ir.product_of([_split_count(one, inside), _split_count(other, outside)])


@rule(
    law="sum_{a <= j <= b} 1 = max(0, b - a + 1)",
    before="x[N]; index i, j < N; y[i] = x[i] / sum[j, j <= i](1)",
    after="x[N]; index i < N; y[i] = x[i] * (i + 1)**(-1)",
    refuses="x[N]; index i, j < N; y[i] = sum[j, j <= i](x[j])",
)
def count_interval(expr: ir.Expr) -> ir.Expr | None:
    """Count a bound index that only bounds from below or above restrict."""
    if not isinstance(expr, ir.Reduce) or expr.kind != "sum" or expr.condition is ir.TRUE:
        return None
    parts = ir.split_and(expr.condition)
    for index in expr.bound:
        mine = [part for part in parts if index in find_free(part)]
        if not mine or index in find_free(expr.body) or not all(map(is_implied_by_facts, mine)):
            continue
        lows, highs = [NOTHING], [Polynomial.of(index.extent) - ONE]
        for fact in (fact for part in mine for fact in find_facts(part)):
            bound = read_bound(fact, index)
            if bound is None:
                break
            (lows if bound[0] else highs).append(bound[1])
        else:
            first, last = (_find_end(ends, is_last) for ends, is_last in ((lows, 0), (highs, 1)))
            count = last - first + ONE
            often = count.to_expr()
            if not is_never_negative(count):
                often = ir.Call("max", (often, ir.ZERO))
            left = tuple(i for i in expr.bound if i is not index)
            others = ir.all_of(*(part for part in parts if part not in mine))
            if {*left} & {*find_free(often)}:
                return ir.sum_over(left, ir.Mul((often, expr.body)), others)
            whole = ir.sum_over(left, expr.body, others)
            return often if whole is ir.ONE else ir.Mul((often, whole))
    return None


def _find_end(ends: list[Polynomial], is_last: int) -> Polynomial:
    """The minimum of upper ends or the maximum of lower ends, simplified."""
    gaps = ((a, [a - b if is_last else b - a for b in ends if b != a]) for a in ends)
    found = [a for a, gap in gaps if not any(map(is_never_negative, gap))] or ends[:1]
    if len(found := list(dict.fromkeys(found))) == 1:
        return found[0]
    parts = tuple(end.to_expr() for end in found)
    return Polynomial.atom(ir.Call("min" if is_last else "max", parts))


@rule(
    law="sum_e q * (k + a) = sum_e q * k + sum_e q * a",
    before="q[M, D]; k[N, D]; a[M, N, D]; s[i,j] = sum[e](q[i,e] * (k[j,e] + a[i,j,e]))",
    after="q[M, D]; k[N, D]; a[M, N, D]; "
    "s[i,j] = sum[e](q[i,e] * k[j,e]) + sum[e](q[i,e] * a[i,j,e])",
    refuses="q, u[M, D]; k[N, D]; s[i,j] = sum[e]((q[i,e] + u[i,e]) * k[j,e])",
)
def distribute_product(expr: ir.Expr) -> ir.Expr | None:
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
        if not isinstance(factor, ir.Add) or not _is_wide(factor, volume):
            continue
        if any(find_free(f) for f in others):
            parts = (ir.product_of([*factors[:k], t, *factors[k + 1 :]]) for t in factor.terms)
            return ir.Add(tuple(ir.Reduce("sum", bound, condition, part) for part in parts))
    return None


def _is_wide(wide: ir.Add, volume: set[ir.Index]) -> bool:
    """Whether the sum spans the volume, some term does not, and no term is negative."""
    terms = [set(find_free(term)) for term in wide.terms]
    spans = volume <= set().union(*terms) and not all(volume <= term for term in terms)
    return spans and not any(map(is_negative, wide.terms))


def is_negative(term: ir.Expr) -> bool:
    """Whether the term is subtracted."""
    factors = ir.split_product(term)
    return any(isinstance(f, ir.Number) and f.value < 0 for f in factors)


@rule(
    law="mean_j a * b = sum_j a * b / extent(j); mean_{c} f = sum_{c} f / sum_{c} 1",
    before="a, b[M, N]; y[i,k] = mean[j](a[i,j] * b[k,j])",
    after="a, b[M, N]; y[i,k] = sum[j](a[i,j] * b[k,j]) / N",
    refuses="a[M, N]; y[i] = mean[j](2 * a[i,j])",
)
def contract_mean(expr: ir.Expr) -> ir.Expr | None:
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
    """Bound indices, condition and body, with indices renamed that are taken outside."""
    nodes = [*walk(reduce.body), *walk(reduce.condition)]
    inside = [i for part in nodes if isinstance(part, ir.Reduce) for i in part.bound]
    inside += [*reduce.bound, *find_free(reduce.body), *find_free(reduce.condition)]
    used = {*taken, *(i.name for i in inside)}
    new = rename_all((i for i in reduce.bound if i.name in taken), used)
    bound = tuple(new.get(i, i) for i in reduce.bound)
    return bound, substitute(reduce.condition, new), substitute(reduce.body, new)


def is_bracket(expr: ir.Expr) -> TypeGuard[ir.Where]:
    """Whether the expression is an Iverson bracket: 1 where a condition holds, else 0."""
    return isinstance(expr, ir.Where) and expr.then is ir.ONE and expr.other is ir.ZERO


def may_go_in(factors: Sequence[ir.Expr], summed: ir.Reduce) -> bool:
    """Whether factors may go into a sum: it is never empty, or they are safe."""
    guarded = isinstance(summed.body, ir.Where) and summed.body.other is ir.ZERO
    full = any(is_never_empty(summed.condition, index) for index in summed.bound)
    return (full and not guarded) or all(map(is_safe, factors))


@system_rule(
    law="y = a * b * c, z = a * b * d: p = a * b, y = p * c, z = p * d",
    before="a, b[N]; y[i] = 2 * a[i] / b[i]; z[i] = y[i] + exp(a[i]) * (a[i] / b[i])**2",
    after="a, b[N]; y_common[i] = a[i] * b[i]**(-1); y[i] = 2 * y_common[i]; "
    "z[i] = y[i] + exp(a[i]) * y_common[i]**2",
    refuses="a, b, c, d[N]; y[i] = a[i] * b[i] / c[i]; z[i] = sqrt(a[i]) * c[i] / b[i]",
)
def share_product(system: ir.System) -> Iterator[ir.System]:
    """Compute common parts of elementwise products once, the most costly first.

    An equation that equals the common part is moved before the others and read by its own name.
    """
    names, found = Names.of(system), system
    while (best := _find_common(found)) is not None:
        common, users = best
        value = _write_powers(common)
        axes = find_free(value)
        named = [
            equation
            for equation, site, powers in users
            if powers == common
            and site is equation.value
            and set(equation.target.places) == set(axes)
        ]
        if named:
            own = named[0]
        else:
            name = names.take(f"{users[0][0].target.tensor.name}_common")
            own = ir.Equation(ir.name_axes(name, axes), value)
        equations: list[ir.Equation] = []
        for equation in found.equations:
            equations += [own] if equation is users[0][0] else []
            changed = equation.value
            for here, site, powers in users:
                if here is equation:
                    changed = exchange(changed, site, _divide(powers, common, own.target))
            if equation is not own:
                equations.append(ir.Equation(equation.target, changed))
        found = replace(found, equations=tuple(equations))
    if found is not system:
        yield found


def _find_common(system: ir.System) -> tuple[Powers, list[Site]] | None:
    """The common part that saves most operations, and the products that contain it."""
    sites: list[Site] = [
        (equation, site, _read_powers(site))
        for equation in system.equations
        for site in dict.fromkeys(_walk_products(equation.value))
    ]
    holders: dict[ir.Expr, list[int]] = {}
    for number, (_, _, powers) in enumerate(sites):
        for base in powers:
            if not isinstance(base, ir.Number):
                holders.setdefault(base, []).append(number)
    pairs = dict.fromkeys(chain.from_iterable(combinations(h, 2) for h in holders.values()))
    shared = {
        frozenset(common.items()): common
        for one, other in pairs
        if (common := _intersect(sites[one][2], sites[other][2]))
    }
    best, most = None, 0
    for common in shared.values():
        near = (sites[number] for number in holders[min(common, key=lambda b: len(holders[b]))])
        users = [site for site in near if _holds(site[2], common)]
        saved = _count_saved(common, len(users))
        if saved > most:
            best, most = (common, users), saved
    return best


def _walk_products(value: ir.Expr) -> Iterator[ir.Expr]:
    """The products outside of reductions, rows and choices."""
    if isinstance(value, (ir.Access, ir.Reduce, ir.Along, ir.Where, ir.Compare)):
        return
    factors = value.factors if isinstance(value, ir.Mul) and not is_complex(value) else ()
    if factors and not any(isinstance(f, (ir.Where, ir.Reduce)) for f in factors):
        yield value
    for part in find_children(value):
        yield from _walk_products(part)


def _read_powers(product: ir.Expr) -> Powers:
    """The exponents of the bases of a product; empty where exponents cannot be added."""
    found: Powers = {}
    for factor in ir.split_product(product):
        base, power = factor, Fraction(1)
        while isinstance(base, ir.Pow) and isinstance(base.exponent, ir.Number):
            if base is not factor and power != -1:
                break  # (x**2)**(1/2) is no x
            power *= base.exponent.value
            base = base.base
        before = found.get(base, power)
        if before * power < 0 or (base in found and (before + power).denominator > 1):
            return {}
        found[base] = power + (before if base in found else 0)
    return found


def _intersect(one: Powers, other: Powers) -> Powers:
    """The common part of two products without numbers; fractional powers must be equal."""
    return {
        base: power if abs(power) < abs(other[base]) else other[base]
        for base, power in one.items()
        if power * other.get(base, 0) > 0
        and not isinstance(base, ir.Number)
        and (power == other[base] or power.denominator == other[base].denominator == 1)
    }


def _holds(powers: Powers, common: Powers) -> bool:
    """Whether a product contains the common part."""
    ratios = (powers.get(base, 0) / power for base, power in common.items())
    return all(ratio >= 1 for ratio in ratios)


def _divide(powers: Powers, common: Powers, target: ir.Expr) -> ir.Expr:
    """The product divided by the largest power of the common part, times that power of its name."""
    times = Fraction(int(min(powers[base] / power for base, power in common.items())))
    left = {base: power - times * common.get(base, 0) for base, power in powers.items()}
    return _write_powers({base: power for base, power in left.items() if power} | {target: times})


def _write_powers(powers: Powers) -> ir.Expr:
    pairs = powers.items()
    return ir.product_of([b if power == 1 else ir.Pow(b, ir.Number(power)) for b, power in pairs])


def _count_saved(common: Powers, users: int) -> int:
    """The operations per entry that naming the common part saves."""
    if not any(map(find_free, common)):
        return 0
    powers = sum(abs(power) != 1 for power in common.values())
    own = len(common) - any(power > 0 for power in common.values()) + powers
    return (len(common) - 1 + powers) * users - own
