"""Cells: one call of torch for several operations, matched in the plan.

A plan is made from the normal form of the algebra, so a cell is found whichever way the formula was
written. To add one, write a function on one operation and list it in CELLS:

    def match_x(op: Op, opener: Opener) -> Op | None

It returns a Cell, perhaps with its axes arranged, or None where it does not fit. The opener shows
what a name stands for, where nothing else reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.plan.cells.attention import match_attention
from derive.plan.cells.opening import Opener
from derive.plan.ops import Cell, Op, args_of, with_args
from derive.plan.steps import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from derive.plan.strides import Memory

CELLS: tuple[Callable[[Op, Opener], Op | None], ...] = (match_attention,)


def use_cells(
    steps: Sequence[Step], results: Sequence[Op], memory: Memory
) -> tuple[tuple[Step, ...], bool]:
    """(the steps with cells in them, were there any); steps that nothing reads any more stay."""
    done = tuple(steps)
    for place in reversed(range(len(done))):
        opener = Opener(done, results, memory)
        step = done[place]
        found = _match_inside(step.op, opener)
        done = (*done[:place], Step(step.name, found), *done[place + 1 :])
    return done, any(one is not other for one, other in zip(done, steps, strict=True))


def _match_inside(op: Op, opener: Opener) -> Op:
    """The operation with the outermost parts that are cells exchanged for them."""
    for match in CELLS:
        found = match(op, opener)
        if found is not None:
            return found
    if isinstance(op, Cell) or not args_of(op):
        return op
    return with_args(op, tuple(_match_inside(arg, opener) for arg in args_of(op)))
