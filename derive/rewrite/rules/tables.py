"""Tables over places: an expression of a place is computed once for each value of the place.

    y_eo = sum_d W_od * h_(s_e)d          p_uo = sum_d W_od * h_ud;   y_eo = p_(s_e)o

A gather commutes with linear and with elementwise operations. To test it, the place is replaced by
u: an index of the place must be gone then. The sizes decide which side is cheaper.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

from derive.analysis.safety import is_finite
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import Names, find_accesses, find_free, map_children, substitute, walk
from derive.rewrite.guards import find_nonfinite, is_variable, mark_tensors
from derive.rewrite.rule import drop_unread, put_value, system_rule
from derive.rewrite.rules.sums import find_factors

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
    """The extent of all axes that a key is a place of; None if they differ."""
    extents = [
        extent
        for access in find_accesses(expr)
        for place, extent in zip(access.places, access.tensor.shape, strict=True)
        if place is key
    ]
    is_one = bool(extents) and all(is_same_extent(extents[0], each) for each in extents)
    return extents[0] if is_one else None


@dataclass
class _Tables:
    """The tables of a system: the equations that define them, by value and axes."""

    system: ir.System
    allowed: Sequence[ir.Expr]  # the keys to try
    is_strict: bool = True  # a table has no index of its key; else it lacks at least one
    adds: bool = False  # the factors of reads are summed by place first, instead

    def __post_init__(self) -> None:
        self.names, self.target = Names.of(self.system), ""
        self.made: dict[tuple[ir.Expr, tuple[ir.Index, ...]], ir.Equation] = {}
        self.runs: dict[ir.Expr, ir.Index] = {}  # the indices over values of keys, by extent

    @cached_property
    def nonfinite(self) -> Mapping[ir.Tensor, ir.Tensor]:
        """The tensors that may be infinite or nan, with their marked copies."""
        return find_nonfinite(self.system, signs=True)

    def tabulate(self, equations: Sequence[ir.Equation]) -> Iterator[ir.System]:
        """The system with tables, if any; an equation that becomes one read is inlined."""
        found: list[ir.Equation] = []
        whole: list[ir.Equation] = []
        for equation in equations:
            self.target, count = equation.target.tensor.name, len(self.made)
            value = self.insert_reads(reduce(put_value, whole, equation.value))
            found += [*list(self.made.values())[count:], ir.Equation(equation.target, value)]
            if isinstance(value, ir.Access) and equation.target.tensor not in self.system.results:
                whole.append(found[-1])
        if self.made:
            yield replace(self.system, equations=drop_unread(found, self.system.results))

    def define(self, body: ir.Expr, run: ir.Index, place: ir.Expr, *, is_row: bool) -> ir.Expr:
        """A read of a new or known table, at a place of its last axis, or its first."""
        others = tuple(i for i in find_free(body) if i is not run)
        axes = (*others, run) if is_row else (run, *others)
        if (body, axes) not in self.made:
            name = self.names.take(f"{self.target}_of_{run.name}")
            self.made[body, axes] = ir.Equation(ir.name_axes(name, axes), body)
        tensor = self.made[body, axes].target.tensor
        return ir.Access(tensor, tuple(place if axis is run else axis for axis in axes))

    def insert_reads(self, expr: ir.Expr) -> ir.Expr:
        """The expression with its largest parts that depend on a key replaced by table reads."""
        keys = [key for key in find_keys(expr) if key in self.allowed]
        if not keys:
            return expr
        heavy = [part for part in walk(expr) if isinstance(part, HEAVY)]
        worked = (k for k in keys if any(k in walk(part) and k is not part for part in heavy))
        for key in () if self.adds else worked:
            read = self.read_table(expr, key)
            if read is not None:
                return read
        match expr:
            case ir.Access() | ir.Index():
                return expr
            case ir.Reduce("sum"):
                for key in keys:
                    read = (self._add_up if self.adds else self._open_sum)(expr, key)
                    if read is not None:
                        return read
            case ir.Call("floordiv" | "mod" | "floor"):
                return expr
            case ir.Where(condition, then, other):
                return ir.Where(condition, *map(self.insert_reads, (then, other)))
        if isinstance(expr, (ir.Reduce, ir.Along)):
            return replace(expr, body=self.insert_reads(expr.body))
        return map_children(expr, self.insert_reads)

    def read_table(self, expr: ir.Expr, key: ir.Expr) -> ir.Expr | None:
        """A read of a table for an expression that has an index of the key only inside the key."""
        free = {*find_free(expr)}
        if not {*find_free(key)} <= free:
            return None
        run = self._find_run(expr, key)
        if run is None:
            return None
        try:
            body = substitute(expr, {key: run})
        except ValueError:  # a row along an index of the key
            return None
        left = {*find_free(key)} & {*find_free(body)}
        if run in free or (left if self.is_strict else left == {*find_free(key)}):
            return None
        if is_variable(body) and not is_finite(mark_tensors(body, self.nonfinite)):
            return None  # the gradient of an unread entry would be 0 * oo
        return self.define(body, run, key, is_row=bool(left))

    def _find_run(self, expr: ir.Expr, key: ir.Expr) -> ir.Index | None:
        """The index over the values of a key, if all its axes have one extent."""
        extent = find_extent(expr, key)
        if extent is not None and extent not in self.runs:
            self.runs[extent] = self.names.take_index(ir.Index("u", extent))
        return None if extent is None else self.runs[extent]

    def _open_sum(self, expr: ir.Reduce, key: ir.Expr) -> ir.Expr | None:
        """A sum of a product, with the factors that share inner indices moved into a table."""
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
            read = self.read_table(ir.Reduce("sum", over, ir.TRUE, ir.product_of(part)), key)
            if read is not None:
                kept = tuple(i for i in expr.bound if i not in inner)
                left = [*(self.insert_reads(f) for f in factors if f not in part), read]
                return ir.sum_over(kept, ir.product_of(left), expr.condition)
        return None

    def _add_up(self, expr: ir.Reduce, key: ir.Expr) -> ir.Expr | None:
        """A sum over an index of the key as a sum over the values of the key."""
        over, run = {*find_free(key)} & {*expr.bound}, self._find_run(expr.body, key)
        is_told = is_affine(key) or find_accesses(key)  # a data-dependent table may have any length
        if not over or run is None or run in find_free(expr) or is_told:
            return None
        factors = find_factors(expr.body)
        placed = {f: substitute(f, {key: run}) for f in factors if key in find_keys(f)}
        mine = [new for new in placed.values() if not over & {*find_free(new)}]
        others = [f for f in factors if placed.get(f) not in mine]
        wide = {i for f in mine for i in find_free(f)}
        body = ir.product_of(others) if others else ir.ONE
        around = {*find_free(expr.condition), *find_free(body), *find_free(key), run}
        is_finite_there = all(is_finite(mark_tensors(new, self.nonfinite)) for new in mine)
        if not mine or not others or wide <= around or not is_finite_there:
            return None
        summed = tuple(i for i in expr.bound if i in around and i not in wide)
        condition = ir.all_of(expr.condition, ir.Compare("==", key, run))
        read = self.define(ir.Reduce("sum", summed, condition, body), run, run, is_row=True)
        kept = tuple(i for i in expr.bound if i not in summed)
        return ir.sum_over((*kept, run), ir.product_of([read, *mine]))


@system_rule(
    law="sum_d W_od h_(s_e)d = p_(s_e)o, p_uo = sum_d W_od h_ud",
    before="h[N, D]; W[O, D]; int s[E] < N; y[e,o] = sum[d](W[o,d] * h[s[e],d])",
    after="h[N, D]; W[O, D]; int s[E] < N; index u < N; "
    "y_of_u[u,o] = sum[d](W[o,d] * h[u,d]); y[e,o] = y_of_u[s[e],o]",
    refuses="h[N, D]; W[E, D]; int s[E] < N; y[e] = sum[d](W[e,d] * h[s[e],d])",
)
def tabulate_places(system: ir.System) -> Iterator[ir.System]:
    """Compute parts that depend on an index only through a place in tables over the place."""
    keys = tuple(dict.fromkeys(k for e in _inline_reads(system) for k in find_keys(e.value)))
    for is_strict in (True, False):
        several = keys if is_strict else tuple(k for k in keys if len(find_free(k)) > 1)
        for allowed in (several, *((key,) for key in several if len(several) > 1)):
            yield from _Tables(system, allowed, is_strict).tabulate(_inline_reads(system))


@system_rule(
    law="sum_j f_j * h_(s_j)d = sum_u w_u * h_ud, w_u = sum_j [s_j == u] * f_j",
    before="q[N, M]; t[2*C + 1, D]; y[i,d] = sum[j](q[i,j] * t[clip(j - i, -C, C) + C,d])",
    after="q[N, M]; t[2*C + 1, D]; index u < 2*C + 1; "
    "y_of_u[i,u] = sum[j, clip(j - i, -C, C) + C == u](q[i,j]); "
    "y[i,d] = sum[u](y_of_u[i,u] * t[u,d])",
    refuses="q[N, M]; t[2*C + 1, M]; y[i] = sum[j](q[i,j] * t[clip(j - i, -C, C) + C,j])",
)
def add_by_place(system: ir.System) -> Iterator[ir.System]:
    """Sum the factors of table reads by place before the product."""
    keys = tuple(dict.fromkeys(k for e in _inline_reads(system) for k in find_keys(e.value)))
    yield from _Tables(system, keys, adds=True).tabulate(_inline_reads(system))


def _inline_reads(system: ir.System) -> tuple[ir.Equation, ...]:
    """The equations, with elementwise ones that have keys inlined."""
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
