"""Tables over places: an expression of a place is computed once for each value of the place.

    y_eo = sum_d W_od * h_(s_e)d          p_uo = sum_d W_od * h_ud;   y_eo = p_(s_e)o

A gather commutes with linear and with elementwise operations. To test it, the place is replaced by
u: an index of the place must be gone then. The sizes decide which side is cheaper.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import TypeAlias

from derive.analysis.extents import find_guard, is_always, take_decided
from derive.analysis.facts import Facts, find_facts, is_never_negative, is_positive
from derive.analysis.safety import find_reads, is_finite, is_in_range
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import (
    Names,
    find_accesses,
    find_brackets,
    find_free,
    map_children,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.rewrite.guards import find_nonfinite, is_variable, mark_tensors
from derive.rewrite.rule import drop_unread, put_value, rule, system_rule
from derive.rewrite.rules.sums import find_factors

Conditions: TypeAlias = tuple[ir.Expr, ...]

BOUNDS = {"clip", "max", "min"}
HEAVY = (ir.Call, ir.Pow, ir.Reduce, ir.Along)


def find_keys(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The places that may be keys of tables: entries of tensors, functions, and differences."""
    places = (place for access in find_accesses(expr) for place in access.places)
    return tuple(dict.fromkeys(place for place in places if _is_key(place)))


def _is_key(place: ir.Expr) -> bool:
    if isinstance(place, ir.Index) or not find_free(place):
        return False
    if not is_affine(place):
        return True
    value = Polynomial.of(place)
    halves = [value.split_linear(index) for index in find_free(place)]
    return sorted(h[0].constant or 0 for h in halves if h is not None) == [-1, 1]


def is_affine(place: ir.Expr) -> bool:
    """Whether the place is a sum of multiples of indices."""
    atoms = Polynomial.of(place).atoms
    return all(isinstance(each, ir.Index) or not find_free(each) for each in atoms)


def find_extent(expr: ir.Expr, key: ir.Expr) -> ir.Expr | None:
    """The extent of the axes with `key` as place; None if there is none, or several extents."""
    extents = [
        extent
        for access in find_accesses(expr)
        for place, extent in zip(access.places, access.tensor.shape, strict=True)
        if place is key
    ]
    is_one = bool(extents) and all(is_same_extent(extents[0], each) for each in extents)
    return extents[0] if is_one else None


def _is_used_inside(expr: ir.Expr, key: ir.Expr, extent: ir.Expr, guards: Conditions) -> bool:
    """Whether a key is in range where `expr` is used: read there unguarded, or by `guards`."""
    is_guarded = all(own for access, own in find_reads(expr) if key in access.places)
    return not is_guarded or is_in_range(key, extent, _find_facts(guards))


def _drop_decided(expr: ir.Expr, run: ir.Index) -> ir.Expr:
    """The expression without conditions that hold for all values of an index."""
    if isinstance(expr, (ir.Reduce, ir.Along)):
        parts = ir.split_and(expr.condition)
        left = (each for each in parts if run not in find_free(each) or not is_always(each))
        return replace(expr, condition=ir.all_of(*left))
    is_own = isinstance(expr, ir.Where) and run in find_free(expr.condition)
    return take_decided(expr) if is_own else expr


def _find_outside(expr: ir.Expr, key: ir.Expr, extent: ir.Expr) -> ir.Expr | None:
    """The value where a key is out of range; None if a tensor may be read at the key there."""

    def is_excluded(*guards: ir.Expr) -> bool:
        """Whether the guards cannot hold where the key is out of range."""
        return is_in_range(key, extent, _find_facts(guards))

    match expr:
        case ir.Access(_, places) if key in places:
            return None
        case ir.Where(condition, _, other) if is_excluded(condition):
            return _find_outside(other, key, extent)
        case ir.Where(condition, then, _) if is_excluded(ir.Not(condition)):
            return _find_outside(then, key, extent)
        case ir.Reduce(kind, _, condition) if is_excluded(condition):
            return ir.NUMBERS.get(ROWS[kind].nothing)
        case ir.Mul() if is_excluded(*(each.condition for each in find_brackets(expr))):
            return ir.ZERO
    parts = {part: _find_outside(part, key, extent) for part in expr.children}
    known = {part: value for part, value in parts.items() if value is not None}
    made = map_children(expr, known.__getitem__) if len(known) == len(parts) else None
    match made:
        case ir.Reduce(kind, _, _, body) if ROWS[kind].is_fold:
            return body if body is ir.NUMBERS[ROWS[kind].nothing] else made
        case ir.Mul(factors) if ir.ZERO in factors:
            return ir.ZERO
    return made


@dataclass
class Tables(ABC):
    """The tables of a system: the equations that define them, by value and axes."""

    system: ir.System

    def __post_init__(self) -> None:
        self.names, self.target = Names.of(self.system), ""
        self.made: dict[tuple[ir.Expr, tuple[ir.Index, ...]], ir.Equation] = {}

    @cached_property
    def nonfinite(self) -> Mapping[ir.Tensor, ir.Tensor]:
        """The tensors that may be infinite or nan, with their marked copies."""
        return find_nonfinite(self.system, signs=True)

    @abstractmethod
    def insert_reads(self, expr: ir.Expr, guards: Conditions) -> ir.Expr:
        """The expression with its largest parts that fit a table replaced by table reads."""

    def open_values(self, expr: ir.Expr, guards: Conditions) -> ir.Expr:
        """The expression with table reads inserted in its children, each under its guards."""
        match expr:
            case ir.Reduce(kind, bound, condition, body):
                return ir.Reduce(
                    kind, bound, condition, self.insert_reads(body, (*guards, condition))
                )
            case ir.Along(kind, index, condition, body, columns):
                inside = self.insert_reads(body, (*guards, condition))
                return ir.Along(kind, index, condition, inside, columns)
            case ir.Where(condition, then, other):
                then = self.insert_reads(then, (*guards, condition))
                return ir.Where(
                    condition, then, self.insert_reads(other, (*guards, ir.Not(condition)))
                )
        return map_children(expr, lambda part: self.insert_reads(part, guards))

    def is_harmful(self, body: ir.Expr) -> bool:
        """Whether an unread entry may be infinite: its gradient would be 0 * oo."""
        return is_variable(body) and not is_finite(mark_tensors(body, self.nonfinite))

    def define(
        self, body: ir.Expr, places: Mapping[ir.Index, ir.Expr], *, is_row: bool = True
    ) -> ir.Expr:
        """A read of a table of the body at `places`: its last axes, or first without `is_row`."""
        others = tuple(i for i in find_free(body) if i not in places)
        axes = (*others, *places) if is_row else (*places, *others)
        if (body, axes) not in self.made:
            name = self.names.take(f"{self.target}_of_{'_'.join(i.name for i in places)}")
            self.made[body, axes] = ir.Equation(ir.name_axes(name, axes), body)
        tensor = self.made[body, axes].target.tensor
        return ir.Access(tensor, tuple(places.get(axis, axis) for axis in axes))

    def tabulate(self, equations: Sequence[ir.Equation]) -> Iterator[ir.System]:
        """Yield the system with tables, if any; an equation that becomes one read is inlined."""
        found: list[ir.Equation] = []
        whole: list[ir.Equation] = []
        for equation in equations:
            self.target, count = equation.target.tensor.name, len(self.made)
            value = self.insert_reads(reduce(put_value, whole, equation.value), ())
            found += [*list(self.made.values())[count:], ir.Equation(equation.target, value)]
            if isinstance(value, ir.Access) and equation.target.tensor not in self.system.results:
                whole.append(found[-1])
        if self.made:
            yield replace(self.system, equations=drop_unread(found, self.system.results))


@dataclass
class _Places(Tables):
    """Tables of parts that depend on indices only by a place as t[n] or i//2, over its values."""

    allowed: Sequence[ir.Expr]  # the keys to try
    is_strict: bool = True  # a table has no index of its key; else it lacks at least one
    adds: bool = False  # the factors of reads are summed by place first, instead
    # the indices over values of keys, by extent
    runs: dict[ir.Expr, ir.Index] = field(default_factory=dict)

    def insert_reads(self, expr: ir.Expr, guards: Conditions) -> ir.Expr:
        """The expression with its largest parts that depend on a key replaced by table reads."""
        keys = [key for key in find_keys(expr) if key in self.allowed]
        if not keys:
            return expr
        heavy = [part for part in walk(expr) if isinstance(part, HEAVY)]
        worked = (k for k in keys if any(k in walk(part) and k is not part for part in heavy))
        for key in () if self.adds else worked:
            read = self.read_table(expr, key, guards)
            if read is not None:
                return read
        match expr:
            case ir.Access() | ir.Index():
                return expr
            case ir.Reduce("sum"):
                for key in keys:
                    read = (self._add_up if self.adds else self._open_sum)(expr, key, guards)
                    if read is not None:
                        return read
            case ir.Call("floordiv" | "mod" | "floor"):
                return expr
        return self.open_values(expr, guards)

    def read_table(self, expr: ir.Expr, key: ir.Expr, guards: Conditions) -> ir.Expr | None:
        """A read of a table for what has an index of the key only inside the key; else None."""
        free = {*find_free(expr)}
        if not {*find_free(key)} <= free:
            return None
        run = self._find_run(expr, key)
        if run is None:
            return None
        try:
            body = rewrite_bottom_up(substitute(expr, {key: run}), partial(_drop_decided, run=run))
        except ValueError:  # a row along an index of the key
            return None
        left = {*find_free(key)} & {*find_free(body)}
        if run in free or (left if self.is_strict else left == {*find_free(key)}):
            return None
        if self.is_harmful(body):
            return None
        is_inside = _is_used_inside(expr, key, run.extent, guards)
        outside = ir.ZERO if is_inside else _find_outside(expr, key, run.extent)
        if outside is None:
            return None
        is_row = bool(left)  # the table's rows are read at entries
        read = self.define(body, {run: key}, is_row=is_row)
        return read if is_inside else ir.Where(find_guard(key, run.extent), read, outside)

    def _find_run(self, expr: ir.Expr, key: ir.Expr) -> ir.Index | None:
        """The index over a key's values; None if axes read at the key differ in extent."""
        extent = find_extent(expr, key)
        if extent is not None and extent not in self.runs:
            self.runs[extent] = self.names.take_index(ir.Index("u", extent))
        return None if extent is None else self.runs[extent]

    def _open_sum(self, expr: ir.Reduce, key: ir.Expr, guards: Conditions) -> ir.Expr | None:
        """A sum of a product, with the factors that share inner indices in a table; or None."""
        own = find_free(key)
        factors, stand_in = find_factors(expr.body), ir.Index("#", ir.ONE)
        for gone in ({*own}, *({index} for index in own if len(own) > 1)):
            mine = [f for f in factors if not gone & {*find_free(substitute(f, {key: stand_in}))}]
            others = [f for f in factors if f not in mine]
            outside = {*own}.union(find_free(expr.condition), *map(find_free, others))
            inner = {i for f in mine for i in find_free(f) if i in expr.bound} - outside
            part = [f for f in mine if inner & {*find_free(f)} or key in find_keys(f)]
            if not inner or not any(key in find_keys(f) for f in part):
                continue
            over = tuple(i for i in expr.bound if i in inner)
            whole = ir.Reduce("sum", over, ir.TRUE, ir.product_of(part))
            read = self.read_table(whole, key, (*guards, expr.condition))
            if read is not None:
                kept = tuple(i for i in expr.bound if i not in inner)
                left = ir.product_of(
                    [*(self.insert_reads(f, ()) for f in factors if f not in part), read]
                )
                return ir.sum_over(kept, left, expr.condition)
        return None

    def _add_up(self, expr: ir.Reduce, key: ir.Expr, guards: Conditions) -> ir.Expr | None:
        """sum[j](f(key_j) * g_j) as sum[r](f(r) * sum[j, key_j == r](g_j)); None if unfit."""
        over, run = {*find_free(key)} & {*expr.bound}, self._find_run(expr.body, key)
        is_unfit = is_affine(key) or find_accesses(key)  # data-dependent: a table of any length
        if not over or run is None or run in find_free(expr) or is_unfit:
            return None
        factors = find_factors(expr.body)
        placed = {f: substitute(f, {key: run}) for f in factors if key in find_keys(f)}
        around_each = (*guards, expr.condition)
        inside = (_is_used_inside(f, key, run.extent, around_each) for f in placed)
        mine = [new for new in placed.values() if not over & {*find_free(new)}]
        others = [f for f in factors if placed.get(f) not in mine]
        wide = {i for f in mine for i in find_free(f)}
        body = ir.product_of(others) if others else ir.ONE
        around = {*find_free(expr.condition), *find_free(body), *find_free(key), run}
        is_finite_there = all(is_finite(mark_tensors(new, self.nonfinite)) for new in mine)
        if not mine or not others or wide <= around or not is_finite_there or not all(inside):
            return None
        summed = tuple(i for i in expr.bound if i in around and i not in wide)
        condition = ir.all_of(expr.condition, ir.Compare("==", key, run))
        read = self.define(ir.Reduce("sum", summed, condition, body), {run: run})
        kept = tuple(i for i in expr.bound if i not in summed)
        return ir.sum_over((*kept, run), ir.product_of([read, *mine]))


@rule(
    law="where(x < l, t_l, where(x > h, t_h, t_x)) = t_clip(x, l, h), and in other orders",
    before="t[2*C + 1]; x, z[N]; y[i,j] = x[i] * z[j] * "
    "where(j - i <= -C, t[0], where(j - i >= C, t[2*C], t[j - i + C]))",
    after="t[2*C + 1]; x, z[N]; y[i,j] = x[i] * z[j] * t[clip(j - i + C, 0, 2*C)]",
    refuses="t[2*C + 1]; x, z[N]; y[i,j] = x[i] * z[j] * "
    "where(j - i <= -C, t[2*C], where(j - i >= C, t[0], t[j - i + C]))",
)
def join_reads(expr: ir.Expr) -> ir.Expr | None:
    """Join a choice between reads of one tensor into one read at a clipped place."""
    pieces = list(_find_pieces(expr, ()))
    reads = [read for read, _ in pieces if isinstance(read, ir.Access)]
    if not 1 < len(reads) == len(pieces) or len({read.tensor for read in reads}) > 1:
        return None
    columns = [*zip(*(read.places for read in reads), strict=True)]
    varied = [k for k, column in enumerate(columns) if len({*column}) > 1]
    if len(varied) != 1:
        return None
    pairs = zip(reads, pieces, strict=True)
    place = _find_clip([(read.places[varied[0]], each) for read, (_, each) in pairs])
    places = (*reads[0].places[: varied[0]], place, *reads[0].places[varied[0] + 1 :])
    return None if place is None else ir.Access(reads[0].tensor, places)  # type: ignore[arg-type]


def _find_pieces(expr: ir.Expr, conditions: Conditions) -> Iterator[tuple[ir.Expr, Conditions]]:
    """The values of a nested choice, or of a read at a clipped place, with their conditions."""
    match expr:
        case ir.Where(condition, then, other):
            yield from _find_pieces(then, (*conditions, condition))
            yield from _find_pieces(other, (*conditions, ir.Not(condition)))
        case ir.Call("clip", (inside, low, high)):
            yield from _find_pieces(
                ir.Call("max", (low, ir.Call("min", (high, inside)))), conditions
            )
        case ir.Call("max" | "min" as kind, (one, other)):
            above = ir.Compare(">=" if kind == "max" else "<=", one, other)
            yield from _find_pieces(ir.Where(above, one, other), conditions)
        case ir.Access(tensor, places):
            bounded = (isinstance(p, ir.Call) and p.function in BOUNDS for p in places)
            at = [k for k, is_bounded in enumerate(bounded) if is_bounded]
            for place, more in _find_pieces(places[at[0]], conditions) if len(at) == 1 else ():
                yield ir.Access(tensor, (*places[: at[0]], place, *places[at[0] + 1 :])), more
            if len(at) != 1:
                yield expr, conditions
        case _:
            yield expr, conditions


def _find_facts(conditions: Conditions) -> Facts:
    """The polynomials that conditions keep >= 0.

    If a condition may hold in two ways and the others exclude one of these, the other one holds.
    """
    facts = tuple(fact for condition in conditions for fact in find_facts(condition))
    ways: list[list[Facts]] = []
    for condition in conditions:
        match condition:
            case ir.Not(ir.And(parts)):
                ways.append([find_facts(ir.negate(part)) for part in parts])
            case ir.Or(parts):
                ways.append([find_facts(part) for part in parts])
    for fact in facts:
        for atom in fact.atoms:
            if isinstance(atom, ir.Call) and atom.function == "abs":
                slope, rest = fact.split_linear(atom) or (fact, fact)
                value = slope * Polynomial.of(atom.arguments[0])
                ways.append([(rest + value,), (rest - value,)])
    for way in ways:
        left = [each for each in way if not any(is_positive(-fact, facts) for fact in each)]
        facts = (*facts, *left[0]) if len(left) == 1 else facts
    return facts


def _find_clip(pieces: Sequence[tuple[ir.Expr, Conditions]]) -> ir.Expr | None:
    """clip(x, low, high) that equals each place under its conditions, or None."""
    moved = dict.fromkeys(place for place, _ in pieces if find_free(place))
    ends = dict.fromkeys(Polynomial.of(place) for place, _ in pieces if place not in moved)
    if len(moved) != 1 or len(ends) != 2:
        return None
    (inside,) = moved
    value, (low, high) = Polynomial.of(inside), ends
    if not is_never_negative(high - low):
        low, high = high, low
    for place, conditions in pieces:
        facts, end = _find_facts(conditions), Polynomial.of(place)
        gaps = (value - low, high - value) if place is inside else (end - value,)
        gaps = (value - end,) if end == high else gaps
        if not all(is_never_negative(gap, facts) for gap in gaps):
            return None
    return ir.Call("clip", (inside, low.to_expr(), high.to_expr()))


@system_rule(
    law="sum_d W_od h_(s_e)d = p_(s_e)o, p_uo = sum_d W_od h_ud",
    before="h[N, D]; W[O, D]; int s[E] < N; y[e,o] = sum[d](W[o,d] * h[s[e],d])",
    after="h[N, D]; W[O, D]; int s[E] < N; index u < N; "
    "y_of_u[u,o] = sum[d](W[o,d] * h[u,d]); y[e,o] = y_of_u[s[e],o]",
    refuses="h[N, D]; W[E, D]; int s[E] < N; y[e] = sum[d](W[e,d] * h[s[e],d])",
)
def tabulate_places(system: ir.System) -> Iterator[ir.System]:
    """Compute parts that depend on an index only through a place in tables over the place."""
    keys = tuple(dict.fromkeys(k for e in _inline_keyed(system) for k in find_keys(e.value)))
    for is_strict in (True, False):
        several = keys if is_strict else tuple(k for k in keys if len(find_free(k)) > 1)
        for allowed in (several, *((key,) for key in several if len(several) > 1)):
            yield from _Places(system, allowed, is_strict).tabulate(_inline_keyed(system))


@system_rule(
    law="sum_j f_j * h_(s_j)d = sum_u w_u * h_ud, w_u = sum_j [s_j == u] * f_j",
    before="q[N, M]; t[2*C + 1, D]; y[i,d] = sum[j](q[i,j] * t[clip(j - i, -C, C) + C,d])",
    after="q[N, M]; t[2*C + 1, D]; index u < 2*C + 1; "
    "y_of_u[i,u] = sum[j, clip(j - i, -C, C) + C == u](q[i,j]); "
    "y[i,d] = sum[u](y_of_u[i,u] * t[u,d])",
    refuses="q[N, M]; t[2*C + 1, M]; y[i] = sum[j](q[i,j] * t[clip(j - i, -C, C) + C,j])",
)
def add_by_place(system: ir.System) -> Iterator[ir.System]:
    """Yield the system with the factors of table reads summed by place before the product."""
    keys = tuple(dict.fromkeys(k for e in _inline_keyed(system) for k in find_keys(e.value)))
    yield from _Places(system, keys, adds=True).tabulate(_inline_keyed(system))


def _inline_keyed(system: ir.System) -> tuple[ir.Equation, ...]:
    """The equations, with reads of elementwise ones that have keys replaced by their values."""
    whole: list[ir.Equation] = []
    found: list[ir.Equation] = []
    for equation in system.equations:
        value = equation.value
        for part in whole:
            value = put_value(value, part)
        found.append(ir.Equation(equation.target, value))
        is_read = not any(isinstance(part, (ir.Reduce, ir.Along)) for part in walk(value))
        if is_read and equation.target.tensor not in system.results and find_keys(value):
            whole.append(found[-1])
    return tuple(found)
