"""Tensors that code makes: of one number, counting up, the identity; and fills in place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from derive.errors import refuse
from derive.frontend.torch.call import Call, composite, op, write
from derive.frontend.torch.exprs import (
    add,
    choose,
    choose_truth,
    compare,
    multiply,
    to_condition,
    to_number,
)
from derive.frontend.torch.numbers import to_expr
from derive.frontend.torch.trace import Shadow, at, find_address, is_symbolic
from derive.ir import nodes as ir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from derive.frontend.torch.trace import Trace


_MOST_PARTS = 8  # sizes in a list that is written out


def _indices(trace: Trace, shape: Sequence[Any]) -> tuple[ir.Index, ...]:
    return tuple(trace.index(trace.extent(length)) for length in shape)


def _fill(call: Call) -> Shadow:
    """zeros, ones, full, empty and their like."""
    trace, name = call.trace, call.name
    if name.endswith("_like"):
        indices = trace.like(*call.shadow(0).indices)
        value = call.get(1, "fill_value")
    elif name.startswith("new_"):
        asked = call.get(1, "size") if name == "new_full" else call.spread_args(1, "size")
        indices = _indices(trace, asked)
        value = call.get(2, "fill_value")
    else:
        asked = call.get(0, "size") if name == "full" else call.spread_args(0, "size")
        indices = _indices(trace, asked)
        value = call.get(1, "fill_value")
    if not name.startswith(("full", "new_full")):
        value = 1 if "ones" in name else 0
    return trace.make(indices, _to_value(call, value), call.kind)


def _to_value(call: Call, value: Any) -> ir.Expr:
    """A number, or a tensor without axes, as what the result holds."""
    if hasattr(value, "dtype"):
        return _read_value(call, call.trace.shadow(value))
    if call.kind == "bool":
        return ir.Truth(bool(value))
    if call.kind == "int" and not isinstance(value, int):
        value = int(value)
    return call.trace.constant(value if call.kind == "int" else value + 0, call.kind).buffer.value


def _read_value(call: Call, shadow: Shadow) -> ir.Expr:
    value = call.trace.read(shadow, [ir.ZERO] * shadow.rank)
    if call.kind == shadow.kind:
        return value
    if call.kind == "int" and shadow.kind == "real":
        raise call.trace.refuse("lift-op", "real numbers cut to integers are not known")
    return (
        to_condition(value, shadow.kind) if call.kind == "bool" else to_number(value, shadow.kind)
    )


def _count(call: Call) -> Shadow:
    """arange: start + step * index."""
    trace = call.trace
    start, end, step = bounds = _read_bounds(call)
    whole = all(isinstance(each, int) for each in bounds)
    if call.kind == "int" and not whole:
        raise trace.refuse("lift-op", "integers counted between real numbers are not known")
    gap = end - start
    if whole:
        length = gap if not is_symbolic(step) and step == 1 else -(-gap // step)
    else:
        length = math.ceil(gap if not is_symbolic(step) and step == 1 else gap / step)
    index = trace.index(trace.extent(length))
    value = add(multiply(to_expr(step), at(index)), to_expr(start))
    return trace.make((index,), value, call.kind)


def _read_bounds(call: Call) -> tuple[Any, Any, Any]:
    """Start, end and step: one number alone is the end."""
    given, named = list(call.args), call.named
    if any(not isinstance(each, (int, float)) for each in given):
        raise call.trace.refuse("lift-op", "arange to the value of a tensor is not known")
    if len(given) == 1 and "end" not in named:
        given = [0, *given]
    found = dict(zip(("start", "end", "step"), given, strict=False))
    found |= {name: named[name] for name in ("start", "end", "step") if name in named}
    return found.get("start", 0), found["end"], found.get("step", 1)


def _space(start: Any, end: Any, steps: Any, **_: Any) -> Any:
    """From start to end in equal steps."""
    import torch

    if steps < 2:
        return torch.full((steps,), start + 0.0)
    return start + (end - start) * (torch.arange(steps) / (steps - 1))


def _identity(n: Any, m: Any = None, *, dtype: Any = None, **_: Any) -> Any:
    import torch

    same = torch.arange(n)[:, None] == torch.arange(n if m is None else m)
    return same.to(torch.float64 if dtype is None else dtype)


def _literal(call: Call) -> Shadow:
    """torch.tensor(..): a number keeps what it carries; a table is told by its looks."""
    trace = call.trace
    value = call.get(1 if call.name == "new_tensor" else 0, "data")
    if hasattr(value, "dtype"):
        shadow = trace.shadow(value)
        if shadow.kind != call.kind:
            says = f"{call.name} of a tensor to another type is not known"
            raise trace.refuse("lift-op", says, "use .to(dtype)")
        shared = find_address(value) == find_address(call.out)
        return shadow if shared else trace.copy(shadow)
    if isinstance(value, (int, float)):
        return trace.make((), _to_value(call, value), call.kind)
    parts = list(_open(value))
    if not any(map(is_symbolic, parts)):
        return trace.shadow(call.out)
    if call.out.dim() != 1 or len(parts) > _MOST_PARTS:
        trace.watch.fix(*map(to_expr, parts))
        return trace.shadow(call.out)
    index = trace.index(trace.extent(len(parts)))
    *before, found = [_to_value(call, each) for each in parts]
    for number, each in reversed(list(enumerate(before))):
        here = compare("==", at(index), to_expr(number))
        found = (choose_truth if call.kind == "bool" else choose)(here, each, found)
    return trace.make((index,), found, call.kind)


def _open(value: Any) -> Iterator[Any]:
    """The numbers in nested lists."""
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _open(each)
    else:
        yield value


def _copy(call: Call) -> Shadow:
    write(call.trace, call.shadow(0), call.shadow(1, "src"))
    return call.shadow(0)


def _fill_in_place(call: Call) -> Shadow:
    write(call.trace, call.shadow(0), call.shadow(1, "value"))
    return call.shadow(0)


def _fill_diagonal(x: Any, fill_value: Any, wrap: bool = False) -> Any:
    if wrap or x.dim() != 2:
        raise refuse("lift-op", "only the diagonal of a matrix is filled")
    x.diagonal().fill_(fill_value)
    return x


OPS = (
    op(
        "zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones "
        "new_full new_empty",
        _fill,
        "x[B, S]: x + torch.ones(x.shape[0], 1)",
        "x[B, S]: x + torch.full_like(x, 0.5)",
        "x[B, S]: x + x.new_zeros(x.shape[1])",
        "x[B, S]: x + torch.full_like(x, x.sum())",
        "x[B, S]: torch.full((x.shape[0],), 2, dtype=torch.bool)",
    ),
    op(
        "arange",
        _count,
        "x[B, S]: x * torch.arange(x.shape[1])",
        "x[B, S]: x * torch.arange(1, x.shape[1] + 1)",
        "x[B, S]: x * torch.arange(1, end=x.shape[1] + 1)",
        "x[B, S]: x[:, :1] * torch.arange(0.5, 3.7)",
    ),
    composite("linspace", _space, "x[B, S]: x * torch.linspace(0, 1, x.shape[1])"),
    composite("eye", _identity, "x[S, S]: x + torch.eye(x.shape[0])"),
    op(
        "tensor as_tensor scalar_tensor new_tensor",
        _literal,
        "x[B, S]: x * torch.tensor(0.5)",
        "x[B, S]: x * torch.tensor([x.shape[0]])",
        "x[B, S]: torch.tensor([x.shape[0], x.shape[1]])",
        "x[B, S]: x * x.new_tensor(0.5)",
    ),
    op(
        "data",
        lambda call: call.shadow(0),
        "x[B, S]: y = x.clone(); y.data[0] = 4; y",
        is_view=True,
    ),
    composite("fill_diagonal_", _fill_diagonal, "x[S, S]: y = x.clone(); y.fill_diagonal_(0); y"),
    op("copy_", _copy, "x[B, S]: y = torch.zeros_like(x); y.copy_(x); y", is_write=True),
    op(
        "fill_",
        _fill_in_place,
        "x[B, S]: y = x.clone(); y[:, 0].fill_(2.0); y",
        "x[B, S, D]: y = x.clone(); y.flatten(1).mul_(2); y",
        "x[B, S]: y = x.clone(); y.view(-1)[1:].zero_(); y",
        "x[S, S]: y = x.clone(); y.diagonal().fill_(0); y",
        is_write=True,
    ),
    composite("zero_", lambda input: input.fill_(0), "x[B, S]: y = x.clone(); y[0].zero_(); y"),
)
