"""Reductions over axes, and what keeps its axis: softmax and running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.frontend.torch.call import Call, op
from derive.frontend.torch.exprs import (
    compare,
    divide,
    flip_sign,
    multiply,
    power,
    subtract,
    to_condition,
    to_number,
)
from derive.frontend.torch.numbers import SymbolicFloat, to_expr
from derive.frontend.torch.trace import Shadow, at, find_axis
from derive.ir.functions import ROWS
from derive.ir.nodes import MINUS_ONE, ONE, TRUE, ZERO, Along, Expr, Index, Number, Reduce
from derive.ir.nodes import Call as Function
from derive.ir.polynomial import Polynomial

if TYPE_CHECKING:
    from derive.frontend.torch.trace import Trace

HALF = Number(Fraction(1, 2))


def open_axes(
    trace: Trace, shadow: Shadow, axes: Sequence[int], keepdim: bool
) -> tuple[tuple[Index, ...], tuple[Index, ...], Expr]:
    """Fresh indices of the result, the indices that are bound, and the element."""
    fresh = trace.like(*shadow.indices)
    bound = tuple(fresh[k] for k in axes if fresh[k].extent is not ONE)
    value = trace.read_number(shadow, [at(index) for index in fresh])
    indices: list[Index] = []
    for k, index in enumerate(fresh):
        if k not in axes:
            indices.append(index)
        elif keepdim:
            indices.append(trace.index(ONE))
    return tuple(indices), bound, value


def fold(kind: str, bound: Sequence[Index], value: Expr) -> Expr:
    """The reduction; over nothing, the element itself, for a kind that leaves one as it is."""
    return Reduce(kind, tuple(bound), TRUE, value) if bound else value


def _reduce(call: Call, kind: str, position: int = 1) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    axes = call.axes(position, shadow.rank)
    keepdim = call.flag(position + 1, "keepdim")
    _refuse_cut(call)
    indices, bound, value = open_axes(trace, shadow, axes, keepdim)
    return trace.make(indices, fold(kind, bound, value), call.kind)


def _refuse_cut(call: Call) -> None:
    """`dtype=torch.int64` cuts real numbers before they are reduced."""
    if call.kind != "real" and call.shadow(0).kind == "real":
        raise call.trace.refuse("lift-op", "real numbers cut to integers are not known")


def _extreme(call: Call, kind: str) -> Any:
    """Largest and smallest: of all, of two tensors, or along one axis with the places."""
    trace, shadow = call.trace, call.shadow(0)
    other = call.get(1, "other" if "other" in call.named else "dim")
    if hasattr(other, "dtype"):
        indices = trace.broadcast(shadow, trace.shadow(other))
        values = [
            to_number(trace.spread(s, indices), s.kind) for s in (shadow, trace.shadow(other))
        ]
        return trace.make(indices, Function(kind, tuple(values)), call.kind)
    if other is None:
        indices, bound, value = open_axes(trace, shadow, range(shadow.rank), False)
        return trace.make(indices, fold(kind, bound, value), call.kind)
    axis = find_axis(other, shadow.rank)
    keepdim = call.flag(2, "keepdim")
    indices, bound, value = open_axes(trace, shadow, (axis,), keepdim)
    found = trace.make(indices, fold(kind, bound, value), shadow.kind)
    return found, _find_place(trace, shadow, f"arg{kind}", (axis, keepdim))


def _find_place(trace: Trace, shadow: Shadow, name: str, along: tuple[int, bool]) -> Shadow:
    """The place of the largest; of the smallest, that of the largest of the contrary."""
    axis, keepdim = along
    indices, bound, value = open_axes(trace, shadow, (axis,), keepdim)
    if not bound:
        return trace.make(indices, ZERO, "int")
    value = value if name == "argmax" else flip_sign(value)
    return trace.make(indices, Reduce("argmax", bound, TRUE, value), "int")


def _arg(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    if call.get(1, "dim") is None:
        raise trace.refuse("lift-op", f"{call.name} over all axes is not known")
    axis = find_axis(call.get(1, "dim"), shadow.rank)
    return _find_place(trace, shadow, call.name, (axis, call.flag(2, "keepdim")))


def _logic(call: Call) -> Shadow:
    """Any, all: of 1 and 0 the largest, the smallest is 1."""
    trace, shadow = call.trace, call.shadow(0)
    axes, keepdim = call.axes(1, shadow.rank), call.flag(2, "keepdim")
    indices, bound, value = open_axes(trace, shadow, axes, keepdim)
    truth = value if shadow.kind == "bool" else to_number(to_condition(value, "real"), "bool")
    found = fold("max" if call.name == "any" else "min", bound, truth)
    return trace.make(indices, compare(">", found, ZERO), "bool")


def _count(call: Call) -> Shadow:
    """How many elements are not 0."""
    trace, shadow = call.trace, call.shadow(0)
    indices, bound, value = open_axes(trace, shadow, call.axes(1, shadow.rank), False)
    truth = value if shadow.kind == "bool" else to_number(to_condition(value, "real"), "bool")
    return trace.make(indices, fold("sum", bound, truth), "int")


def _spread(call: Call) -> Any:
    """var, std, var_mean by their definition."""
    trace, shadow = call.trace, call.shadow(0)
    first = call.get(1, "dim")
    axes = tuple(range(shadow.rank)) if isinstance(first, bool) else call.axes(1, shadow.rank)
    correction, keepdim = _read_correction(call, first)
    indices, bound, value = open_axes(trace, shadow, axes, keepdim)
    found = fold("var", bound, value) if bound else subtract(value, value)
    if correction:
        count = Polynomial.of(1)
        for index in bound:
            count = count * Polynomial.of(index.extent)
        whole = count.to_expr()
        found = multiply(found, divide(whole, subtract(whole, to_expr(correction))))
    if call.name.startswith("std"):
        found = power(found, HALF)
    spread = trace.make(indices, found, "real")
    if not call.name.endswith("_mean"):
        return spread
    indices, bound, value = open_axes(trace, shadow, axes, keepdim)
    return spread, trace.make(indices, fold("mean", bound, value), "real")


def _read_correction(call: Call, first: Any) -> tuple[float, bool]:
    if isinstance(first, bool):
        return float(first), False
    asked = call.named.get("correction", call.get(2, "unbiased", 1))
    keepdim = call.named.get("keepdim", call.args[3] if len(call.args) > 3 else False)
    return float(1 if asked is None else asked), bool(keepdim)


def _norm(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    name = "p" if call.name == "norm" else "ord"
    order = call.get(1, name, 2)
    order = 2 if order is None or order == "fro" else order
    told = call.get(1, name)
    axes = call.axes(2, shadow.rank)
    if call.name == "linalg_norm" and told not in {None, "fro"} and len(axes) > 1:
        raise trace.refuse("lift-op", f"a norm of matrices of order {told} is not known")
    indices, bound, value = open_axes(trace, shadow, axes, call.flag(3, "keepdim"))
    if isinstance(order, (str, SymbolicFloat)) or not order > 0:
        raise trace.refuse("lift-op", f"a norm of order {order} is not known")
    if order == 2:
        square = fold("sum", bound, power(value, Number(Fraction(2))))
        return trace.make(indices, power(square, HALF), "real")
    size = Function("abs", (value,))
    if order == math.inf:
        return trace.make(indices, fold("max", bound, size), "real")
    if order == 1:
        return trace.make(indices, fold("sum", bound, size), "real")
    total = fold("sum", bound, power(size, to_expr(order)))
    return trace.make(indices, power(total, power(to_expr(order), MINUS_ONE)), "real")


def _along(call: Call, kind: str) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    if call.get(1, "dim") is None:
        raise trace.refuse("lift-op", f"{call.name} without a dimension is not known")
    axis = find_axis(call.get(1, "dim"), shadow.rank)
    indices = trace.like(*shadow.indices)
    value = trace.read_number(shadow, [at(each) for each in indices])
    index = indices[axis]
    if kind == "softmax" and trace.may_be_empty(value):
        trace.empty_rows["zeros" if call.name.startswith("_safe") else "nan"] = None
    _refuse_cut(call)
    if index.extent is ONE:
        return trace.make(indices, _alone(kind, value), call.kind)
    return trace.make(indices, Along(kind, index, TRUE, value), call.kind)


def _running(call: Call, kind: str) -> Shadow:
    """A reduction over the places up to each place."""
    trace, shadow = call.trace, call.shadow(0)
    axis = find_axis(call.get(1, "dim"), shadow.rank)
    indices = trace.like(*shadow.indices)
    places = [at(index) for index in indices]
    _refuse_cut(call)
    if indices[axis].extent is ONE:
        return trace.make(indices, trace.read_number(shadow, places), call.kind)
    inner = trace.indices.copy(indices[axis])
    places[axis] = inner
    upto = compare("<=", inner, indices[axis])
    found = Reduce(kind, (inner,), upto, trace.read_number(shadow, places))
    return trace.make(indices, found, call.kind)


def _alone(kind: str, value: Expr) -> Expr:
    """Over one place alone; nan stays nan."""
    if kind == "cumsum":
        return value
    gap = subtract(value, value)
    return Function("exp", (gap,)) if kind == "softmax" else gap


OPS = (
    *(
        op(row.spellings, partial(_along if row.keeps else _reduce, kind=row.name), *row.examples)
        for row in ROWS.values()
    ),
    op("max", partial(_extreme, kind="max"), "x[B, S]: x.max(1).values", "x[B, S]: x.max()"),
    op("min", partial(_extreme, kind="min"), "x[B, S]; y[S]: torch.min(x, y)"),
    op("argmax argmin", _arg, "x[B, S]; y[S]: y[x.argmax(1)]", "x[B, S]; y[S]: y[x.argmin(1)]"),
    op(
        "any all",
        _logic,
        "x[B]; bool m[B, S]: torch.where(m.any(1), x, 0.0)",
        "x[B, S]: torch.where((x > 0).all(1, keepdim=True), x, 0.0)",
    ),
    op("count_nonzero", _count, "x[B, S]: torch.count_nonzero(x.relu(), 1) * 1.0"),
    op(
        "var std var_mean std_mean",
        _spread,
        "x[B, S]: x.var(1)",
        "x[B, S]: x.std(-1, unbiased=False, keepdim=True)",
        "x[B, S]: torch.var_mean(x, 1, correction=0)[0]",
    ),
    op(
        "norm vector_norm linalg_vector_norm linalg_norm",
        _norm,
        "x[B, S]: x.norm(dim=1)",
        "x[B, S]: torch.linalg.norm(x, ord=torch.inf, dim=-1)",
        "x[B, S]: torch.linalg.vector_norm(x, 3, dim=-1)",
    ),
    op("cumprod", partial(_running, kind="prod"), "x[B, S]: x.cumprod(1)"),
    op("logcumsumexp", partial(_running, kind="logsumexp"), "x[B, S]: x.logcumsumexp(-1)"),
)
