"""Tensors that code makes: of one number, counting up, the identity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from derive.frontend.torch_call import Call, op
from derive.frontend.torch_exprs import add, choose, compare, divide, multiply, subtract
from derive.frontend.torch_numbers import plain, to_expr
from derive.frontend.torch_shadow import Shadow, at
from derive.ir.nodes import ONE, ZERO, Expr, Index, Truth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.frontend.torch_trace import Trace


def _letters(trace: Trace, shape: Sequence[Any]) -> tuple[Index, ...]:
    return tuple(trace.letter(trace.extent(length)) for length in shape)


def _fill(call: Call) -> Shadow:
    """zeros, ones, full, empty and their like."""
    trace, name = call.trace, call.name
    if name.endswith("_like"):
        letters = trace.like(*call.shadow(0).letters)
        value = call.get(1, "fill_value")
    elif name.startswith("new_"):
        asked = call.get(1, "size") if name == "new_full" else call.spread_args(1, "size")
        letters = _letters(trace, asked)
        value = call.get(2, "fill_value")
    else:
        asked = call.get(0, "size") if name == "full" else call.spread_args(0, "size")
        letters = _letters(trace, asked)
        value = call.get(1, "fill_value")
    number = _to_value(0 if "zeros" in name or "empty" in name else 1 if "ones" in name else value)
    if call.kind == "bool":
        number = Truth(number is not ZERO)
    return trace.make(letters, number, call.kind)


def _to_value(value: Any) -> Expr:
    return to_expr(value.item() if hasattr(value, "item") else value)


def _count(call: Call) -> Shadow:
    """arange: start + step * letter."""
    trace = call.trace
    given = [each for each in call.args if isinstance(each, (int, float))]
    start: Any = 0
    end: Any = call.named.get("end")
    step: Any = call.named.get("step", 1)
    if len(given) == 1:
        end = given[0]
    elif given:
        start, end = given[:2]
        step = given[2] if len(given) > 2 else step
    start = call.named.get("start", start)
    gap = end - start
    length = gap if plain(step) == 1 else -(-gap // step)
    letter = trace.letter(trace.extent(int(length) if isinstance(length, float) else length))
    value = add(multiply(to_expr(step), at(letter)), to_expr(start))
    return trace.make((letter,), value, call.kind)


def _space(call: Call) -> Shadow:
    """linspace: from start to end in equal steps."""
    trace = call.trace
    start, end, steps = (call.get(k, name) for k, name in enumerate(("start", "end", "steps")))
    letter = trace.letter(trace.extent(steps))
    if plain(steps) < 2:
        return trace.make((letter,), to_expr(start), call.kind)
    part = divide(at(letter), subtract(to_expr(steps), ONE))
    value = add(to_expr(start), multiply(subtract(to_expr(end), to_expr(start)), part))
    return trace.make((letter,), value, call.kind)


def _identity(call: Call) -> Shadow:
    trace = call.trace
    rows = call.get(0, "n")
    columns = call.get(1, "m", rows)
    letters = _letters(trace, (rows, columns if isinstance(columns, int) else rows))
    same = compare("==", at(letters[0]), at(letters[1]))
    if call.kind == "bool":
        return trace.make(letters, same, "bool")
    return trace.make(letters, choose(same, ONE, ZERO), call.kind)


def _literal(call: Call) -> Shadow:
    """torch.tensor(..): a number keeps what it carries; a table is told by its looks."""
    value = call.get(0, "data")
    if isinstance(value, (bool, int, float)):
        made = call.trace.constant(value, call.kind)
        return made
    return call.trace.shadow(value if hasattr(value, "dtype") else call.out)


OPS = (
    op(
        "zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones "
        "new_full new_empty",
        _fill,
        "x[B, S]: x + torch.ones(x.shape[0], 1)",
        "x[B, S]: x + torch.full_like(x, 0.5)",
        "x[B, S]: x + x.new_zeros(x.shape[1])",
    ),
    op(
        "arange",
        _count,
        "x[B, S]: x * torch.arange(x.shape[1])",
        "x[B, S]: x * torch.arange(1, x.shape[1] + 1)",
    ),
    op("linspace", _space, "x[B, S]: x * torch.linspace(0, 1, x.shape[1])"),
    op("eye", _identity, "x[S, S]: x + torch.eye(x.shape[0])"),
    op("tensor as_tensor scalar_tensor", _literal, "x[B, S]: x * torch.tensor(0.5)"),
)
