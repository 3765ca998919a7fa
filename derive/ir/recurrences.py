"""Recurrences: equations that read, at the places before, what they define.

    h[-1,i] = h0[i]                                what stands before the first place
    h[t,i] = a[t] * h[t - 1,i] + x[t,i]            one equation, or several that read one another

`open_starts` puts what stands before the first place where it is read:

    h[t,i] = a[t] * where(t - 1 < 0, h0[i], h[t - 1,i]) + x[t,i]

`find_recurrence` tells which index equations that recur together run over: for each of its values
in turn, from the first or from the last one on, they are evaluated in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from derive.errors import Diagnostic
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.text import find_marks
from derive.ir.walk import find_accesses, find_free, rewrite_bottom_up, substitute, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


COUNTED = (ir.Add, ir.Mul, ir.Index, ir.Size, ir.Number)  # what conditions on places are made of


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Equations that are evaluated together, in their order, for each value of an index in turn."""

    index: ir.Index
    equations: tuple[ir.Equation, ...]
    is_downward: bool = False  # from the last place to the first

    def find_axis(self, tensor: ir.Tensor) -> int:
        """The place of the index in a tensor that recurs."""
        target = next(e.target for e in self.equations if e.target.tensor is tensor)
        return target.places.index(self.index)

    def find_lag(self, access: ir.Access) -> int | None:
        """How many turns before that of the index an access of what recurs reads."""
        place = access.places[self.find_axis(access.tensor)]
        lag = (Polynomial.of(self.index) - Polynomial.of(place)).constant
        if lag is None or lag.denominator != 1:
            return None
        return -int(lag) if self.is_downward else int(lag)


def find_start(target: ir.Access) -> tuple[int, int] | None:
    """The place of a left side that is before the first one, and which: h[-1,i]."""
    for number, place in enumerate(target.places):
        if isinstance(place, ir.Number) and place.value < 0:
            return number, int(place.value)
    return None


def find_lowest(system: ir.System) -> dict[tuple[ir.Tensor, int], int]:
    """The first place of each tensor along each of its places, where it is below 0."""
    lowest: dict[tuple[ir.Tensor, int], int] = {}
    for equation in system.equations:
        start = find_start(equation.target)
        if start is not None:
            key = (equation.target.tensor, start[0])
            lowest[key] = min(lowest.get(key, 0), start[1])
    return lowest


def recurs(tensor: ir.Tensor, equation: ir.Equation, system: ir.System) -> bool:
    """Is what an equation reads made of what it defines?"""
    reached, waiting = {tensor}, [tensor]
    while waiting:
        here = waiting.pop()
        for each in system.equations:
            if each.target.tensor is here and find_start(each.target) is None:
                new = {access.tensor for access in find_accesses(each.value)} - reached
                reached |= new
                waiting += new
    return equation.target.tensor in reached and find_start(equation.target) is None


def find_start_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """Starts that are no row of places, one before the other, each once and over plain indices."""
    met: dict[tuple[ir.Tensor, int], dict[int, ir.Equation]] = {}
    for equation in system.equations:
        start = find_start(equation.target)
        if start is None:
            continue
        tensor, (number, at) = equation.target.tensor, start
        others = [p for k, p in enumerate(equation.target.places) if k != number]
        before = met.setdefault((tensor, number), {})
        plain = all(isinstance(place, ir.Index) for place in others) and len({*others}) == len(
            others
        )
        if at in before or not plain or any(t is tensor and k != number for t, k in met):
            yield Diagnostic(
                "start-form",
                f"what stands before the first place of {tensor.name} is written over plain "
                "indices, each place once",
                find_marks(equation, equation.target),
                help=f"write {tensor.name}[-1,i] = .. for one place, -2 for another before it",
            )
        before[at] = equation
    for (tensor, _), starts in met.items():
        lacking = next((k for k in range(-1, min(starts), -1) if k not in starts), None)
        if lacking is not None:
            first = starts[min(starts)]
            yield Diagnostic(
                "place-not-filled",
                f"no equation gives {tensor.name} a value at {lacking}",
                find_marks(first, first.target),
                help="places before the first one are counted back from -1",
            )


def lift_alongs(system: ir.System) -> ir.System:
    """The system in which no recurrence holds what goes along an index of it and does not recur.

    h[t] = h[t - 1] + softmax[t](x[t])    becomes    h_softmax[t] = softmax[t](x[t])
                                                     h[t] = h[t - 1] + h_softmax[t]
    """
    names = {entry.name for entry in (*system.inputs, *system.sizes)}
    names |= {equation.target.tensor.name for equation in system.equations}
    made: list[ir.Equation] = []

    def lift(expr: ir.Expr) -> ir.Expr:
        """An access of an equation of its own."""
        if not isinstance(expr, ir.Along) or expr.index not in find_free(equation.target):
            return expr
        if any(recurs(access.tensor, equation, system) for access in find_accesses(expr)):
            return expr
        wanted = f"{equation.target.tensor.name}_{expr.kind}"
        numbered = (wanted + "_" * k for k in range(len(names) + 1))
        name = next(name for name in numbered if name not in names)
        names.add(name)
        axes = find_free(expr)
        whole = ir.Access(ir.Tensor(name, tuple(i.extent for i in axes)), axes)
        made.append(ir.Equation(whole, expr))
        return whole

    for equation in system.equations:
        value = equation.value
        if any(recurs(access.tensor, equation, system) for access in find_accesses(value)):
            value = rewrite_bottom_up(value, lift)
        made.append(equation if value is equation.value else ir.Equation(equation.target, value))
    return (
        replace(system, equations=tuple(made), written=system.written or system.equations)
        if len(made) > len(system.equations)
        else system
    )


def open_starts(system: ir.System) -> ir.System:
    """The system with what stands before the first place put where it is read."""
    starts: dict[ir.Tensor, tuple[int, dict[int, ir.Equation]]] = {}
    for equation in system.equations:
        found = find_start(equation.target)
        if found is not None:
            starts.setdefault(equation.target.tensor, (found[0], {}))[1][found[1]] = equation
    if not starts:
        return system
    names = {entry.name for entry in (*system.inputs, *system.sizes)}
    names |= {equation.target.tensor.name for equation in system.equations}
    alone: dict[ir.Equation, ir.Equation] = {}
    for tensor, (number, each) in starts.items():
        for start in each.values():
            numbered = (f"{tensor.name}_start{'_' * k}" for k in range(len(names) + 1))
            name = next(n for n in numbered if n not in names)
            names.add(name)
            places = tuple(p for k, p in enumerate(start.target.places) if k != number)
            shape = tuple(n for k, n in enumerate(tensor.shape) if k != number)
            made = ir.Tensor(name, shape, tensor.kind, tensor.below)
            alone[start] = ir.Equation(ir.Access(made, places), start.value)

    def settle(expr: ir.Expr) -> ir.Expr:
        if not isinstance(expr, ir.Access) or expr.tensor not in starts:
            return expr
        number, each = starts[expr.tensor]
        place = expr.places[number]
        if isinstance(place, ir.Index) or (isinstance(place, ir.Number) and place.value >= 0):
            return expr
        others = tuple(p for k, p in enumerate(expr.places) if k != number)
        value: ir.Expr | None = None
        for at in sorted(each):
            first = alone[each[at]]
            new: dict[ir.Expr, ir.Expr] = dict(zip(first.target.places, others, strict=True))
            is_short = isinstance(first.value, (ir.Number, ir.Scalar, ir.Access)) and all(
                isinstance(p, ir.Index) for p in getattr(first.value, "places", ())
            )
            read = (
                substitute(first.value, new) if is_short else ir.Access(first.target.tensor, others)
            )
            below = ir.Compare("<", place, ir.Number(Fraction(at)))
            value = read if value is None else ir.Where(below, value, read)
        assert value is not None
        return ir.Where(ir.Compare("<", place, ir.ZERO), value, expr)

    equations = []
    for written in system.equations:
        new_one = alone.get(written, written)
        equations.append(ir.Equation(new_one.target, rewrite_bottom_up(new_one.value, settle)))
    read = {a.tensor for e in equations for a in find_accesses(e.value)}
    kept = tuple(
        new
        for old, new in zip(system.equations, equations, strict=True)
        if old not in alone or new.target.tensor in read
    )
    return replace(system, equations=kept, written=system.written or system.equations)


def find_groups(system: ir.System) -> tuple[tuple[ir.Equation, ...], ...]:
    """The equations that read what they define, those that read one another together."""
    owners = {e.target.tensor: k for k, e in enumerate(system.equations)}
    reach = [
        {owners[a.tensor] for a in find_accesses(e.value) if a.tensor in owners}
        for e in system.equations
    ]
    for k in range(len(reach)):  # whoever reaches k reaches what it reaches
        through = reach[k]
        reach = [each | through if k in each else each for each in reach]
    groups: dict[int, list[ir.Equation]] = {}
    for k, equation in enumerate(system.equations):
        if k in reach[k]:
            first = min(m for m in reach[k] if k in reach[m])
            groups.setdefault(first, []).append(equation)
    return tuple(map(tuple, groups.values()))


def find_recurrence(group: Sequence[ir.Equation]) -> Recurrence | None:
    """The group with the index that it runs over, or None where it is none."""
    shared = [place for place in group[0].target.places if isinstance(place, ir.Index)]
    order = {equation.target.tensor: k for k, equation in enumerate(group)}
    for index in shared:
        if any(list(e.target.places).count(index) != 1 for e in group):
            continue
        for is_downward in (False, True):
            made = Recurrence(index, tuple(group), is_downward)
            lags = [
                (made.find_lag(access), order[access.tensor] < k)
                for k, equation in enumerate(group)
                for access in find_accesses(equation.value)
                if access.tensor in order
            ]
            alongs = (p for e in group for p in walk(e.value) if isinstance(p, ir.Along))
            if any(
                a.index is index and any(r.tensor in order for r in find_accesses(a))
                for a in alongs
            ):
                continue
            # What is read is of a turn before, or of this one and there already.
            if all(lag is not None and (lag > 0 or (lag == 0 and there)) for lag, there in lags):
                return made
    return None


def turn_upward(system: ir.System) -> ir.System:
    """The system with what recurs from the last place on told by what recurs from the first.

    y[t] = a[t] * y[t + 1] + x[t]    becomes    y_back[t] = a[T - 1 - t] * y_back[t - 1] + ..
                                                y[t] = y_back[T - 1 - t]
    """
    for recurrence in map(find_recurrence, find_groups(system)):
        if recurrence is not None and recurrence.is_downward:
            system = _turn(system, recurrence)
    return system


def _turn(system: ir.System, recurrence: Recurrence) -> ir.System:
    index, own = recurrence.index, {}
    names = {entry.name for entry in (*system.inputs, *system.sizes)}
    names |= {equation.target.tensor.name for equation in system.equations}
    for equation in recurrence.equations:
        tensor = equation.target.tensor
        numbered = (f"{tensor.name}_back{'_' * k}" for k in range(len(names) + 1))
        name = next(name for name in numbered if name not in names)
        names.add(name)
        own[tensor] = ir.Tensor(name, tensor.shape, tensor.kind, tensor.below)
    last = Polynomial.of(index.extent) - Polynomial.of(1)
    back: dict[ir.Expr, ir.Expr] = {index: (last - Polynomial.of(index)).to_expr()}

    def turn(expr: ir.Expr) -> ir.Expr:
        """A read of what recurs from the other end; places and conditions in a simple form."""
        parts = (*walk(expr.left), *walk(expr.right)) if isinstance(expr, ir.Compare) else ()
        if isinstance(expr, ir.Compare) and all(isinstance(part, COUNTED) for part in parts):
            gap = Polynomial.of(expr.left) - Polynomial.of(expr.right)
            return ir.Compare(expr.relation, gap.to_expr(), ir.ZERO)
        if not isinstance(expr, ir.Access):
            return expr
        axis = recurrence.find_axis(expr.tensor) if expr.tensor in own else None
        found = list(expr.places)
        for k, place in enumerate(expr.places):
            if k == axis:
                found[k] = (last - Polynomial.of(place)).to_expr()
            elif all(isinstance(part, COUNTED) for part in walk(place)):
                found[k] = Polynomial.of(place).to_expr()
        return ir.Access(own.get(expr.tensor, expr.tensor), tuple(found))

    turned: list[ir.Equation] = []
    flipped: list[ir.Equation] = []
    for equation in recurrence.equations:
        target = ir.Access(own[equation.target.tensor], equation.target.places)
        value = rewrite_bottom_up(substitute(equation.value, back), turn)
        turned.append(ir.Equation(target, value))
        flipped.append(ir.Equation(equation.target, substitute(target, back)))
    first = system.equations.index(recurrence.equations[0])
    rest = [e for e in system.equations if e not in recurrence.equations]
    return replace(system, equations=(*rest[:first], *turned, *flipped, *rest[first:]))


def find_recurrence_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """Equations that read what they define in another way than place after place."""
    for group in find_groups(system):
        if find_recurrence(group) is None:
            names = ", ".join(equation.target.tensor.name for equation in group)
            tensors = {equation.target.tensor for equation in group}
            reads = (
                find_marks(equation, access)
                for equation in group
                for access in find_accesses(equation.value)
                if access.tensor in tensors
            )
            yield Diagnostic(
                "not-yet",
                f"{names} {'is' if len(group) == 1 else 'are'} defined by "
                f"{'itself' if len(group) == 1 else 'one another'}, and not place after place",
                next(reads, ()),
                help="a recurrence runs over one index, a place of all that recurs, and reads the "
                "places before, or those after: h[t] = a[t]*h[t - 1] + x[t], with h[-1] = h0 on a "
                "line before",
            )


def order_recurrences(system: ir.System) -> ir.System:
    """The equations in an order in which those that recur together stand together."""
    groups = find_groups(system)
    if all(len(group) == 1 for group in groups):
        return system
    together = {equation: group for group in groups for equation in group}
    left = list(system.equations)
    ordered: list[ir.Equation] = []
    done: set[ir.Tensor] = {e for e in system.inputs if isinstance(e, ir.Tensor)}
    while left:
        for first in left:
            block = together.get(first, (first,))
            own = {each.target.tensor for each in block}
            read = {a.tensor for each in block for a in find_accesses(each.value)}
            if read <= done | own:
                break
        ordered += block
        done |= own
        left = [each for each in left if each not in block]
    return replace(system, equations=tuple(ordered))
