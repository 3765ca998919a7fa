"""Lowering of integer expressions, such as positions, in int64: floats would round them."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

from derive.analysis import facts
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import INTEGRAL, is_number, is_whole
from derive.plan import ops
from derive.plan.lower.condition import fill, lower_condition
from derive.plan.lower.guarded import Wanted
from derive.plan.lower.structures import lower_guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.plan.lower.context import Context

_SIGNS: dict[type[ir.Expr], str] = {ir.Add: "+", ir.Mul: "*"}


def lower_integers(expr: ir.Expr, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Lower an expression with integer values to an int64 operation."""
    if is_number(expr):
        return ops.Num(expr)
    match expr:
        case ir.Index() | ir.Access():
            return ops.strip_casts(context.lower(expr, order))
        case _ if is_whole(expr):
            return _to_integers(ops.strip_casts(context.lower(expr, order)))
        case ir.Where(condition, ir.ONE, ir.ZERO):
            return ops.Cast(lower_condition(condition, context, order), "int")
        case ir.Where(condition, then, other):
            mask = lower_condition(condition, context, order)
            parts = [
                _to_integers(lower_integers(context.protect(part, guard), context, order))
                for part, guard in ((then, condition), (other, ir.Not(condition)))
            ]
            if isinstance(other, ir.Number):
                return fill(parts[0], mask, ops.Num(other), False, order)
            mask, then_op, other_op = ops.align([mask, *parts], order)
            axes = ops.find_union([mask, then_op, other_op], order)
            return ops.Choose(mask, then_op, other_op, axes)
        case ir.Add(parts) | ir.Mul(parts):
            found = _lower_each(parts, context, order)
            sign = _SIGNS[type(expr)]
            return reduce(lambda one, other: ops.combine(sign, [one, other], order), found)
        case ir.Pow(base, exponent):
            return ops.combine("pow", _lower_each((base, exponent), context, order), order)
        case ir.Call() if (called := _lower_call(expr, context, order)) is not None:
            return called
        case ir.Along("cumsum" as kind, index, condition, body):
            inner = (*(i for i in order if i is not index), index)
            row = _lower_row(ir.Where(condition, body, ir.ZERO), (index,), context, inner)
            return ops.Along(kind, ops.Cast(row, "int") if ops.is_boolean(row) else row, index)
        case ir.Reduce("sum", bound, condition, body):
            make = partial(lower_integers, context=context, order=order)
            guarded = lower_guarded(expr, Wanted(context, order, True, make))
            if guarded is not None:
                return guarded
            inner = (*(i for i in order if i not in bound), *bound)
            body = ir.Where(condition, body, ir.ZERO)
            return ops.Reduction("sum", _lower_row(body, bound, context, inner), bound)
        case ir.Reduce("prod" | "max" | "min" as kind, bound, ir.TRUE, body):
            inner = (*(i for i in order if i not in bound), *bound)
            return ops.Reduction(kind, _lower_row(body, bound, context, inner), bound)
    return _to_integers(ops.strip_casts(context.lower(expr, order)))


def _lower_call(expr: ir.Call, context: Context, order: tuple[ir.Index, ...]) -> ops.Op | None:
    """Lower a function of integers, or one that rounds to integers; None for other functions."""
    match expr:
        case ir.Call("clip", (ir.Call("floor") as inside, *ends)):  # clip before int64 overflows
            wide = ops.Cast(context.lower(inside, order), "wide")
            parts = [
                ops.Num(op.value) if isinstance(op, ops.NumTensor) else op
                for op in _lower_each(ends, context, order)
            ]
            return ops.Cast(ops.combine("clip", [wide, *parts], order), "int")
        case ir.Call("floor", (ir.Call("clip" | "max" | "min" as name, parts),)) if any(
            facts.is_whole(Polynomial.of(part)) for part in parts
        ):  # floor(clip(x, a, b)) = clip(floor(x), a, b) for integers a and b
            rounded = (
                part if facts.is_whole(Polynomial.of(part)) else ir.Call("floor", (part,))
                for part in parts
            )
            return lower_integers(ir.Call(name, tuple(rounded)), context, order)
        case ir.Call("sign", (arg,)) if not facts.is_whole(Polynomial.of(arg)):
            return None
        case ir.Call(function, parts) if function in INTEGRAL:
            args = _lower_each(parts, context, order)
            if all(isinstance(op, ops.Num) for op in args):
                return ops.Num(expr)
            if function in {"max", "min"}:  # tensors first: numbers become bounds
                args.sort(key=lambda op: isinstance(op, ops.Num))
            return ops.combine(function, [_to_integers(args[0]), *args[1:]], order)
    return None


def _lower_each(
    parts: Sequence[ir.Expr], context: Context, order: tuple[ir.Index, ...]
) -> list[ops.Op]:
    found = [lower_integers(part, context, order) for part in parts]
    return [context.add_step(op) if op.axes else op for op in found]


def _lower_row(
    body: ir.Expr, indices: tuple[ir.Index, ...], context: Context, inner: tuple[ir.Index, ...]
) -> ops.Op:
    """Lower a body to be reduced over `indices`, with its axes in order; `[a]` stays a boolean."""
    arg = lower_integers(_merge_conditions(body), context, inner)
    arg = arg.arg if isinstance(arg, ops.Cast) and ops.is_boolean(arg.arg) else arg
    missing = [i for i in indices if i not in arg.axes]
    axes = ops.sort_axes((*arg.axes, *missing), inner)
    return ops.Expand(_to_integers(arg), axes) if missing else ops.arrange(arg, axes)


def _merge_conditions(body: ir.Expr) -> ir.Expr:
    """Merge nested choices: where(b, [a], 0) becomes [a and b]."""
    match body:
        case ir.Where(ir.TRUE, then, _):
            return then
        case ir.Where(outer, ir.Where(inner, then, ir.ZERO), ir.ZERO):
            return ir.Where(ir.all_of(outer, inner), then, ir.ZERO)
    return body


def _to_integers(op: ops.Op) -> ops.Op:
    """Cast an operation to integers unless it is integral or boolean."""
    if isinstance(op, ops.Num):
        op = ops.NumTensor(op.value)
    return op if ops.is_integral(op) or ops.is_boolean(op) else ops.Cast(op, "int")
