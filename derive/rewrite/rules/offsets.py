"""Tables over offsets: an expression of i - j is computed once for each value of i - j.

    y_t = sum_r exp(-a * |t - r|) * x_r
    k_u = exp(-a * |u + 1 - N|);   y_t = sum_r k_(t - r + N - 1) * x_r

A plan reads such a table as a view of its windows. To test that an expression depends on i and j
only through i - j, i is replaced by u + j: j must be gone then.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from derive.analysis.facts import (
    find_facts,
    find_range,
    is_implied_by_facts,
    is_integer,
    is_never_negative,
)
from derive.ir import nodes as ir
from derive.ir.polynomial import ONE, Polynomial, add_all
from derive.ir.text import order_terms
from derive.ir.walk import (
    Names,
    find_accesses,
    find_brackets,
    find_free,
    is_bracket,
    rename_apart,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.rewrite.rule import system_rule
from derive.rewrite.rules.masks import EdgeBound, find_edge_bounds
from derive.rewrite.rules.sums import find_factors
from derive.rewrite.rules.tables import Tables

Offset: TypeAlias = tuple[tuple[ir.Index, int], ...]  # the coefficient of each index
Guards: TypeAlias = tuple[ir.Expr, ...]


@lru_cache(maxsize=1 << 12)
def find_offsets(expr: ir.Expr) -> tuple[Offset, ...]:
    """The offsets in an expression, such as i - j; those with more indices first."""
    found: dict[Offset, None] = {}
    for part in walk(expr):
        if isinstance(part, ir.Add) and len(find_free(part)) > 1:
            found |= dict.fromkeys(_read_offsets(Polynomial.of(part)))
    return tuple(sorted(found, key=len, reverse=True))


def _read_offsets(value: Polynomial) -> Iterator[Offset]:
    """The offsets of a polynomial: indices whose coefficients are multiples of one of them."""
    alike: dict[Polynomial, dict[ir.Index, Fraction]] = {}
    for index in (atom for atom in value.atoms if isinstance(atom, ir.Index)):
        halves = value.split_linear(index)
        if halves is not None and not any(isinstance(a, ir.Index) for a in halves[0].atoms):
            lead = next(iter(halves[0].terms.values()))
            alike.setdefault(halves[0] * Polynomial.of(1 / lead), {})[index] = lead
    for slopes in alike.values():
        first, *others = slopes.values()
        least = min(map(abs, (first, *others))) * (1 if first > 0 else -1)
        if others and all(slope % least == 0 for slope in slopes.values()):
            yield tuple((index, int(slope / least)) for index, slope in slopes.items())


def to_polynomial(offset: Offset) -> Polynomial:
    """An offset as a polynomial: the sum of its indices times their coefficients."""
    return add_all(Polynomial.of(index) * Polynomial.of(step) for index, step in offset)


@lru_cache(maxsize=1 << 12)
def express_by(expr: ir.Expr, offset: Offset, value: Polynomial) -> ir.Expr | None:
    """The expression with an offset replaced by a value; None if it reads its indices otherwise."""
    indices = {index for index, _ in offset}
    if not indices <= {*find_free(expr)}:
        return None
    first, step = next(each for each in offset if abs(each[1]) == 1)
    rest = value - to_polynomial(tuple(each for each in offset if each[0] is not first))
    place = order_terms(rest if step == 1 else -rest)
    try:
        put_in = substitute(expr, {first: place})
    except ValueError:  # a row along the index
        return None

    def replace_offset(here: ir.Expr) -> ir.Expr:
        if not indices & {*find_free(here)}:
            return here
        match here:
            case ir.Add() | ir.Mul():
                plain = order_terms(Polynomial.of(here))
                return here if indices & {*find_free(plain)} else plain
            case ir.Compare(relation, left, right):
                sides = Polynomial.of(left), Polynomial.of(right)
                gap = order_terms(sides[0] - sides[1])
                if all(map(is_integer, sides)) and not indices & {*find_free(gap)}:
                    return ir.Compare(relation, gap, ir.ZERO)
        return here

    new = rewrite_bottom_up(put_in, replace_offset)
    return None if indices & {*find_free(new)} else new


def _is_work(expr: ir.Expr) -> bool:
    """Whether the expression is costly enough for a table: more than a read or a bracket."""
    heavy = (ir.Call, ir.Pow, ir.Reduce, ir.Along)
    is_read = isinstance(expr, ir.Access) or is_bracket(expr)
    is_heavy = any(isinstance(part, heavy) for part in walk(expr))
    return not is_read and (is_heavy or len(find_accesses(expr)) > 1)


def _guard_parts(guards: Guards, parts: Sequence[ir.Expr]) -> Guards:
    """The guards, and the conditions of the brackets among the factors `parts`."""
    return (*guards, *(b.condition for part in parts for b in find_brackets(part)))


@dataclass
class _Offsets(Tables):
    """Tables of parts that depend on indices only by an offset such as i - j, over its values."""

    runs: dict[tuple[Polynomial, int], ir.Index] = field(default_factory=dict)

    def insert_reads(self, expr: ir.Expr, guards: Guards) -> ir.Expr:
        """The expression with its largest parts that depend on offsets replaced by table reads."""
        if not find_offsets(expr):
            return expr
        read = self.read_table(expr, guards) if _is_work(expr) else None
        if read is not None:
            return read
        match expr:
            case ir.Reduce("sum"):
                return self._open_sum(expr, (*guards, expr.condition))
            case ir.Mul(factors):
                return ir.product_of(self._open_parts(factors, guards, ir.product_of, _guard_parts))
            case ir.Add(terms):
                return ir.sum_of(
                    self._open_parts(terms, guards, ir.sum_of, lambda guards, _: guards)
                )
            case ir.Reduce() | ir.Along() | ir.Where():
                return self.open_values(expr, guards)
            case ir.Pow() | ir.Call() if not is_integer(Polynomial.of(expr)):
                return self.open_values(expr, guards)
        return expr

    def _open_sum(self, expr: ir.Reduce, guards: Guards) -> ir.Expr:
        """A sum of a product, with the factors that share inner indices moved into a table."""
        factors, condition = find_factors(expr.body), expr.condition
        for offset in find_offsets(expr.body):
            mine = [f for f in factors if express_by(f, offset, ONE) is not None]
            ends = {index for index, _ in offset}
            others = [f for f in factors if f not in mine]
            around = [condition, *(f for f in others if ends & {*find_free(f)})]
            outside = ends.union(*map(find_free, around))
            inner = [i for f in mine for i in find_free(f) if i in expr.bound and i not in outside]
            beside = [f for f in others if f not in around and {*inner} & {*find_free(f)}]
            if not inner or not mine:
                continue
            bound = tuple(dict.fromkeys(inner))
            part = ir.product_of([f for f in factors if f in mine or f in beside])
            around_it = _guard_parts(guards, [f for f in others if f not in beside])
            read = self.read_table(ir.Reduce("sum", bound, ir.TRUE, part), around_it)
            if read is not None:
                left = [f for f in others if f not in beside]
                kept = tuple(i for i in expr.bound if i not in bound)
                body = ir.product_of([*(self.insert_reads(f, guards) for f in left), read])
                return ir.sum_over(kept, body, condition)
        return ir.Reduce("sum", expr.bound, condition, self.insert_reads(expr.body, guards))

    def _open_parts(
        self,
        parts: Sequence[ir.Expr],
        guards: Guards,
        make: Callable[[list[ir.Expr]], ir.Expr],
        guard: Callable[[Guards, Sequence[ir.Expr]], Guards],
    ) -> list[ir.Expr]:
        """The parts, with those of one offset joined by `make` in a table, guarded by the rest."""
        left = list(parts)
        for offset in find_offsets(make(left)):
            mine = [part for part in left if express_by(part, offset, ONE) is not None]
            if len(mine) < 2 or not _is_work(make(mine)):
                continue
            read = self.read_table(make(mine), guard(guards, [p for p in left if p not in mine]))
            if read is not None:
                at = left.index(mine[0])  # the others may share another offset
                left = [*left[:at], read, *(part for part in left[at:] if part not in mine)]
        return [
            self.insert_reads(p, guard(guards, [each for each in left if each is not p]))
            for p in left
        ]

    def read_table(self, expr: ir.Expr, guards: Guards) -> ir.Expr | None:
        """A read of a table for an expression that depends on offsets alone; None for others."""
        body, runs = expr, dict[Polynomial, int]()
        places: dict[ir.Index, ir.Expr] = {}
        guards, is_met = ir.split_and(ir.all_of(*guards)), True
        inside = {part: part for part in guards if part is not ir.TRUE}
        for offset in find_offsets(expr):
            value = to_polynomial(offset)
            low, length, held = find_run(value, guards)
            if low is None or length is None or express_by(body, offset, ONE) is None:
                continue
            number = runs.get(length, 0)
            if (length, number) not in self.runs:
                taken = self.names.take_index(ir.Index("u", length.to_expr()))
                self.runs[length, number] = taken
            index = self.runs[length, number]
            body, runs[length] = _substitute_offset(body, offset, index, low), number + 1
            inside = {
                p: _substitute_offset(c, offset, index, low)
                for p, c in inside.items()
                if p not in held
            }
            places[index] = order_terms(value - low)
            is_met = is_met and _meets_all(offset)
        if not places:
            return None
        is_read = is_met and not inside
        if not is_read and self.is_harmful(body):
            if not is_met or any(not {*places} >= {*find_free(c)} for c in inside.values()):
                return None
            body = ir.Where(ir.all_of(*inside.values()), body, ir.ZERO)
        return self.define(body, places)


def _substitute_offset(expr: ir.Expr, offset: Offset, index: ir.Index, low: Polynomial) -> ir.Expr:
    """The expression over an index of the offset's values; unchanged if it depends on more."""
    return express_by(expr, offset, Polynomial.of(index) + low) or expr


def find_run(
    value: Polynomial, guards: Sequence[ir.Expr]
) -> tuple[Polynomial | None, Polynomial | None, set[ir.Expr]]:
    """(least value, number of values, guards these imply) of an offset; None, None if unknown."""
    whole, held = find_range(value), set[ir.Expr]()
    low, high = whole.low, whole.high
    if low is None or high is None:
        return None, None, held
    for guard in guards:
        is_held = is_implied_by_facts(guard)
        for fact in find_facts(guard):
            above, below = value - fact, fact + value
            is_tight = False
            if not _varies(above):
                is_tight = is_never_negative(above - low)
                low = above if is_tight else low
            elif not _varies(below):
                is_tight = is_never_negative(high - below)
                high = below if is_tight else high
            is_held = is_held and is_tight
        held |= {guard} if is_held else set()
    return low, high - low + ONE, held


def _varies(value: Polynomial) -> bool:
    """Whether the polynomial depends on an index or a tensor."""
    parts = (part for atom in value.atoms for part in walk(atom))
    return any(isinstance(part, (ir.Index, ir.Access)) for part in parts)


def _meets_all(offset: Offset) -> bool:
    """Whether the offset takes every value between its least and its largest."""
    span = Polynomial({})
    for index, step in sorted(offset, key=lambda each: abs(each[1])):
        if not is_never_negative(span + ONE - Polynomial.of(abs(step))):
            return False
        span = span + Polynomial.of(abs(step)) * (Polynomial.of(index.extent) - ONE)
    return True


@system_rule(
    law="f(i - j) = g_(i - j + N - 1), g_u = f(u - N + 1)",
    before="x[N]; a[D]; index i < N; y[d,i] = sum[j](tanh(a[d] * (i - j)) * x[j])",
    after="x[N]; a[D]; index u < 2*N - 1; index i < N; "
    "y_of_u[d,u] = tanh(a[d] * (u - N + 1)); y[d,i] = sum[j](y_of_u[d,i - j + N - 1] * x[j])",
    refuses="x[N]; a[N]; index i < N; y[i] = sum[j](tanh(a[i] * (i - j)) * x[j])",
)
def tabulate_offsets(system: ir.System) -> Iterator[ir.System]:
    """Compute parts that depend on offsets alone in tables over the values of the offsets."""
    yield from _Offsets(system).tabulate(system.equations)


def _find_powers(
    factors: Sequence[ir.Expr], offset: ir.Index
) -> tuple[list[ir.Expr], list[ir.Expr]] | None:
    """(factors of the first value, factors of the ratio) of a geometric sequence; or None."""
    first, ratio = list[ir.Expr](), list[ir.Expr]()
    for factor in (inner for each in factors for inner in find_factors(each)):
        match factor:
            case _ if offset not in find_free(factor):
                first.append(factor)
            case ir.Pow(base, exponent) if offset not in find_free(base):
                halves = Polynomial.of(exponent).split_linear(offset)
                if halves is None or halves[0] != ONE:
                    return None
                ratio.append(base)
                first += [ir.Pow(base, halves[1].to_expr())] if halves[1].terms else []
            case ir.Call("exp", (exponent,)):
                halves = Polynomial.of(exponent).split_linear(offset)
                if halves is None:
                    return None
                slope, rest = (ir.Call("exp", (half.to_expr(),)) for half in halves)
                ratio.append(slope)
                first += [rest] if halves[1].terms else []
            case _:
                return None
    return first, ratio


def _write_recurrence(
    expr: ir.Reduce, triangle: EdgeBound, name: str
) -> tuple[ir.Expr, ir.Equation] | None:
    """(the sum as a read, its recurrence) if factors of both indices are powers; or None."""
    summed, edge, is_upward = triangle.index, triangle.edge, not triangle.is_least
    factors, conditions = find_factors(expr.body), ir.split_and(triangle.rest)
    step = ((edge, 1), (summed, -1)) if is_upward else ((summed, 1), (edge, -1))
    run = rename_apart(ir.Index("u", edge.extent), {i.name for i in find_free(expr.body)})
    both = [f for f in factors if {summed, edge} <= {*find_free(f)}]
    put_in = [express_by(f, step, Polynomial.of(run)) for f in both]
    powers = _find_powers([f for f in put_in if f is not None], run) if all(put_in) else None
    guards: list[ir.Expr] = [ir.Where(c, ir.ONE, ir.ZERO) for c in conditions if c is not ir.TRUE]
    others = [f for f in (*factors, *guards) if f not in both]
    inside = [f for f in others if summed in find_free(f)]
    if not both or powers is None or any(edge in find_free(f) for f in inside):
        return None
    outside, (first, bases) = [f for f in others if f not in inside], powers
    around = {i for f in (*bases, *outside) for i in find_free(f)}
    own = {i for f in (*first, *inside) for i in find_free(f)}
    inner = tuple(i for i in expr.bound if i in own and i not in around and i is not summed)
    back = (Polynomial.of(edge.extent) - ONE - Polynomial.of(edge)).to_expr()
    body = ir.product_of([*first, *inside])
    added = substitute(ir.sum_over(inner, body), {summed: edge if is_upward else back})
    ratio = ir.product_of(bases)
    free = (i for part in (added, ratio) for i in find_free(part))
    axes = (*(i for i in dict.fromkeys(free) if i is not edge), edge)
    target = ir.name_axes(name, axes)
    last = order_terms(Polynomial.of(edge) - ONE)
    before = ir.Access(target.tensor, (*axes[:-1], last))
    before_all = ir.Where(ir.Compare("<", last, ir.ZERO), ir.ZERO, before)
    value = ir.Add((ir.Mul((ratio, before_all)), added))
    read = ir.Access(target.tensor, (*axes[:-1], edge if is_upward else back))
    kept = tuple(i for i in expr.bound if i not in inner and i is not summed)
    whole = ir.sum_over(kept, ir.product_of([*outside, read]))
    return whole, ir.Equation(target, value)


def find_recurrent(system: ir.System) -> ir.System | None:
    """Write y_t = sum_(r <= t) g**(t - r) * x_r as recurrences; None if there is no such sum."""
    names = Names.of(system)
    equations: list[ir.Equation] = []

    def replace_sum(here: ir.Expr) -> ir.Expr:
        if not isinstance(here, ir.Reduce) or here.kind != "sum":
            return here
        name = names.propose("state")
        plain = (t for t in find_edge_bounds(here) if not t.offset and t.edge not in here.bound)
        found = next(filter(None, (_write_recurrence(here, each, name) for each in plain)), None)
        if found is None:
            return here
        names.add(name)
        equations.append(found[1])
        return found[0]

    for equation in system.equations:
        value = rewrite_bottom_up(equation.value, replace_sum)
        equations.append(ir.Equation(equation.target, value))
    changed = len(equations) > len(system.equations)
    return replace(system, equations=tuple(equations)) if changed else None
