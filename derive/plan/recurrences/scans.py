"""Loops of recurrences: a system without recurrences holds one turn (iteration) of each loop.

    h[t] = tanh(sum[d](W[e,d] * x[t,d]) + sum[f](U[e,f] * h[t - 1,f]))     with h[-1] = h0

    h_in[t,e] = sum[d](W[e,d] * x[t,d])                           before the loop, for all t at once
    h_t[e] = tanh(h_in_t[e] + sum[f](U[e,f] * h_before[f]))       one turn

`extract_loops` makes this system. Its inputs include slices such as h_in_t, values of previous
turns such as h_before, and the result h of the loop. After it is planned, `restore_loops` sorts the
steps into those before, in and after each loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import TypeGuard

from derive.analysis.facts import is_never_negative, is_whole
from derive.analysis.names import is_condition
from derive.errors import refuse
from derive.ir import nodes as ir
from derive.ir.functions import kind_of
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.recurrences import Recurrence, find_recurrences
from derive.ir.starts import MOST_BACK
from derive.ir.walk import (
    Names,
    find_accesses,
    find_free,
    find_size_names,
    map_children,
    rename_apart,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.plan import ops
from derive.plan.plan import RECUR_CHUNK, Plan
from derive.plan.recurrences.chunks import Chunks
from derive.plan.recurrences.gates import GatedCall, find_gated
from derive.plan.recurrences.loops import Linear, Loop, View, find_indices_of
from derive.plan.recurrences.readers import Turns, find_last, fold_readers, read_last
from derive.plan.recurrences.turns import (
    find_conditions,
    find_interval,
    fold_choices,
    push_guard,
    read_linear,
    strip_starts,
)
from derive.plan.steps import Carried, Scan, Step
from derive.rewrite.guards import find_nonfinite


def extract_loops(
    chunks: Chunks, *, keywords: bool = True, turns: Turns | None = None
) -> tuple[ir.System, list[Loop]]:
    """A system without recurrences, and the loops of the given system.

    The chunk length of a linear recurrence is a keyword argument, or a constant without `keywords`.
    With `turns`, a recurrence may become one call of torch, and sums over states may move into it.
    """
    system, views = chunks.system, chunks.views
    found = find_recurrences(system)
    if not found:
        return system, []
    system, found = fold_readers(system, found, turns)
    recurrences = {each.equations[0]: each for each in found}
    together = {e for each in recurrences.values() for e in each.equations}
    extractor = _LoopExtractor(system, {*chunks.lengths}, keywords=keywords, turns=turns)
    equations: list[ir.Equation] = []

    def read(equation: ir.Equation) -> ir.Equation:
        value = read_last(equation.value, extractor.last, extractor.starts)
        return ir.Equation(equation.target, value)

    for equation in system.equations:
        if equation in recurrences:
            own = recurrences[equation]
            own = replace(own, equations=tuple(map(read, own.equations)))
            equations += extractor.extract_loop(own)
        elif equation in views:
            extractor.add_view(equation, views[equation])
        elif equation not in together:
            equations.append(read(equation))
    loops = extractor.loops
    inputs = [t for loop in loops for t in (*loop.sliced.values(), *loop.before.values())]
    inputs += [t for loop in loops for t in (*loop.made, *loop.last.values())]
    given, marked, finite = {*system.inputs, *inputs}, extractor.nonfinite, system.finite
    states = (m.name for loop in loops for t, m in loop.made.items() if t.name in finite)
    wanted = [*system.results]
    for loop in loops:
        wanted += [tensor for tensor, _ in loop.sliced]
        wanted += [t for each in loop.first.values() for t in each]
        wanted += [loop.made[tensor] for tensor in loop.lists]
        wanted += [part.tensor for part in (loop.whole.parts if loop.whole is not None else ())]
    results = tuple(dict.fromkeys(tensor for tensor in wanted if tensor not in given))
    acyclic = replace(
        system,
        inputs=(*system.inputs, *(marked.get(tensor, tensor) for tensor in inputs)),
        equations=tuple(equations),
        results=results,
        written=(),
        finite=(*finite, *states),
        varying=tuple(tensor.name for tensor in inputs),
    )
    return acyclic, loops


class _LoopExtractor:
    """Extracts the recurrences of a system, one after the other, as `loops`."""

    def __init__(
        self, system: ir.System, lengths: set[str], *, keywords: bool, turns: Turns | None
    ) -> None:
        self.system, self.lengths, self.keywords = system, lengths, keywords
        self.turns = turns
        self.loops: list[Loop] = []
        # The last value of a state and its loop axis, and the value before the first turn.
        self.last: dict[ir.Tensor, tuple[ir.Tensor, int]] = {}
        self.starts: dict[ir.Tensor, ir.Equation] = {}
        self.names = Names.of(system)
        self.names |= lengths
        self.outside: list[ir.Equation] = []  # equations before the loop
        self.chunks: dict[str, str] = {}  # the keyword argument for the chunks of each index
        self.nonfinite = find_nonfinite(system)

    def add_view(self, equation: ir.Equation, axis: int) -> None:
        """Add an equation that is a view as a loop without turns, along an axis of its source."""
        target, value = equation.target, equation.value
        assert isinstance(value, ir.Access)
        tensor = value.tensor
        axes = [
            place if isinstance(place, ir.Index) else ir.Index(f"{tensor.name}@{k}", extent)
            for k, (place, extent) in enumerate(zip(value.places, tensor.shape, strict=True))
        ]
        target = ir.Access(target.tensor, find_indices_of(target))
        loop = Loop(axes[axis])
        loop.whole = View(target, ir.Access(tensor, tuple(axes)), axis)
        loop.made = {target.tensor: target.tensor}
        self.loops.append(loop)

    def extract_loop(self, recurrence: Recurrence) -> list[ir.Equation]:
        """The equations before the loop, then those of one turn."""
        own = recurrence.targets
        self.recurrence, self.own, self.outside = recurrence, own, []
        self.positions: dict[tuple[ir.Expr, ir.Expr], ir.Access] = {}
        if recurrence.inner is not None:
            raise self._refuse("it needs a loop in a loop", "read D[i - 1,j], D[i,j - 1] alone")
        loop = self.loop = Loop(recurrence.index, axes={t: recurrence.find_axis(t) for t in own})
        self.shift = 0  # turns peeled off the front of the loop
        self.loops.append(loop)
        reads = recurrence.find_reads(*(each.value for each in recurrence.equations))
        self.lags = {(a.tensor, lag) for a in reads if (lag := recurrence.find_lag(a))}
        last = find_last(self.system, recurrence)
        is_whole = len(own) == 1 and not (
            last and self.turns and self.turns.prefers_loop(recurrence)
        )
        if is_whole and (linear := self._find_linear()) is not None:
            loop.whole, loop.made = linear, {linear.target.tensor: linear.target.tensor}
            return self.outside
        values, starts = strip_starts(recurrence) or (None, {})
        if values is not None:
            self._add_starts(starts)
            shown = {t for t in own if last.get(t, True)}
            is_call = self.turns is not None and self.turns.cells
            if is_call and (gated := find_gated(recurrence, values, shown)) is not None:
                return self._use_gated(gated)
        values = values or self._choose_peeling()
        if values is None:  # a condition on the turn remains, or every read is guarded
            values = [equation.value for equation in recurrence.equations]
            values, starts = strip_starts(recurrence, is_guarded=True) or (values, {})
            self._add_starts(starts)
        for equation in recurrence.equations:
            tensor = equation.target.tensor
            name = self.names.take(f"{tensor.name}_{recurrence.index.name}")
            loop.made[tensor] = self._drop_axis(tensor, name)
        for tensor, lag in sorted(self.lags, key=lambda each: (each[0].name, each[1])):
            name = self.names.take(f"{tensor.name}_before" + (f"_{lag}" if lag > 1 else ""))
            loop.before[tensor, lag] = self._drop_axis(tensor, name)
        turn: list[ir.Equation] = []
        for equation, value in zip(recurrence.equations, values, strict=True):
            self.here = equation.target
            target = ir.Access(loop.made[self.here.tensor], self._drop_turn(self.here))
            value = rewrite_bottom_up(value, partial(push_guard, reads=self.recurrence.reads))  # noqa: PLW2901
            turn.append(ir.Equation(target, self._lower_in_turn(value)))
        self._name_lists(last)
        return [*self.outside, *turn]

    def _name_lists(self, last: Mapping[ir.Tensor, bool]) -> None:
        """Name the lists of states, and the last values of the states that `find_last` finds.

        A state that no later turn and no other equation reads gets no list.
        """
        loop = self.loop
        loop.dropped = {*last}
        for tensor in loop.made:
            lag = max((lag for each, lag in self.lags if each is tensor), default=0)
            if tensor in last and not lag and not last[tensor]:
                loop.first[tensor] = []
                continue
            loop.lists[tensor] = self.names.take(f"{tensor.name}_each")
            if last.get(tensor):
                name = self.names.take(f"{tensor.name}_last")
                loop.last[tensor] = self._drop_axis(tensor, name)
                self.last[tensor] = loop.last[tensor], loop.axes[tensor]
            begun = loop.first.get(tensor, [])
            if loop.skips and begun:
                first = next(e for e in self.outside if e.target.tensor is begun[-1])
                self.starts[tensor] = first

    def _use_gated(self, gated: GatedCall) -> list[ir.Equation]:
        """Replace the loop by a call of torch; return the equations of the call's arguments."""
        begun = [self.loop.first.pop(tensor)[-1] for tensor in gated.states]
        given = [e.target for tensor in begun for e in self.outside if e.target.tensor is tensor]
        tensor = gated.target.tensor
        for part in gated.needed:
            made = ir.name_axes(self.names.take(f"{tensor.name}_{part.name}"), part.axes)
            given.append(self._name_part(part.value, made))
        self.loop.whole = replace(gated, parts=tuple(given))
        self.loop.made, self.loop.first = {tensor: tensor}, {}
        return self.outside

    def _name_part(self, expr: ir.Expr, target: ir.Access) -> ir.Access:
        """The expression if it reads a tensor at the target's indices, else a new such tensor."""
        if _is_plain(expr, target.places):
            return expr
        self.outside.append(ir.Equation(target, expr))
        return target

    def _find_linear(self) -> Linear | None:
        """The recurrence as a linear one, with decay and summand before the loop; else None.

        Without an initial value, the guard of the read makes the decay 0 in the first turn.
        """
        (target,), index = self.own.values(), self.recurrence.index
        name = target.tensor.name
        _, parts, start = read_linear(self.recurrence)
        if target.tensor.kind == "int" or parts is None or self.lags != {(target.tensor, 1)}:
            return None
        begin = self._drop_axis(target.tensor, self.names.take(f"{name}_first"))
        first = self._name_part(start or ir.ZERO, ir.Access(begin, self._drop_turn(target)))
        made: list[ir.Access] = []
        for word, part in zip(("decay", "in"), parts, strict=True):
            here = {*find_free(part), index}
            axes = tuple(i for i in find_indices_of(target) if i in here)
            if word == "decay" and index not in find_free(part):  # a constant decay
                one = ir.Index(self.names.take(f"{index.name}_once"), ir.ONE)
                axes = tuple(one if i is index else i for i in axes)
            whole = ir.name_axes(self.names.take(f"{name}_{word}"), axes, kind_of(part))
            made.append(self._name_part(part, whole))
        low, high = find_interval(parts[0], self.system)
        chunk = str(RECUR_CHUNK)
        if self.keywords and {*find_size_names(index.extent)}.isdisjoint(self.lengths):
            # recurrences over one index share the keyword argument
            wanted = self.chunks.get(index.name) or self.names.take(f"{index.name}_chunk")
            chunk = self.chunks[index.name] = wanted
        decay, added = made
        return Linear(target, decay, added, first, chunk, low >= -1 and high <= 1)

    def _drop_axis(self, tensor: ir.Tensor, name: str) -> ir.Tensor:
        """The tensor under a new name, without the axis of the loop."""
        axis = self.loop.axes[tensor]
        shape = (*tensor.shape[:axis], *tensor.shape[axis + 1 :])
        return replace(self.nonfinite.get(tensor, tensor), name=name, shape=shape)

    def _drop_turn(self, access: ir.Access) -> tuple[ir.Expr, ...]:
        """The positions of an access without that on the axis of the loop."""
        axis = self.loop.axes[access.tensor]
        return (*access.places[:axis], *access.places[axis + 1 :])

    def _add_start(self, tensor: ir.Tensor, value: ir.Expr, name: str) -> None:
        """Add the next value of a state before the loop."""
        made = self._drop_axis(tensor, self.names.take(name))
        self.loop.first.setdefault(tensor, []).append(made)
        self.outside.append(ir.Equation(ir.Access(made, self._drop_turn(self.own[tensor])), value))

    def _add_starts(self, starts: Mapping[tuple[ir.Tensor, int], ir.Expr]) -> None:
        """Add the initial values by lag; a value that is never read is 1."""
        self.loop.skips = True
        for tensor in self.own:
            self.loop.first[tensor] = []
            most = max((lag for each, lag in self.lags if each is tensor), default=0)
            for back in range(most, 0, -1):
                self._add_start(tensor, starts.get((tensor, back), ir.ONE), f"{tensor.name}_first")

    def _choose_peeling(self) -> list[ir.Expr] | None:
        """Peel off turns if that leaves fewer conditions; the values of later turns, else None."""
        values = [equation.value for equation in self.recurrence.equations]
        index = self.recurrence.index
        named = [
            part.value
            for condition in find_conditions(values, index)
            for part in walk(condition)
            if isinstance(part, ir.Number)
        ]
        least = max(lag for _, lag in self.lags)
        most = min(MOST_BACK, 1 + int(max(map(abs, named), default=Fraction(0))))
        whole, _ = strip_starts(self.recurrence, is_guarded=True) or (values, {})
        bound = len({*find_conditions(whole, index)})
        counts = range(least, max(least, most) + 1)
        later = {count: self._shift_turns(count) for count in counts}
        left = {count: len({*find_conditions(*later[count])}) for count in counts}
        fewest = sorted((n, count) for count, n in left.items() if n < max(bound, 1))
        peeled = (self._peel_turns(count, *later[count]) for _, count in fewest)
        return next((each for each in peeled if each is not None), None)

    def _shift_turns(self, count: int) -> tuple[list[ir.Expr], ir.Index]:
        """(the values after the first `count` turns, the index of the remaining turns)."""
        index = self.recurrence.index
        less = Polynomial.of(index.extent) - Polynomial.of(count)
        later = rename_apart(ir.Index(index.name, less.to_expr()), self.names)
        moved: dict[ir.Expr, ir.Expr] = {index: ir.Add((later, ir.Number(Fraction(count))))}
        values = (substitute(e.value, moved) for e in self.recurrence.equations)
        return [rewrite_bottom_up(value, fold_choices) for value in values], later

    def _peel_turns(
        self, count: int, values: list[ir.Expr], later: ir.Index
    ) -> list[ir.Expr] | None:
        """Peel off the first `count` turns; return `values`, or None if one reads other turns."""
        index, equations = self.recurrence.index, self.recurrence.equations
        made: dict[ir.Tensor, list[ir.Tensor]] = {e.target.tensor: [] for e in equations}

        def read_peeled(expr: ir.Expr) -> ir.Expr:
            """Replace a read of a peeled turn by the tensor of that turn."""
            if isinstance(expr, ir.Access) and expr.tensor in made:
                turn = Polynomial.of(expr.places[self.loop.axes[expr.tensor]]).constant
                if turn is not None and 0 <= turn < len(made[expr.tensor]):
                    return ir.Access(made[expr.tensor][int(turn)], self._drop_turn(expr))
            return fold_choices(expr)

        firsts: list[ir.Equation] = []
        for turn, equation in product(range(count), equations):
            at: dict[ir.Expr, ir.Expr] = {index: ir.Number(Fraction(turn))}
            value = rewrite_bottom_up(substitute(equation.value, at), read_peeled)
            if self.recurrence.reads(value):
                return None
            target = equation.target
            first = self._drop_axis(target.tensor, self.names.take(f"{target.tensor.name}_first"))
            made[target.tensor].append(first)
            firsts.append(ir.Equation(ir.Access(first, self._drop_turn(target)), value))
        self.loop.first |= made
        self.outside += firsts
        self.names.add(later.name)
        self.shift, self.loop.index = count, later
        return values

    def _refuse(self, why: str, instead: str) -> Exception:
        names = ", ".join(e.target.tensor.name for e in self.recurrence.equations)
        message = f"the recurrence of {names} has no code yet: {why}"
        return refuse("not-yet", message, help=instead)

    def _lower_in_turn(self, expr: ir.Expr) -> ir.Expr:
        """An expression in one turn; parts without a state are computed before the loop."""
        index = self.loop.index
        if isinstance(expr, ir.Access) and expr.tensor in self.own:
            tensor, axis = expr.tensor, self.loop.axes[expr.tensor]
            place = Polynomial.of(expr.places[axis])
            lag = (Polynomial.of(index) + Polynomial.of(self.shift) - place).constant
            if lag is None:
                instead = "start at -1, as f[-1,n] = 0, and define each at one index t"
                raise self._refuse("one step of it defines tensors at different positions", instead)
            now = self.loop.before[tensor, int(lag)] if lag else self.loop.made[tensor]
            others = zip(self._drop_turn(expr), now.shape, strict=True)
            return ir.Access(now, tuple(self._lower_position(p, n) for p, n in others))
        if not self.recurrence.reads(expr):
            if index not in find_free(expr):
                return expr
            is_negated = isinstance(expr, ir.Not) and isinstance(expr.part, ir.Access)
            apart = is_negated or (isinstance(expr, ir.Mul) and self._is_outer(expr))
            return map_children(expr, self._lower_in_turn) if apart else self._slice(expr)
        match expr:
            case ir.Add(parts) | ir.Mul(parts):
                alone = [part for part in parts if not self.recurrence.reads(part)]
                widest = max((set(find_free(part)) for part in alone), key=len, default=set())
                merged = [part for part in alone if set(find_free(part)) <= widest]
                if len(merged) > 1 and index in widest:
                    rest = [self._lower_in_turn(part) for part in parts if part not in merged]
                    return type(expr)((self._slice(type(expr)(tuple(merged))), *rest))
            case ir.Along(_, along) if along is index:
                raise self._refuse(
                    f"{expr.kind} runs along its index", "apply it to tensors that do not recur"
                )
        return map_children(expr, self._lower_in_turn)

    def _lower_position(self, position: ir.Expr, extent: ir.Expr) -> ir.Expr:
        """A position in one turn, which may read the turn's number.

        Positions over more indices are read from a tensor of integers. There a position outside of
        the tensor, which a guard excludes, becomes the nearest one inside.
        """
        index, free = self.loop.index, find_free(position)
        if index not in free or find_accesses(position):
            return self._lower_in_turn(position)
        is_inside = (
            is_never_negative(position),
            is_never_negative(Polynomial.of(extent) - Polynomial.of(position) - Polynomial.of(1)),
        )
        if free == (index,) and all(is_inside):
            self.loop.turn = self.loop.turn or self.names.take(self.recurrence.index.name)
            return substitute(position, {index: ir.Size(self.loop.turn)})
        key = position, extent
        if key not in self.positions:
            value = position
            if not is_inside[0]:
                value = ir.Call("max", (value, ir.ZERO))
            if not is_inside[1]:
                last = Polynomial.of(extent) - Polynomial.of(1)
                value = ir.Call("min", (value, last.to_expr()))
            name = self.names.take(f"{index.name}_position")
            made = ir.Tensor(name, tuple(i.extent for i in free), "int", extent)
            self.positions[key] = ir.Access(made, free)
            self.outside.append(ir.Equation(self.positions[key], value))
        return self._slice(self.positions[key])

    def _is_outer(self, product: ir.Mul) -> bool:
        """Whether a product is so much larger than its factors that each turn should multiply."""
        free = {*find_free(product)} - {self.loop.index}
        narrow = all(free - {*find_free(factor)} for factor in product.factors)
        return narrow and self.turns is not None and self.turns.exceeds_launch(free)

    def _slice(self, expr: ir.Expr) -> ir.Expr:
        """The slice of a value at the turn; other expressions become tensors before the loop."""
        index = self.loop.index
        if isinstance(expr, ir.Access) and expr.places.count(index) == 1:
            axis = expr.places.index(index)
            others = (*expr.places[:axis], *expr.places[axis + 1 :])
            tensor, once = expr.tensor, not any(index in find_free(place) for place in others)
            if once and Polynomial.of(tensor.shape[axis]) == Polynomial.of(index.extent):
                key = (tensor, axis)
                if key not in self.loop.sliced:
                    shape = (*tensor.shape[:axis], *tensor.shape[axis + 1 :])
                    name = self.names.take(f"{tensor.name}_{self.recurrence.index.name}")
                    marked = self.nonfinite.get(tensor, tensor)
                    self.loop.sliced[key] = replace(marked, name=name, shape=shape)
                return ir.Access(self.loop.sliced[key], others)
        if isinstance(expr, ir.Access) and expr.tensor.kind != "real":
            why = f"it reads {expr.tensor.name}, which cannot be sliced step by step there"
            raise self._refuse(why, "read it in an equation of its own on a line before")
        order = [index if i is self.recurrence.index else i for i in self.here.places]
        free = find_free(expr)
        axes = (*(i for i in order if i in free), *(i for i in free if i not in order))
        shape = tuple(i.extent for i in axes)
        counted = self.here.tensor.kind == "int" and is_whole(Polynomial.of(expr))
        kind = "bool" if is_condition(expr) else "int" if counted else kind_of(expr)
        made = ir.Tensor(self.names.take(f"{self.here.tensor.name}_in"), shape, kind)
        self.outside.append(ir.Equation(ir.Access(made, axes), expr))
        return self._slice(ir.Access(made, axes))


def _is_plain(expr: ir.Expr, axes: Sequence[ir.Expr]) -> TypeGuard[ir.Access]:
    """Whether an expression is a read of a real tensor over exactly these indices."""
    if not isinstance(expr, ir.Access) or expr.tensor.kind != "real":
        return False
    own = find_indices_of(expr)
    is_whole = all(map(is_same_extent, expr.tensor.shape, (index.extent for index in own)))
    return is_whole and len({*own}) == len(expr.places) and {*own} == {*axes}


def restore_loops(plan: Plan, system: ir.System, loops: list[Loop]) -> Plan:
    """The plan of the formula, from that of the system that `extract_loops` made."""
    results: dict[str, ops.Op] = {
        tensor.name: op for tensor, op in zip(plan.system.results, plan.results, strict=True)
    }
    ranks = _rank_steps(plan.steps, results, loops)

    def read_operand(access: ir.Access) -> ops.Op:
        op = results.get(access.tensor.name)
        if op is None:
            return ops.Source(access.tensor.name, find_indices_of(access), access.tensor.kind)
        return ops.rename_indices(op, dict(zip(op.axes, find_indices_of(access), strict=True)))

    whole = []
    for k, loop in enumerate(loops):
        if loop.whole is not None:
            name = loop.whole.target.tensor.name
            operands = map(read_operand, loop.whole.parts)
            whole.append(Step(name, loop.whole.to_op(loop.index, *operands)))
            ranks[name] = 2 * k + 1
    steps = tuple(sorted((*plan.steps, *whole), key=lambda step: ranks[step.name]))
    at = [ranks[step.name] for step in steps]

    def name_places(tensor: ir.Tensor) -> ops.Source:
        axes = tuple(ir.Index(f"{tensor.name}@{k}", n) for k, n in enumerate(tensor.shape))
        return ops.Source(tensor.name, axes)

    def find_op(tensor: ir.Tensor) -> ops.Op:
        return results.get(tensor.name, name_places(tensor))

    by_name = {step.name: step.op for step in plan.steps}
    scans = []
    for k, loop in enumerate(loops):
        carried = tuple(
            Carried(
                tensor.name,
                each,
                tuple(_cast_start(find_op(t), tensor, by_name) for t in loop.first.get(tensor, [])),
                find_op(loop.made[tensor]),
                tuple((t.name, lag) for (own, lag), t in loop.before.items() if own is tensor),
                len(loop.first.get(tensor, [])) if loop.skips else 0,
                loop.axes[tensor],
                tensor.shape,
                loop.last[tensor].name if tensor in loop.last else "",
                tensor not in loop.dropped,
            )
            for tensor, each in loop.lists.items()
        )
        sliced = tuple((made.name, find_op(t), axis) for (t, axis), made in loop.sliced.items())
        first = sum(rank < 2 * k + 1 for rank in at)
        last = sum(rank <= 2 * k + 1 for rank in at) - 1
        if loop.whole is None:
            scans.append(Scan(loop.index, first, last, sliced, carried, loop.turn))
    made = {tensor for loop in loops for tensor in loop.made}
    found = tuple(name_places(t) if t in made else results[t.name] for t in system.results)
    return replace(plan, system=system, steps=steps, results=found, scans=tuple(scans))


def _rank_steps(
    steps: Sequence[Step], results: Mapping[str, ops.Op], loops: Sequence[Loop]
) -> dict[str, int]:
    """A number for each name: 0 before all loops, 2*k + 1 in loop k, 2*k + 2 after it."""
    ranks: dict[str, int] = {}
    for k, loop in enumerate(loops):
        ranks |= {t.name: 2 * k + 1 for t in (*loop.sliced.values(), *loop.before.values())}
        ranks |= {tensor.name: 2 * k + 2 for tensor in (*loop.made, *loop.last.values())}
    for step in steps:
        ranks[step.name] = max((ranks.get(name, 0) for name in ops.find_reads(step.op)), default=0)
    for k, loop in enumerate(loops):  # the new states belong to the loop, whatever they read
        for tensor in loop.lists:
            for name in ops.find_reads(results[loop.made[tensor].name]):
                ranks[name] = max(ranks[name], 2 * k + 1)
    return ranks


def _cast_start(op: ops.Op, tensor: ir.Tensor, by_name: Mapping[str, ops.Op]) -> ops.Op:
    """The initial value of a real tensor, cast from integers if it consists of positions."""
    root = op
    while isinstance(root, (ops.Source, ops.Expand, ops.Arrange)):
        if isinstance(root, ops.Source) and root.name not in by_name:
            break
        root = by_name[root.name] if isinstance(root, ops.Source) else root.arg
    return ops.Cast(op) if tensor.kind == "real" and ops.is_integral(root) else op
