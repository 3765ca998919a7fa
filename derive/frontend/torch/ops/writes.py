"""Writes in place that are no operation of their own: copies and fills."""

from __future__ import annotations

from typing import Any

from derive.frontend.torch.call import Call, composite, op
from derive.frontend.torch.memory import write
from derive.frontend.torch.trace import Shadow


def _copy(call: Call) -> Shadow:
    write(call.trace, call.shadow(0), call.shadow(1, "src"))
    return call.shadow(0)


def _fill(call: Call) -> Shadow:
    number = 0 if call.name == "zero_" else call.get(1, "value")
    write(call.trace, call.shadow(0), call.trace.shadow(number))
    return call.shadow(0)


def _alias(call: Call) -> Shadow:
    return call.shadow(0)


def _fill_diagonal(x: Any, fill_value: Any, wrap: bool = False) -> Any:
    if wrap or x.dim() != 2:
        raise ValueError("only the diagonal of a matrix is filled")
    x.diagonal().fill_(fill_value)
    return x


OPS = (
    op("data", _alias, "x[B, S]: y = x.clone(); y.data[0] = 4; y", is_view=True),
    composite("fill_diagonal_", _fill_diagonal, "x[S, S]: y = x.clone(); y.fill_diagonal_(0); y"),
    op("copy_", _copy, "x[B, S]: y = torch.zeros_like(x); y.copy_(x); y", is_write=True),
    op(
        "fill_ zero_",
        _fill,
        "x[B, S]: y = x.clone(); y[:, 0].fill_(2.0); y",
        "x[B, S]: y = x.clone(); y[0].zero_(); y",
        "x[B, S, D]: y = x.clone(); y.flatten(1).mul_(2); y",
        "x[B, S]: y = x.clone(); y.view(-1)[1:].zero_(); y",
        "x[S, S]: y = x.clone(); y.diagonal().fill_(0); y",
        is_write=True,
    ),
)
