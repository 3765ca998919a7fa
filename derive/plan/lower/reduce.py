"""Reductions other than sums, and functions along an index."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from derive.ir.nodes import (
    MINUS_INFINITY,
    MINUS_ONE,
    ONE,
    TRUE,
    ZERO,
    Add,
    Along,
    Call,
    Expr,
    Index,
    Infinity,
    Mul,
    Number,
    Pow,
    Reduce,
)
from derive.ir.walk import find_free
from derive.plan.align import arrange, sort_axes
from derive.plan.lower.mask import fill, lower_condition
from derive.plan.ops import Along as AlongOp
from derive.plan.ops import Apply, Expand, Num, NumTensor, Op, Reduction, axes_of
from derive.rewrite.rules.products import rename_bound

if TYPE_CHECKING:
    from derive.plan.context import Context

TWO = Number(Fraction(2))
NEUTRAL: dict[str, Expr] = {
    "max": MINUS_INFINITY,
    "argmax": MINUS_INFINITY,
    "logsumexp": MINUS_INFINITY,
    "min": Infinity(False),
    "prod": ONE,
}


def lower_reduce(reduce: Reduce, context: Context, order: tuple[Index, ...]) -> Op:
    """A reduction over its bound indices; entries left out count as its neutral element."""
    if reduce.condition is not TRUE and reduce.kind not in NEUTRAL:
        return context.lower(spell_out(reduce), order)
    inner = (*(i for i in order if i not in reduce.bound), *reduce.bound)
    arg = context.lower(context.protect(reduce.body, reduce.condition), inner)
    if reduce.condition is not TRUE:
        mask = lower_condition(reduce.condition, context, inner)
        arg = fill(arg, mask, Num(NEUTRAL[reduce.kind]), False, inner)
    arg = spread(arg, reduce.bound, inner)
    return Reduction(reduce.kind, arg, reduce.bound)


def spread(op: Op, indices: tuple[Index, ...], order: tuple[Index, ...]) -> Op:
    """The operation with these indices among its axes, repeated along those it lacks."""
    if isinstance(op, Num):
        op = NumTensor(op.value)
    lacking = [i for i in indices if i not in axes_of(op)]
    return Expand(op, sort_axes((*axes_of(op), *lacking), order)) if lacking else op


def spell_out(reduce: Reduce) -> Expr:
    """A mean or a variance over some of the entries, by sums over those entries."""
    total = Reduce("sum", reduce.bound, reduce.condition, reduce.body)
    count: Expr = Reduce("sum", reduce.bound, reduce.condition, ONE)
    average = Mul((total, Pow(count, MINUS_ONE)))
    if reduce.kind == "mean":
        return average
    taken = {i.name for i in reduce.bound}
    bound, condition, body = rename_bound(reduce, taken)
    spread_out = Pow(Add((body, Mul((MINUS_ONE, average)))), TWO)
    if reduce.kind == "sample_var":
        count = Call("max", (Add((count, MINUS_ONE)), ZERO))  # of nothing 0 / 0, as of one entry
    return Mul((Reduce("sum", bound, condition, spread_out), Pow(count, MINUS_ONE)))


def lower_along(along: Along, context: Context, order: tuple[Index, ...]) -> Op:
    """softmax, log_softmax or cumsum with its index last, where torch is fastest."""
    index = along.index
    inner = (*(i for i in order if i is not index), index)
    arg = context.lower(context.protect(along.body, along.condition), inner)
    mask = None
    if along.condition is not TRUE:
        mask = lower_condition(along.condition, context, inner)
        left_out: Expr = ZERO if along.kind == "cumsum" else MINUS_INFINITY
        arg = fill(arg, mask, Num(left_out), False, inner)
    arg = spread(arg, (index,), inner)
    arg = arrange(arg, sort_axes(axes_of(arg), inner))
    result: Op = AlongOp(along.kind, arg, index)
    if along.kind == "softmax" and context.system.empty_row == "zeros":
        result = empty_rows(along, arg, result, mask, context)
    return result


def empty_rows(along: Along, arg: Op, result: Op, mask: Op | None, context: Context) -> Op:
    """Zeros where nothing is left in a row, by the mask or else by the logits themselves."""
    if mask is not None:
        return fill(result, mask, Num(ZERO), False, axes_of(result))
    if not find_free(along.body):
        return result
    logits = context.add_step(arg)
    gone = Apply("==", (logits, Num(MINUS_INFINITY)), axes_of(logits))
    soft = AlongOp(along.kind, logits, along.index)
    return fill(soft, gone, Num(ZERO), True, axes_of(soft))
