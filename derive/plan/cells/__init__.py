"""Cells: one call of torch for several operations, matched in the plan.

A plan is made from the normal form of the algebra, so a cell is found whichever way the formula was
written. A cell is a row of CELLS in the file of its family: what it computes, what looks alike and
is refused, what the call lacks, and a function on one operation,

    def match_x(op: Op, definitions: Definitions) -> Op | None

which gives a Cell, perhaps with its axes arranged, or None where it does not fit. The definitions
say what a name stands for, where nothing else reads it.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from derive.ir import nodes as ir
from derive.plan import ops
from derive.plan.cells import (
    attention,
    distances,
    linear,
    losses,
    norms,
    pointwise,
    segments,
    storage,
    structures,
    windows,
)
from derive.plan.cells.matching import CellRule, Definitions, strip
from derive.plan.cost import Storage
from derive.plan.steps import Step, free_name, name_op

Match = Callable[[ops.Op, Definitions], ops.Op | None]

CELLS: tuple[CellRule, ...] = (
    *attention.CELLS,
    *norms.CELLS,
    *losses.CELLS,
    *distances.CELLS,
    *structures.CELLS,
    *segments.CELLS,
    *windows.CELLS,
    *linear.CELLS,
    *pointwise.CELLS,
    *storage.CELLS,
)
# They change what a call is given alone.
OPERANDS = (
    pointwise.match_root,
    storage.match_negated,
    storage.match_windows,
    storage.match_turned,
    storage.match_summed,
    storage.match_rows,
)
PRODUCTS = (storage.match_summed, storage.match_matmul)  # by where their operands lie then
MATCHES = (
    storage.match_negated,
    storage.match_windows,
    *dict.fromkeys(r.match for r in CELLS if r.match and r.match not in PRODUCTS),
    storage.match_rows,
    storage.match_along,
)


def use_cells(  # noqa: PLR0913 - the steps, and what is known and asked of them
    steps: Sequence[Step],
    results: Sequence[ops.Op],
    memory: Storage,
    inputs: Sequence[ir.Tensor | ir.ScalarInput] = (),
    taken: Collection[str] = (),
    *,
    varying: Collection[str] = (),
    chunks: bool = True,
    exact: bool = True,
) -> tuple[tuple[Step, ...], bool]:
    """(the steps with cells in them, were there any); steps that nothing reads any more stay.

    A call that depends on a condition is a step of its own, by a name that is not `taken`.
    Without `chunks` no call goes over one index piece by piece; an `exact` one loses no digits. Of
    tensors that are `varying` each turn of a loop has others.
    """
    look = partial(Definitions, varying=varying, chunks=chunks, exact=exact)
    done = tuple(steps)
    names = {*taken, *(step.name for step in steps)}
    memory.note((step.name, step.op) for step in steps)
    definitions = look(done, results, memory, inputs)
    for place in reversed(range(len(done))):
        step = done[place]
        found = _match_inside(step.op, definitions)
        if found is not step.op:
            made = _name_parts(found, step.name, names)
            done = (*done[:place], *made, *done[place + 1 :])
            memory.note((step.name, step.op) for step in made)
            definitions = look(done, results, memory, inputs)
    memory.note((step.name, step.op) for step in done)
    for place, step in enumerate(done):
        found = _match_inside(step.op, definitions, PRODUCTS)
        done = (*done[:place], Step(step.name, found), *done[place + 1 :])
        memory.note([(step.name, found)])
    return done, done != tuple(steps)


def find_notes(steps: Iterable[Step]) -> tuple[str, ...]:
    """What a reader has to know of the calls, each once."""
    cells = (op for step in steps for op in ops.walk_ops(step.op) if isinstance(op, ops.Cell))
    return tuple(dict.fromkeys(cell.note for cell in cells if cell.note))


def _match_inside(
    op: ops.Op, definitions: Definitions, matches: Sequence[Match] = MATCHES
) -> ops.Op:
    """The operation with the outermost parts that are cells, and those in them, exchanged."""
    for match in matches:
        found = match(op, definitions)
        if isinstance(found, ops.Cell):
            return ops.with_args(
                found, tuple(_match_inside(arg, definitions, matches) for arg in found.args)
            )
        if match in OPERANDS:
            op = found or op
        elif found is not None:
            return found
    if isinstance(op, ops.Cell) or not ops.args_of(op):
        return op
    args = tuple(_match_inside(arg, definitions, matches) for arg in ops.args_of(op))
    match op:  # a call may give what was merged, or arranged, before
        case ops.Flatten(_, start, end, index):
            return ops.flatten(args[0], start, end, index)
        case ops.Arrange(_, axes) if isinstance(args[0], ops.Arrange):
            return ops.arrange(strip(args[0]), axes)
    return ops.with_args(op, args)


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
            is_repeated = cell.when or _count_given(cell.call, place) > 1
            is_repeated = is_repeated or linear.is_weights(arg)  # before a loop
            if is_repeated and not isinstance(arg, (*ops.VIEWS, ops.Num)):
                return arg
        if cell.when and cell is not whole:
            return cell
    return None


def _count_given(call: ops.Operand, place: int) -> int:
    """How often a call has this argument of its cell."""
    match call:
        case ops.Given():
            return int(call.place == place)
        case tuple():
            return sum(_count_given(part, place) for part in call)
        case ops.TorchCall(_, args, keywords):
            return _count_given(args, place) + _count_given(tuple(v for _, v in keywords), place)
        case ops.Pick(arg) | ops.Extents(arg):
            return _count_given(arg, place)
    return 0
