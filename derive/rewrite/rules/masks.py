"""Rules on masks over two indices: triangles become running sums, a diagonal is taken off.

sum_{j <= i} f_j = cumsum_i(f_i)          sum_{j != i} f_ij = sum_j f_ij - f_ii
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from derive.analysis.facts import find_facts
from derive.analysis.finite import is_finite_where_defined, is_readable, is_safe
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import find_free, substitute
from derive.rewrite.rule import rule
from derive.rewrite.rules.deltas import sift_delta
from derive.rewrite.rules.products import is_bracket, make_product
from derive.rewrite.rules.sums import find_factors

if TYPE_CHECKING:
    from collections.abc import Iterator

TWO = ir.Number(Fraction(2))


@dataclass(frozen=True, slots=True)
class Triangle:
    """Where a sum runs: `index` up to `edge` plus an offset, or from there on; and what is left."""

    index: ir.Index
    edge: ir.Index
    offset: int
    is_upper: bool  # index >= edge + offset
    rest: ir.Expr  # the condition without it


@rule(
    law="sum_{j <= i} f_j = cumsum_i(f_i)",
    before="x[N]; A[N, D]; bool m[N]; index i < N; "
    "y[i,d] = sum[j, j <= i and m[j]](exp(x[j]) * A[j,d])",
    after="x[N]; A[N, D]; bool m[N]; y[i,d] = cumsum[i, m[i]](exp(x[i]) * A[i,d])",
    refuses="x[N]; A[N, N]; y[i] = sum[j, j <= i](x[j] * A[i,j])",
)
def prefix_sum(expr: ir.Expr) -> ir.Expr | None:
    """A sum up to another index of what does not depend on that index is a running sum."""
    for triangle in find_triangles(expr):
        if not triangle.is_upper and triangle.offset == 0:
            running = to_running_sum(expr, triangle)
            if running is not None:
                return running
    return None


@rule(
    law="sum_{j < i} f_j = cumsum_i(f_i) - f_i",
    before="x[N]; index i < N; y[i] = sum[j, j < i](tanh(x[j]))",
    after="x[N]; y[i] = cumsum[i](tanh(x[i])) - tanh(x[i])",
    refuses="x[N]; index i < N; y[i] = sum[j, j < i](1 / x[j])",
    loses="digits where an entry is larger than the sum of those before it",
)
def strict_prefix_sum(expr: ir.Expr) -> ir.Expr | None:
    """A sum up to another index, without the entry there."""
    for triangle in find_triangles(expr):
        if not triangle.is_upper and triangle.offset == -1:
            running = to_running_sum(expr, triangle)
            own = take_edge(running)
            if running is not None and own is not None:
                return ir.Add((running, ir.Mul((ir.MINUS_ONE, own))))
    return None


@rule(
    law="sum_{j > i} f_j = sum_j f_j - cumsum_i(f_i); sum_{j >= i} f_j is that + f_i",
    before="x[N]; index i < N; y[i] = sum[j, j > i](x[j])",
    after="x[N]; y[i] = sum[j](x[j]) - cumsum[i](x[i])",
    refuses="x[N]; index i < N; y[i] = sum[j, j > i](log(x[j]))",
    loses="digits where the entries before are larger than the sum of those that follow",
)
def suffix_sum(expr: ir.Expr) -> ir.Expr | None:
    """A sum from another index on is the whole sum without the running sum before."""
    for triangle in find_triangles(expr):
        if triangle.is_upper and triangle.offset in {0, 1}:
            running = to_running_sum(expr, triangle)
            own = take_edge(running)
            if running is None or own is None:
                continue
            assert isinstance(expr, ir.Reduce)
            whole = ir.Reduce("sum", expr.bound, triangle.rest, expr.body)
            terms = (whole, ir.Mul((ir.MINUS_ONE, running)))
            return ir.Add(terms if triangle.offset else (*terms, own))
    return None


def find_triangles(expr: ir.Expr) -> Iterator[Triangle]:
    """The parts `j <= i + c` or `j >= i + c` of a sum's condition where the indices are alike."""
    if not isinstance(expr, ir.Reduce) or expr.kind != "sum" or expr.condition is ir.TRUE:
        return
    parts = ir.split_and(expr.condition)
    for k, part in enumerate(parts):
        if not isinstance(part, ir.Compare) or part.relation in {"==", "!="}:
            continue
        rest = ir.all_of(*parts[:k], *parts[k + 1 :])
        for fact in find_facts(part)[:1]:
            for index in expr.bound:
                yield from _read_fact(fact, index, rest)


def _read_fact(fact: Polynomial, index: ir.Index, rest: ir.Expr) -> Iterator[Triangle]:
    """The triangle that `edge - index + offset >= 0` or its contrary says."""
    indices = [atom for atom in fact.atoms if isinstance(atom, ir.Index)]
    if len(indices) != 2 or index not in indices:
        return
    (edge,) = (each for each in indices if each is not index)
    step = Polynomial.of(edge) - Polynomial.of(index)
    for is_upper, offset in ((False, fact - step), (True, step + fact)):
        number = offset.constant
        if number is None or number.denominator != 1:
            continue
        if is_same_extent(edge.extent, index.extent):
            yield Triangle(index, edge, int(-number if is_upper else number), is_upper, rest)


def to_running_sum(expr: ir.Expr, triangle: Triangle) -> ir.Expr | None:
    """The sum of all entries up to the edge, if they do not depend on it but by the condition.

    All entries of the row are read, also where a guard around the sum keeps the edge from them.
    """
    assert isinstance(expr, ir.Reduce)
    index, edge, rest = triangle.index, triangle.edge, triangle.rest
    if edge in {*expr.bound, *find_free(expr.body), *find_free(rest)}:
        return None
    bound = tuple(i for i in expr.bound if i is not index)
    try:
        condition, body = substitute(rest, {index: edge}), substitute(expr.body, {index: edge})
    except ValueError:  # the index of a row stands for itself
        return None
    if bound:
        condition, body = ir.TRUE, ir.Reduce("sum", bound, condition, body)
    return make_running_sum(edge, condition, body)


def make_running_sum(index: ir.Index, condition: ir.Expr, body: ir.Expr) -> ir.Along | None:
    """The running sum along an index, if that has a say in it, and all along it can be read."""
    if index not in (*find_free(condition), *find_free(body)):
        return None
    running = ir.Along("cumsum", index, condition, body)
    return running if is_readable(running) and is_finite_where_defined(running) else None


def take_edge(running: ir.Expr | None) -> ir.Expr | None:
    """The last entry of a running sum, if it is finite for sure."""
    if not isinstance(running, ir.Along) or not is_safe(running):
        return None
    if running.condition is ir.TRUE:
        return running.body
    return ir.Where(running.condition, running.body, ir.ZERO)


@rule(
    law="sum_{j != i} f_ij = sum_j f_ij - f_ii",
    before="A[N, N]; y[i] = sum[j, j != i](A[i,j])",
    after="A[N, N]; y[i] = sum[j](A[i,j]) - A[i,i]",
    refuses="x[N]; y[i] = sum[j, j != i](1 / (x[i] - x[j]))",
    loses="digits where the entry that is left out is larger than the sum of the others",
)
def split_diagonal(expr: ir.Expr) -> ir.Expr | None:
    """A sum over all entries but one is the whole sum less that entry, if it has a value there."""
    if not isinstance(expr, ir.Reduce) or expr.kind != "sum":
        return None
    for rest, unequal, factors in _find_unequal(expr):
        body = make_product(factors)
        whole = ir.Reduce("sum", expr.bound, rest, body)
        equal = ir.Compare("==", unequal.left, unequal.right)
        entry = sift_delta(ir.Reduce("sum", expr.bound, ir.all_of(rest, equal), body))
        if entry is not None and is_safe(whole) and is_safe(entry):
            return ir.Add((whole, ir.Mul((ir.MINUS_ONE, entry))))
    return None


def _find_unequal(expr: ir.Reduce) -> Iterator[tuple[ir.Expr, ir.Compare, list[ir.Expr]]]:
    """The `j != i` in the condition or in a bracket, with the other conditions and factors."""
    factors = list(find_factors(expr.body))
    for condition, rest, left in (
        (expr.condition, ir.TRUE, factors),
        *(
            (f.condition, expr.condition, [*factors[:k], *factors[k + 1 :]])
            for k, f in enumerate(factors)
            if is_bracket(f)
        ),
    ):
        parts = ir.split_and(condition)
        for k, part in enumerate(parts):
            if isinstance(part, ir.Compare) and part.relation == "!=":
                yield ir.all_of(rest, *parts[:k], *parts[k + 1 :]), part, left


@rule(
    law="sum_{i < j} a_i * a_j = ((sum_i a_i)**2 - sum_i a_i**2) / 2",
    before="v[N, F]; x[N]; y = sum[i, j, f, i < j](x[i] * v[i,f] * x[j] * v[j,f])",
    after="v[N, F]; x[N]; y = sum[f]((sum[i](x[i] * v[i,f])**2 - sum[i]((x[i] * v[i,f])**2)) / 2)",
    refuses="v[N, F]; x[N]; y = sum[i, j, f, i < j](x[i] * v[i,f] * v[j,f])",
    loses="digits where one entry is larger than the sum of the others",
)
def pair_sum(expr: ir.Expr) -> ir.Expr | None:
    """A sum over unordered pairs of a product of the same thing twice, by the square of its sum."""
    for triangle in find_triangles(expr):
        index, edge = triangle.index, triangle.edge
        assert isinstance(expr, ir.Reduce)
        if edge not in expr.bound or triangle.rest is not ir.TRUE:
            continue
        strict = triangle.offset == (1 if triangle.is_upper else -1)
        if not strict and triangle.offset != 0:
            continue
        found = _split_pair(find_factors(expr.body), index, edge)
        if found is None:
            continue
        alike, others = found
        first = next(i for i in expr.bound if i in {index, edge})
        entry = substitute(make_product(alike), {index: first})
        square = ir.Pow(ir.Reduce("sum", (first,), ir.TRUE, entry), TWO)
        own = ir.Reduce("sum", (first,), ir.TRUE, ir.Pow(entry, TWO))
        difference = ir.Add((square, ir.Mul((ir.MINUS_ONE, own)) if strict else own))
        body = make_product([*others, difference, ir.Pow(TWO, ir.MINUS_ONE)])
        bound = tuple(i for i in expr.bound if i not in {index, edge})
        return ir.Reduce("sum", bound, ir.TRUE, body) if bound else body
    return None


def _split_pair(
    factors: tuple[ir.Expr, ...], index: ir.Index, edge: ir.Index
) -> tuple[list[ir.Expr], list[ir.Expr]] | None:
    """(what is multiplied by itself, over `index`; the factors free of both indices)."""
    one = [f for f in factors if index in find_free(f)]
    other = [f for f in factors if edge in find_free(f)]
    if not one or any(f in other for f in one) or not all(map(is_safe, factors)):
        return None
    if any(is_bracket(f) for f in factors):
        return None
    try:
        if Counter(substitute(f, {edge: index}) for f in other) != Counter(one):
            return None
    except ValueError:  # the index of a row stands for itself
        return None
    return one, [f for f in factors if f not in one and f not in other]
