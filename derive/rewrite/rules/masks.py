"""Rules on masks over two indices: triangles become running sums, diagonals are subtracted.

sum_{j <= i} f_j = cumsum_i(f_i)          sum_{j != i} f_ij = sum_j f_ij - f_ii

Only rules that lose digits subtract an entry from a sum; they assume finite inputs, since an
infinity minus itself is nan. Running sums begin at either end and subtract nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, combinations, pairwise, permutations, product
from math import factorial
from typing import TypeAlias

from derive.analysis.affine import simplify_place, simplify_places
from derive.analysis.extents import lower_sizes
from derive.analysis.facts import is_never_negative, read_bounds
from derive.analysis.safety import is_finite_where_defined, is_readable, is_safe
from derive.ir import nodes as ir
from derive.ir import walk
from derive.ir.functions import FUNCTIONS
from derive.ir.polynomial import NOTHING, ONE, Polynomial, is_same_extent
from derive.ir.recurrences import is_dependent
from derive.ir.text import to_text
from derive.rewrite.guards import find_nonfinite, mark_tensors, unmark_tensors
from derive.rewrite.rule import apply_rules, rule, system_rule
from derive.rewrite.rules import deltas, products, sums
from derive.rewrite.rules.terms import Term

# (index, is_lower, end, the other parts of a condition): index >= end if `is_lower`, else <= end
Bound: TypeAlias = tuple[ir.Index, bool, Polynomial, ir.Expr]
MOST_ORDERED = 4  # indices of a tuple; four have 24 orders


@dataclass(frozen=True, slots=True)
class EdgeBound:
    """A condition that `index` is at most, or at least, `edge` plus an offset."""

    index: ir.Index
    edge: ir.Index
    offset: int
    is_least: bool  # index >= edge + offset, else index <= edge + offset
    rest: ir.Expr  # the other parts of the condition


def move_running_sum(running: ir.Along, offset: int) -> ir.Along | None:
    """The running sum up to index + offset, offset <= 0, without subtracting entries; or None."""
    if not offset:
        return running
    back: dict[ir.Expr, ir.Expr] = {
        running.index: ir.Add((running.index, ir.Number(Fraction(offset))))
    }
    inside = ir.Compare(">=", running.index, ir.Number(Fraction(-offset)))
    try:
        moved = (walk.substitute(part, back) for part in (running.condition, running.body))
        condition, body = (walk.rewrite_bottom_up(part, simplify_places) for part in moved)
    except ValueError:  # the index of a row cannot be replaced
        return None
    before = ir.Where(ir.all_of(inside, condition), body, ir.ZERO)
    return ir.Along("cumsum", running.index, ir.TRUE, before)


@system_rule(
    law="sum_{i < N: i >= 1} f_i = sum_{i < N - 1} f_{i + 1}",
    before="x[N]; s = sum[i, i >= 1](abs(x[i] - x[i - 1]))",
    after="x[N]; index j < N - 1; s = sum[j](abs(x[j + 1] - x[j]))",
    refuses="x[N]; s = max[i, i >= 1](x[i])   # that of nothing is -oo",
)
def shorten_ranges(system: ir.System) -> Iterator[ir.System]:
    """Shorten the range of a summed index by a bound on the index alone."""
    values = (walk.rewrite_bottom_up(each.value, _shorten_range) for each in system.equations)
    changed = zip(system.equations, values, strict=True)
    yield replace(system, equations=tuple(ir.Equation(e.target, v) for e, v in changed))


def _shorten_range(expr: ir.Expr) -> ir.Expr:
    match expr:
        case ir.Reduce("sum" | "mean" as kind, bound, condition, body):
            pass
        case _:
            return expr
    found = (each for index in bound for each in find_bounds(condition, (index,)))
    for index, is_lower, end, rest in found:
        span = _find_span(index, is_lower, end)
        if span is None or not _is_alone(index, body, ir.split_and(condition)):
            continue
        start, extent = span
        new = ir.Index(index.name, extent.to_expr())
        there: dict[ir.Expr, ir.Expr] = {index: (Polynomial.of(new) + start).to_expr()}
        moved = (walk.substitute(p, there) for p in (rest, body))
        condition, body = (walk.rewrite_bottom_up(p, simplify_places) for p in moved)
        bound = tuple(new if i is index else i for i in bound)
        return _shorten_range(ir.Reduce(kind, bound, condition, body))
    return expr


def _is_alone(index: ir.Index, body: ir.Expr, conditions: Sequence[ir.Expr]) -> bool:
    """Whether the index occurs in conditions and positions only by itself, and along no row."""
    places = [p for access in walk.find_accesses(body) for p in access.places]
    tied = any(index in walk.find_free(p) != (index,) for p in (*places, *conditions))
    return not tied and not any(
        isinstance(p, ir.Along) and p.index is index for p in walk.walk(body)
    )


def _find_span(
    index: ir.Index, is_lower: bool, end: Polynomial
) -> tuple[Polynomial, Polynomial] | None:
    """(start, extent) of an index from `end` on, or up to it; None if that may be out of range."""
    length, start = Polynomial.of(index.extent), end if is_lower else NOTHING
    extent = length - start if is_lower else end + ONE
    is_size = all(isinstance(atom, ir.Size) for atom in end.atoms)
    if not (is_size and is_never_negative(start) and is_never_negative(length - start - extent)):
        return None
    if not is_never_negative(extent):
        extent = Polynomial.atom(ir.Call("max", (extent.to_expr(), ir.ZERO)))
    return start, extent


@system_rule(
    law="sum_{j >= e} f_j = cumsum_k(f_{N - 1 - k}) at k = N - 1 - e; sum_{j <= e} f_j at e",
    before="x[N]; index i < N; y[i] = sum[j, j > i](exp(x[j]))",
    after="x[N]; index i, j < N; y_rest[j] = cumsum[j](exp(x[-j + N - 1])); "
    "y[i] = where(N - i - 2 >= 0, y_rest[N - i - 2], 0)",
    refuses="x[N]; A[N, N]; y[i] = sum[j, j > i](x[j] * A[i,j])",
)
def running_sum(system: ir.System) -> Iterator[ir.System]:
    """Read a sum up to a place, or from one on, from a named running sum."""
    nonfinite = find_nonfinite(system)
    for number, equation in enumerate(system.equations):
        for site in walk.walk(equation.value):
            for running, edge in _find_ends(mark_tensors(site, nonfinite)):
                value = unmark_tensors(running, nonfinite)
                if any(is_dependent(a.tensor, equation, system) for a in walk.find_accesses(value)):
                    continue
                name = walk.Names.of(system).take(f"{equation.target.tensor.name}_rest")
                rest = ir.Equation(ir.name_axes(name, walk.find_free(value)), value)
                made, read = _read_end(rest, running.index, edge)
                whole = ir.Equation(equation.target, walk.exchange(equation.value, site, read))
                before, after = system.equations[:number], system.equations[number + 1 :]
                yield replace(system, equations=(*before, *made, whole, *after))


def _read_end(
    rest: ir.Equation, index: ir.Index, edge: Polynomial
) -> tuple[tuple[ir.Equation, ...], ir.Expr]:
    """The equations of a running sum, and a read of it at the last place up to an edge.

    If a size of 0 may leave no such place, the running sum is padded with a 0.
    """
    axes, last = walk.find_free(rest.value), Polynomial.of(index.extent) - ONE
    is_short, place = not is_never_negative(edge), edge.to_expr()
    ends = [] if is_short else [edge]
    if not is_never_negative(last - edge):
        place, ends = ir.Call("min", (place, last.to_expr())), [*ends, last]

    def read_at(tensor: ir.Tensor, at: ir.Expr) -> ir.Expr:
        return ir.Access(tensor, tuple(at if i is index else i for i in axes))

    if all(_is_there(end, walk.find_free(edge.to_expr())) for end in ends):
        is_there = ir.Compare(">=", place, ir.ZERO) if is_short else ir.TRUE
        return (rest,), ir.Where(is_there, read_at(rest.target.tensor, place), ir.ZERO)
    longer = ir.Index(f"{index.name}_all", (last + ONE + ONE).to_expr())
    before = read_at(rest.target.tensor, (Polynomial.of(longer) - ONE).to_expr())
    value = ir.Where(ir.Compare(">=", longer, ir.ONE), before, ir.ZERO)
    wide = tuple(longer if i is index else i for i in axes)
    padded = ir.Equation(ir.name_axes(f"{rest.target.tensor.name}_all", wide), value)
    place = ir.Call("clip", ((edge + ONE).to_expr(), ir.ZERO, index.extent))
    return (rest, padded), read_at(padded.target.tensor, place)


def _find_ends(expr: ir.Expr) -> Iterator[tuple[ir.Along, Polynomial]]:
    """Yield (running sum, place): the sum is its entry at the place, or 0 at a place below 0."""
    if not isinstance(expr, ir.Reduce) or expr.kind != "sum":
        return
    for index, is_least, end, rest in find_bounds(expr.condition, expr.bound):
        others = {*walk.find_free(expr.body), *walk.find_free(rest), *expr.bound}
        free, last = {*walk.find_free(end.to_expr())}, Polynomial.of(index.extent) - ONE
        alike = [i for i in free if is_same_extent(i.extent, index.extent) and not is_least]
        is_plain = any(is_never_negative(Polynomial.of(i) - end) for i in alike)
        if not free or free & others or is_plain:
            continue
        if any(not isinstance(atom, ir.Index | ir.Size) for atom in end.atoms):
            continue
        parts, edge = [rest, expr.body], last - end if is_least else end
        if is_least:  # from a place on: a running sum from the last entry
            back = simplify_place((last - Polynomial.of(index)).to_expr())
            try:
                parts = [walk.substitute(part, {index: back}) for part in parts]
            except ValueError:  # the index of a row cannot be replaced
                continue
        bound = tuple(i for i in expr.bound if i is not index)
        condition, body = parts if not bound else (ir.TRUE, ir.Reduce("sum", bound, *parts))
        running = make_running_sum(index, condition, body)
        if running is not None:
            yield running, edge


def _is_there(end: Polynomial, filled: Collection[ir.Index]) -> bool:
    """Whether the end is nonnegative, even if a size other than the indices' extents is 0."""
    extents = (index.extent for index in filled)
    known = walk.find_size_names(*(e for e in extents if len(Polynomial.of(e).terms) == 1))
    least = Polynomial.of(lower_sizes(end.to_expr(), known))
    return is_never_negative(end) and is_never_negative(least)


def find_bounds(condition: ir.Expr, indices: Sequence[ir.Index]) -> Iterator[Bound]:
    """Yield the `Bound` for each part of a condition that bounds one of the indices."""
    parts = ir.split_and(condition)
    for (k, part), index in product(enumerate(parts), indices):
        bounds = read_bounds(part, index)
        if len(bounds) == 1:
            yield index, *bounds[0], ir.all_of(*parts[:k], *parts[k + 1 :])


def find_edge_bounds(expr: ir.Expr) -> Iterator[EdgeBound]:
    """The parts `j <= i + c` or `j >= i + c` of a sum's condition, for indices of one extent."""
    if isinstance(expr, ir.Reduce) and expr.kind == "sum":
        for index, is_least, end, rest in find_bounds(expr.condition, expr.bound):
            for edge in (atom for atom in end.atoms if isinstance(atom, ir.Index)):
                offset = (end - Polynomial.of(edge)).constant
                if offset is not None and is_same_extent(edge.extent, index.extent):
                    yield EdgeBound(index, edge, int(offset), is_least, rest)


def make_running_sum(index: ir.Index, condition: ir.Expr, body: ir.Expr) -> ir.Along | None:
    """The running sum along an index; None if free of it, or not readable and finite everywhere."""
    if index not in (*walk.find_free(condition), *walk.find_free(body)):
        return None
    running = ir.Along("cumsum", index, condition, body)
    return running if is_readable(running) and is_finite_where_defined(running) else None


@rule(
    law="sum_{j != i} f_ij = sum_j f_ij - f_ii",
    before="A[N, N]; y[i] = sum[j, j != i](A[i,j])",
    after="A[N, N]; y[i] = sum[j](A[i,j]) - A[i,i]",
    refuses="x[N]; y[i] = sum[j, j != i](1 / (x[i] - x[j]))",
    loses="digits where the entry that is left out is larger than the sum of the others, and all "
    "of them where it is infinite",
)
def split_diagonal(expr: ir.Reduce) -> ir.Expr | None:
    """Write a sum over all entries but one as the whole sum minus that entry, if this is safe."""
    if expr.kind != "sum":
        return None
    for rest, unequal, factors in _find_unequal(expr):
        body = ir.product_of(factors)
        whole = ir.Reduce("sum", expr.bound, rest, body)
        equal = ir.Compare("==", unequal.left, unequal.right)
        entry = deltas.sift_delta(ir.Reduce("sum", expr.bound, ir.all_of(rest, equal), body))
        entry = entry and apply_rules(_normalize_parity(entry), (products.count_unused,))
        if entry is not None and is_safe(whole) and is_safe(entry):
            return ir.Add((whole, ir.Mul((ir.MINUS_ONE, entry))))
    return None


def _find_unequal(expr: ir.Reduce) -> Iterator[tuple[ir.Expr, ir.Compare, list[ir.Expr]]]:
    """Yield (other conditions, a `j != i` of the condition or of a bracket, other factors)."""
    factors = list(sums.find_factors(expr.body))
    sites: list[tuple[ir.Expr, ir.Expr, list[ir.Expr]]] = [(expr.condition, ir.TRUE, factors)]
    for k, factor in enumerate(factors):
        if walk.is_bracket(factor):
            sites.append((factor.condition, expr.condition, [*factors[:k], *factors[k + 1 :]]))
    for condition, rest, left in sites:
        parts = ir.split_and(condition)
        for k, part in enumerate(parts):
            if isinstance(part, ir.Compare) and part.relation == "!=":
                yield ir.all_of(rest, *parts[:k], *parts[k + 1 :]), part, left


@rule(
    law="sum_{i < j} f_ij = (sum_ij f_ij - sum_i f_ii) / 2 where f_ij = f_ji, and so for more",
    before="v[N, F]; x[N]; y = sum[i, j, f, i < j](x[i] * v[i,f] * x[j] * v[j,f])",
    after="v[N, F]; x[N]; y = (sum[i, j, f](x[i] * v[i,f] * x[j] * v[j,f]) "
    "- sum[i, f](x[i]**2 * v[i,f]**2)) / 2",
    refuses="v[N, F]; x[N]; y = sum[i, j, f, i < j](x[i] * v[i,f] * v[j,f])",
    loses="digits where entries of equal indices are larger than the others, and all of them where "
    "one is infinite",
)
def open_tuples(expr: ir.Reduce) -> ir.Expr | None:
    """Write a symmetric sum over ordered indices by sums over all indices.

    A tuple of distinct indices occurs once in each order. Tuples with equal ones are corrected by
    Burnside's lemma over the permutations that fix them, with their signs if the order is strict.
    """
    if expr.kind != "sum" or expr.condition is ir.TRUE:
        return None
    found = _find_order(expr)
    if found is None:
        return None
    order, is_strict, rest = found
    factors = sums.find_factors(expr.body)
    if any(len({*order} & {*walk.find_free(part)}) > 1 for part in ir.split_and(rest)):
        return None
    if any(walk.is_bracket(f) for f in factors) or not all(map(is_safe, factors)):
        return None
    if not is_finite_where_defined(rest) or not is_readable(rest):
        return None
    try:
        if not all(_is_symmetric(rest, expr.body, *pair) for pair in pairwise(order)):
            return None
        terms = list[Term]()
        for lengths, ways in _count_cycles(len(order)).items():
            ends = (0, *accumulate(lengths))
            term = _merge_blocks(expr, rest, [order[a:b] for a, b in pairwise(ends)])
            sign = (-1) ** (len(order) - len(lengths)) if is_strict else 1
            terms.append(replace(term, number=sign * ways * term.number))
    except ValueError:  # the index of a row cannot be replaced
        return None
    kept = [term.to_expr() for term in terms if term.number]
    count = ir.Pow(ir.Number(Fraction(factorial(len(order)))), ir.MINUS_ONE)
    return ir.product_of([ir.sum_of(kept), count]) if kept else ir.ZERO


def _find_order(expr: ir.Reduce) -> tuple[tuple[ir.Index, ...], bool, ir.Expr] | None:
    """(the bound indices that a condition orders, whether strictly, its other parts), or None."""
    pairs: dict[tuple[ir.Index, ir.Index], int] = {}
    rest: list[ir.Expr] = []
    for part in ir.split_and(expr.condition):
        whole = ir.Reduce("sum", expr.bound, part, expr.body)
        most = (each for each in find_edge_bounds(whole) if not each.is_least)
        triangle = next((each for each in most if each.edge in expr.bound), None)
        if triangle is None:
            rest.append(part)
        else:
            pairs[triangle.index, triangle.edge] = triangle.offset
    indices = dict.fromkeys(index for pair in pairs for index in pair)
    if not 1 < len(indices) <= MOST_ORDERED or {*pairs.values()} not in ({0}, {-1}):
        return None
    for order in permutations(indices):
        if {*pairwise(order)} <= {*pairs} <= {*combinations(order, 2)}:
            return order, -1 in pairs.values(), ir.all_of(*rest)
    return None


def _is_symmetric(condition: ir.Expr, body: ir.Expr, one: ir.Index, other: ir.Index) -> bool:
    turned: dict[ir.Expr, ir.Expr] = {one: other, other: one}
    exchanged, there = (walk.substitute(part, turned) for part in (condition, body))
    kept = {*ir.split_and(condition)} == {*ir.split_and(exchanged)}
    return kept and _normalize_parity(body) is _normalize_parity(there)


def _normalize_parity(expr: ir.Expr) -> ir.Expr:
    """The expression in a normal form: polynomials, with odd and even functions at one sign.

    Parts that are 0 for all tensors become 0.
    """

    def act(here: ir.Expr) -> ir.Expr:
        match here:
            case ir.Call(name, (argument,)) if FUNCTIONS[name].parity:
                value, is_odd = Polynomial.of(argument), FUNCTIONS[name].parity == "odd"
                if not value.terms and (is_odd or name == "abs"):
                    return ir.ZERO
                first = min(value.terms, key=lambda m: [(to_text(a), p) for a, p in m], default=())
                if value.terms.get(first, 0) < 0:
                    turned = ir.Call(name, ((-value).to_expr(),))
                    return ir.Mul((ir.MINUS_ONE, turned)) if is_odd else turned
            case ir.Reduce("sum", _, _, body) | ir.Call("relu", (body,)) if body is ir.ZERO:
                return body
            case ir.Pow(base, ir.Number(power)) if base is ir.ZERO and power > 0:
                return base
            case ir.Call("max" | "min", (one, other)) if one is ir.ZERO and other is ir.ZERO:
                return one
            case ir.Call("exp", (power,)) if power is ir.ZERO:
                return ir.ONE
            case ir.Add() | ir.Mul() | ir.Pow(_, ir.Number()):
                return Polynomial.of(here).to_expr()
        return here

    return walk.rewrite_bottom_up(expr, act)


def _count_cycles(count: int) -> Counter[tuple[int, ...]]:
    """The number of permutations with each tuple of cycle lengths, the identity first."""
    found = Counter[tuple[int, ...]]()
    for order in permutations(range(count)):
        lengths, left = list[int](), {*order}
        while left:
            place, before = min(left), len(left)
            while place in left:
                left.remove(place)
                place = order[place]
            lengths.append(before - len(left))
        found[tuple(sorted(lengths))] += 1
    return found


def _merge_blocks(expr: ir.Reduce, rest: ir.Expr, blocks: Iterable[Sequence[ir.Index]]) -> Term:
    """The sum, under `rest`, over tuples whose indices are equal inside each block."""
    new: dict[ir.Expr, ir.Expr] = {i: block[0] for block in blocks for i in block}
    factors = tuple(walk.substitute(factor, new) for factor in sums.find_factors(expr.body))
    is_zero = (
        any(old is not i for i, old in new.items())
        and _normalize_parity(ir.Mul(factors)) is ir.ZERO
    )
    bound = tuple(i for i in expr.bound if new.get(i, i) is i)
    parts = dict.fromkeys(ir.split_and(walk.substitute(rest, new)))
    return Term(Fraction(not is_zero), bound, ir.all_of(*parts), factors)
