"""Cells: one call of torch for several operations, matched in the plan.

A plan is made from the normal form of the algebra, so a cell is found whichever way the formula was
written. A cell is a row of CELLS in the file of its family: what it computes, what looks alike and
is refused, what the call lacks, and a function on one operation,

    def match_x(op: Op, definitions: Definitions) -> Op | None

which gives a Cell, perhaps with its axes arranged, or None where it does not fit. The definitions
say what a name stands for, where nothing else reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.plan import ops
from derive.plan.cells import (
    attention,
    distances,
    linear,
    losses,
    norms,
    pointwise,
    segments,
    windows,
)
from derive.plan.cells.matching import CellRule, Definitions
from derive.plan.steps import Step, free_name, name_op

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from derive.ir import nodes as ir
    from derive.plan.cost import Storage

CELLS: tuple[CellRule, ...] = (
    *attention.CELLS,
    *norms.CELLS,
    *losses.CELLS,
    *distances.CELLS,
    *segments.CELLS,
    *windows.CELLS,
    *linear.CELLS,
    *pointwise.CELLS,
)
MATCHES = tuple(dict.fromkeys(rule.match for rule in CELLS))


def use_cells(  # noqa: PLR0913 - the steps, and what is known and asked of them
    steps: Sequence[Step],
    results: Sequence[ops.Op],
    memory: Storage,
    inputs: Sequence[ir.Tensor | ir.ScalarInput] = (),
    taken: Collection[str] = (),
    *,
    chunks: bool = True,
) -> tuple[tuple[Step, ...], bool]:
    """(the steps with cells in them, were there any); steps that nothing reads any more stay.

    A call that depends on a condition is a step of its own, by a name that is not `taken`.
    Without `chunks` no call goes over one index piece by piece.
    """
    done = tuple(steps)
    names = {*taken, *(step.name for step in steps)}
    memory.note((step.name, step.op) for step in steps)
    definitions = Definitions(done, results, memory, inputs, chunks=chunks)
    for place in reversed(range(len(done))):
        step = done[place]
        found = _match_inside(step.op, definitions)
        if found is not step.op:
            made = _name_parts(found, step.name, names)
            done = (*done[:place], *made, *done[place + 1 :])
            memory.note((step.name, step.op) for step in made)
            definitions = Definitions(done, results, memory, inputs, chunks=chunks)
    return done, done != tuple(steps)


def find_notes(steps: Iterable[Step]) -> tuple[str, ...]:
    """What a reader has to know of the calls, each once."""
    cells = (op for step in steps for op in ops.walk_ops(step.op) if isinstance(op, ops.Cell))
    return tuple(dict.fromkeys(cell.note for cell in cells if cell.note))


def _match_inside(op: ops.Op, definitions: Definitions) -> ops.Op:
    """The operation with the outermost parts that are cells, and those in them, exchanged."""
    for match in MATCHES:
        found = match(op, definitions)
        if isinstance(found, ops.Cell) and not found.when:
            return ops.with_args(
                found, tuple(_match_inside(arg, definitions) for arg in found.args)
            )
        if found is not None:
            return found
    if isinstance(op, ops.Cell) or not ops.args_of(op):
        return op
    return ops.with_args(op, tuple(_match_inside(arg, definitions) for arg in ops.args_of(op)))


def _name_parts(op: ops.Op, name: str, taken: set[str]) -> list[Step]:
    """The step, after steps for what is better not written in its line.

    Those are calls that depend on a condition, and arguments that a call's text has several times.
    """
    made: list[Step] = []
    while (part := _find_unnamed(op)) is not None:
        inner = free_name(name_op(part, name), taken)
        taken.add(inner)
        made.append(Step(inner, part))
        op = ops.exchange(op, {part: ops.Source(inner, ops.axes_of(part))})
    return [*made, Step(name, op)]


def _find_unnamed(whole: ops.Op) -> ops.Op | None:
    """The first part that wants a name."""
    for cell in ops.walk_ops(whole):
        if not isinstance(cell, ops.Cell):
            continue
        for place, arg in enumerate(cell.args):
            is_repeated = cell.when or ops.count_given(cell.call, place) > 1
            if is_repeated and not isinstance(arg, (*ops.VIEWS, ops.Num)):
                return arg
        if cell.when and cell is not whole:
            return cell
    return None
