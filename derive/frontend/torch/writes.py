"""Writes in place: the buffer behind a view gets another value, and every view of it sees that.

A view maps its letters to places of the buffer; a write goes the other way: for each place of the
buffer, whether the view reaches it, and from which letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.analysis.affine import divide, modulo, ravel, to_affine
from derive.analysis.affine_form import Affine
from derive.analysis.affine_sizes import NOTHING, is_never_negative, is_positive
from derive.frontend.torch.exprs import all_of, choose
from derive.frontend.torch.places import decide, put, tidy, within
from derive.ir.nodes import ZERO, Access, Expr, Index, Number
from derive.ir.polynomial import Polynomial
from derive.ir.walk import walk

if TYPE_CHECKING:
    from derive.frontend.torch.shadow import Shadow
    from derive.frontend.torch.trace import Trace


def write(trace: Trace, target: Shadow, value: Shadow) -> None:
    """`target.copy_(value)`: the value is broadcast to the target's shape."""
    buffer = target.buffer
    condition, letters = _invert(trace, target)
    new = trace.spread(value, target.letters)
    if buffer.kind == "real" and value.kind == "bool":
        new = trace.read_number(value, ()) if not value.rank else new
    placed = put(new, target.letters, letters)
    buffer.value = tidy(choose(condition, placed, buffer.value))
    if buffer.kind == "real" and not isinstance(buffer.value, (Access, Number)):
        _define_again(trace, target)


def _define_again(trace: Trace, target: Shadow) -> None:
    """The buffer's new value as an equation, so that it is not written out again and again."""
    buffer = target.buffer
    made = trace.define(buffer.axes, buffer.value, buffer.kind)
    buffer.value = put(made.buffer.value, made.letters, buffer.axes)


def _invert(trace: Trace, target: Shadow) -> tuple[Expr, tuple[Expr, ...]]:
    """Over the axes of the buffer: where the view is, and its letters there."""
    found = _invert_by_axes(target) or _invert_by_strides(trace, target)
    if found is None:
        raise trace.refuse("lift-write", "a write into such a view is not known")
    conditions, origins = found
    if any(i not in origins and trace.number(i.extent) != 1 for i in target.letters):
        raise trace.refuse("lift-write", "a write into an expanded view is not known")
    return all_of(*conditions), tuple(origins.get(letter, ZERO) for letter in target.letters)


def _invert_by_axes(target: Shadow) -> tuple[list[Expr], dict[Index, Expr]] | None:
    """Axis by axis: its place tells one letter, start + step * letter, or has none that is open."""
    conditions: list[Expr] = []
    found: dict[Index, Expr] = {}
    for axis, place in zip(target.buffer.axes, target.places, strict=True):
        start = to_affine(put(place, tuple(found), tuple(found.values())))
        inside = [i for i in target.letters if any(i in walk(atom) for atom in start.terms)]
        if not inside:
            conditions.append(decide("==", axis, start.to_expr()))
            continue
        (letter, *others) = inside
        step = start.terms.get(letter, NOTHING)
        start = start - Affine({letter: step})
        if others or any(letter in walk(atom) for atom in start.terms) or not is_positive(step):
            return None
        gap = to_affine(axis) - start
        if step != Polynomial.of(1):
            conditions.append(decide("==", modulo(gap, step).to_expr(), ZERO))
        found[letter] = divide(gap, step).to_expr()
        conditions.append(within(found[letter], letter.extent))
    return conditions, found


def _invert_by_strides(trace: Trace, target: Shadow) -> tuple[list[Expr], dict[Index, Expr]] | None:
    """Along the flat position in the buffer: start + sum of stride * letter, none overlapping."""
    shape = [axis.extent for axis in target.buffer.axes]
    line = ravel(target.places, shape)
    letters = [letter for letter in target.letters if letter in line.terms]
    start = line - Affine({letter: line.terms[letter] for letter in letters})
    if any(letter in walk(atom) for atom in start.terms for letter in target.letters):
        return None
    letters.sort(key=lambda letter: trace.number(line.terms[letter].to_expr()))
    rest = ravel(target.buffer.axes, shape) - start
    conditions = [decide("<=", ZERO, rest.to_expr())]
    found: dict[Index, Expr] = {}
    for number, letter in reversed(list(enumerate(letters))):
        stride = line.terms[letter]
        if number:
            below = letters[number - 1]
            covered = line.terms[below] * Polynomial.of(below.extent)
            if not is_never_negative(stride - covered):
                return None
        if not is_positive(stride):
            return None
        digit = divide(rest, stride)
        found[letter] = digit.to_expr()
        conditions.append(decide("<", found[letter], letter.extent))
        rest = rest - digit.scale(stride)
    conditions.append(decide("==", rest.to_expr(), ZERO))
    return conditions, found
