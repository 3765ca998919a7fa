"""Rules on deltas: a sum under an equation of its index with a position is one entry.

sum_j [i == j] * f_j = f_i          sum_v [v == tok[n]] * E[v,d] = E[tok[n],d]
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import combinations, product

from derive.analysis.facts import is_never_negative, is_whole
from derive.analysis.safety import is_finite, is_finite_where_defined, is_safe
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import (
    Names,
    exchange,
    exchange_tensors,
    find_accesses,
    find_free,
    find_indices,
    is_reading,
    rename_apart,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.rewrite import guards, rounding
from derive.rewrite.rule import drop_unread, put_value, rule, system_rule
from derive.rewrite.rules.products import is_bracket
from derive.rewrite.rules.sums import find_factors, negate_term


@rule(
    law="sum_j [j == i] * f_j = f_i where i is a position that j takes",
    before="int tok[L] < N; E[N, D]; w[N]; y[l,d] = sum[j](E[j,d] * [j == tok[l]] * w[j])",
    after="int tok[L] < N; E[N, D]; w[N]; y[l,d] = E[tok[l],d] * w[tok[l]]",
    refuses="A[M, N]; y[i] = sum[j](A[i,j] * [i == j])",
)
def sift_delta(expr: ir.Expr) -> ir.Expr | None:
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
def sift_index(expr: ir.Expr) -> ir.Expr | None:
    """Replace a summed index by an index of the same extent that a delta equates it with."""
    return sift_delta(expr) if _is_index_tied(expr) else None


@rule(
    law="sum_c [c == t_n] * f_nc = f_n,t_n where t_n is a value of c, and else 0",
    before="x[M, N]; int t[M]; y[i] = sum[c]([c == t[i]] * x[i,c])",
    after="x[M, N]; int t[M]; y[i] = where(0 <= t[i] < N, x[i,clip(t[i], 0, N - 1)], 0)",
    refuses="x[M, N]; int t[N]; y[i] = sum[c]([i == t[c]] * x[i,c])",
)
def sift_label(expr: ir.Expr) -> ir.Expr | None:
    """Replace a summed index by the entry of a tensor that a delta equates it with."""
    is_label = any(isinstance(place, ir.Access) for _, place, _ in _find_deltas(expr))
    return sift_delta(expr) if is_label else None


@rule(
    law="sum_{i, j: t_i = t_j} a_i * b_j = sum_c (sum_{i: t_i = c} a_i) * (sum_{j: t_j = c} b_j)",
    before="x, y[N]; int t[N] < 9; s = sum[i, j, t[i] == t[j]](x[i] * y[j])",
    after="x, y[N]; int t[N] < 9; index c < 9; "
    "s = sum[c](sum[i, t[i] == c](x[i]) * sum[j, t[j] == c](y[j]))",
    refuses="x[N, N]; int t[N] < 9; s = sum[i, j, t[i] == t[j]](x[i,j])",
)
def split_label(expr: ir.Expr) -> ir.Expr | None:
    """Write a sum over pairs with equal labels as a product of sums, summed over labels."""
    if not isinstance(expr, ir.Reduce) or expr.kind != "sum":
        return None
    conditions = ir.split_and(expr.condition)
    for equal in conditions:
        match equal:
            case ir.Compare("==", ir.Access(one) as left, ir.Access(other) as right) if (
                one.below is not None
                and other.below is not None
                and is_same_extent(one.below, other.below)
            ):
                pass
            case _:
                continue
        sides = [{*find_free(place)} & {*expr.bound} for place in (left, right)]
        if not all(sides) or sides[0] & sides[1]:
            continue
        label = ir.Index("c", one.below)
        whole = list[ir.Expr]()
        parts = [*find_factors(expr.body), *(c for c in conditions if c is not equal)]
        for k, place in enumerate((left, right)):
            own = [p for p in parts if not {*find_free(p)} & sides[1 - k]]
            own = [p for p in own if k == 0 or {*find_free(p)} & sides[1]]
            entries = ir.all_of(
                ir.Compare("==", place, label), *(p for p in own if p in conditions)
            )
            body = ir.product_of([p for p in own if p not in conditions])
            bound = tuple(i for i in expr.bound if i in sides[k])
            whole.append(ir.Reduce("sum", bound, entries, body))
            parts = [p for p in parts if p not in own]
        if not parts:
            rest = tuple(i for i in expr.bound if i not in sides[0] | sides[1])
            return ir.Reduce("sum", (label, *rest), ir.TRUE, ir.Mul(tuple(whole)))
    return None


@rule(
    law="where(j == t_i, f(x_ij), z) = where(j == t_i, f(x_i,t_i), z)",
    before="x[M, N]; int t[M] < N; y[i,j] = where(j == t[i], exp(x[i,j]), x[i,j])",
    after="x[M, N]; int t[M] < N; y[i,j] = where(j == t[i], exp(x[i,t[i]]), x[i,j])",
    refuses="x[M, N]; int t[M] < N; y[i,j] = where(j == t[i], x[i,j], exp(x[i,j]))",
)
def take_at_label(expr: ir.Expr) -> ir.Expr | None:
    """Compute a value that is used at one place of an index at that place alone."""
    if not isinstance(expr, ir.Where):
        return None
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
def split_delta(expr: ir.Expr) -> ir.Expr | None:
    """Distribute a sum of a product over terms with a delta, whose sum is one entry."""
    if not isinstance(expr, ir.Reduce) or expr.kind != "sum" or expr.condition is not ir.TRUE:
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


@system_rule(
    law="sum_j f_j([j == i]) = sum_j f_j(0) + f_i(1) - f_i(0)",
    before="x[M, N]; int t[M] < N; q[i,j] = where(j == t[i], 3, 2); "
    "y[i] = sum[j](q[i,j] * (log(q[i,j]) - x[i,j]))",
    after="x[M, N]; int t[M] < N; y[i] = (N - 1) * (2 * log(2)) + sum[j](-2 * x[i,j]) "
    "+ sum[j, j == t[i]](2 * x[i,j]) + sum[j, j == t[i]](3 * (log(3) - x[i,j]))",
    refuses="x[M, N]; int t[M] < N; y[i] = sum[j](where(j == t[i], x[i,j], log(x[i,j])))",
    loses="digits where the value at the label would be larger than the sum of the others",
)
def open_choice(system: ir.System) -> Iterator[ir.System]:
    """Split a sum in which one entry is chosen: the sum over all others, plus that entry.

    A row along the index is named, so that it can be read as a whole and at the label.
    """
    names = rounding.find_sensitive_names(system)
    nonfinite = guards.find_nonfinite(system, signs=True)
    choosing: list[ir.Equation] = []
    for place, marked in enumerate(exchange_tensors(system.equations, nonfinite)):
        sensitive, _ = rounding.find_sensitive(marked, names)
        parts = [*walk(marked.value)]
        reads = any(is_reading(marked.value, part.target.tensor) for part in choosing)
        if not reads and not _find_choices(marked.value):
            continue
        if not any(isinstance(part, (ir.Reduce, ir.Along)) for part in parts):
            choosing.append(marked)
        for site in dict.fromkeys(parts):
            new = None if site in sensitive else _split_choice(site, choosing)
            if new is not None:
                whole = replace(system.equations[place], value=exchange(marked.value, site, new))
                found = [*system.equations[:place], *_name_rows(whole, site, Names.of(system))]
                found = [replace(e, value=guards.unmark_tensors(e.value, nonfinite)) for e in found]
                found += system.equations[place + 1 :]
                yield replace(system, equations=drop_unread(found, system.results))


def _find_choices(value: ir.Expr) -> list[ir.Compare]:
    """The equations of an index inside the conditions of a value."""
    conditions = (part.condition for part in walk(value) if isinstance(part, ir.Where))
    return [
        part
        for condition in conditions
        for part in walk(condition)
        if isinstance(part, ir.Compare)
        and part.relation in {"==", "!="}
        and any(isinstance(side, ir.Index) for side in (part.left, part.right))
    ]


def _split_choice(expr: ir.Expr, choosing: Sequence[ir.Equation]) -> ir.Expr | None:
    """A sum split at its chosen entry, with the equations in `choosing` inlined.

    An inlined bracket would guard other factors, so it must have been decided.
    """
    if not isinstance(expr, ir.Reduce) or expr.kind != "sum":
        return None
    body = reduce(put_value, reversed(choosing), expr.body)
    known = {part for part in walk(expr.body) if is_bracket(part)}
    for choice in dict.fromkeys(_find_choices(body)):
        equal = ir.Compare("==", choice.left, choice.right)
        deltas = ir.Reduce("sum", expr.bound, ir.all_of(expr.condition, equal), ir.ONE)
        for index, place, _ in _find_deltas(deltas):
            rows = [part for part in walk(body) if isinstance(part, ir.Along)]
            own = (part for row in rows if row.index is index for part in walk(row.body))
            if _binds(body, find_free(equal)):
                continue  # the condition there is on an inner bound index
            if index in find_free(expr.condition) or equal in own or not is_position(place, index):
                continue
            chosen, others = (_decide(body, equal, truth) for truth in (True, False))
            if chosen is None or others is None:
                continue
            left = {part for each in (chosen, others) for part in walk(each) if is_bracket(part)}
            terms = _sum_others(expr, others, index, equal) if left <= known else None
            if terms is not None:
                return ir.sum_of([*terms, replace(deltas, body=chosen)])
    return None


def _binds(expr: ir.Expr, indices: Sequence[ir.Index]) -> bool:
    """Whether a reduction inside binds one of these indices."""
    reductions = (part for part in walk(expr) if isinstance(part, ir.Reduce))
    return any({*part.bound} & {*indices} for part in reductions)


def _sum_others(
    expr: ir.Reduce, others: ir.Expr, index: ir.Index, equal: ir.Compare
) -> list[ir.Expr] | None:
    """The sum over all values of an index but one, with terms free of the index counted.

    The number of the other values is at least 1 wherever a term divides by it.
    """
    count = Polynomial.of(index.extent) - Polynomial.of(1)
    others = rewrite_bottom_up(
        others,
        lambda part: (
            ir.Call("max", (part, ir.ONE))
            if isinstance(part, ir.Add) and Polynomial.of(part) == count
            else part
        ),
    )
    rest = tuple(i for i in expr.bound if i is not index)
    counted, summed = list[ir.Expr](), list[ir.Expr]()
    for factors in _distribute(others, index):
        outer = ir.product_of([f for f in factors if index not in find_free(f)])
        term = negate_term(
            negate_term(ir.product_of(factors))
        )  # merges the numbers among the factors
        if index in find_free(term):
            summed.append(term)
            if not is_safe(term):
                return None
            continue
        if find_accesses(outer) and not is_safe(outer):
            return None  # 0 times infinity where there are no other values
        number = ir.Mul((ir.Add((index.extent, ir.MINUS_ONE)), outer))
        counted.append(ir.sum_over(rest, number, expr.condition))
    if summed:
        entry = replace(expr, condition=ir.all_of(expr.condition, equal))
        counted.append(replace(expr, body=ir.sum_of(summed)))
        counted.append(replace(entry, body=ir.sum_of(list(map(negate_term, summed)))))
    return counted


def _distribute(expr: ir.Expr, index: ir.Index) -> list[tuple[ir.Expr, ...]]:
    """The terms of an expression, each as factors; a sum that alone has the index is expanded."""
    if isinstance(expr, ir.Add):
        return [found for term in expr.terms for found in _distribute(term, index)]
    factors = find_factors(expr)
    for k, factor in enumerate(factors):
        others = [*factors[:k], *factors[k + 1 :]]
        is_apart = not any(index in find_free(f) for f in others)
        if isinstance(factor, ir.Add) and is_apart:
            products = (ir.Mul((*others, term)) for term in factor.terms)
            return [found for each in products for found in _distribute(each, index)]
    return [factors]


def _decide(expr: ir.Expr, equal: ir.Compare, truth: bool) -> ir.Expr | None:
    """The expression where an equation is true or false; None for a 0 times an infinity."""
    sides = {equal.left, equal.right}

    def act(here: ir.Expr) -> ir.Expr:
        match here:
            case ir.Compare("==" | "!=" as relation, left, right) if {left, right} == sides:
                return ir.Truth(truth == (relation == "=="))
            case ir.And(parts):
                return ir.all_of(*parts)
            case ir.Or(parts):
                return ir.any_of(*parts)
            case ir.Not(ir.Truth(value)):
                return ir.Truth(not value)
            case ir.Where(ir.Truth(value), then, other):
                return then if value else other
            case ir.Add(terms):
                found = [part for term in terms for part in ir.split_sum(term)]
                total = sum(part.value for part in found if isinstance(part, ir.Number))
                rest = [part for part in found if not isinstance(part, ir.Number)]
                return ir.sum_of([ir.Number(Fraction(total)), *rest] if total else rest)
            case ir.Mul(factors) if ir.ZERO in factors and all(map(is_finite, factors)):
                return ir.ZERO
            case ir.Mul((ir.Number(-1), ir.Add(terms))):
                return ir.Add(tuple(map(negate_term, terms)))
            case ir.Mul(factors):
                return ir.product_of([factor for factor in factors if factor is not ir.ONE])
        return here

    decided = rewrite_bottom_up(expr, act)
    products = (part for part in walk(decided) if isinstance(part, ir.Mul))
    return None if any(ir.ZERO in part.factors for part in products) else decided


def _name_rows(equation: ir.Equation, site: ir.Expr, taken: Names) -> list[ir.Equation]:
    """The equation with each row of a site moved into an equation of its own."""
    rows = dict.fromkeys(part for part in walk(site) if isinstance(part, ir.Along))
    found = list[ir.Equation]()
    value = equation.value
    for row in rows:
        reads = [access.tensor.name for access in find_accesses(row)]
        name = taken.take("_".join([row.kind, *reads[:1]]))
        own = ir.name_axes(name, find_free(row))
        found.append(ir.Equation(own, row))
        value = exchange(value, row, own)
    return [*found, replace(equation, value=value)]


@rule(
    law="[a < b] + [a == b and c] = [a < b or a == b and c]",
    before="x[N]; r[n] = sum[m]([x[m] < x[n]]) + sum[k, k < n]([x[k] == x[n]])",
    after="x[N]; r[n] = sum[m]([x[m] < x[n] or (m < n and x[m] == x[n])])",
    refuses="x[N]; r[n] = sum[m]([x[m] < x[n]]) + sum[k, k < n]([x[k] <= x[n]])",
)
def join_brackets(expr: ir.Expr) -> ir.Expr | None:
    """Join brackets that exclude each other, or sums of such brackets."""
    match expr:
        case ir.Where(condition, ir.ONE, ir.Where(other, ir.ONE, ir.ZERO)):
            return ir.Where(ir.any_of(condition, other), ir.ONE, ir.ZERO)
        case ir.Add(terms):
            pass
        case _:
            return None
    for one, other in combinations(terms, 2):
        joined = _join_counts(one, other)
        if joined is not None:
            rest = [term for term in terms if term is not one and term is not other]
            return ir.sum_of([joined, *rest])
    return None


def _join_counts(one: ir.Expr, other: ir.Expr) -> ir.Expr | None:
    match one, other:
        case ir.Where(left, ir.ONE, ir.ZERO), ir.Where(right, ir.ONE, ir.ZERO):
            is_apart = _exclude(left, right)
            return ir.Where(ir.any_of(left, right), ir.ONE, ir.ZERO) if is_apart else None
        case ir.Reduce("sum", (index,), own, body), ir.Reduce("sum", (bound,), where, term):
            if not is_same_extent(index.extent, bound.extent) or index in find_free(other):
                return None
            new: dict[ir.Expr, ir.Expr] = {bound: index}
            parts = (ir.sum_over((), body, own), substitute(ir.sum_over((), term, where), new))
            joined = _join_counts(*(_merge_brackets(part) for part in parts))
            return None if joined is None else ir.Reduce("sum", (index,), ir.TRUE, joined)
    return None


def _merge_brackets(expr: ir.Expr) -> ir.Expr:
    """A bracket inside a bracket as one bracket."""
    match expr:
        case ir.Where(condition, ir.Where(inner, ir.ONE, ir.ZERO), ir.ZERO):
            return ir.Where(ir.all_of(condition, inner), ir.ONE, ir.ZERO)
    return expr


def _exclude(one: ir.Expr, other: ir.Expr) -> bool:
    """Whether one condition makes two values unequal by an order and the other makes them equal."""
    for left, right in product(ir.split_and(one), ir.split_and(other)):
        match left, right:
            case ir.Compare(sign, a, b), ir.Compare(relation, c, d) if {a, b} == {c, d}:
                if {sign, relation} in ({"<", "=="}, {">", "=="}):
                    return True
    return False


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


def is_position(place: ir.Expr, index: ir.Index) -> bool:
    """Whether the place is, for all sizes, one of the values of the index."""
    if isinstance(place, ir.Index) and place.extent is index.extent:
        return True
    value, extent = Polynomial.of(place), Polynomial.of(index.extent)
    last = extent - Polynomial.of(1)
    return is_whole(value) and is_never_negative(value) and is_never_negative(last - value)


def _find_deltas(expr: ir.Expr) -> Iterator[tuple[ir.Index, ir.Expr, ir.Reduce]]:
    """Each index of a sum that a delta equates, its position, and the sum without the delta."""
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
    """The condition without one of its equations, the bound index of that, and the other side."""
    parts = ir.split_and(condition)
    for k, part in enumerate(parts):
        if not isinstance(part, ir.Compare) or part.relation != "==":
            continue
        rest = ir.all_of(*parts[:k], *parts[k + 1 :])
        for one, other in ((part.left, part.right), (part.right, part.left)):
            if isinstance(one, ir.Index) and one in bound and one not in find_free(other):
                yield rest, one, other
