"""Rules on chains of products: equations are joined so that another order may be chosen.

    s[i,j] = sum_d q_id * k_jd;  z[i,e] = sum_j s_ij * v_je    is    sum_{j,d} q_id * k_jd * v_je

Once all products are in one sum, a plan may multiply k by v first. Under a triangle the inner
product is a running sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.analysis.facts import is_never_negative
from derive.analysis.safety import is_finite_where_defined, is_safe
from derive.ir import nodes as ir
from derive.ir.walk import find_brackets, find_free, is_reading, map_children, substitute, walk
from derive.rewrite.guards import find_nonfinite, mark_tensors, unmark_tensors
from derive.rewrite.rule import find_value, rule, system_rule
from derive.rewrite.rules import masks, products
from derive.rewrite.rules.sums import find_factors


@dataclass(frozen=True, slots=True)
class Chain:
    """A sum over indices, under a condition, of a product without products as factors."""

    bound: tuple[ir.Index, ...]
    condition: ir.Expr
    factors: tuple[ir.Expr, ...]

    def to_expr(self) -> ir.Expr:
        """The sum; without bound indices, the product where the condition holds, else 0."""
        body = ir.product_of(list(self.factors))
        return ir.sum_over(self.bound, body, self.condition)

    def replace_factors(self, find: Callable[[ir.Expr], ir.Expr | None]) -> Chain:
        """The chain with each factor replaced by the value that `find` gives, if not None."""
        chain, k = self, 0
        while k < len(chain.factors):
            value = find(chain.factors[k])
            if value is None:
                k += 1
            else:
                term = split_term(value)
                body = ir.product_of(list(term.factors))
                chain = chain.merge_sum(k, ir.Reduce("sum", term.bound, term.condition, body))
        return chain

    def merge_sum(self, position: int, inner: ir.Reduce) -> Chain:
        """The chain with the factor at a position replaced by a sum."""
        before, after = self.factors[:position], self.factors[position + 1 :]
        free = (i for part in (self.condition, *before, *after) for i in find_free(part))
        taken = {i.name for i in (*self.bound, *free)}
        bound, condition, body = products.rename_bound(inner, taken)
        whole = ir.all_of(self.condition, condition)
        return Chain((*self.bound, *bound), whole, (*before, *find_factors(body), *after))


def split_term(expr: ir.Expr) -> Chain:
    """The expression as the sum of one product: a single sum among the factors moves around them.

    The sum stays where the others may not go into it, see `may_go_in`. A product where a condition
    holds, else 0, is such a sum without indices.
    """
    if isinstance(expr, ir.Where) and expr.other is ir.ZERO and expr.then is not ir.ONE:
        inner = split_term(expr.then)
        return replace(inner, condition=ir.all_of(expr.condition, inner.condition))
    chain = Chain((), ir.TRUE, find_factors(expr))
    sums = [f for f in chain.factors if isinstance(f, ir.Reduce) and f.kind == "sum"]
    others = [f for f in chain.factors if f not in sums]
    if len(sums) != 1 or not products.may_go_in(others, sums[0]):
        return chain
    return chain.merge_sum(chain.factors.index(sums[0]), sums[0])


def to_chain(expr: ir.Reduce) -> Chain:
    """A sum as a Chain, with the factors of products inside its product as factors."""
    return Chain(expr.bound, expr.condition, find_factors(expr.body))


@rule(
    law="sum_{j <= i} (sum_d q_id * k_jd) * v_je = sum_d q_id * cumsum_i(k_id * v_ie)",
    before="q, k[N, D]; v[N, E]; z[i,e] = sum[j, j <= i](sum[d](q[i,d] * k[j,d]) * v[j,e])",
    after="q, k[N, D]; v[N, E]; z[i,e] = sum[d](q[i,d] * cumsum[i](k[i,d] * v[i,e]))",
    refuses="q, k[N, D]; v[N, E]; z[i,e] = sum[j, j <= i](exp(sum[d](q[i,d] * k[j,d])) * v[j,e])",
)
def accumulate_chain(expr: ir.Reduce) -> ir.Expr | None:
    """Under a triangle, write the factors with its inner index alone as a running sum.

    An offset of the triangle shifts the running sum, which then begins with zeros.
    """
    for triangle in masks.find_edge_bounds(expr):
        if not triangle.is_least and triangle.offset <= 0:
            assert isinstance(expr, ir.Reduce)
            found = _accumulate(_flatten_between(expr, triangle), triangle)
            if found is not None:
                return found
    return None


def _flatten_between(expr: ir.Reduce, triangle: masks.EdgeBound) -> Chain:
    """The sum without its triangle, with sums merged that have both indices of it."""
    ends = {triangle.index, triangle.edge}

    def find_sum(f: ir.Expr) -> ir.Expr | None:
        is_sum = isinstance(f, ir.Reduce) and f.kind == "sum"
        return f if is_sum and ends <= {*find_free(f)} else None

    return replace(to_chain(expr), condition=triangle.rest).replace_factors(find_sum)


def _accumulate(chain: Chain, triangle: masks.EdgeBound) -> ir.Expr | None:
    """The product of the factors free of the inner index and the running sum of the others.

    None if a factor with the inner index also has the outer one, or a guard forbids it.
    """
    index, edge = triangle.index, triangle.edge
    inside, outside = _split_parts(chain.factors, index)
    if not any(find_free(f) for f in outside):  # constants are summed with the rest
        inside, outside = list(chain.factors), []
    within, around = _split_parts(ir.split_and(chain.condition), index)
    if any(edge in find_free(part) for part in (*inside, *within)):
        return None
    guarded = bool(within) or around != [ir.TRUE] or any(map(find_brackets, inside))
    guarded |= triangle.offset < 0  # the first sums are empty
    if guarded and not all(map(is_safe, outside)):
        return None
    shared = {i for part in (*outside, *around) for i in find_free(part)} | {edge}
    alone = tuple(i for i in chain.bound if i not in shared and i is not index)
    entry = Chain(alone, ir.all_of(*within) if alone else ir.TRUE, tuple(inside)).to_expr()
    here: dict[ir.Expr, ir.Expr] = {index: edge}
    try:
        condition = substitute(ir.TRUE if alone else ir.all_of(*within), here)
        running = masks.make_running_sum(edge, condition, substitute(entry, here))
    except ValueError:  # the index of a row cannot be replaced
        return None
    if running is None or not all(map(is_finite_where_defined, outside)):
        return None
    moved = masks.move_running_sum(running, triangle.offset)
    if moved is None:
        return None
    bound = tuple(i for i in chain.bound if i not in alone and i is not index)
    return Chain(bound, ir.all_of(*around), (*outside, moved)).to_expr()


def _split_parts(parts: Sequence[ir.Expr], index: ir.Index) -> tuple[list[ir.Expr], list[ir.Expr]]:
    """The parts that depend on the index, and the others."""
    has = [part for part in parts if index in find_free(part)]
    return has, [part for part in parts if part not in has]


@system_rule(
    law="s_ij = sum_d q_id * k_jd, z_ie = sum_j s_ij * v_je: z_ie = sum_jd q_id * k_jd * v_je",
    before="q[M, D]; k[N, D]; v[N, E]; s[i,j] = sum[d](q[i,d] * k[j,d]); "
    "z[i,e] = sum[j](s[i,j] * v[j,e])",
    after="q[M, D]; k[N, D]; v[N, E]; z[i,e] = sum[j, d](q[i,d] * k[j,d] * v[j,e])",
    refuses="q[M, D]; k[N, D]; v[N, E]; s[i,j] = sum[d](q[i,d] * k[j,d]); "
    "z[i,e] = sum[j](exp(s[i,j]) * v[j,e])",
)
def inline_equation(system: ir.System) -> Iterator[ir.System]:
    """Inline an equation that is a sum of a product into the sums that read it.

    All of its reads are factors of sums. An equation stays if a reduction in it has all of its
    indices. Equations that one equation reads are inlined one by one, and also all at once.
    """
    nonfinite = find_nonfinite(system)
    together: dict[ir.Equation, list[ir.Equation]] = {}
    for equation in system.equations:
        term = split_term(equation.value)
        if len(term.factors) == 1 and not term.bound:
            continue
        width = {*find_free(equation.target)}
        if any({*find_free(f)} >= width and _is_reduced(f) for f in term.factors):
            continue
        if is_finite_where_defined(mark_tensors(equation.value, nonfinite)):
            for new in _inline(equation, system, nonfinite):
                yield new
                tensor = equation.target.tensor
                for reader in (e for e in system.equations if is_reading(e.value, tensor)):
                    together.setdefault(reader, []).append(equation)
    for equations in together.values():
        if len(equations) > 1:
            whole = system
            for equation in equations:
                whole = next(_inline(equation, whole, nonfinite), whole)
            yield whole


@rule(
    law="(a_i * b_j)**p = a_i**p * b_j**p where -1 < p < 1 and neither is below 0; p = -1",
    before="a[M, D]; b[N, D]; z[i,j] = 1 / sqrt(sum[d](a[i,d]**2) * sum[d](b[j,d]**2))",
    after="a[M, D]; b[N, D]; z[i,j] = 1 / sqrt(sum[d](a[i,d]**2)) / sqrt(sum[d](b[j,d]**2))",
    refuses="a[M]; b[N, D]; z[i,j] = 1 / sqrt(a[i] * sum[d](b[j,d]**2))",
)
def split_root(expr: ir.Pow) -> ir.Expr | None:
    """Split a root of a product that is wider than each of its factors.

    Roots and inverses of factors stay in range wherever the product's do; higher powers may not.
    """
    match expr:
        case ir.Pow(base, ir.Number(power) as exponent) if -1 <= power < 1:
            return _split_power(base, exponent)
    return None


def _split_power(base: ir.Expr, exponent: ir.Expr) -> ir.Expr | None:
    parts, wide = split_factors(base), {*find_free(base)}
    is_whole = isinstance(exponent, ir.Number) and exponent.value.denominator == 1
    if any(find_brackets(part) or {*find_free(part)} == wide for part in parts):
        return None
    if not is_whole and not all(map(is_never_negative, parts)):
        return None
    powers = list[ir.Expr]()
    for part in parts:
        match part:
            case ir.Pow(inner, ir.Number(-1)) if not isinstance(exponent, ir.Number):
                powers.append(ir.Pow(ir.Pow(inner, exponent), ir.MINUS_ONE))
            case _:
                powers.append(ir.Pow(part, exponent))
    return ir.Mul(tuple(powers))


def split_factors(expr: ir.Expr) -> list[ir.Expr]:
    """The factors of a product; sum[j](a_j) and sum[k](b_k) of sum[j, k](a_j * b_k)."""
    match expr:
        case ir.Mul(factors):
            return [part for factor in factors for part in split_factors(factor)]
        case ir.Reduce("sum", bound, ir.Truth(True), body):
            groups: list[tuple[set[ir.Index], list[ir.Expr]]] = []
            for factor in find_factors(body):
                mine = {*bound} & {*find_free(factor)}
                met = [group for group in groups if mine & group[0]]
                groups = [group for group in groups if group not in met]
                inside = [f for _, each in met for f in each]
                groups.append((mine.union(*(i for i, _ in met)), [*inside, factor]))
            if {*bound} <= {i for own, _ in groups for i in own}:
                orders = ((tuple(i for i in bound if i in own), fs) for own, fs in groups)
                return [Chain(order, ir.TRUE, tuple(fs)).to_expr() for order, fs in orders]
    return [expr]


def _inline(
    equation: ir.Equation, system: ir.System, nonfinite: Mapping[ir.Tensor, ir.Tensor]
) -> Iterator[ir.System]:
    """Yield the system with the equation inlined, if it is read only as a factor of sums."""
    tensor = equation.target.tensor
    if tensor in system.results or not equation.target.places:
        return
    others = {marked: like for marked, like in nonfinite.items() if marked is not tensor}
    equations = [
        ir.Equation(
            each.target,
            unmark_tensors(_inline_reads(mark_tensors(each.value, others), equation), others),
        )
        if is_reading(each.value, tensor)
        else each
        for each in system.equations
        if each is not equation
    ]
    if not any(is_reading(each.value, tensor) for each in equations):
        yield replace(system, equations=tuple(equations))


def _find_factor(factor: ir.Expr, equation: ir.Equation) -> ir.Expr | None:
    """The value of a read of the equation, or of a power of one, inlined; None for others."""
    match factor:
        case ir.Pow(base, ir.Number() as exponent):
            value = find_value(base, equation)
            return None if value is None else ir.Pow(value, exponent)
    return find_value(factor, equation)


def _is_reduced(expr: ir.Expr) -> bool:
    """Whether a reduction, or a function along an index, is inside."""
    return any(isinstance(part, (ir.Reduce, ir.Along)) for part in walk(expr))


def _inline_reads(value: ir.Expr, equation: ir.Equation) -> ir.Expr:
    """The value with the equation inlined wherever it is a factor of a sum."""
    inside = map_children(value, lambda child: _inline_reads(child, equation))
    match inside:
        case ir.Reduce("sum"):
            counts: tuple[ir.Expr, ...] = ()
        case ir.Reduce("mean", bound, ir.Truth(True)):
            counts = tuple(ir.Pow(index.extent, ir.MINUS_ONE) for index in bound)
        case _:
            return inside
    chain = to_chain(inside)
    if not all(map(is_finite_where_defined, chain.factors)):
        return inside
    opened = chain.replace_factors(lambda factor: _find_factor(factor, equation))
    return inside if opened.factors == chain.factors else ir.product_of([opened.to_expr(), *counts])
