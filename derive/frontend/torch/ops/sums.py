"""Reductions over axes, and what keeps its axis: softmax and running sums."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial, reduce
from math import prod
from operator import matmul
from typing import TYPE_CHECKING, Any

from derive.errors import refuse
from derive.frontend.torch.call import Call, composite, op
from derive.frontend.torch.exprs import (
    compare,
    divide,
    multiply,
    subtract,
    to_condition,
    to_number,
)
from derive.frontend.torch.numbers import SymbolicFloat, to_expr
from derive.frontend.torch.trace import Shadow, at
from derive.ir import nodes as ir
from derive.ir.functions import ROWS, Reduction
from derive.ir.polynomial import Polynomial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from derive.frontend.torch.trace import Trace


def open_axes(
    trace: Trace, shadow: Shadow, axes: Sequence[int], keepdim: bool
) -> tuple[tuple[ir.Index, ...], tuple[ir.Index, ...], ir.Expr]:
    """Fresh indices of the result, the indices that are bound, and the element."""
    fresh = trace.like(*shadow.indices)
    bound = tuple(fresh[k] for k in axes if fresh[k].extent is not ir.ONE)
    value = trace.read_number(shadow, [at(index) for index in fresh])
    indices: list[ir.Index] = []
    for k, index in enumerate(fresh):
        if k not in axes:
            indices.append(index)
        elif keepdim:
            indices.append(trace.index(ir.ONE))
    return tuple(indices), bound, value


def fold(kind: str, bound: Sequence[ir.Index], value: ir.Expr) -> ir.Expr:
    """The reduction; over nothing, the element itself, for a kind that leaves one as it is."""
    return ir.Reduce(kind, tuple(bound), ir.TRUE, value) if bound else value


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


def _extreme(kind: str) -> Callable[..., Any]:
    """Largest and smallest: of all, of two tensors, or along one axis with the places."""

    def run(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        import torch

        other = dim if hasattr(dim, "dtype") else other
        if other is not None:
            return getattr(torch, f"{kind}imum")(input, other)
        if dim is None:
            return getattr(input, f"a{kind}")()
        parts = getattr(input, f"a{kind}")(dim, keepdim), getattr(input, f"arg{kind}")(dim, keepdim)
        return getattr(torch.return_types, kind)(parts)

    return run


def _find_place(call: Call) -> Shadow:
    """The place of the largest."""
    trace, shadow = call.trace, call.shadow(0)
    indices, bound, value = open_axes(
        trace, shadow, (call.axis(1, shadow.rank),), call.flag(2, "keepdim")
    )
    found = ir.Reduce("argmax", bound, ir.TRUE, value) if bound else ir.ZERO
    return trace.make(indices, found, "int")


def _logic(call: Call) -> Shadow:
    """Any, all: of 1 and 0 the largest, the smallest is 1."""
    trace, shadow = call.trace, call.shadow(0)
    axes, keepdim = call.axes(1, shadow.rank), call.flag(2, "keepdim")
    indices, bound, value = open_axes(trace, shadow, axes, keepdim)
    truth = value if shadow.kind == "bool" else to_number(to_condition(value, "real"), "bool")
    found = fold("max" if call.name == "any" else "min", bound, truth)
    return trace.make(indices, compare(">", found, ir.ZERO), "bool")


def _variance(call: Call) -> Shadow:
    """Torch's spellings: (dims, correction=, keepdim=), (dims, unbiased, keepdim), (unbiased)."""
    trace, shadow = call.trace, call.shadow(0)
    if isinstance(call.get(1, "dim"), bool):
        correction, keepdim, axes = call.args[1], False, tuple(range(shadow.rank))
    else:
        correction = call.named.get("correction", call.get(2, "unbiased", 1))
        keepdim, axes = call.flag(3, "keepdim"), call.axes(1, shadow.rank)
    indices, bound, value = open_axes(trace, shadow, axes, keepdim)
    found = fold("var", bound, value) if bound else subtract(value, value)
    if correction or correction is None:
        count = prod((Polynomial.of(index.extent) for index in bound), start=Polynomial.of(1))
        whole, less = count.to_expr(), 1.0 if correction is None else float(correction)
        found = multiply(found, divide(whole, subtract(whole, to_expr(less))))
    return trace.make(indices, found, "real")


def _with_mean(find: Callable[..., Any]) -> Callable[..., Any]:
    def run(input: Any, *args: Any, **named: Any) -> Any:
        dims = named.get("dim", args[0] if args else None)
        keepdim = named.get("keepdim", len(args) > 2 and args[2])
        mean = input.mean() if isinstance(dims, bool) else input.mean(dims, keepdim)
        return find(input, *args, **named), mean

    return run


def _deviate(input: Any, *args: Any, **named: Any) -> Any:
    return input.var(*args, **named) ** 0.5


def _norm(
    input: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, *, ord: Any = None, **_: Any
) -> Any:
    order = p if ord is None else ord
    order = 2 if order is None or order == "fro" else order
    if isinstance(order, (str, SymbolicFloat)) or not order > 0:
        raise refuse("lift-op", f"a norm of order {order} is not known")
    if order == 2:
        return (input**2).sum(dim, keepdim) ** 0.5
    if order == math.inf:
        return input.abs().amax(() if dim is None else dim, keepdim)
    if order == 1:
        return input.abs().sum(dim, keepdim)
    return (input.abs() ** order).sum(dim, keepdim) ** (1 / order)


def _linalg_norm(
    A: Any,  # noqa: N803 - torch's
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    **_: Any,
) -> Any:
    count = A.dim() if dim is None else 1 if isinstance(dim, int) else len(dim)
    if ord not in {None, "fro"} and count > 1:
        raise refuse("lift-op", f"a norm of matrices of order {ord} is not known")
    return A.norm(2 if ord is None else ord, dim, keepdim)


def _along(call: Call, kind: str) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    if call.get(1, "dim") is None:
        raise trace.refuse("lift-op", f"{call.name} without a dimension is not known")
    axis = call.axis(1, shadow.rank)
    indices = trace.like(*shadow.indices)
    value = trace.read_number(shadow, [at(each) for each in indices])
    index = indices[axis]
    if kind == "softmax" and trace.may_be_empty(value):
        trace.empty_rows["zeros" if call.name.startswith("_safe") else "nan"] = None
    _refuse_cut(call)
    if index.extent is ir.ONE:
        return trace.make(indices, _alone(kind, value), call.kind)
    return trace.make(indices, ir.Along(kind, index, ir.TRUE, value), call.kind)


def _of_matrix(call: Call, kind: str) -> Shadow:
    """A function of the matrices in the last two axes."""
    trace, shadow = call.trace, call.shadow(0)
    if shadow.rank < 2:
        raise trace.refuse("lift-op", f"{call.name} of a tensor of {shadow.rank} axes is not known")
    if call.flag(1, "upper"):
        raise trace.refuse("lift-op", f"{call.name} with upper=True is not known")
    indices = trace.like(*shadow.indices)
    value = trace.read_number(shadow, [at(each) for each in indices])
    *batch, rows, columns = indices
    trace.unify(rows.extent, columns.extent)
    found: ir.Expr
    if rows.extent is ir.ONE:
        alone = {"det": value, "logdet": ir.Call("log", (value,)), "inverse": divide(ir.ONE, value)}
        found = alone.get(kind) or ir.Pow(value, ir.Number(Fraction(1, 2)))
    elif ROWS[kind].keeps:
        found = ir.Along(kind, rows, ir.TRUE, value, columns)
    else:
        found = ir.Reduce(kind, (rows, columns), ir.TRUE, value)
    return trace.make(indices if ROWS[kind].keeps else batch, found, call.kind)


def _find_reader(row: Reduction) -> Callable[..., Shadow]:
    return _of_matrix if row.is_matrix else _along if row.keeps else _reduce


def _solve(A: Any, B: Any, *, left: bool = True, **_: Any) -> Any:  # noqa: N803 - torch's
    if B.dim() == 1 or (B.dim() == A.dim() - 1 and B.shape == A.shape[:-1]):
        return (A.inverse() @ B.unsqueeze(-1)).squeeze(-1)
    return A.inverse() @ B if left else B @ A.inverse()


def _solve_triangle(
    input: Any,
    B: Any,  # noqa: N803 - torch's
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Any:
    if unitriangular:
        raise refuse("lift-op", "a triangle with ones that are not written is not known")
    triangle = (input.triu() if upper else input.tril()).inverse()
    return triangle @ B if left else B @ triangle


def _solve_cholesky(input: Any, L: Any, upper: bool = False) -> Any:  # noqa: N803 - torch's
    root = L.mT.tril() if upper else L.tril()
    return (root @ root.mT).inverse() @ input


def _find_sign_and_log(A: Any) -> Any:  # noqa: N803 - torch's
    import torch

    det = A.det()
    return torch.return_types.slogdet((det.sign(), det.abs().log()))


def _power_matrix(A: Any, n: int) -> Any:  # noqa: N803 - torch's
    if not n:
        raise refuse("lift-op", "the power 0 of a matrix is not known")
    return reduce(matmul, [A if n > 0 else A.inverse()] * abs(n))


def _running(call: Call, kind: str) -> Shadow:
    """A reduction over the places up to each place."""
    trace, shadow = call.trace, call.shadow(0)
    axis = call.axis(1, shadow.rank)
    indices = trace.like(*shadow.indices)
    places = [at(index) for index in indices]
    _refuse_cut(call)
    if indices[axis].extent is ir.ONE:
        return trace.make(indices, trace.read_number(shadow, places), call.kind)
    inner = trace.indices.copy(indices[axis])
    places[axis] = inner
    upto = compare("<=", inner, indices[axis])
    found = ir.Reduce(kind, (inner,), upto, trace.read_number(shadow, places))
    return trace.make(indices, found, call.kind)


def _alone(kind: str, value: ir.Expr) -> ir.Expr:
    """Over one place alone; nan stays nan."""
    if kind == "cumsum":
        return value
    gap = subtract(value, value)
    return ir.Call("exp", (gap,)) if kind == "softmax" else gap


OPS = (
    *(
        op(row.spellings, partial(_find_reader(row), kind=row.name), *row.examples)
        for row in ROWS.values()
    ),
    composite(
        "linalg_solve",
        _solve,
        "x[S, S]; y[S]: torch.linalg.solve(x, y)",
        "x[B, S, S]; y[B, D, S]: torch.linalg.solve(x, y, left=False)",
    ),
    composite(
        "linalg_solve_triangular",
        _solve_triangle,
        "x[S, S]; y[S, D]: torch.linalg.solve_triangular(x, y, upper=False)",
    ),
    composite("cholesky_solve", _solve_cholesky, "x[S, S]; y[S, D]: torch.cholesky_solve(y, x)"),
    composite(
        "slogdet linalg_slogdet",
        _find_sign_and_log,
        "x[S, S]: torch.linalg.slogdet(x).logabsdet",
        "x[S, S]: x.slogdet()[0]",
    ),
    composite(
        "matrix_power linalg_matrix_power",
        _power_matrix,
        "x[S, S]: torch.linalg.matrix_power(x, -2)",
    ),
    composite("max", _extreme("max"), "x[B, S]: x.max(1).values", "x[B, S]: x.max()"),
    composite("min", _extreme("min"), "x[B, S]; y[S]: torch.min(x, y)"),
    op("argmax", _find_place, "x[B, S]; y[S]: y[x.argmax(1)]"),
    composite(
        "argmin",
        lambda input, dim=None, keepdim=False: (-input).argmax(dim, keepdim),
        "x[B, S]; y[S]: y[x.argmin(1)]",
    ),
    op(
        "any all",
        _logic,
        "x[B]; bool m[B, S]: torch.where(m.any(1), x, 0.0)",
        "x[B, S]: torch.where((x > 0).all(1, keepdim=True), x, 0.0)",
    ),
    composite(
        "count_nonzero",
        lambda input, dim=None: (input != 0).sum(dim),
        "x[B, S]: torch.count_nonzero(x.relu(), 1) * 1.0",
    ),
    op("var", _variance, "x[B, S]: x.var(1)"),
    composite("std", _deviate, "x[B, S]: x.std(-1, unbiased=False, keepdim=True)"),
    composite(
        "var_mean",
        _with_mean(lambda input, *args, **named: input.var(*args, **named)),
        "x[B, S]: torch.var_mean(x, 1, correction=0)[0]",
    ),
    composite("std_mean", _with_mean(_deviate), "x[B, S]: torch.std_mean(x, 1, keepdim=True)[1]"),
    composite(
        "norm vector_norm linalg_vector_norm",
        _norm,
        "x[B, S]: x.norm(dim=1)",
        "x[B, S]: torch.linalg.vector_norm(x, 3, dim=-1)",
    ),
    composite("linalg_norm", _linalg_norm, "x[B, S]: torch.linalg.norm(x, ord=torch.inf, dim=-1)"),
    op("cumprod", partial(_running, kind="prod"), "x[B, S]: x.cumprod(1)"),
    op("logcumsumexp", partial(_running, kind="logsumexp"), "x[B, S]: x.logcumsumexp(-1)"),
)
