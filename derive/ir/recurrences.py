"""Recurrences: equations that read earlier elements of the tensor that they define.

    h[-1,i] = h0[i]                                the initial value, at place -1
    h[t,i] = a[t] * h[t - 1,i] + x[t,i]            one equation, or several that read one another

`find_recurrence` finds the index of the loop that evaluates mutually recursive equations: a turn is
one value of the index, ascending or descending, and evaluates all equations in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import mul

from derive.errors import Diagnostic
from derive.ir import nodes as ir
from derive.ir.functions import kind_of
from derive.ir.polynomial import Polynomial
from derive.ir.text import find_marks
from derive.ir.walk import (
    Names,
    exchange_tensors,
    find_accesses,
    find_free,
    find_start,
    rewrite_bottom_up,
    substitute,
    walk,
)

COUNTED = (ir.Add, ir.Mul, ir.Index, ir.Size, ir.Number)  # the nodes of polynomial places


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A loop over an index; each turn, one value of it, evaluates all equations in their order."""

    index: ir.Index
    equations: tuple[ir.Equation, ...]
    is_downward: bool = False  # from the last value of the index to the first
    inner: Recurrence | None = None  # the nested loop, where one index is not enough

    @property
    def loops(self) -> tuple[Recurrence, ...]:
        """The nested loops, outermost first, this one included."""
        return (self, *(self.inner.loops if self.inner is not None else ()))

    @property
    def targets(self) -> dict[ir.Tensor, ir.Access]:
        """The left sides, by their tensors."""
        return {equation.target.tensor: equation.target for equation in self.equations}

    def find_reads(self, *values: ir.Expr) -> list[ir.Access]:
        """The accesses, in expressions, of tensors that the recurrence defines, each once."""
        own = self.targets
        every = (access for value in values for access in find_accesses(value))
        return list(dict.fromkeys(access for access in every if access.tensor in own))

    def reads(self, expr: ir.Expr) -> bool:
        """Whether an expression reads a tensor that the recurrence defines."""
        return bool(self.find_reads(expr))

    def find_axis(self, tensor: ir.Tensor) -> int:
        """The axis of the index in a tensor that the recurrence defines."""
        return self.targets[tensor].places.index(self.index)

    def find_lag(self, access: ir.Access) -> int | None:
        """The number of turns between an element and its read; None if it is not fixed."""
        place = access.places[self.find_axis(access.tensor)]
        lag = (Polynomial.of(self.index) - Polynomial.of(place)).constant
        if lag is None or lag.denominator != 1:
            return None
        return -int(lag) if self.is_downward else int(lag)


@lru_cache(maxsize=64)
def find_reach(system: ir.System) -> Mapping[ir.Tensor, set[ir.Tensor]]:
    """For each tensor all tensors that it depends on, directly or not, initial values aside."""
    reach: dict[ir.Tensor, set[ir.Tensor]] = {}
    for each in system.equations:
        if not find_start(each.target):
            own = reach.setdefault(each.target.tensor, set())
            own |= {access.tensor for access in find_accesses(each.value)}
    for between, through in reach.items():
        for own in reach.values():
            own.update(through if between in own else ())
    return reach


def is_dependent(tensor: ir.Tensor, equation: ir.Equation, system: ir.System) -> bool:
    """Whether a tensor is or depends on the equation's, and that gives no initial value."""
    reached = {tensor, *find_reach(system).get(tensor, ())}
    return equation.target.tensor in reached and not find_start(equation.target)


def lift_alongs(system: ir.System) -> ir.System:
    """The system with non-recurrent scans and softmaxes moved from recurrences to new equations.

    h[t] = h[t - 1] * cumsum[t](x[t])    becomes    h_cumsum[t] = cumsum[t](x[t])
                                                    h[t] = h[t - 1] * h_cumsum[t]
    """
    names = Names.of(system)
    made: list[ir.Equation] = []

    def lift(expr: ir.Expr) -> ir.Expr:
        """The access of a new equation for a non-recurrent Along; any other expression itself."""
        if not isinstance(expr, ir.Along) or expr.index not in find_free(equation.target):
            return expr
        if not is_recurrent(equation.value) or is_recurrent(expr):
            return expr
        name = names.take(f"{equation.target.tensor.name}_{expr.kind}")
        whole = ir.name_axes(name, find_free(expr), kind_of(expr))
        made.append(ir.Equation(whole, expr))
        return whole

    def is_recurrent(expr: ir.Expr) -> bool:
        """Whether an expression depends on the tensor that the equation defines."""
        return any(is_dependent(access.tensor, equation, system) for access in find_accesses(expr))

    for equation in system.equations:
        value = rewrite_bottom_up(equation.value, lift)
        made.append(equation if value is equation.value else ir.Equation(equation.target, value))
    if len(made) == len(system.equations):
        return system
    return replace(system, equations=tuple(made), written=system.written or system.equations)


def find_recurrences(system: ir.System) -> list[Recurrence]:
    """The recurrences of a system; groups that no loops can evaluate are left out."""
    return [found for found in map(find_recurrence, find_groups(system)) if found is not None]


def find_groups(system: ir.System) -> tuple[tuple[ir.Equation, ...], ...]:
    """The groups of equations that depend on themselves or on one another, in order."""
    reach = find_reach(system)
    groups: dict[ir.Tensor, list[ir.Equation]] = {}
    for equation in system.equations:
        own = equation.target.tensor
        if not find_start(equation.target) and own in reach[own]:
            first = next(each for each in reach if each in reach[own] and own in reach[each])
            groups.setdefault(first, []).append(equation)
    return tuple(map(tuple, groups.values()))


def find_recurrence(group: Sequence[ir.Equation]) -> Recurrence | None:
    """The loop that evaluates a group of equations; None where no loop can.

    Where no single index suffices the loops are nested, as in D[i,j] of D[i - 1,j] and D[i,j - 1].
    """
    order = {equation.target.tensor: k for k, equation in enumerate(group)}
    reads = [
        (access, order[access.tensor] < k)
        for k, equation in enumerate(group)
        for access in find_accesses(equation.value)
        if access.tensor in order
    ]
    return _find_loops(group, reads, ())


def _find_loops(
    group: Sequence[ir.Equation],
    reads: Sequence[tuple[ir.Access, bool]],
    outer: tuple[ir.Index, ...],
) -> Recurrence | None:
    """The nest of loops, inside `outer` ones, that computes what is read first; None if none can.

    A read comes with a flag: whether its tensor is computed earlier in the same turn.
    """
    own = {equation.target.tensor for equation in group}
    alongs = [p for e in group for p in walk(e.value) if isinstance(p, ir.Along)]
    barred = {a.index for a in alongs if own & {read.tensor for read in find_accesses(a)}}
    nested: list[tuple[Recurrence, list[tuple[ir.Access, bool]]]] = []
    for index in group[0].target.places:
        if not isinstance(index, ir.Index) or index in barred or index in outer:
            continue
        if any(list(e.target.places).count(index) != 1 for e in group):
            continue
        for is_downward in (False, True):
            made = Recurrence(index, tuple(group), is_downward)
            lags = [(made.find_lag(access), there) for access, there in reads]
            # Each read is of an earlier turn, or of this turn and already computed.
            if all(lag is not None and (lag > 0 or (lag == 0 and there)) for lag, there in lags):
                return made
            if all(lag is not None and lag >= 0 for lag, _ in lags) and any(lag for lag, _ in lags):
                pairs = zip(reads, lags, strict=True)
                nested.append((made, [read for read, (lag, _) in pairs if not lag]))
    for made, left in nested:
        inner = _find_loops(group, left, (*outer, made.index))
        if inner is not None:
            return replace(made, inner=inner)
    return None


def _find_lags(recurrence: Recurrence) -> dict[ir.Access, list[int | None]]:
    """The lag of each read in each loop, outermost first; None where it is not fixed."""
    reads = recurrence.find_reads(*(equation.value for equation in recurrence.equations))
    return {access: [loop.find_lag(access) for loop in recurrence.loops] for access in reads}


def find_weights(recurrence: Recurrence) -> list[int] | None:
    """The weights w with which one loop may compute element (i, j) at turn w[0]*i + w[1]*j.

    None where a read has no fixed lag.
    """
    loops, lags = recurrence.loops, _find_lags(recurrence)
    weights = [1]
    for k in reversed(range(len(loops) - 1)):
        weights.insert(0, 1)
        for lag in lags.values():
            if None in lag:
                return None
            first, *rest = (each or 0 for each in lag[k:])
            if first > 0 and not any(lag[:k]):
                behind = sum(map(mul, weights[1:], rest))
                weights[0] = max(weights[0], -((behind - 1) // first))
    return weights


def skew_recurrence(system: ir.System, recurrence: Recurrence) -> ir.System:
    """The system with nested or downward loops skewed into one upward loop over the wavefronts.

    D[i,j] = min(D[i - 1,j], D[i,j - 1])    becomes    D_wave[s,i] = where(0 <= s - i < J,
                                                           min(D_wave[s - 1,i - 1], ..), 0)
                                                       D[i,j] = D_wave[i + j,i]
    V[t] = V[t + 1] + x[t]                  becomes    V_back[t] = V_back[t - 1] + x[T - 1 - t]
                                                       V[t] = V_back[T - 1 - t]
    """
    loops, names, targets = recurrence.loops, Names.of(system), recurrence.targets
    inner, is_single = loops[-1], recurrence.inner is None
    weights = find_weights(recurrence)
    if weights is None:
        return system
    turn, length = Polynomial.of(0), Polynomial.of(1)
    for loop, weight in zip(loops, weights, strict=True):
        last = Polynomial.of(loop.index.extent) - Polynomial.of(1)
        here = Polynomial.of(loop.index)
        turn += Polynomial.of(weight) * (last - here if loop.is_downward else here)
        length += Polynomial.of(weight) * last
    front = ir.Index(loops[0].index.name, length.to_expr())
    wave = inner.index if is_single else names.take_index(front)
    sign = Polynomial.of(-1 if inner.is_downward else 1)
    here = sign * (Polynomial.of(wave) - turn) + Polynomial.of(inner.index)
    place = here.to_expr()
    new: dict[ir.Expr, ir.Expr] = {inner.index: place}
    ends = ir.Compare(">=", place, ir.ZERO), ir.Compare("<", place, inner.index.extent)
    lags = {substitute(access, new): lag for access, lag in _find_lags(recurrence).items()}
    own = {t: names.take(f"{t.name}_{'back' if is_single else 'wave'}") for t in targets}

    def skew(access: ir.Access, at: ir.Expr) -> ir.Access:
        """The access of the same element in the tensor of wavefronts, on the wavefront `at`."""
        tensor, axis = access.tensor, inner.find_axis(access.tensor)
        shape, places = (
            [*each[:axis], *each[axis + 1 :]] for each in (tensor.shape, access.places)
        )
        shape.insert(axis if is_single else 0, wave.extent)
        places.insert(axis if is_single else 0, at)
        return ir.Access(replace(tensor, name=own[tensor], shape=tuple(shape)), tuple(places))

    def act(expr: ir.Expr) -> ir.Expr:
        """A read of the sequence as one of the wavefronts' tensor; others, maybe simplified."""
        if isinstance(expr, ir.Access) and expr in lags:
            lag = sum(map(mul, weights, (each or 0 for each in lags[expr])))
            return skew(expr, (Polynomial.of(wave) - Polynomial.of(lag)).to_expr())
        return _simplify_places(expr) if is_single else expr

    made: list[ir.Equation] = []
    for e in recurrence.equations:
        value = rewrite_bottom_up(substitute(e.value, new), act)
        value = value if is_single else ir.Where(ir.all_of(*ends), value, ir.ZERO)
        made.append(ir.Equation(skew(e.target, wave), value))
    made += [ir.Equation(t, skew(t, turn.to_expr())) for t in targets.values()]

    def read_fixed(access: ir.Access) -> ir.Access:
        """The access at fixed places in the tensor of wavefronts: V[0] is V_back[T - 1]."""
        at = dict(zip(targets[access.tensor].places, access.places, strict=True))
        return skew(access, Polynomial.of(substitute(turn.to_expr(), at)).to_expr())

    return exchange_equations(replace_fixed(system, recurrence, read_fixed), recurrence, made)


def _simplify_places(expr: ir.Expr) -> ir.Expr:
    """A read or comparison with polynomial places in normal form; others unchanged."""

    def is_counted(place: ir.Expr) -> bool:
        return all(isinstance(part, COUNTED) for part in walk(place))

    match expr:
        case ir.Compare(relation, left, right) if is_counted(left) and is_counted(right):
            gap = Polynomial.of(left) - Polynomial.of(right)
            return ir.Compare(relation, gap.to_expr(), ir.ZERO)
        case ir.Access(tensor, places):
            found = (Polynomial.of(p).to_expr() if is_counted(p) else p for p in places)
            return ir.Access(tensor, tuple(found))
    return expr


def replace_fixed(
    system: ir.System, recurrence: Recurrence, read: Callable[[ir.Access], ir.Access]
) -> ir.System:
    """The system in which other equations read a recurrence at fixed places through `read`."""

    def act(expr: ir.Expr) -> ir.Expr:
        if not isinstance(expr, ir.Access) or expr.tensor not in recurrence.targets:
            return expr
        own = (expr.places[loop.find_axis(expr.tensor)] for loop in recurrence.loops)
        return expr if any(map(find_free, own)) else read(expr)

    equations = (
        e if e in recurrence.equations else ir.Equation(e.target, rewrite_bottom_up(e.value, act))
        for e in system.equations
    )
    return replace(system, equations=tuple(equations))


def exchange_equations(
    system: ir.System,
    recurrence: Recurrence,
    new: Sequence[ir.Equation],
    loop: Sequence[ir.Equation] = (),
) -> ir.System:
    """The system with a recurrence replaced by `loop` and those of `new` whose tensor is read."""
    first = system.equations.index(recurrence.equations[0])
    rest = [each for each in system.equations if each not in recurrence.equations]
    read = {*system.results, *(a.tensor for each in rest for a in find_accesses(each.value))}
    unread = {*recurrence.targets} - read
    new = [*loop, *(each for each in new if each.target.tensor not in unread)]
    return replace(system, equations=(*rest[:first], *new, *rest[first:]))


def find_recurrence_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The errors for recursive equations that no order of evaluation can compute."""
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


def widen_turns(system: ir.System) -> ir.System:
    """The system with each recurrence over indices of unequal extents extended to the longest.

    g[t] = b[t] * h[t + 1]              becomes    g_wide[u] = where(u < T, b[u] * h[u + 1], 0)
    h[u] = where(u < T, g[u], h0)                  h[u] = where(u < T, g_wide[u], h0)
                                                   g[t] = g_wide[t]
    """
    for group in find_groups(system):
        indices = [i for e in group for i in find_free(e.target)]
        found = (_widen(group, index, Names.of(system)) for index in dict.fromkeys(indices))
        wide = next((new for new in found if new and find_recurrence(_sort_turn(new))), None)
        if wide is None or find_recurrence(_sort_turn(group)) is not None:
            continue
        made = [
            ir.Equation(old.target, ir.Access(new.target.tensor, old.target.places))
            for old, new in zip(group, wide, strict=True)
            if old.target.tensor is not new.target.tensor
        ]
        system = exchange_equations(system, Recurrence(indices[0], group), made, wide)
    return system


def _widen(
    group: Sequence[ir.Equation], index: ir.Index, names: Names
) -> tuple[ir.Equation, ...] | None:
    """The group over `index` in place of shorter indices; None if an equation has none of these."""
    made: dict[ir.Tensor, ir.Tensor] = {}
    equations: list[ir.Equation] = []
    for each in group:
        tensor, shorter = each.target.tensor, None
        if index not in each.target.places:
            whole = Polynomial.of(index.extent)
            gaps = ((i, whole - Polynomial.of(i.extent)) for i in find_free(each.target))
            shorter = next((i for i, gap in gaps if (gap.constant or 0) > 0), None)
            if shorter is None or each.target.places.count(shorter) != 1:
                return None
            k = each.target.places.index(shorter)
            shape = (*tensor.shape[:k], index.extent, *tensor.shape[k + 1 :])
            made[tensor] = replace(tensor, name=names.take(f"{tensor.name}_wide"), shape=shape)
            inside = ir.Compare("<", index, shorter.extent)
            value = ir.Where(inside, substitute(each.value, {shorter: index}), ir.ZERO)
            target = substitute(each.target, {shorter: index})
            assert isinstance(target, ir.Access)
            each = ir.Equation(target, value)  # noqa: PLW2901
        equations.append(each)

    return exchange_tensors(equations, made)


def order_recurrences(system: ir.System) -> ir.System:
    """The system in which a recurrence's equations are adjacent, after those that they read."""
    return order_blocks(system, [_sort_turn(group) for group in find_groups(system)])


def order_blocks(system: ir.System, blocks: Sequence[tuple[ir.Equation, ...]]) -> ir.System:
    """The system in which the equations of each block are adjacent, after those that they read."""
    if not blocks:
        return system
    together = {equation: block for block in blocks for equation in block}
    left = list(system.equations)
    ordered: list[ir.Equation] = []
    done = {*system.tensors}
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
    is_same = tuple(ordered) == system.equations
    return system if is_same else replace(system, equations=tuple(ordered))


def _sort_turn(group: tuple[ir.Equation, ...]) -> tuple[ir.Equation, ...]:
    """The group in an order that computes values of a turn before they are read, if one exists."""
    for index in group[0].target.places if find_recurrence(group) is None else ():
        if any(list(e.target.places).count(index) != 1 for e in group):
            continue
        made = Recurrence(index, group) if isinstance(index, ir.Index) else None
        left, done = list(group), list[ir.Equation]()
        while left and made is not None:
            own = {each.target.tensor for each in left}
            for first in left:
                read = [a for a in find_accesses(first.value) if a.tensor in own]
                if all(made.find_lag(access) != 0 for access in read):
                    break
            else:
                break
            left.remove(first)
            done.append(first)
        if not left and find_recurrence(done) is not None:
            return tuple(done)
    return group
