"""Ranks: the number of smaller entries in a row, used as a position or compared with a number.

    u_r = sum_n [rank_n = r] x_n      a sort: x in the order of the ranked keys
    rank_n < K                        the K lowest keys, and those equal to the K-th

Entries whose keys share a rank are added at that position.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_free, is_number, substitute, walk
from derive.plan import ops
from derive.plan.calls import CellArgument, Operand, TorchCall
from derive.plan.lower.condition import expand
from derive.plan.lower.context import Context
from derive.plan.lower.guarded import (
    Guarded,
    Wanted,
    finish,
    name_operation,
    read_guarded,
    read_source,
    take_where,
)
from derive.plan.lower.number import lower_number
from derive.plan.lower.orders import (
    Side,
    count_mask,
    lower_keys,
    match_sides,
    sort_keys,
    write_guard,
)
from derive.plan.steps import free_name
from derive.rewrite.rules.deltas import is_position

FIRST, TIES = "_is_among_first", "_add_ties"
COMPARED = 16  # least entries of a row for a comparison by its K-th lowest key


@dataclass(frozen=True, slots=True)
class Rank:
    """The number of keys below each key in its row, plus a number."""

    side: Side
    added: Polynomial


def read_rank(expr: ir.Expr, context: Context, least: int) -> Rank | None:
    """Return the rank that an expression computes, in rows of at least `least` entries, or None."""
    terms = [term for term in ir.split_sum(expr) if not is_number(term)]
    numbers = [term for term in ir.split_sum(expr) if is_number(term)]
    form = None
    match terms:
        case [ir.Access(tensor) as access] if tensor not in context.system.results:
            value = context.find_definition(access)
            found = None if value is None else read_rank(value, context, least)
            return found and replace(found, added=found.added + Polynomial.of(ir.sum_of(numbers)))
        case [ir.Reduce("sum", (index,)) as reduce]:
            form = next(read_guarded(reduce, context), None)
    if form is None or form.factors:
        return None
    sides = [side for guard in form.guards for side in match_sides(guard, index, context, least)]
    if len(sides) != 1:
        return None
    (side,) = sides
    rest = [guard for guard in form.guards if guard is not side.guard]
    own = [i for i in find_free(side.bound) if i not in find_free(side.key)]
    is_own = len(own) == 1 and substitute(side.bound, {own[0]: index}) is side.key
    if not is_own or not all(map(side.implies, rest)):
        return None
    return Rank(replace(side, own=own[0]), Polynomial.of(ir.sum_of(numbers)))


def lower_rank(relation: str, left: ir.Expr, right: ir.Expr, context: Context) -> ops.Op | None:
    """Lower a comparison of a rank with a number by an order relation, or return None."""
    if is_number(left):
        left, right, relation = right, left, ir.MIRRORED[relation]
    is_size = not any(isinstance(part, (ir.Scalar, ir.Index, ir.Access)) for part in walk(right))
    is_known = isinstance(left, ir.Reduce) and context.recall(left) is not None
    if not is_size or is_known or relation in {"==", "!="}:
        return None
    rank = read_rank(left, context, COMPARED)
    if rank is None:
        return None
    side = rank.side
    limit = Polynomial.of(right) - rank.added
    limit += Polynomial.of(int(relation in {"<=", ">"}))
    key, bound = lower_keys(replace(side, is_descending=False), context)
    sign = (">" if side.is_descending else "<") + "=" * side.is_equal
    guard = write_guard(sign, key, bound, "", side.ends)
    number, axes = lower_number(limit.to_expr()), bound.axes
    whole = ops.combine("<", (count_mask(guard, side.index), number), axes)
    call = TorchCall(FIRST, (CellArgument(0), CellArgument(1), sign))
    made = ops.Cell(call, (bound, number), whole, axes, volume=axes, scratch=(axes,) * 3)
    return made if relation in {"<", "<="} else ops.Apply("not", (context.add_step(made),), axes)


def lower_ranked(reduce: ir.Reduce, wanted: Wanted) -> ops.Op | None:
    """Lower a sum over entries whose rank is a position, or return None."""
    if reduce.kind != "sum" or wanted.counted:
        return None
    for form in read_guarded(reduce, wanted.context):
        for guard in form.guards:
            match guard:
                case ir.Compare("==", left, right):
                    for rank, place in ((left, right), (right, left)):
                        found = _take_ranked(form, rank, place, wanted)
                        if found is not None:
                            return found
    return None


def _take_ranked(form: Guarded, left: ir.Expr, place: ir.Expr, wanted: Wanted) -> ops.Op | None:
    """Lower the product of factors in the order of ranks, read at `place`, or return None."""
    context, rank = wanted.context, read_rank(left, wanted.context, 1)
    if rank is None or rank.side.is_equal or rank.added.terms:
        return None
    side, index = rank.side, rank.side.ends[1]
    (guards, factors), _ = form.partition((index,))
    is_read = isinstance(place, ir.Index) and place not in form.bound
    if index not in form.bound or len(guards) > 1 or not factors:
        return None
    if not is_position(place, index) or not (is_read or not find_free(place)):
        return None
    body = ir.product_of(factors)
    row = ir.Index(place.name, index.extent) if isinstance(place, ir.Index) else index
    order = read_source(sort_keys(side, context).order, context)
    at: dict[ir.Expr, ir.Expr] = {index: substitute(order, {order.places[-1]: row})}
    made, keys = substitute(body, at), substitute(side.bound, at)
    total = name_operation(_add_ties(made, keys, row, wanted), context)
    return finish(form, substitute(total, {row: place}), None, (index,), wanted)


def _add_ties(values: ir.Expr, keys: ir.Expr, row: ir.Index, wanted: Wanted) -> ops.Op:
    """Return values in the order of their keys, with those of equal keys added at the first."""
    x, key = (wanted.context.lower(part, (*wanted.order, row)) for part in (values, keys))
    key = ops.arrange(key, (*(i for i in key.axes if i is not row), row))
    own, batch = x.axes, key.axes[:-1]
    options: tuple[tuple[str, Operand], ...] = ()
    if batch:
        own = (*(i for i in own if i not in {*batch, row}), *batch, row)
    elif own[-1] is not row:
        options = (("dim", own.index(row)),)
    x = expand(x, own)
    names = {i.name for i in own} | wanted.context.names
    each, other = (ir.Index(free_name(name, names), row.extent) for name in ("each", "other"))
    before, here = (ops.rename_indices(key, {row: i}) for i in (other, each))
    ranks = count_mask(write_guard("<", before, here, "", (other, each)), other)
    whole = take_where(ranks, row, ops.rename_indices(x, {row: each}), each, (*own, each))
    call = TorchCall(TIES, (CellArgument(0), CellArgument(1)), options)
    return ops.Cell(call, (x, key), whole, own, volume=own, scratch=(own, own))
