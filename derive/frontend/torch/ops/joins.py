"""Tensors joined: one after the other along an axis, or along a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from derive.frontend.torch.call import Call, op
from derive.frontend.torch.exprs import choose, choose_truth, decide, subtract, to_number
from derive.frontend.torch.numbers import to_expr
from derive.frontend.torch.trace import Shadow, at, find_axis, insert_axis
from derive.ir.nodes import Expr

if TYPE_CHECKING:
    from derive.frontend.torch.trace import Trace


def _concatenate(call: Call) -> Shadow:
    trace = call.trace
    parts = [trace.shadow(tensor) for tensor in call.get(0, "tensors")]
    parts = [part for part in parts if part.rank != 1 or trace.number(part.shape[0])]
    default = 0
    if call.name in _RAISED:
        parts = [_raise(trace, part, _RAISED[call.name]) for part in parts]
        default = _RAISED[call.name]
    elif call.name == "hstack":
        default = 1 if parts[0].rank > 1 else 0
    axis = find_axis(call.get(1, "dim", call.named.get("axis", default)), parts[0].rank)
    return join(trace, parts, axis)


_RAISED = {"vstack": 0, "row_stack": 0, "column_stack": 1}


def _raise(trace: Trace, part: Shadow, axis: int) -> Shadow:
    """A vector as a row or a column."""
    return insert_axis(trace, part, axis) if part.rank == 1 else part


def join(trace: Trace, parts: Sequence[Shadow], axis: int) -> Shadow:
    """Parts one after the other along an axis."""
    total = 0
    starts = []
    for part in parts:
        starts.append(total)
        total = total + trace.to_int(part.shape[axis])
    letters = list(trace.like(*parts[0].letters))
    letters[axis] = trace.letter(trace.extent(total))
    kind = _find_kind(parts)
    value: Expr | None = None
    end: int = 0
    for part, start in reversed(list(zip(parts, starts, strict=True))):
        olds: list[Expr] = [at(letter) for letter in letters]
        olds[axis] = subtract(at(letters[axis]), to_expr(start))
        for k, letter in enumerate(letters):
            if k != axis:
                trace.unify(part.shape[k], letter.extent)
        here = trace.read(part, olds)
        here = here if kind == "bool" else to_number(here, part.kind)
        if value is not None:
            inside = decide("<", at(letters[axis]), to_expr(end))
            here = (choose_truth if kind == "bool" else choose)(inside, here, value)
        value, end = here, start
    assert value is not None
    return trace.make(letters, value, kind)


def _find_kind(parts: Sequence[Shadow]) -> str:
    """What tensors of several kinds hold together."""
    kinds = {part.kind for part in parts}
    return "real" if "real" in kinds else "int" if "int" in kinds else "bool"


def _stack(call: Call) -> Shadow:
    trace = call.trace
    parts = [trace.shadow(tensor) for tensor in call.get(0, "tensors")]
    axis = find_axis(call.get(1, "dim", 0), parts[0].rank + 1)
    return join(trace, [insert_axis(trace, part, axis) for part in parts], axis)


OPS = (
    op(
        "cat concat concatenate hstack vstack row_stack column_stack",
        _concatenate,
        "x[B, S]; y[B, T]: torch.cat((x, y), 1)",
        "x[B, S]; y[B, S]: torch.cat((x, y, x), -1)",
        "x[S]; y[S]: torch.vstack((x, y))",
        "x[S]; y[S]: torch.column_stack((x, y))",
        "int t[S] < 3; int u[S] < 3: torch.cat((t > 1, u))",
    ),
    op("stack", _stack, "x[B, S]; y[B, S]: torch.stack((x, y), -1)"),
)
