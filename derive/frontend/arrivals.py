"""The contribution of a gradient at a read to the gradient of the tensor that is read.

The places of the read are solved for its indices: at `x[2*i + k]`, element l of dx gets the
gradient for `i = (l - k)//2`, summed over k, where that i is whole and in range.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from derive.analysis.affine import simplify_place, to_linear, to_place, unravel
from derive.analysis.extents import is_always, take_decided
from derive.analysis.places import find_reversed, split_merged
from derive.frontend.torch.exprs import multiply, subtract
from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent, split_steps
from derive.ir.walk import (
    find_accesses,
    find_free,
    rewrite_bottom_up,
    split_guards,
    substitute,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Rename: TypeAlias = Callable[[ir.Index, set[str]], ir.Index]


@dataclass(frozen=True, slots=True)
class Flow:
    """The gradient of a node: for the indices in scope a value, or 0 where a condition fails."""

    value: ir.Expr
    indices: tuple[ir.Index, ...]
    conditions: tuple[ir.Expr, ...] = ()

    def times(self, *factors: ir.Expr) -> Flow:
        """The flow with its value times the factors."""
        return replace(self, value=multiply(self.value, *factors))

    def where(self, *conditions: ir.Expr) -> Flow:
        """The flow under further conditions."""
        kept = [each for each in conditions if each is not ir.TRUE and each not in self.conditions]
        return replace(self, conditions=(*self.conditions, *kept))


def narrow_flow(flow: Flow, expr: ir.Expr) -> Flow:
    """The flow summed over the indices that are not free in the expression."""
    free = find_free(expr)
    gone = tuple(index for index in flow.indices if index not in free)
    if not gone:
        return flow
    guards, factors = split_guards(ir.split_product(flow.value))
    if guards:  # as conditions they exclude infinite values, which a factor of 0 would not
        flow = replace(flow, value=multiply(*factors)).where(*guards)
    inside = [each for each in flow.conditions if set(find_free(each)) & set(gone)]
    value = ir.Reduce("sum", gone, ir.all_of(*inside), flow.value)
    kept = tuple(each for each in flow.conditions if each not in inside)
    return Flow(value, tuple(index for index in flow.indices if index in free), kept)


def choose_places(
    shape: Sequence[ir.Expr], reads: Sequence[tuple[ir.Expr, ...]], rename: Rename
) -> tuple[ir.Expr, ...]:
    """The places of dT in its equation: on each axis that of a read of T, or else a new index."""
    found: list[ir.Expr] = []
    used: set[str] = set()
    for number, extent in enumerate(shape):
        for read_at in reads:
            parts = split_merged(read_at[number], extent)
            if parts and not used & {index.name for index in parts}:
                found.append(read_at[number])
                break
        else:
            names = [part.name for part in walk(extent) if isinstance(part, ir.Size)] or ["i"]
            fresh = rename(ir.Index(names[0][0].lower(), extent), used)
            found.append(fresh)
        used |= {index.name for index in find_free(found[-1])}
    return tuple(found)


def place_contribution(
    read_at: Sequence[ir.Expr],
    flow: Flow,
    places: Sequence[ir.Expr],
    shape: Sequence[ir.Expr],
    rename: Rename,
) -> ir.Expr:
    """The term that a read of T at `read_at` adds to the element of dT at `places`."""
    kept = {index.name for place in places for index in find_free(place)}
    # Rename other indices in scope that have the name of an index of the element.
    new: dict[ir.Expr, ir.Expr] = {}
    names = kept | {i.name for i in flow.indices}
    for index in flow.indices:
        if index.name in kept:
            new[index] = fresh = rename(index, names)
            names.add(fresh.name)
    indices = [new.get(index, index) for index in flow.indices]
    open_reads = [substitute(place, new) for place in read_at]
    value, *conditions = (substitute(each, new) for each in (flow.value, *flow.conditions))
    rest: list[ir.Expr] = []
    held = tuple(conditions)
    order = sorted(range(len(shape)), key=lambda k: not isinstance(open_reads[k], ir.Index))
    for number in order:
        place, here, extent = open_reads[number], places[number], shape[number]
        left = [index for index in indices if isinstance(index, ir.Index)]
        solved, bounds = solve_place(place, here, extent, left)
        try:
            tried = [substitute(e, solved) for e in (value, *conditions, *rest)]
            others = [substitute(e, solved) for e in open_reads]
        except ValueError:  # the index of a softmax or cumsum cannot become an expression
            tried, others = [value, *conditions, *rest], open_reads
            solved, bounds = {}, [ir.Compare("==", place, here)]
        value, changed = tried[0], tried[1:]
        conditions, rest = changed[: len(conditions)], changed[len(conditions) :]
        open_reads = others
        rest += [each for each in bounds if not is_always(each)]
        indices = [index for index in indices if index not in solved]
    value = simplify_reads(value, set(find_accesses(flow.value)))
    summed = tuple(index for index in indices if isinstance(index, ir.Index))
    guards = [*rest, *(each for each in conditions if not is_always(each))]
    # Guards precede the reads they guard: first conditions without reads, then unchanged ones.
    guards.sort(key=lambda each: bool(find_accesses(each)) * (1 + (each not in held)))
    condition = ir.all_of(*guards)
    return ir.sum_over(summed, value, condition)


def solve_place(
    place: ir.Expr, here: ir.Expr, extent: ir.Expr, indices: Sequence[ir.Index]
) -> tuple[dict[ir.Expr, ir.Expr], list[ir.Expr]]:
    """Solve `place == here` for one of `indices`: (its substitution or {}, further conditions)."""
    if isinstance(place, ir.Index) and place in indices:
        inside = is_same_extent(place.extent, extent)
        return {place: here}, [] if inside else [ir.Compare("<", here, place.extent)]
    parts = split_merged(place, extent)
    if parts and all(part in indices for part in parts):
        theirs = split_merged(here, extent)
        if [i.extent for i in theirs] == [i.extent for i in parts]:
            return dict(zip(parts, theirs, strict=True)), []
        digits = unravel(here, [i.extent for i in parts])
        return {i: to_place(each) for i, each in zip(parts, digits, strict=True)}, []
    line = split_steps(to_linear(place))[0]
    steps = {
        index: factor.constant
        for index, factor in line.items()
        if isinstance(index, ir.Index)
        and index in indices
        and factor.constant
        and not any(index in find_free(atom) for atom in line if atom is not index)
    }
    if not steps:
        return {}, [ir.Compare("==", place, here)]
    index = max(steps, key=lambda i: abs(steps[i]))
    step = steps[index]
    rest = to_place(to_linear(place) - to_linear(multiply(ir.Number(step), index)))
    low, high = (rest, here) if step > 0 else (here, rest)
    off = subtract(high, low)
    if find_reversed(place, extent) is index:
        return {index: off}, []
    if abs(step) == 1:
        return {index: off}, [ir.Compare("<=", low, high), ir.Compare("<", off, index.extent)]
    width = ir.Number(abs(step))
    found = ir.Call("floordiv", (off, width))
    whole = ir.Compare("==", ir.Call("mod", (off, width)), ir.ZERO)
    return {index: found}, [
        whole,
        ir.Compare(">=", found, ir.ZERO),
        ir.Compare("<", found, index.extent),
    ]


def simplify_reads(expr: ir.Expr, known: set[ir.Access]) -> ir.Expr:
    """The expression with simplified places of reads not in `known`, and without decided choices.

    Places with calls stay unchanged, because conditions contain them in that form.
    """

    def simplify(place: ir.Expr) -> ir.Expr:
        return place if any(isinstance(p, ir.Call) for p in walk(place)) else simplify_place(place)

    def act(part: ir.Expr) -> ir.Expr:
        if not isinstance(part, ir.Access) or part in known:
            return take_decided(part)
        return ir.Access(part.tensor, tuple(map(simplify, part.places)))

    return rewrite_bottom_up(expr, act)
