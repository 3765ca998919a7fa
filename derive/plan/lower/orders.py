"""Reductions over all j whose key is below a bound, by sorting.

    sum_j [a_j <= b_i] v_j = the running sum of v in the order of a, read at the position of b_i

A sort and a search replace all pairs. Likewise for max, min, product, logsumexp, a softmax average,
and the number of entries, which is the position itself. Only integers are subtracted, so rounding
errors are those of a running sum. Bounds share the order of the keys.

A rank, the number of smaller entries in a row, is compared with a number without all pairs:
rank_j < K holds for the K lowest keys, and for those equal to the K-th.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_accesses, find_free, is_number, rename_apart, substitute, walk
from derive.plan import ops
from derive.plan.lower.condition import lower_sides
from derive.plan.lower.context import Context
from derive.plan.lower.guarded import (
    Guarded,
    Wanted,
    find_row,
    finish,
    finish_operation,
    is_data,
    is_real,
    keep_where,
    lower_masked,
    read_guarded,
    take_where,
)
from derive.plan.lower.number import lower_number
from derive.plan.lower.patterns import make_cell
from derive.plan.lower.places import take_positions
from derive.rewrite.guards import is_variable
from derive.rewrite.needs import find_some

COUNT, BELOW, FIRST = "_count_below", "_reduce_below", "_is_among_first"
COMPARED = 16  # least entries of a row for a comparison by its K-th lowest key
PAIRED = 64  # comparisons in the time of sorting an element: with fewer, pairs are compared
# Costs per element in elementwise operations: a sort, a search among other keys or among its own
# keys, a running sum, a running logsumexp. Measured in rows of 512 and 2048.
SORTED, SOUGHT, TIED, SUMMED, LOGGED = 900, 1024, 120, 60, 500


@dataclass(frozen=True, slots=True)
class Side:
    """A guard key_j < bound_i: <= if `is_equal`, > or >= if `is_descending`."""

    guard: ir.Expr
    key: ir.Expr
    bound: ir.Expr
    index: ir.Index
    is_equal: bool
    is_descending: bool
    own: ir.Index | None = None  # an index of the bound only

    @property
    def ends(self) -> tuple[ir.Index, ir.Index]:
        """Return the index of the keys and that of the bounds."""
        assert self.own is not None
        return self.index, self.own

    def name_order(self) -> ir.Expr:
        """Return an expression that names the order, for `Context.recall` and `name_step`."""
        return ir.Call(f"order {self.is_descending}", (self.key, self.index))

    def implies(self, mask: ir.Expr) -> bool:
        """Whether a condition is `i != j`, which holds wherever the key of j is below that of i."""
        match mask:
            case ir.Compare("!=", ir.Index() as one, ir.Index() as other) if not self.is_equal:
                bound = other if one is self.index else one
                is_own = substitute(self.bound, {bound: self.index}) is self.key
                return self.index in {one, other} and is_own
        return False


def lower_ordered(reduce: ir.Reduce, wanted: Wanted) -> ops.Op | None:
    """A reduction over keys below a bound, by a sort and a search; None where no guard fits."""
    context = wanted.context
    for form in read_guarded(reduce, context):
        valued = {i for factor in form.factors for i in find_free(factor)}

        def rank_index(
            index: ir.Index, form: Guarded = form, valued: Set[ir.Index] = valued
        ) -> tuple[bool, bool, bool]:
            """A key to sort by: indices without values, with known or ascending orders, first."""
            sides = [each for g in form.guards for each in match_sides(g, index, context)]
            is_known = any(context.recall(side.name_order()) is not None for side in sides)
            return index in valued, not is_known, any(side.is_descending for side in sides)

        for index in sorted(form.bound, key=rank_index):
            found = _eliminate(form, index, wanted)
            if found is not None:
                return found
    return None


def _eliminate(form: Guarded, index: ir.Index, wanted: Wanted) -> ops.Op | None:
    """A reduction without one index, by a sort of its keys; None where no guard compares them."""
    context = wanted.context
    (guards, factors), _ = form.partition((index,))
    if find_row(form, (index,)) is not None:
        return None
    found = [match_sides(guard, index, context) for guard in guards]
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
            return _count_below(sides[0], context)
        count = _count_sides(sides)
        return None if count is None else finish(form, count, None, (index,), wanted)
    if wanted.counted and factors:
        return None
    if len(sides) > 1:
        return None
    value = _lower_value(form.kind, factors, masks, sides[0], wanted)
    made = value and _reduce_below(form.kind, sides[0], value, context)
    return made and finish_operation(form, made, _count_sides(sides), (index,), wanted)


def match_sides(
    guard: ir.Expr, index: ir.Index, context: Context, least: int = PAIRED
) -> list[Side]:
    """Return the comparisons of a guard between keys over the index and bounds over another one.

    The list is empty without a match, or if there are fewer than `least` keys or bounds. An
    equality has two sides: neither below nor above.
    """
    if not isinstance(guard, ir.Compare):
        return []
    relation, left, right = guard.relation, guard.left, guard.right
    if relation == "!=" or not (is_data(left) and is_data(right)):
        return []
    if index in find_free(right):
        left, right, relation = right, left, ir.MIRRORED[relation]
    own = [i for i in find_free(right) if i not in find_free(left)]
    if index not in find_free(left) or index in find_free(right):
        return []
    if min(map(context.count, (own, (index,)))) < least:
        return []
    if relation == "==":
        return [
            Side(guard, left, right, index, True, is_descending) for is_descending in (False, True)
        ]
    return [Side(guard, left, right, index, "=" in relation, relation in {">", ">="})]


def _count_sides(sides: Sequence[Side]) -> ir.Expr | None:
    """Return the number of keys below one bound, or between two; None for other sides."""
    index = sides[0].index
    if len(sides) == 1:
        return ir.Reduce("sum", (index,), sides[0].guard, ir.ONE)
    low, high = sorted(sides[:2], key=lambda side: not side.is_descending)
    if len(sides) > 2 or low.key is not high.key or high.is_descending or not low.is_descending:
        return None
    signs = ("<" if low.is_equal else "<=", "<=" if high.is_equal else "<")
    guards = (
        ir.Compare(sign, low.key, side.bound) for sign, side in zip(signs, (low, high), strict=True)
    )
    below, whole = (ir.Reduce("sum", (index,), guard, ir.ONE) for guard in guards)
    is_closed = low.is_equal and high.is_equal
    some = ir.Compare("<=" if is_closed else "<", low.bound, high.bound)
    return ir.Where(some, ir.Add((whole, ir.Mul((ir.MINUS_ONE, below)))), ir.ZERO)


# Operations. Rows have the index of the key, or of the bound, as their last axis.


@dataclass(frozen=True, slots=True)
class Sorted:
    """The keys and bounds of a side, negated if it is descending, and the order of the keys.

    `order` has the positions of the keys from the least to the largest, along `place`.
    """

    key: ops.Op
    bound: ops.Op
    order: ops.Source
    place: ir.Index


def lower_keys(side: Side, context: Context) -> tuple[ops.Op, ops.Op]:
    """Lower the keys and the bounds of a side, negated if it is descending."""
    made = []
    for op, last in zip(lower_sides(side.key, side.bound, context, ()), side.ends, strict=True):
        row = ops.arrange(op, (*(i for i in op.axes if i is not last), last))
        made.append(ops.Apply("neg", (row,), row.axes) if side.is_descending else row)
    return made[0], made[1]


def sort_keys(side: Side, context: Context) -> Sorted:
    """Return the keys and bounds of a side with the order of the keys, a step that is shared."""
    index, (key, bound) = side.index, lower_keys(side, context)
    names = {i.name for part in (key, bound) for i in part.axes}
    place = rename_apart(index, names | context.names)
    other = rename_apart(index, names | context.names | {place.name})
    order_key = side.name_order()
    axes = key.axes

    def write_order() -> ops.Op:
        before = ops.rename_indices(key, {index: other})
        mask = write_guard("<", before, key, "<", (other, index))
        ranks, position = count_mask(mask, other), ops.Iota(index)
        whole = take_where(ranks, place, position, index, (*axes, place))
        made, volume = (*axes[:-1], place), (*axes, cost_index(SORTED))
        cell = make_cell("x.argsort()", {"x": key}, whole, made, volume=volume, scratch=(axes,))
        return ops.rename_indices(cell, {place: index, index: other, other: place})

    source = context.recall(order_key) or context.name_step(
        order_key, write_order(), f"{_find_key_name(side.key)}_order"
    )
    source = ops.to_source(source.name, ops.rename_indices(source, {index: place}))
    return Sorted(key, bound, source, place)


def _count_below(side: Side, context: Context) -> ops.Op:
    """Return a step with the number of keys below each bound, computed once."""

    def write_order() -> ops.Op:
        found, (index, own) = sort_keys(side, context), side.ends
        key, bound = found.key, found.bound
        batch = dict.fromkeys(i for each in (key, bound) for i in each.axes)
        axes = tuple(i for i in batch if i not in (index, own))
        mask = write_guard("<" + "=" * side.is_equal, key, bound, "", side.ends)
        is_own = ops.rename_indices(bound, {own: index}) is key
        given = {"x": key, "order": found.order} | ({} if is_own else {"bound": bound})
        text = f"{COUNT}({', '.join(given)}, equal={side.is_equal})"
        volume = (*axes, own, cost_index(TIED if is_own else SOUGHT))
        fields = {"volume": volume, "scratch": ((*axes, index),) * 2 + ((*axes, own),) * 2}
        return make_cell(text, given, count_mask(mask, index), (*axes, own), **fields)

    known_by = ir.Reduce("sum", (side.index,), side.guard, ir.ONE)
    return context.recall(known_by) or context.name_step(
        known_by, write_order(), f"{_find_key_name(side.key)}_count"
    )


def write_guard(
    relation: str, key: ops.Op, bound: ops.Op, tied: str, ends: tuple[ir.Index, ir.Index]
) -> ops.Op:
    """Return the mask `key relation bound`; at equal keys `tied`, if any, compares positions."""
    wide = tuple(dict.fromkeys((*bound.axes, *key.axes)))
    if not tied:
        return ops.combine(relation, (key, bound), wide)
    less, same = (ops.combine(sign, (key, bound), wide) for sign in (relation[0], "=="))
    iotas = (ops.Iota(ends[0]), ops.Iota(ends[1]))
    before = ops.combine("and", (same, ops.combine(tied, iotas, wide)), wide)
    return ops.combine("or", (less, before), wide)


def cost_index(number: int) -> ir.Index:
    """Return an index of extent `number`, for a volume with so many operations per element."""
    return ir.Index("each", ir.Number(Fraction(number)))


def count_mask(mask: ops.Op, index: ir.Index) -> ops.Op:
    """Return the number of True entries along an index."""
    ones = ops.Choose(mask, ops.Num(ir.ONE), ops.Num(ir.ZERO), mask.axes)
    return ops.Reduction("sum", ones, (index,))


def _find_key_name(key: ir.Expr) -> str:
    return find_accesses(key)[0].tensor.name


def _lower_value(
    kind: str, factors: Sequence[ir.Expr], masks: Sequence[ir.Expr], side: Side, wanted: Wanted
) -> ops.Op | None:
    """Lower the masked factors, finite at keys below no bound; None if not real or without keys."""
    context = wanted.context
    safe = [
        f if context.is_finite(f) or not is_variable(f) else context.protect(f, _find_read(side))
        for f in factors
    ]
    found = lower_masked(kind, (ir.product_of(safe), masks), (side.index,), wanted)
    if found is None or side.index not in found.axes:
        return None
    return found if not factors or is_real(found) else None


def _find_read(side: Side) -> ir.Expr:
    """Return the condition that a key is below at least one bound."""
    own = tuple(i for i in find_free(side.bound) if i not in find_free(side.key))
    relation = (">" if side.is_descending else "<") + "=" * side.is_equal
    if find_some(ir.Compare(relation, side.key, side.bound), own) is ir.TRUE:
        return ir.TRUE
    last = ir.Reduce("min" if side.is_descending else "max", own, ir.TRUE, side.bound)
    return ir.Compare(relation, side.key, last)


def _reduce_below(kind: str, side: Side, value: ops.Op, context: Context) -> ops.Op:
    """Return the call that reduces the values of the keys below each bound."""
    found, count = sort_keys(side, context), _count_below(side, context)
    if not isinstance(value, ops.VIEWS):
        value = context.add_step(value)
    args, dim, made = _arrange_operands(value, found.order, count, side)
    rows = {i: ops.Iota(i) for i in args[0].axes if i in args[1].axes}
    order = (*args[0].axes, found.place)
    taken = take_positions(args[0], {side.index: args[1], **rows}, order)
    wide = (*made, found.place)
    mask = ops.combine("<", (ops.Iota(found.place), count), wide)
    whole = ops.Reduction(kind, keep_where(kind, mask, taken, wide), (found.place,))
    given, own_axes = dict(zip("xtn", args, strict=True)) | {"dim": dim}, args[0].axes
    fields = {"volume": (*own_axes, cost_index(LOGGED if kind == "logsumexp" else SUMMED))}
    text = f"{BELOW}(x, t, n, kind='{kind}', dim=dim)"
    return make_cell(text, given, whole, made, **fields, scratch=(own_axes,) * 3)


def _arrange_operands(
    value: ops.Op, order: ops.Op, count: ops.Op, side: Side
) -> tuple[tuple[ops.Op, ...], int | None, tuple[ir.Index, ...]]:
    """Return ((values, order, count), dim or None for the last, the axes of the result).

    A single order for all rows applies along any dim, several along the last one.
    """
    axes, (index, own) = value.axes, side.ends
    if len(order.axes) == 1 == len(count.axes):
        at = axes.index(index)
        made = tuple(own if i is index else i for i in axes)
        return (value, order, count), at if at < len(axes) - 1 else None, made
    batch = dict.fromkeys(i for op in (count, value) for i in op.axes)
    lead = tuple(i for i in batch if i not in (index, own))
    place = order.axes[-1]
    ends = ((value, index), (order, place), (count, own))
    args = tuple(ops.arrange(op, (*(i for i in lead if i in op.axes), last)) for op, last in ends)
    return args, None, (*lead, own)


def lower_rank(relation: str, left: ir.Expr, right: ir.Expr, context: Context) -> ops.Op | None:
    """Lower rank_j < K by a comparison with the K-th lowest key; None for other relations."""
    if is_number(left):
        left, right, relation = right, left, ir.MIRRORED[relation]
    is_size = not any(isinstance(part, (ir.Scalar, ir.Index, ir.Access)) for part in walk(right))
    is_known = isinstance(left, ir.Reduce) and context.recall(left) is not None
    if not is_size or is_known or relation in {"==", "!="}:
        return None
    rank = _read_rank(left, context)
    if rank is None:
        return None
    side, added = rank
    limit = Polynomial.of(right) - added
    limit += Polynomial.of(int(relation in {"<=", ">"}))
    key, bound = lower_keys(replace(side, is_descending=False), context)
    sign = (">" if side.is_descending else "<") + "=" * side.is_equal
    guard = write_guard(sign, key, bound, "", side.ends)
    number, axes = lower_number(limit.to_expr()), bound.axes
    whole = ops.combine("<", (count_mask(guard, side.index), number), axes)
    given, scratch = {"x": bound, "n": number}, (axes,) * 3
    made = make_cell(f"{FIRST}(x, n, '{sign}')", given, whole, axes, volume=axes, scratch=scratch)
    return made if relation in {"<", "<="} else ops.Apply("not", (context.add_step(made),), axes)


def _read_rank(expr: ir.Expr, context: Context) -> tuple[Side, Polynomial] | None:
    """Return (the comparison of a row's keys with each other, an added number) of a rank, or None.

    A rank is sum_k [key_k < key_j] + number, or a name for it.
    """
    terms = [term for term in ir.split_sum(expr) if not is_number(term)]
    added = Polynomial.of(ir.sum_of([term for term in ir.split_sum(expr) if is_number(term)]))
    form = None
    match terms:
        case [ir.Access(tensor) as access] if tensor not in context.system.results:
            value = context.find_definition(access)
            found = None if value is None else _read_rank(value, context)
            return found and (found[0], found[1] + added)
        case [ir.Reduce("sum", (index,)) as reduce]:
            form = next(read_guarded(reduce, context), None)
    if form is None or form.factors:
        return None
    sides = [side for guard in form.guards for side in match_sides(guard, index, context, COMPARED)]
    if len(sides) != 1:
        return None
    (side,) = sides
    rest = [guard for guard in form.guards if guard is not side.guard]
    own = [i for i in find_free(side.bound) if i not in find_free(side.key)]
    is_own = len(own) == 1 and substitute(side.bound, {own[0]: index}) is side.key
    return (replace(side, own=own[0]), added) if is_own and all(map(side.implies, rest)) else None
