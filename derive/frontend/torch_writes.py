"""Writes in place: the buffer behind a view gets another value, and every view of it sees that.

A view maps its letters to places of the buffer; a write goes the other way: for each place of the
buffer, whether the view reaches it, and from which letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.analysis.affine import divide, modulo, to_affine
from derive.frontend.torch_exprs import all_of, choose
from derive.frontend.torch_places import decide, put, tidy, within
from derive.ir.nodes import ONE, ZERO, Expr, Index, Number
from derive.ir.walk import walk

if TYPE_CHECKING:
    from derive.frontend.torch_shadow import Shadow
    from derive.frontend.torch_trace import Trace


def write(trace: Trace, target: Shadow, value: Shadow) -> None:
    """`target.copy_(value)`: the value is broadcast to the target's shape."""
    buffer = target.buffer
    condition, letters = _invert(trace, target)
    new = trace.spread(value, target.letters)
    if buffer.kind == "real" and value.kind == "bool":
        new = trace.read_number(value, ()) if not value.rank else new
    placed = put(new, target.letters, letters)
    buffer.value = tidy(choose(condition, placed, buffer.value))
    if buffer.kind == "real":
        _define_again(trace, target)


def _define_again(trace: Trace, target: Shadow) -> None:
    """The buffer's new value as an equation, so that it is not written out again and again."""
    buffer = target.buffer
    made = trace.define(buffer.axes, buffer.value, buffer.kind)
    buffer.value = put(made.buffer.value, made.letters, buffer.axes)


def _invert(trace: Trace, target: Shadow) -> tuple[Expr, tuple[Expr, ...]]:
    """Over the axes of the buffer: where the view is, and its letters there."""
    conditions: list[Expr] = []
    found: dict[Index, Expr] = {}
    for axis, place in zip(target.buffer.axes, target.places, strict=True):
        inside = [i for i in target.letters if any(part is i for part in walk(place))]
        if not inside:
            conditions.append(decide("==", axis, place))
            continue
        if len(inside) > 1 or inside[0] in found:
            raise trace.refuse(
                "lift-write", "a write into a reshaped or repeated view is not known"
            )
        (letter,) = inside
        step, start = _read_line(trace, place, letter)
        gap = to_affine(axis) - to_affine(start)
        origin = divide(gap, step).to_expr()
        if step != 1:
            conditions.append(decide("==", modulo(gap, step).to_expr(), ZERO))
        conditions.append(within(origin, letter.extent))
        found[letter] = origin
    letters = []
    for letter in target.letters:
        if letter not in found and trace.number(letter.extent) != 1:
            raise trace.refuse("lift-write", "a write into an expanded view is not known")
        letters.append(found.get(letter, ZERO))
    return all_of(*conditions), tuple(letters)


def _read_line(trace: Trace, place: Expr, letter: Index) -> tuple[int, Expr]:
    """The place as start + step * letter."""
    start = put(place, (letter,), (ZERO,))
    one = put(place, (letter,), (ONE,))
    step = to_affine(one) - to_affine(start)
    number = step.to_expr()
    if not isinstance(number, Number) or number.value.denominator != 1 or number.value < 1:
        raise trace.refuse("lift-write", "a write into such a view is not known")
    return int(number.value), start
