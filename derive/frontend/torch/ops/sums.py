"""Sums: reductions over axes, what keeps its axis, products in all their ranks, matrices."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from derive.frontend.from_einsum import Fault, read_einsum, write_sublists
from derive.frontend.torch import exprs
from derive.frontend.torch.call import Act, Call, Op, op
from derive.frontend.torch.numbers import to_expr
from derive.frontend.torch.trace import Shadow, at
from derive.ir import functions
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial

if TYPE_CHECKING:
    from collections.abc import Sequence


def _refuse_cut(call: Call) -> None:
    """`dtype=torch.int64` cuts real numbers before they are reduced."""
    if call.kind != "real" and call.shadow(0).kind == "real":
        raise call.trace.refuse("lift-op", "real numbers cut to integers are not known")


def _open_axes(
    call: Call, axes: Sequence[int], keepdim: bool
) -> tuple[tuple[ir.Index, ...], tuple[ir.Index, ...], ir.Expr]:
    """Fresh indices of the result, the indices that are bound, and the element."""
    fresh, value = call.trace.open(call.shadow(0))
    bound = tuple(fresh[k] for k in axes if fresh[k].extent is not ir.ONE)
    kept = [
        index if k not in axes else call.trace.index(ir.ONE)
        for k, index in enumerate(fresh)
        if k not in axes or keepdim
    ]
    return tuple(kept), bound, value


def _reduce(call: Call, kind: str) -> Shadow:
    axes = call.axes(1, call.shadow(0).rank)
    _refuse_cut(call)
    indices, bound, value = _open_axes(call, axes, call.flag(2, "keepdim"))
    return call.trace.make(indices, exprs.fold(kind, bound, value), call.kind)


@op("argmax", "x[B, S]; y[S]: y[x.argmax(1)]")
def _find_place(call: Call) -> Shadow:
    """The place of the largest."""
    axes = (call.axis(1, call.shadow(0).rank),)
    indices, bound, value = _open_axes(call, axes, call.flag(2, "keepdim"))
    found = ir.Reduce("argmax", bound, ir.TRUE, value) if bound else ir.ZERO
    return call.trace.make(indices, found, "int")


@op(
    "any all",
    "x[B]; bool m[B, S]: torch.where(m.any(1), x, 0.0)",
    "x[B, S]: torch.where((x > 0).all(1, keepdim=True), x, 0.0)",
)
def _ask(call: Call) -> Shadow:
    """Of 1 and 0 the largest, the smallest is 1."""
    shadow = call.shadow(0)
    axes = call.axes(1, shadow.rank)
    indices, bound, value = _open_axes(call, axes, call.flag(2, "keepdim"))
    if shadow.kind != "bool":
        value = exprs.to_number(exprs.to_condition(value, "real"), "bool")
    found = exprs.fold("max" if call.name == "any" else "min", bound, value)
    return call.trace.make(indices, exprs.compare(">", found, ir.ZERO), "bool")


@op("var", "x[B, S]: x.var(1)")
def _variance(call: Call) -> Shadow:
    """Torch's spellings: (dims, correction=, keepdim=), (dims, unbiased, keepdim), (unbiased)."""
    if isinstance(call.get(1, "dim"), bool):
        correction, keepdim, axes = call.args[1], False, tuple(range(call.shadow(0).rank))
    else:
        correction = call.named.get("correction", call.get(2, "unbiased", 1))
        keepdim, axes = call.flag(3, "keepdim"), call.axes(1, call.shadow(0).rank)
    indices, bound, value = _open_axes(call, axes, keepdim)
    found = exprs.fold("var", bound, value) if bound else exprs.subtract(value, value)
    if correction or correction is None:
        count = prod((Polynomial.of(index.extent) for index in bound), start=Polynomial.of(1))
        whole, less = count.to_expr(), 1.0 if correction is None else float(correction)
        share = exprs.divide(whole, exprs.subtract(whole, to_expr(less)))
        found = exprs.multiply(found, share)
    return call.trace.make(indices, found, "real")


def _along(call: Call, kind: str) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    axis = call.axis(1, shadow.rank)
    indices, value = trace.open(shadow)
    if kind == "softmax" and trace.may_be_empty(value):
        trace.empty_rows["zeros" if call.name.startswith("_safe") else "nan"] = None
    _refuse_cut(call)
    if indices[axis].extent is not ir.ONE:
        value = ir.Along(kind, indices[axis], ir.TRUE, value)
    elif kind != "cumsum":  # over one place alone; nan stays nan
        gap = exprs.subtract(value, value)
        value = ir.Call("exp", (gap,)) if kind == "softmax" else gap
    return trace.make(indices, value, call.kind)


def _running(call: Call, kind: str) -> Shadow:
    """A reduction over the places up to each place."""
    trace, shadow = call.trace, call.shadow(0)
    axis = call.axis(1, shadow.rank)
    indices, value = trace.open(shadow)
    _refuse_cut(call)
    if indices[axis].extent is not ir.ONE:
        inner = trace.indices.copy(indices[axis])
        upto = exprs.compare("<=", inner, indices[axis])
        value = ir.Reduce(kind, (inner,), upto, exprs.put(value, (indices[axis],), (inner,)))
    return trace.make(indices, value, call.kind)


def _of_matrix(call: Call, kind: str) -> Shadow:
    """A function of the matrices in the last two axes."""
    trace, shadow = call.trace, call.shadow(0)
    if shadow.rank < 2:
        raise trace.refuse("lift-op", f"{call.name} of a tensor of {shadow.rank} axes is not known")
    if call.flag(1, "upper"):
        raise trace.refuse("lift-op", f"{call.name} with upper=True is not known")
    indices, value = trace.open(shadow)
    *batch, rows, columns = indices
    trace.unify(rows.extent, columns.extent)
    keeps = functions.ROWS[kind].keeps
    found: ir.Expr
    if rows.extent is ir.ONE:
        inverse = exprs.divide(ir.ONE, value)
        alone = {"det": value, "logdet": ir.Call("log", (value,)), "inverse": inverse}
        found = alone.get(kind) or ir.Pow(value, ir.Number(Fraction(1, 2)))
    elif keeps:
        found = ir.Along(kind, rows, ir.TRUE, value, columns)
    else:
        found = ir.Reduce(kind, (rows, columns), ir.TRUE, value)
    return trace.make(indices if keeps else batch, found, call.kind)


# Products.


def _contract(
    call: Call, parts: Sequence[Shadow], names: Sequence[Sequence[str]], out: Sequence[str]
) -> Shadow:
    """Sum over the names that are not in `out` of the product; a name is one index."""
    trace = call.trace
    indices: dict[str, ir.Index] = {}
    for part, own in zip(parts, names, strict=True):
        for name, index in zip(own, part.indices, strict=True):
            known = indices.get(name)
            if known is None or (known.extent is ir.ONE and index.extent is not ir.ONE):
                indices[name] = trace.indices.copy(index)
            elif index.extent is not ir.ONE:
                trace.unify(known.extent, index.extent)
    factors = []
    for part, own in zip(parts, names, strict=True):
        pairs = zip(own, part.indices, strict=True)
        places = [at(old if old.extent is ir.ONE else indices[name]) for name, old in pairs]
        factors.append(trace.read_number(part, places))
    bound = [each for name, each in indices.items() if name not in out]
    value = exprs.fold("sum", bound, exprs.multiply(*factors))
    kind = "real" if any(part.kind == "real" for part in parts) else "int"
    return trace.make([indices[name] for name in out], value, kind)


@op(
    "matmul mm bmm mv dot vdot",
    "x[B, S, D]; y[D, E]: x @ y",
    "x[B, S, D]; y[B, T, D]: x @ y.mT",
    "x[S]; y[S]: x @ y",
    "x[B, S]; y[S]: torch.mv(x, y)",
)
def _matmul(call: Call) -> Shadow:
    """Leading axes are broadcast."""
    second = next((name for name in ("mat2", "vec", "tensor") if name in call.named), "other")
    one, other = call.shadow(0), call.shadow(1, second)
    lead = [f"b{k}" for k in range(max(one.rank, other.rank) - 2)]
    left, right = (
        ["k"] if part.rank == 1 else [*lead[len(lead) - part.rank + 2 :], *last]
        for part, last in ((one, "ik"), (other, "kj"))
    )
    out = [*lead, *("i" if one.rank > 1 else ""), *("j" if other.rank > 1 else "")]
    return _contract(call, (one, other), (left, right), out)


@op(
    "einsum",
    "x[B, S, D]; y[B, T, D]: torch.einsum('bsd,btd->bst', x, y)",
    "x[B, S, D]; y[D, E]: torch.einsum('...d,de->...e', x, y)",
    "x[S, S]: torch.einsum('ii', x)",
    "x[B, S]; y[S, T]: torch.einsum(x, [0, 1], y, [1, 2], [0, 2])",
)
def _einsum(call: Call) -> Shadow:
    """The equation and the operands; lists of numbers are indices."""
    first, rest = call.get(0, "equation"), call.args[1:]
    if isinstance(first, str):
        operands = rest[0] if len(rest) == 1 and isinstance(rest[0], (tuple, list)) else rest
    else:
        has_output = len(call.args) % 2 == 1
        lists = [*call.args[1::2], *(call.args[-1:] if has_output else ())]
        terms = [[None if n is Ellipsis else n for n in each] for each in lists]
        first = write_sublists(terms, has_output=has_output)
        operands = call.args[: len(call.args) - has_output : 2]
    parts = [call.trace.shadow(operand) for operand in operands]
    spec = read_einsum(first)
    if isinstance(spec, Fault) or len(spec.operands) != len(parts):
        raise call.trace.refuse("lift-op", "the einsum string has another number of operands")
    return _contract(call, parts, *spec.expand([part.rank for part in parts]))


@op("tensordot", "x[B, S, D]; y[D, S]: torch.tensordot(x, y, ([1, 2], [1, 0]))")
def _tensordot(call: Call) -> Shadow:
    one, other = call.shadow(0, "a"), call.shadow(1, "b")
    dims = call.get(2, "dims", 2)
    if isinstance(dims, int):
        dims = range(one.rank - dims, one.rank), range(dims)
    left, right = [f"l{k}" for k in range(one.rank)], [f"r{k}" for k in range(other.rank)]
    for a, b in zip(*dims, strict=True):
        right[b] = left[a]
    out = [name for name in (*left, *right) if not (name in left and name in right)]
    return _contract(call, (one, other), (left, right), out)


def _find_act(row: functions.Reduction) -> Act:
    act = _of_matrix if row.is_matrix else _along if row.keeps else _reduce
    return partial(act, kind=row.name)


ROWS = (
    *(Op(row.spellings, _find_act(row), row.examples) for row in functions.ROWS.values()),
    Op("cumprod", partial(_running, kind="prod"), ("x[B, S]: x.cumprod(1)",)),
    Op("logcumsumexp", partial(_running, kind="logsumexp"), ("x[B, S]: x.logcumsumexp(-1)",)),
)
