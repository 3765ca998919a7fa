"""Writes in place that are no operation of their own: copies and fills."""

from __future__ import annotations

from derive.frontend.torch_call import Call, op
from derive.frontend.torch_shadow import Shadow
from derive.frontend.torch_writes import write


def _copy(call: Call) -> Shadow:
    write(call.trace, call.shadow(0), call.shadow(1, "src"))
    return call.shadow(0)


def _fill(call: Call) -> Shadow:
    number = 0 if call.name == "zero_" else call.get(1, "value")
    write(call.trace, call.shadow(0), call.trace.shadow(number))
    return call.shadow(0)


OPS = (
    op("copy_", _copy, "x[B, S]: y = torch.zeros_like(x); y.copy_(x); y", is_write=True),
    op(
        "fill_ zero_",
        _fill,
        "x[B, S]: y = x.clone(); y[:, 0].fill_(2.0); y",
        "x[B, S]: y = x.clone(); y[0].zero_(); y",
        is_write=True,
    ),
)
