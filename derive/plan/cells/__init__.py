"""Cells: one call of torch in place of several operations, matched in the plan.

Plans are built from the algebra's normal form, so a match does not depend on how the formula was
written. Each cell is a function on one operation in a module of this folder, listed in MATCHES:

    def match_x(op: Op, definitions: Definitions) -> Op | None

It returns a Cell, possibly below a permutation of its axes, or None without a match. The
definitions inline steps into their readers. To add a cell, write the function, list it in MATCHES,
and give formulas that become the call, and similar ones that must not, in tests/plan/cells.txt.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from derive.ir import nodes as ir
from derive.plan import ops
from derive.plan.calls import CellArgument, walk_call
from derive.plan.cells import (
    attention,
    distances,
    linear,
    losses,
    norms,
    pointwise,
    segments,
    storage,
    windows,
)
from derive.plan.cells.matching import Definitions, strip
from derive.plan.cost import Storage
from derive.plan.steps import Step, free_name, name_op

Match = Callable[[ops.Op, Definitions], ops.Op | None]

# These rewrite the operands of a call; the call is matched afterwards.
OPERANDS = (
    pointwise.match_root,
    storage.match_windows,
    storage.match_transposed_operand,
    storage.match_merged_sum,
    storage.match_window_product,
)
PRODUCTS = (storage.match_merged_sum, storage.match_matmul)  # need the operands' final layouts
MATCHES = (
    storage.match_windows,
    attention.match_attention,
    attention.match_separable_attention,
    norms.match_norm,
    norms.match_channels,
    losses.match_labels,
    distances.match_distance,
    distances.match_vector_norm,
    distances.match_squared_loss,
    segments.match_scatter_add,
    segments.match_bag,
    segments.match_running_product,
    segments.match_running_reduction,
    windows.match_convolution,
    windows.match_pool,
    linear.match_log_product,
    linear.match_solve,
    linear.match_linear,
    pointwise.match_choice,
    pointwise.match_off_diagonal_sum,
    pointwise.match_sum_of_product,
    pointwise.match_root,
    pointwise.match_scaled_sum,
    pointwise.match_leaky_relu,
    storage.match_gather,
    storage.match_transposed_operand,
    storage.match_short_sum,
    storage.match_window_product,
    storage.match_row_in_place,
)


def use_cells(  # noqa: PLR0913 - the steps, their context and the options
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
    """Return (the steps with cells matched, whether any step changed); unread steps are kept.

    A conditional call becomes a step of its own, with a name that is not in `taken`. Without
    `chunks`, no call iterates over an index in chunks. `exact` excludes calls that lose digits.
    `varying` names the tensors that differ between iterations of an enclosing loop.
    """
    define = partial(Definitions, varying=varying, chunks=chunks, exact=exact)
    done = tuple(steps)
    names = {*taken, *(step.name for step in steps)}
    memory.record_strides((step.name, step.op) for step in steps)
    definitions = define(done, results, memory, inputs)
    for place in reversed(range(len(done))):
        step = done[place]
        found = _match_inside(step.op, definitions)
        if found is not step.op:
            made = _name_parts(found, step.name, names)
            done = (*done[:place], *made, *done[place + 1 :])
            memory.record_strides((step.name, step.op) for step in made)
            definitions = define(done, results, memory, inputs)
    memory.record_strides((step.name, step.op) for step in done)
    for place, step in enumerate(done):
        found = _match_inside(step.op, definitions, PRODUCTS)
        done = (*done[:place], Step(step.name, found), *done[place + 1 :])
        memory.record_strides([(step.name, found)])
    return done, done != tuple(steps)


def _match_inside(
    op: ops.Op, definitions: Definitions, matches: Sequence[Match] = MATCHES
) -> ops.Op:
    """Replace the outermost matching parts of the operation by cells, then their arguments."""
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
    if isinstance(op, ops.Cell) or not op.args:
        return op
    args = tuple(_match_inside(arg, definitions, matches) for arg in op.args)
    match op:  # merge with a permutation or flattening that the new argument begins with
        case ops.Flatten(_, start, end, index):
            return ops.flatten(args[0], start, end, index)
        case ops.Arrange(_, axes) if isinstance(args[0], ops.Arrange):
            return ops.arrange(strip(args[0]), axes)
    return ops.with_args(op, args)


def _name_parts(op: ops.Op, name: str, taken: set[str]) -> list[Step]:
    """Return the step, preceded by steps for the parts that need a name.

    These are conditional calls, and arguments that occur several times in the text of a call.
    """
    made: list[Step] = []
    while (part := _find_part_to_name(op)) is not None:
        inner = free_name(name_op(part, name), taken)
        taken.add(inner)
        made.append(Step(inner, part))
        op = ops.exchange(op, {part: ops.Source(inner, part.axes)})
    return [*made, Step(name, op)]


def _find_part_to_name(whole: ops.Op) -> ops.Op | None:
    """Return the first part that needs a name, see `_name_parts`; None if there is none."""
    for cell in ops.walk_ops(whole):
        if not isinstance(cell, ops.Cell):
            continue
        for place, arg in enumerate(cell.args):
            uses = [part for part in walk_call(cell.call) if part is CellArgument(place)]
            is_repeated = cell.when or len(uses) > 1
            is_repeated = is_repeated or linear.is_exponentials(arg)  # hoisted out of a loop
            if is_repeated and not isinstance(arg, (*ops.VIEWS, ops.Num)):
                return arg
        if cell.when and cell is not whole:
            return cell
    return None
