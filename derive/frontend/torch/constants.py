"""Tensors that come from elsewhere: numbers, and masks that are told by their looks.

A constant that code brings along (a buffer, a closure's tensor) is known where all its elements are
one number, or where it is a lower or upper triangle, or counts up; anything else is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from derive.frontend.torch.exprs import add, choose, compare, from_float, multiply, subtract
from derive.frontend.torch.numbers import to_expr
from derive.frontend.torch.shadow import Buffer, Shadow, at, kind_of
from derive.ir.nodes import FALSE, TRUE, Expr, Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from derive.ir.nodes import Index

_LARGEST = 1 << 16  # elements of a table that is written out


def recognise(tensor: Any, make_letter: Callable[[int], Index]) -> Shadow | None:
    """The tensor as an expression over its indices; None where none is seen."""
    letters = tuple(make_letter(int(length)) for length in tensor.shape)
    value = None if tensor.is_complex() else _find_value(tensor.detach(), letters)
    if value is None:
        return None
    return Shadow(letters, tuple(map(at, letters)), Buffer(letters, value, kind_of(tensor)))


def _find_value(tensor: Any, letters: Sequence[Index]) -> Expr | None:
    import torch

    if not tensor.numel():
        return None
    first = tensor.flatten()[0]
    if bool((tensor == first).all()):
        return _to_constant(first.item())
    if tensor.dim() == 1:
        return _find_steps(tensor, letters[0])
    if tensor.dim() < 2 or bool(tensor.isnan().any()):
        return None
    rows, columns = tensor.shape[-2:]
    table = tensor.reshape(-1, rows, columns)
    if not bool((table == table[0]).all()):
        return None
    gap = torch.arange(columns) - torch.arange(rows)[:, None]
    for offset in range(1 - rows, columns):
        inside, outside = table[0][gap <= offset], table[0][gap > offset]
        if bool((inside == inside[0]).all()) and bool((outside == outside[0]).all()):
            values = (_to_constant(inside[0].item()), _to_constant(outside[0].item()))
            far = subtract(at(letters[-1]), at(letters[-2]))
            condition = compare("<=", far, to_expr(offset))
            if tensor.dtype is torch.bool:
                return condition if values[0] is TRUE else compare(">", far, to_expr(offset))
            return choose(condition, *values)
    return _write_out(tensor, letters)


def _find_steps(tensor: Any, letter: Index) -> Expr | None:
    steps = tensor[1:] - tensor[:-1] if kind_of(tensor) != "bool" else None
    if steps is not None and bool((steps == steps[0]).all()):
        slope, start = from_float(steps[0].item()), from_float(tensor[0].item())
        return add(multiply(slope, at(letter)), start)
    return _write_out(tensor, (letter,))


def _write_out(tensor: Any, letters: Sequence[Index]) -> Expr | None:
    """A short table, element by element."""
    if tensor.dim() != 1 or tensor.numel() > 4:
        return None
    values = [_to_constant(each) for each in tensor.tolist()]
    found = values[-1]
    if any(value in (TRUE, FALSE) for value in values):
        return None
    for number, value in reversed(list(enumerate(values[:-1]))):
        found = choose(compare("==", letters[0], to_expr(number)), value, found)
    return found


def _to_constant(value: Any) -> Expr:
    return Truth(value) if isinstance(value, bool) else from_float(value)
