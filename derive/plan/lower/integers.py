"""Lowering of what tells positions: counted in integers, which no short float holds."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from derive.ir import nodes as ir
from derive.ir.walk import is_whole
from derive.plan import ops
from derive.plan.lower.condition import lower_condition

if TYPE_CHECKING:
    from derive.plan.lower.context import Context

_SIGNS: dict[type[ir.Expr], str] = {ir.Add: "+", ir.Mul: "*"}


def lower_integers(expr: ir.Expr, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """The whole numbers of an equation that holds integers."""
    match expr:
        case ir.Number() | ir.Size():
            return ops.Num(expr)
        case ir.Where(condition, then, other) if not is_whole(expr):
            if (then, other) == (ir.ONE, ir.ZERO):
                return ops.Cast(lower_condition(condition, context, order), "int")
            mask = lower_condition(condition, context, order)
            parts = [
                _hold(lower_integers(context.protect(part, told), context, order))
                for part, told in ((then, condition), (other, ir.Not(condition)))
            ]
            mask, then_op, other_op = ops.align([mask, *parts], order)
            axes = ops.find_union([mask, then_op, other_op], order)
            return ops.Choose(mask, then_op, other_op, axes)
        case ir.Add(parts) | ir.Mul(parts) if not is_whole(expr):
            found = [lower_integers(part, context, order) for part in parts]
            found = [context.add_step(op) if ops.axes_of(op) else op for op in found]
            sign = _SIGNS[type(expr)]
            return reduce(lambda one, other: ops.combine(sign, [one, other], order), found)
        case ir.Reduce("sum" | "max" | "min" as kind, bound, condition, body):
            inner = (*(i for i in order if i not in bound), *bound)
            if kind == "sum":
                body, condition = ir.Where(condition, body, ir.ZERO), ir.TRUE
            if condition is ir.TRUE:
                arg = lower_integers(_join(body), context, inner)
                arg = arg.arg if isinstance(arg, ops.Cast) and ops.is_boolean(arg.arg) else arg
                missing = [i for i in bound if i not in ops.axes_of(arg)]
                axes = ops.sort_axes((*ops.axes_of(arg), *missing), inner)
                arg = ops.Expand(_hold(arg), axes) if missing else ops.arrange(arg, axes)
                return ops.Reduction(kind, arg, bound)
    return _hold(ops.strip_casts(context.lower(expr, order)))


def counts(expr: ir.Expr) -> bool:
    """Is it counted from what the data decide?"""
    match expr:
        case ir.Where(_, then, other):
            return (then, other) == (ir.ONE, ir.ZERO) or not is_whole(expr)
        case ir.Add() | ir.Mul():
            return not is_whole(expr)
    return isinstance(expr, ir.Reduce) and expr.kind in {"sum", "max", "min"}


def _join(body: ir.Expr) -> ir.Expr:
    """A choice of brackets under one condition: [a] where b holds is [a and b]."""
    match body:
        case ir.Where(ir.TRUE, then, _):
            return then
        case ir.Where(outer, ir.Where(inner, then, ir.Number(value)), ir.Number(zero)) if (
            value == zero == 0
        ):
            return ir.Where(ir.all_of(outer, inner), then, ir.ZERO)
    return body


def _hold(op: ops.Op) -> ops.Op:
    """As integers."""
    if isinstance(op, ops.Num):
        op = ops.NumTensor(op.value)
    return op if ops.is_integral(op) or ops.is_boolean(op) else ops.Cast(op, "int")
