"""Readers of a recurrence moved into its loop, so that the loop does not store all states.

S[t,i,j] = a[t] * S[t - 1,i,j] + k[t,i] * v[t,j]
o[t,j] = sum[i](q[t,i] * S[t,i,j])                   a sum over a state is computed in its turn
y[i] = sum[j](S[T - 1,i,j])                          the last state is the final value of the loop
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from derive.ir import nodes as ir
from derive.ir.functions import kind_of
from derive.ir.polynomial import Polynomial, evaluate_extent, is_same_extent
from derive.ir.recurrences import Recurrence, find_reach, order_blocks
from derive.ir.walk import (
    Names,
    find_accesses,
    find_free,
    find_indices,
    rewrite_top_down,
    substitute,
    walk,
)
from derive.plan.machine import CACHED, CHUNKED, EXPONENTIALS, LAUNCH, MEMORY, RECURRED, WIDTH
from derive.plan.recurrences.turns import read_linear

CALLS = 12  # launches of one turn, with its gradients
PASSES = 3  # reads and writes of a state in one turn


def time_turn(states: int) -> float:
    """The seconds of one turn of a loop over a state of so many values."""
    return CALLS * LAUNCH + PASSES * states * WIDTH / CACHED


def is_linear(recurrence: Recurrence) -> bool:
    """Whether the recurrence is one equation that is linear in its previous value."""
    return len(recurrence.equations) == 1 and read_linear(recurrence)[1] is not None


@dataclass(frozen=True, slots=True)
class Turns:
    """Decides, by the times at given sizes, whether a recurrence is a loop or in chunks."""

    sizes: Mapping[str, int]
    cells: bool  # whether a recurrence may be one call of torch
    inner: frozenset[ir.Tensor]  # products of decays in chunks: always chunked

    def count_values(self, extents: Iterable[ir.Expr]) -> int:
        """The product of some extents as a number."""
        return prod(evaluate_extent(extent, self.sizes) for extent in extents)

    def prefers_loop(self, recurrence: Recurrence) -> bool:
        """Whether a loop is no slower than chunks; always if not linear, never inside of chunks."""
        if not is_linear(recurrence):
            return True
        if recurrence.equations[0].target.tensor in self.inner:
            return False
        count = max(1, self.count_values([recurrence.index.extent]))
        states = self.count_values(recurrence.equations[0].target.tensor.shape) // count
        chunked = CHUNKED * LAUNCH + RECURRED * states * count / EXPONENTIALS
        return chunked > count * time_turn(states)

    def exceeds_launch(self, indices: Iterable[ir.Index]) -> bool:
        """Whether writing and reading values over these indices takes longer than a launch."""
        moved = 2 * WIDTH * self.count_values(index.extent for index in indices)
        return moved / MEMORY > LAUNCH


def fold_readers(
    system: ir.System, recurrences: Sequence[Recurrence], turns: Turns | None
) -> tuple[ir.System, list[Recurrence]]:
    """The system and its recurrences, with sums over states moved into the loops.

    If a state is also read otherwise, except for its last value, its sums stay outside.
    """
    made: list[Recurrence] = []
    for recurrence in recurrences:
        folder = _Folder(system, recurrence, recurrences)
        if (
            recurrence.inner is None
            and turns
            and turns.prefers_loop(recurrence)
            and folder.fold_sums()
        ):
            system = folder.system
        made.append(folder.recurrence)
    return order_blocks(system, [each.equations for each in made]), made


class _Folder:
    """One recurrence, its states, and the sums over them."""

    def __init__(
        self, system: ir.System, recurrence: Recurrence, recurrences: Sequence[Recurrence]
    ) -> None:
        self.system, self.recurrence = system, recurrence
        self.own = {*recurrence.targets}
        self.others = {e for each in recurrences for e in each.equations}
        self.names = Names.of(system)
        self.sums: list[ir.Equation] = []
        self.read: set[ir.Tensor] = set()  # the states in these sums

    def fold_sums(self) -> bool:
        """Move the sums into the recurrence; False without any, or if states are needed anyway."""
        equations: list[ir.Equation] = []
        for equation in self.system.equations:
            is_outside = equation not in self.others and self.recurrence.reads(equation.value)
            equations += self._open_equation(equation) if is_outside else [equation]
        if not self.sums or not self.read.isdisjoint(self.system.results):
            return False
        inside = {*self.recurrence.equations, *self.sums}
        if any(self._is_kept(each) for each in equations if each not in inside):
            return False
        system = replace(self.system, equations=tuple(equations))
        reach, made = find_reach(system), {each.target.tensor for each in self.sums}
        for access in (a for each in self.sums for a in find_accesses(each.value)):
            reached = {access.tensor, *reach.get(access.tensor, ())}
            if access.tensor not in self.own and reached & (made | self.own):
                return False  # the loop would read what depends on it
        self.system = system
        whole = (*self.recurrence.equations, *self.sums)
        self.recurrence = replace(self.recurrence, equations=whole)
        return True

    def _open_equation(self, equation: ir.Equation) -> list[ir.Equation]:
        """The sums over states of an equation, and the equation that reads them by name."""
        found: dict[ir.Expr, ir.Expr] = {}
        new: list[ir.Equation] = []

        def name_sum(expr: ir.Expr) -> ir.Expr:
            if not isinstance(expr, ir.Reduce) or expr in found:
                return found.get(expr, expr)
            index = self._find_turn(expr, equation.target.places)
            if index is None:
                return expr
            free = {*find_free(expr)}
            axes = [i for i in equation.target.places if isinstance(i, ir.Index) and i in free]
            axes += [i for i in find_free(expr) if i not in axes]
            if expr is equation.value and tuple(axes) == equation.target.places:
                tensor = equation.target.tensor
            else:
                (state, *_) = self.recurrence.find_reads(expr)
                name = self.names.take(f"{state.tensor.name}_{expr.kind}")
                tensor = ir.Tensor(name, tuple(i.extent for i in axes), kind_of(expr))
            read = ir.Access(tensor, tuple(axes))
            turn: dict[ir.Expr, ir.Expr] = {index: self.recurrence.index}
            target, value = substitute(read, turn), substitute(expr, turn)
            assert isinstance(target, ir.Access)
            new.append(ir.Equation(target, value))
            self.read |= {access.tensor for access in self.recurrence.find_reads(value)}
            found[expr] = read
            return read

        value = rewrite_top_down(equation.value, name_sum)
        self.sums += new
        is_whole = len(new) == 1 and new[0].target.tensor is equation.target.tensor
        return new if is_whole else [*new, ir.Equation(equation.target, value)]

    def _find_turn(self, expr: ir.Reduce, places: Sequence[ir.Expr]) -> ir.Index | None:
        """The index by which a sum over the states' axes reads their turns; None if it is none."""
        reads = self.recurrence.find_reads(expr)
        bound = {i for part in walk(expr) if isinstance(part, ir.Reduce) for i in part.bound}
        if not any(bound & {*find_free(access)} for access in reads):
            return None
        turn = self.recurrence.index
        alongs = {part.index for part in walk(expr) if isinstance(part, ir.Along)}
        index, *more = {a.places[self.recurrence.find_axis(a.tensor)] for a in reads}
        is_apart = index is turn or turn not in find_indices(expr)
        if more or not isinstance(index, ir.Index) or index in alongs | bound or not is_apart:
            return None
        return index if index in places and is_same_extent(index.extent, turn.extent) else None

    def _is_kept(self, equation: ir.Equation) -> bool:
        """Whether an equation reads a summed state other than by its last value."""
        reads = (a for a in find_accesses(equation.value) if a.tensor in self.read)
        return any(not is_last(a, self.recurrence.find_axis(a.tensor)) for a in reads)


def is_last(access: ir.Access, axis: int) -> bool:
    """Whether an access reads the last position of an axis."""
    gap = Polynomial.of(access.tensor.shape[axis]) - Polynomial.of(access.places[axis])
    return gap.constant == 1


def find_last(system: ir.System, recurrence: Recurrence) -> dict[ir.Tensor, bool]:
    """The states of which nothing but the last value is read outside, and whether that is read."""
    own = recurrence.targets
    outside = [e for e in system.equations if e.target.tensor not in own]
    found: dict[ir.Tensor, bool] = {}
    for tensor in own:
        axis = recurrence.find_axis(tensor)
        reads = [a for e in outside for a in find_accesses(e.value) if a.tensor is tensor]
        if tensor not in system.results and all(is_last(access, axis) for access in reads):
            found[tensor] = bool(reads)
    return found


def read_last(
    expr: ir.Expr,
    last: Mapping[ir.Tensor, tuple[ir.Tensor, int]],
    starts: Mapping[ir.Tensor, ir.Equation],
) -> ir.Expr:
    """The expression with reads of last values by the name that each has after the loop."""

    def name_read(here: ir.Expr) -> ir.Expr:
        match here:
            case ir.Where(ir.Compare("<", place, bound), start, ir.Access(tensor, places)) if (
                bound is ir.ZERO and tensor in last and places[last[tensor][1]] is place
            ):
                made, axis = last[tensor]
                others = (*places[:axis], *places[axis + 1 :])
                first = starts.get(tensor)
                if first is not None:
                    new = dict(zip(first.target.places, others, strict=True))
                    if substitute(first.value, new) is start:
                        return ir.Access(made, others)
            case ir.Access(tensor, places) if tensor in last:
                made, axis = last[tensor]
                return ir.Access(made, (*places[:axis], *places[axis + 1 :]))
        return here

    return rewrite_top_down(expr, name_read)
