"""Reductions in the order of data: over all j whose key is below a bound.

    sum_j [a_j <= b_i] v_j = the running sum of v in the order of a, read at the place of b_i there

A sort and a search stand in for all pairs. So it is with a largest entry, a product, a logsumexp
and a mean by a softmax, and with the number of entries, which is that place. Nothing is subtracted
but whole numbers, so it rounds as a running sum does. One order serves all bounds.

Equal keys that are put in the order of their row have ranks, all different.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.ir import nodes as ir
from derive.ir.walk import find_accesses, find_free, rename_apart, substitute
from derive.plan import ops
from derive.plan.lower.condition import lower_sides
from derive.plan.lower.context import Context
from derive.plan.lower.guarded import (
    Guarded,
    Wanted,
    choose,
    find_row,
    finish,
    finish_made,
    is_data,
    is_real,
    lower_masked,
    read_guarded,
    take_where,
)
from derive.plan.lower.places import take
from derive.rewrite.guards import find_some, is_variable

RANKS, COUNT, BELOW, MEAN = "_find_ranks", "_count_below", "_reduce_below", "_average_below"
BETWEEN = (
    "sum_between: a sum from one bound up to another is the difference of the sums below both; it"
    " loses digits where it is small beside them"
)
PAIRED = 64  # comparisons of an element in whose time it is sorted: fewer stay comparisons
# Operations in whose time one is sorted, found among others, or among its equals, and in which one
# is added to those before it; measured as the machine's defaults, with rows of 512 and of 2048.
SORTED, SOUGHT, TIED, SUMMED, LOGGED = 900, 1024, 120, 60, 500


@dataclass(frozen=True, slots=True)
class Side:
    """A guard key_j < bound_i over an index and an own one of the bound.

    It may be <= where it `is_equal`, and > or >= where it `is_turned`. Of the bounds that are the
    keys `tied` says which of equal ones are below: "<" those before it in the row, or "<=" with
    itself, ">" and ">=" those after it.
    """

    guard: ir.Expr
    key: ir.Expr
    bound: ir.Expr
    index: ir.Index
    is_equal: bool
    is_turned: bool
    tied: str = ""
    own: ir.Index | None = None  # of those that the bound alone has

    @property
    def ends(self) -> tuple[ir.Index, ir.Index]:
        """The index of the keys and that of the bounds."""
        assert self.own is not None
        return self.index, self.own

    def name_order(self) -> ir.Expr:
        """What the order of the keys is known by."""
        return ir.Call(f"order {self.is_turned} {self.tied[:1]}", (self.key, self.index))

    def implies(self, mask: ir.Expr) -> bool:
        """Does a mask only leave out the bound itself, which is not below itself?"""
        match mask:
            case ir.Compare("!=", ir.Index() as one, ir.Index() as other) if not self.is_equal:
                bound = other if one is self.index else one
                is_own = substitute(self.bound, {bound: self.index}) is self.key
                return self.index in {one, other} and is_own
        return False


def lower_ordered(reduce: ir.Reduce, wanted: Wanted) -> ops.Op | None:
    """The operation for a reduction in the order of data; None where it is none."""
    context = wanted.context
    for form in read_guarded(reduce, context):
        terms = list(form.distribute())
        if terms and all(any(_find_all(part, i, context) for i in form.bound) for part in terms):
            return wanted.lower(ir.Add(tuple(part.to_expr() for part in terms)))
        valued = {i for factor in form.factors for i in find_free(factor)}

        def weigh(
            index: ir.Index, form: Guarded = form, valued: Set[ir.Index] = valued
        ) -> tuple[bool, bool, bool]:
            """Has it values to be put in order, no order yet, or one that is turned?"""
            sides = _find_all(form, index, context)
            is_known = any(context.recall(side.name_order()) is not None for side in sides)
            return index in valued, not is_known, any(side.is_turned for side in sides)

        for index in sorted(form.bound, key=weigh):
            found = _eliminate(form, index, wanted)
            if found is not None:
                return found
    return None


def _find_all(form: Guarded, index: ir.Index, context: Context) -> list[Side]:
    return [side for guard in form.guards for side in find_sides(guard, index, context)]


def _eliminate(form: Guarded, index: ir.Index, wanted: Wanted) -> ops.Op | None:
    """The reduction over one index; what is said of the key alone is a part of its value."""
    context = wanted.context
    (guards, factors), _ = form.part((index,))
    soft = find_row(form, (index,))
    if soft is not None:
        guards = [*guards, *ir.split_and(soft.condition)]
        factors = [soft.body, *(f for f in factors if f is not soft)]
    found = [find_sides(guard, index, context) for guard in guards]
    sides = [side for each in found for side in each]
    masks = [guard for guard, each in zip(guards, found, strict=True) if not each]
    masks = [mask for mask in masks if not any(side.implies(mask) for side in sides)]
    owns = {i for side in sides for i in find_free(side.bound) if i not in find_free(side.key)}
    owns -= {i for each in (*masks, *factors) for i in find_free(each)}
    if not owns:
        return None
    own = max(sorted(owns, key=lambda i: i.name), key=context.extent)
    sides = [replace(side, own=own) for side in sides]
    if not (factors or masks):
        if len(sides) == 1 and form == Guarded("sum", (index,), (sides[0].guard,), ()):
            return _count(sides[0], context)
        count = _sum_sides(sides)
        return None if count is None else finish(form, count, None, (index,), wanted)
    if wanted.counted and factors:
        return None
    if len(sides) > 1:
        is_able = form.kind == "sum" and soft is None and wanted.roundable
        total = _sum_sides(sides, factors, masks) if is_able else None
        if total is None:
            return None
        context.notes[BETWEEN] = None
        return finish(form, total, _sum_sides(sides), (index,), wanted)
    if soft is not None:
        made = None if masks else _average(sides[0], factors, context)
    else:
        value = _lower_value(form.kind, factors, masks, sides[0], wanted)
        made = value and _accumulate(form.kind, sides[0], value, context)
    return made and finish_made(form, made, _sum_sides(sides), (index,), wanted)


def find_sides(
    guard: ir.Expr, index: ir.Index, context: Context, least: int = PAIRED
) -> list[Side]:
    """What a guard compares, if one side alone has the index, and the other many others.

    Equal are those that are neither below nor above.
    """
    tied = ""
    match guard:
        case ir.Compare(relation, left, right):
            pass
        case ir.Or((one, other)):
            strict, same = (one, other) if isinstance(other, ir.And) else (other, one)
            if not isinstance(strict, ir.Compare) or not isinstance(same, ir.And):
                return []
            relation, left, right = strict.relation, strict.left, strict.right
            tied = _find_tie(same.parts, (left, right), index)
            if not tied or relation not in {"<", ">"}:
                return []
        case _:
            return []
    if relation == "!=" or not (is_data(left) and is_data(right)):
        return []
    if index in find_free(right):
        left, right, relation = right, left, ir.MIRRORED[relation]
    own = [i for i in find_free(right) if i not in find_free(left)]
    if index not in find_free(left) or index in find_free(right):
        return []
    if min(map(context.count, (own, (index,)))) < least:
        return []
    if tied and (len(own) != 1 or substitute(right, {own[0]: index}) is not left):
        return []
    if relation == "==":
        return [Side(guard, left, right, index, True, is_turned) for is_turned in (False, True)]
    is_equal = "=" in (tied or relation)
    return [Side(guard, left, right, index, is_equal, relation in {">", ">="}, tied)]


def _find_tie(parts: Sequence[ir.Expr], sides: Sequence[ir.Expr], index: ir.Index) -> str:
    """How equal keys are put in order: the relation of the index to the bound's; "" where not."""
    for same, places in (parts, parts[::-1]) if len(parts) == 2 else ():
        match same, places:
            case (
                ir.Compare("==", left, right),
                ir.Compare(relation, ir.Index() as one, ir.Index() as other),
            ) if {left, right} == {*sides} and index in {one, other}:
                tied = relation if one is index else ir.MIRRORED[relation]
                return tied if relation not in {"==", "!="} else ""
    return ""


def _sum_sides(
    sides: Sequence[Side], factors: Sequence[ir.Expr] = (), masks: Sequence[ir.Expr] = ()
) -> ir.Expr | None:
    """The sum of values, or their number, below a bound, or from one up to another."""
    index, body = sides[0].index, ir.product_of(list(factors))
    if len(sides) == 1:
        return ir.Reduce("sum", (index,), ir.all_of(sides[0].guard, *masks), body)
    low, high = sorted(sides[:2], key=lambda side: not side.is_turned)
    if len(sides) > 2 or low.key is not high.key or high.is_turned or not low.is_turned:
        return None
    signs = ("<" if low.is_equal else "<=", "<=" if high.is_equal else "<")
    guards = (
        ir.Compare(sign, low.key, side.bound) for sign, side in zip(signs, (low, high), strict=True)
    )
    below, whole = (ir.Reduce("sum", (index,), ir.all_of(g, *masks), body) for g in guards)
    is_closed = low.is_equal and high.is_equal
    some = ir.Compare("<=" if is_closed else "<", low.bound, high.bound)
    return ir.Where(some, ir.Add((whole, ir.Mul((ir.MINUS_ONE, below)))), ir.ZERO)


# The operations: rows have the index of the key last, or that of the bound.


@dataclass(frozen=True, slots=True)
class Sorted:
    """The keys and bounds of a side, with signs that put what is below first, and their order.

    `place` is the index of the order: the first place has the lowest key.
    """

    key: ops.Op
    bound: ops.Op
    order: ops.Source
    place: ir.Index


def lower_keys(side: Side, context: Context) -> tuple[ops.Op, ops.Op]:
    """The keys and the bounds of a side, with signs that put what is below first."""
    made = []
    for op, last in zip(lower_sides(side.key, side.bound, context, ()), side.ends, strict=True):
        row = ops.arrange(op, (*(i for i in ops.axes_of(op) if i is not last), last))
        made.append(ops.Apply("neg", (row,), ops.axes_of(row)) if side.is_turned else row)
    return made[0], made[1]


def sort_keys(side: Side, context: Context) -> Sorted:
    """The order of the keys of a side, which is shared by all that ask for it."""
    index, (key, bound) = side.index, lower_keys(side, context)
    names = {i.name for part in (key, bound) for i in ops.axes_of(part)}
    place = rename_apart(index, names | context.names)
    other = rename_apart(index, names | context.names | {place.name})
    told = side.name_order()
    axes = ops.axes_of(key)

    def write() -> ops.Op:
        is_own = side.own is not None and substitute(side.bound, {side.own: index}) is side.key
        if not side.tied and not is_own and _is_rising(side.key, index, context):
            end = ops.Num(ir.Add((index.extent, ir.MINUS_ONE)))
            steps = ops.Iota(index)
            return ops.combine("-", (end, steps), (index,)) if side.is_turned else steps
        before = ops.rename_indices(key, {index: other})
        mask = write_guard("<", before, key, side.tied[:1] or "<", (other, index))
        ranks, position = count_mask(mask, other), ops.Iota(index)
        whole = take_where(ranks, place, position, index, (*axes, place))
        options = (("dim", -1), ("stable", True)) if side.tied else ()
        call = ops.TorchCall(".argsort", (ops.Given(0),), options)
        args: tuple[ops.Op, ...] = (key,)
        if side.tied.startswith(">"):  # of the row read backwards
            turned = ops.TorchCall(".flip", (ops.Given(0), -1))
            last = ops.TorchCall("-", (ops.Given(1), 1))
            call = ops.TorchCall("-", (last, ops.TorchCall(".argsort", (turned,), options)))
            args = (key, ops.Num(index.extent))
        volume = (*axes, count_each(SORTED))
        cell = ops.Cell(call, args, whole, (*axes[:-1], place), volume=volume, scratch=(axes,))
        return ops.rename_indices(cell, {place: index, index: other, other: place})

    source = context.recall(told) or context.keep(told, write(), f"{_name(side.key)}_order")
    source = ops.to_source(source.name, ops.rename_indices(source, {index: place}))
    return Sorted(key, bound, source, place)


def _is_rising(key: ir.Expr, index: ir.Index, context: Context) -> bool:
    """Is it a running sum of what is never negative, by whatever name and scale?"""
    match key:
        case ir.Access(tensor, places):
            for equation in context.system.equations:
                there = equation.target.places
                if equation.target.tensor.name == tensor.name and index in places:
                    own = there[places.index(index)]
                    return isinstance(own, ir.Index) and _is_rising(equation.value, own, context)
        case ir.Mul(factors):
            fixed = [factor for factor in factors if index not in find_free(factor)]
            rest = [factor for factor in factors if factor not in fixed]
            is_scale = all(map(context.is_never_negative, fixed))
            return is_scale and len(rest) == 1 and _is_rising(rest[0], index, context)
        case ir.Along("cumsum", along, ir.Truth(True), body):
            return along is index and context.is_never_negative(body)
    return False


def _count(side: Side, context: Context) -> ops.Op:
    """The number of keys below each bound, which is shared; of those in a row's order the rank."""

    def write() -> ops.Op:
        is_last = side.tied.startswith(">")  # of the row: the order the other way knows it
        base = replace(side, is_turned=not side.is_turned, tied="<") if is_last else side
        found, (index, own) = sort_keys(base, context), side.ends
        key, bound = found.key, found.bound
        batch = dict.fromkeys(i for each in (key, bound) for i in ops.axes_of(each))
        axes = tuple(i for i in batch if i not in (index, own))
        relation = (">" if is_last else "<") + "=" * side.is_equal
        mask = write_guard(relation, key, bound, side.tied, side.ends)
        is_own = ops.rename_indices(bound, {own: index}) is key
        args = (key, found.order) if is_own else (key, found.order, bound)
        given, volume = tuple(map(ops.Given, range(len(args)))), (*axes, own)
        call = ops.TorchCall(COUNT, given, (("equal", side.is_equal),))
        if side.tied:
            told = (("above", is_last), ("equal", side.is_equal))
            call = ops.TorchCall(RANKS, given, tuple(pair for pair in told if pair[1]))
        else:
            volume = (*volume, count_each(TIED if is_own else SOUGHT))
        scratch = ((*axes, index),) * 2 + ((*axes, own),) * 2
        whole = count_mask(mask, index)
        return ops.Cell(call, args, whole, (*axes, own), volume=volume, scratch=scratch)

    known_by = ir.Reduce("sum", (side.index,), side.guard, ir.ONE)
    return context.recall(known_by) or context.keep(known_by, write(), f"{_name(side.key)}_count")


def write_guard(
    relation: str, key: ops.Op, bound: ops.Op, tied: str, ends: tuple[ir.Index, ir.Index]
) -> ops.Op:
    """A key below a bound, or above it, or equal to it and tied so by their places in the row."""
    wide = tuple(dict.fromkeys((*ops.axes_of(bound), *ops.axes_of(key))))
    if not tied:
        return ops.combine(relation, (key, bound), wide)
    less, same = (ops.combine(sign, (key, bound), wide) for sign in (relation[0], "=="))
    iotas = (ops.Iota(ends[0]), ops.Iota(ends[1]))
    before = ops.combine("and", (same, ops.combine(tied, iotas, wide)), wide)
    return ops.combine("or", (less, before), wide)


def count_each(number: int) -> ir.Index:
    """So many operations for each element."""
    return ir.Index("each", ir.Number(Fraction(number)))


def count_mask(mask: ops.Op, index: ir.Index) -> ops.Op:
    """How often truth values hold along an index."""
    ones = ops.Choose(mask, ops.Num(ir.ONE), ops.Num(ir.ZERO), ops.axes_of(mask))
    return ops.Reduction("sum", ones, (index,))


def _name(key: ir.Expr) -> str:
    return find_accesses(key)[0].tensor.name


def _lower_value(
    kind: str, factors: Sequence[ir.Expr], masks: Sequence[ir.Expr], side: Side, wanted: Wanted
) -> ops.Op | None:
    """The factors where the masks hold, over all keys; what no bound reads is harmless."""
    context = wanted.context
    safe = [
        f if context.is_finite(f) or not is_variable(f) else context.protect(f, _find_read(side))
        for f in factors
    ]
    found = lower_masked(kind, (ir.product_of(safe), masks), (side.index,), wanted)
    if found is None or side.index not in ops.axes_of(found):
        return None
    return found if not factors or is_real(found) else None


def _find_read(side: Side) -> ir.Expr:
    """The condition under which some bound is above a key."""
    if side.tied:
        return ir.TRUE
    own = tuple(i for i in find_free(side.bound) if i not in find_free(side.key))
    relation = (">" if side.is_turned else "<") + "=" * side.is_equal
    if find_some(ir.Compare(relation, side.key, side.bound), own) is ir.TRUE:
        return ir.TRUE
    last = ir.Reduce("min" if side.is_turned else "max", own, ir.TRUE, side.bound)
    return ir.Compare(relation, side.key, last)


def _accumulate(kind: str, side: Side, value: ops.Op, context: Context) -> ops.Op:
    """The reduction of so many values in the order of their keys."""
    found, count = sort_keys(side, context), _count(side, context)
    if not isinstance(value, ops.VIEWS):
        value = context.add_step(value)
    args, options, made = _lay(value, found.order, count, side)
    taken = _take(args[0], args[1], side.index, found.place)
    wide = (*made, found.place)
    mask = ops.combine("<", (ops.Iota(found.place), count), wide)
    whole = ops.Reduction(kind, choose(kind, mask, taken, wide), (found.place,))
    call = ops.TorchCall(BELOW, tuple(map(ops.Given, range(3))), (("kind", kind), *options))
    own_axes = ops.axes_of(args[0])
    volume = (*own_axes, count_each(LOGGED if kind == "logsumexp" else SUMMED))
    return ops.Cell(call, args, whole, made, volume=volume, scratch=(own_axes,) * 3)


def _average(side: Side, factors: Sequence[ir.Expr], context: Context) -> ops.Op | None:
    """The mean of the values below each bound by the softmax of their logits."""
    index = side.index
    if len(factors) < 2 or index not in find_free(ir.product_of(factors[1:])):
        return None
    logits, x = (context.lower(f, (index,)) for f in (factors[0], ir.product_of(factors[1:])))
    found, count = sort_keys(side, context), _count(side, context)
    if index not in ops.axes_of(logits) or not {*ops.axes_of(logits)} <= {*ops.axes_of(x)}:
        return None
    (x, place, ends), _, made = _lay(x, found.order, count, side, is_row=False)
    logits = ops.arrange(logits, ops.axes_of(x))
    wide = (*made, found.place)
    mask = ops.combine("<", (ops.Iota(found.place), count), wide)
    taken = _take(logits, place, index, found.place)
    row = ops.Along("softmax", choose("softmax", mask, taken, wide), found.place)
    whole = ops.Einsum((row, _take(x, place, index, found.place)), made)
    zeros = (("zeros", True),) if context.system.empty_row == "zeros" else ()
    call = ops.TorchCall(MEAN, tuple(map(ops.Given, range(4))), zeros)
    axes = ops.axes_of(x)
    volume = (*axes, count_each(2 * SUMMED))
    return ops.Cell(call, (logits, x, place, ends), whole, made, volume=volume, scratch=(axes,) * 5)


def _lay(
    value: ops.Op, order: ops.Op, count: ops.Op, side: Side, *, is_row: bool = True
) -> tuple[tuple[ops.Op, ...], tuple[tuple[str, ops.Operand], ...], tuple[ir.Index, ...]]:
    """(values, order and count as torch reads them, the dim, the axes of the result).

    One order for all rows is read along any dim, others along the last one.
    """
    axes, (index, own) = ops.axes_of(value), side.ends
    if is_row and len(ops.axes_of(order)) == 1 == len(ops.axes_of(count)):
        at = axes.index(index)
        options: tuple[tuple[str, ops.Operand], ...] = (("dim", at),) if at < len(axes) - 1 else ()
        return (value, order, count), options, tuple(own if i is index else i for i in axes)
    batch = dict.fromkeys(i for op in (count, value) for i in ops.axes_of(op))
    lead = tuple(i for i in batch if i not in (index, own))
    place = ops.axes_of(order)[-1]
    ends = ((value, index), (order, place), (count, own))
    args = tuple(
        ops.arrange(op, (*(i for i in lead if i in ops.axes_of(op)), last)) for op, last in ends
    )
    return args, (), (*lead, own)


def _take(x: ops.Op, order: ops.Op, index: ir.Index, place: ir.Index) -> ops.Op:
    """The values in an order: what a call computes, for its meaning."""
    rows = {i: ops.Iota(i) for i in ops.axes_of(x) if i in ops.axes_of(order)}
    return take(x, {index: order, **rows}, (*ops.axes_of(x), place))
