"""Axes in another order, axes of length 1, axes repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from derive.frontend.torch.call import Call, op
from derive.frontend.torch.trace import Shadow, drop_axis, expand, find_axis, insert_axis, reorder
from derive.ir.nodes import ONE

if TYPE_CHECKING:
    from collections.abc import Sequence


def _permute(call: Call) -> Shadow:
    shadow = call.shadow(0)
    order = call.spread_args(1, "dims")
    return reorder(shadow, [find_axis(k, shadow.rank) for k in order])


def _transpose(call: Call) -> Shadow:
    shadow = call.shadow(0)
    names = ("dim0", "dim1") if "dim0" in call.named else ("axis0", "axis1")
    one, other = (find_axis(call.get(k + 1, names[k]), shadow.rank) for k in range(2))
    order = list(range(shadow.rank))
    if order:
        order[one], order[other] = order[other], order[one]
    return reorder(shadow, order)


def _transpose_last(call: Call) -> Shadow:
    shadow = call.shadow(0)
    order = list(range(shadow.rank))
    if call.name in {"mT", "adjoint", "mH"} or shadow.rank == 2:
        order[-2:] = order[-2:][::-1]
    elif call.name == "T":
        order.reverse()
    return reorder(shadow, order)


def _move(call: Call) -> Shadow:
    shadow = call.shadow(0)
    names = ("source", "destination")
    given = [call.get(k + 1, names[k]) for k in range(2)]
    source, target = (
        [find_axis(k, shadow.rank) for k in (each if isinstance(each, (tuple, list)) else (each,))]
        for each in given
    )
    order: dict[int, int] = dict(zip(target, source, strict=True))
    rest = iter(k for k in range(shadow.rank) if k not in source)
    return reorder(shadow, [order[k] if k in order else next(rest) for k in range(shadow.rank)])


def _unsqueeze(call: Call) -> Shadow:
    shadow = call.shadow(0)
    return insert_axis(call.trace, shadow, find_axis(call.get(1, "dim"), shadow.rank + 1))


def _squeeze(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    asked = call.get(1, "dim")
    if asked is None:
        axes = list(range(shadow.rank))
    else:
        axes = [
            find_axis(k, shadow.rank)
            for k in (asked if isinstance(asked, (tuple, list)) else (asked,))
        ]
    for axis in sorted(axes, reverse=True):
        if trace.to_int(shadow.shape[axis]) == 1:
            if shadow.shape[axis] is not ONE:
                trace.unify(shadow.shape[axis], ONE)
            shadow = drop_axis(shadow, axis)
    return shadow


def _expand(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    if call.name in {"expand_as", "view_as_expand"}:
        shape: Sequence[Any] = trace.shadow(call.get(1, "other")).shape
    else:
        shape = call.spread_args(1, "size")
    return expand(trace, shadow, shape)


OPS = (
    op("permute", _permute, "x[B, S, D]: x.permute(2, 0, 1)", is_view=True),
    op("transpose swapaxes swapdims", _transpose, "x[B, S]: x.transpose(-1, 0)", is_view=True),
    op(
        "t T mT H mH adjoint",
        _transpose_last,
        "x[B, S]: x.T",
        "x[B, S, D]: x.mT",
        "x[B, S, D]: x.mH",
        "x[B, S]: x.H",
        is_view=True,
    ),
    op("movedim moveaxis", _move, "x[B, S, D]: x.movedim(0, -1)", is_view=True),
    op("unsqueeze", _unsqueeze, "x[B, S]: x.unsqueeze(-1)", is_view=True),
    op(
        "squeeze",
        _squeeze,
        "x[B, S]: x.unsqueeze(1).squeeze(1)",
        "x[B, S]: x.unsqueeze(1).squeeze()",
        "x[B, S]: x.squeeze(-1)",
        is_view=True,
    ),
    op("expand broadcast_to expand_as", _expand, "x[S]: x.expand(2, -1)", is_view=True),
)
