"""Recurrences over two indices, rewritten over anti-diagonals (waves) of a table with borders.

    D[i,j] = c[i,j] + min(D[i - 1,j], D[i,j - 1])    with D[-1,j] = top[j], D[i,-1] = 2

    D_next[k,i] = where(0 <= k - i < J, c[i,k - i] + min(D_shifted[k - 1,i], D_next[k - 1,i]), 2)
    D_wave[k,x] = where(x < 1, top[k + 1], D_next[k,x - 1])
    D_shifted[k,i] = D_wave[k,i]
    D[i,j] = D_next[i + j,i]

The values before the first position of an index become entries of the table, so no turn chooses.
A choice by positions is replaced by a read of such entries if both agree at all positions of a
small table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import chain

from derive.analysis.affine import simplify_place
from derive.ir import nodes as ir
from derive.ir.functions import kind_of
from derive.ir.polynomial import Polynomial
from derive.ir.recurrences import (
    Recurrence,
    exchange_equations,
    find_recurrences,
    find_weights,
    replace_fixed,
    skew_recurrence,
)
from derive.ir.walk import (
    Names,
    find_accesses,
    find_free,
    map_children,
    rewrite_bottom_up,
    rewrite_top_down,
    substitute,
    walk,
)
from derive.plan.recurrences.borders import Depths, Grid, has_infinity, is_harmless
from derive.plan.recurrences.turns import push_guard


def turn_upward(system: ir.System) -> ir.System:
    """The system with every recurrence over one index, in increasing order.

    y[t] = a[t] * y[t + 1] + x[t]    becomes    y_back[t] = a[T - 1 - t] * y_back[t - 1] + ..
                                                y[t] = y_back[T - 1 - t]
    """
    for recurrence in find_recurrences(system):
        if recurrence.inner is None:
            system = skew_recurrence(system, recurrence) if recurrence.is_downward else system
            continue
        table = _Table(system, recurrence) if len(recurrence.loops) == 2 else None
        made = table.to_waves() if table is not None else None
        system = skew_recurrence(system, recurrence) if made is None else made
    return system


@dataclass
class _Table:
    """A recurrence over two increasing indices as a table; `starts` are border values by depths."""

    system: ir.System
    recurrence: Recurrence

    def __post_init__(self) -> None:
        self.loops, self.reads = self.recurrence.loops, self.recurrence.reads
        self.outer, self.inner = (loop.index for loop in self.loops)
        self.targets = self.recurrence.targets
        self.names = Names.of(self.system)
        self.starts: dict[ir.Tensor, dict[Depths, ir.Expr]] = {t: {} for t in self.targets}
        self.before: list[ir.Equation] = []  # equations before the table: data and borders
        self.lifted: dict[ir.Expr, ir.Expr] = {}  # tensors of these equations, by value

    def to_waves(self) -> ir.System | None:
        """The system with the table, or None, as for a read of another lag than 0 or 1."""
        if any(loop.is_downward for loop in self.loops):
            return None
        grid = Grid.of(self.system, self.recurrence)
        if find_weights(self.recurrence) != [1, 1] or grid is None:
            return None
        self.grid = grid
        values: dict[ir.Tensor, ir.Expr] = {}
        for equation in self.recurrence.equations:
            self.target = equation.target
            value = rewrite_bottom_up(equation.value, partial(push_guard, reads=self.reads))
            value = rewrite_top_down(value, self._strip_starts)
            values[self.target.tensor] = self._lift_data(value)
        reads = self.recurrence.find_reads(*values.values())
        lags = {access: self._find_lags(access) for access in reads}
        if any(not 0 <= step <= 1 for lag in lags.values() for step in lag):
            return None
        if any(a.tensor.kind != "real" for a in reads) or not any(self.starts.values()):
            return None
        self.depths = {
            t: max((lags[a][0] for a in reads if a.tensor is t), default=0) for t in self.targets
        }
        return self._write_system(values, lags)

    def _find_lags(self, access: ir.Access) -> Depths:
        one, other = (loop.find_lag(access) or 0 for loop in self.loops)
        return one, other

    def _strip_starts(self, expr: ir.Expr) -> ir.Expr:
        """Reduce a read guarded by initial values to the read; record the initial values."""
        if not isinstance(expr, ir.Where) or not self.reads(expr):
            return expr
        cells = self.grid.find_leaves(expr)
        own = {leaf for leaf in cells.values() if self.reads(leaf)}
        if len(own) != 1:
            return expr
        (read,) = own
        if not isinstance(read, ir.Access) or read.tensor not in self.targets:
            return expr
        one, other = lags = self._find_lags(read)
        found: dict[Depths, ir.Expr] = {}
        there: dict[ir.Expr, ir.Expr] = {
            index: ir.Add((index, ir.Number(Fraction(lag))))
            for index, lag in zip((self.outer, self.inner), lags, strict=True)
            if lag
        }
        for (i, j), leaf in cells.items():
            place = i - one, j - other
            if place[0] >= self.grid.outer or place[1] >= self.grid.inner:
                return expr
            depths = max(0, -place[0]), max(0, -place[1])
            if (leaf is read) is any(depths):
                return expr
            if leaf is not read and found.setdefault(depths, leaf) is not leaf:
                return expr
        others = self._match_others(read)
        if others is None:
            return expr
        moved: dict[Depths, ir.Expr] = {}
        for depths, leaf in found.items():
            start = rewrite_bottom_up(substitute(substitute(leaf, there), others), simplify_place)
            at: dict[ir.Expr, ir.Expr] = {
                index: ir.Number(Fraction(-depth))
                for index, depth in zip((self.outer, self.inner), depths, strict=True)
                if depth
            }
            moved[depths] = rewrite_bottom_up(substitute(start, at), simplify_place)
        starts = self.starts[read.tensor]
        if any(starts.get(depths, start) is not start for depths, start in moved.items()):
            return expr
        starts |= moved
        return read

    def _match_others(self, read: ir.Access) -> dict[ir.Expr, ir.Expr] | None:
        """A map from a read's other indices to the definition's; None if repeated or computed."""
        target = self.targets[read.tensor]
        own = {loop.find_axis(read.tensor) for loop in self.loops}
        pairs = [
            pair
            for k, pair in enumerate(zip(read.places, target.places, strict=True))
            if k not in own
        ]
        found: dict[ir.Expr, ir.Expr] = {here: there for here, there in pairs if here is not there}
        is_plain = all(isinstance(here, ir.Index) for here in found)
        return found if is_plain and len({here for here, _ in pairs}) == len(pairs) else None

    def _lift_data(self, expr: ir.Expr) -> ir.Expr:
        """The expression, with parts that do not read the table moved into tensors before it."""
        if not self.reads(expr):
            return self._name_data(expr)
        if isinstance(expr, ir.Access):
            return expr
        return map_children(expr, self._lift_data)

    def _name_data(self, expr: ir.Expr) -> ir.Expr:
        """A name for a value that reads tensors over the inner index; other values unchanged."""
        free = find_free(expr)
        is_plain = isinstance(expr, ir.Access) and all(isinstance(p, ir.Index) for p in expr.places)
        if self.inner not in free or is_plain or isinstance(expr, (*ir.TRUTHS, ir.Index)):
            return expr
        if not any(isinstance(part, ir.Access) for part in walk(expr)):
            return expr
        if expr not in self.lifted:
            axes = [i for i in self.target.places if isinstance(i, ir.Index) and i in free]
            axes += [i for i in free if i not in axes]
            name = self.names.take(f"{self.target.tensor.name}_in")
            self.lifted[expr] = target = ir.name_axes(name, axes, kind_of(expr))
            self.before.append(ir.Equation(target, expr))
        return self.lifted[expr]

    def _write_system(
        self, values: Mapping[ir.Tensor, ir.Expr], lags: Mapping[ir.Access, Depths]
    ) -> ir.System | None:
        """The system with the equations of the table in place of the recurrence."""
        one, other = self.outer, self.inner
        length = Polynomial.of(one.extent) - Polynomial.of(1) + Polynomial.of(other.extent)
        self.wave = self.names.take_index(ir.Index(one.name, length.to_expr()))
        self._name_tables()
        self.begun: dict[tuple[str, int], ir.Tensor] = {}
        self.plain: list[ir.Tensor] = []
        self.shifted: dict[ir.Tensor, ir.Tensor] = {}
        self.views: list[ir.Equation] = []  # the equations of shifted tensors
        self.lags = lags
        given = (*self.system.equations, *self.before)
        infinite = {e.target.tensor for e in given if has_infinity(e.value)}
        starts = (start for each in self.starts.values() for start in each.values())
        parts = (*values.values(), *starts)
        read = {access.tensor for part in parts for access in find_accesses(part)}
        self.is_harmless = all(map(is_harmless, parts)) and infinite.isdisjoint(read)
        equations: list[ir.Equation] = []
        wide_equations: list[ir.Equation] = []
        for tensor, value in values.items():
            self.target = self.targets[tensor]
            rewritten = rewrite_bottom_up(value, self._read_table)
            place = (Polynomial.of(self.wave) - Polynomial.of(one)).to_expr()
            row: dict[ir.Expr, ir.Expr] = {other: place}
            inside = [ir.Compare(">=", place, ir.ZERO), ir.Compare("<", place, other.extent)]
            filler = self._find_filler(tensor)
            border = self.starts[tensor].get((0, 1), filler)
            if border is not filler:
                border = ir.Where(ir.Compare("==", place, ir.MINUS_ONE), border, filler)
            target = self._read_at(self.next[tensor], tensor, self.wave, one)
            equations += self._write_choice(
                target, ir.all_of(*inside), substitute(rewritten, row), border
            )
            if self.depths[tensor]:
                wide_equations.append(self._add_border(tensor))
        results = [
            ir.Equation(target, self._read_place(target)) for target in self.targets.values()
        ]
        system = replace_fixed(self.system, self.recurrence, self._read_place)
        if self.is_harmless:  # so are the tables
            made = (self.whole.values(), self.next.values(), self.shifted.values(), self.plain)
            finite = (*system.finite, *(tensor.name for tensor in chain(*made)))
            system = replace(system, finite=finite)
        new = [*self.before, *equations, *wide_equations, *self.views, *results]
        return exchange_equations(system, self.recurrence, new)

    def _name_tables(self) -> None:
        """Name the tensors of a wave, without (`next`) and with (`whole`) the initial values."""
        self.next, self.whole = {}, {}
        for tensor, target in self.targets.items():
            shape, _ = self._split_inner(target.tensor.shape, tensor)
            depth, at = self.depths[tensor], self._find_axis(tensor)
            wide = (Polynomial.of(self.outer.extent) + Polynomial.of(depth)).to_expr()
            name = self.names.take(f"{tensor.name}_wave")
            made = ir.Tensor(
                name,
                (self.wave.extent, *shape[:at], wide, *shape[at + 1 :]),
                tensor.kind,
                tensor.below,
            )
            self.whole[tensor] = made
            self.next[tensor] = made
            if depth:
                own = self.names.take(f"{tensor.name}_next")
                self.next[tensor] = replace(made, name=own, shape=(self.wave.extent, *shape))

    def _write_choice(
        self, target: ir.Access, inside: ir.Expr, value: ir.Expr, border: ir.Expr
    ) -> Iterator[ir.Equation]:
        """The equations of a tensor with one value inside the table and another on the border."""
        if not self.is_harmless:
            yield ir.Equation(target, ir.Where(inside, value, border))
            return
        tensor = target.tensor
        plain = replace(tensor, name=self.names.take(f"{tensor.name}_inside"))
        self.plain.append(plain)
        made = ir.Access(plain, target.places)
        yield ir.Equation(made, value)
        yield ir.Equation(target, ir.Where(inside, made, border))

    def _find_axis(self, tensor: ir.Tensor) -> int:
        """The place of the outer index in a tensor's axes when the inner index is taken out."""
        places = self.targets[tensor].places
        return places.index(self.outer) - (places.index(self.inner) < places.index(self.outer))

    def _split_inner(
        self, places: tuple[ir.Expr, ...], tensor: ir.Tensor
    ) -> tuple[tuple[ir.Expr, ...], ir.Expr]:
        """(the positions without that of the inner index, the position of the inner index)."""
        axis = self.targets[tensor].places.index(self.inner)
        return (*places[:axis], *places[axis + 1 :]), places[axis]

    def _read_at(
        self, made: ir.Tensor, tensor: ir.Tensor, wave: ir.Expr, row: ir.Expr
    ) -> ir.Access:
        """A read of `made`, a table of `tensor`, at a wave, a row, and its other indices."""
        places, _ = self._split_inner(self.targets[tensor].places, tensor)
        at = self._find_axis(tensor)
        return ir.Access(made, (wave, *places[:at], row, *places[at + 1 :]))

    def _read_table(self, expr: ir.Expr) -> ir.Expr:
        """A read of the recurrence as a read of the table; other nodes unchanged."""
        if not isinstance(expr, ir.Access) or expr not in self.lags:
            return expr
        tensor, (one, other) = expr.tensor, self.lags[expr]
        places, _ = self._split_inner(expr.places, tensor)
        at, lag = self._find_axis(tensor), one + other
        if not lag:
            return ir.Access(self.next[tensor], (self.wave, *places))
        row = (Polynomial.of(places[at]) + Polynomial.of(self.depths[tensor])).to_expr()
        others = (*places[:at], self.outer, *places[at + 1 :])
        back = (Polynomial.of(self.wave) - Polynomial.of(lag)).to_expr()
        value: ir.Expr | None = None
        for turn in range(-lag, 0):
            first = self._add_start(tensor, turn)
            start = ir.Access(first, (*places[:at], row, *places[at + 1 :]))
            bound = ir.Number(Fraction(turn))
            value = start if value is None else ir.Where(ir.Compare("<", back, bound), value, start)
        assert value is not None
        made = self._shift_row(tensor) if one else self.next[tensor]
        read = ir.Access(made, (back, *others))
        return ir.Where(ir.Compare("<", back, ir.ZERO), value, read)

    def _shift_row(self, tensor: ir.Tensor) -> ir.Tensor:
        """The tensor of a wave shifted by a row, which later turns read."""
        if tensor not in self.shifted:
            name = self.names.take(f"{tensor.name}_shifted")
            made = self.shifted[tensor] = replace(self.next[tensor], name=name)
            source = self._read_at(self.whole[tensor], tensor, self.wave, self.outer)
            target = self._read_at(made, tensor, self.wave, self.outer)
            self.views.append(ir.Equation(target, source))
        return self.shifted[tensor]

    def _add_start(self, tensor: ir.Tensor, wave: int) -> ir.Tensor:
        """Define, once, the tensor of the table's values on a wave before the first; return it."""
        key = self.whole[tensor].name, wave
        if key not in self.begun:
            places, _ = self._split_inner(self.targets[tensor].places, tensor)
            at, depth = self._find_axis(tensor), self.depths[tensor]
            whole = self.whole[tensor]
            row = self.names.take_index(ir.Index(self.outer.name, whole.shape[1 + at]))
            name = self.names.take(f"{tensor.name}_start")
            self.begun[key] = ir.Tensor(name, whole.shape[1:], tensor.kind, tensor.below)
            here = (Polynomial.of(row) - Polynomial.of(depth)).to_expr()
            value = self._find_filler(tensor)
            for (one, other), start in self.starts[tensor].items():
                if one + other == -wave:  # read in one row alone, at place 0 of the other index
                    edge = ir.Number(Fraction(depth - one))
                    rest = (Polynomial.of(row) - Polynomial.of(edge)).to_expr()
                    moved = substitute(start, {self.outer: here, self.inner: rest})
                    moved = rewrite_bottom_up(moved, simplify_place)
                    value = ir.Where(ir.Compare("==", row, edge), moved, value)
            target = ir.Access(self.begun[key], (*places[:at], row, *places[at + 1 :]))
            self.before.append(ir.Equation(target, value))
        return self.begun[key]

    def _find_filler(self, tensor: ir.Tensor) -> ir.Expr:
        """The value of unused entries of the table."""
        column = self.starts[tensor].get((0, 1))
        return column if isinstance(column, ir.Number) and self.is_harmless else ir.ONE

    def _add_border(self, tensor: ir.Tensor) -> ir.Equation:
        """The equation of a wave with the values before the first position of the outer index."""
        at, whole = self._find_axis(tensor), self.whole[tensor]
        row = self.names.take_index(ir.Index(self.outer.name, whole.shape[1 + at]))
        edge = self.names.take_index(ir.Index(self.outer.name, ir.ONE))
        value = self._find_filler(tensor)
        start = self.starts[tensor].get((1, 0))
        if start is not None:
            place = (Polynomial.of(self.wave) + Polynomial.of(1)).to_expr()
            value = rewrite_bottom_up(substitute(start, {self.inner: place}), simplify_place)
            if self.inner in find_free(start):
                value = ir.Where(ir.Compare("<", place, self.inner.extent), value, ir.ONE)
        own = self._read_at(whole, tensor, self.wave, edge)
        is_same = self.wave not in find_free(value)
        places = own.places[1:] if is_same else own.places
        shape = (*whole.shape[: 1 + at], edge.extent, *whole.shape[2 + at :])
        name = self.names.take(f"{tensor.name}_border")
        border = ir.Tensor(name, shape[1:] if is_same else shape, tensor.kind, tensor.below)
        self.before.append(ir.Equation(ir.Access(border, places), value))
        new: dict[ir.Expr, ir.Expr] = {edge: row}
        read = substitute(ir.Access(border, places), new)
        less = (Polynomial.of(row) - Polynomial.of(1)).to_expr()
        behind = self._read_at(self.next[tensor], tensor, self.wave, less)
        target = self._read_at(whole, tensor, self.wave, row)
        return ir.Equation(target, ir.Where(ir.Compare("<", row, ir.ONE), read, behind))

    def _read_place(self, access: ir.Access) -> ir.Access:
        """A read of the recurrence at any position, as a read of the table."""
        tensor = access.tensor
        places, inner = self._split_inner(access.places, tensor)
        at = self._find_axis(tensor)
        wave = Polynomial.of(places[at]) + Polynomial.of(inner)
        return ir.Access(self.next[tensor], (wave.to_expr(), *places))
