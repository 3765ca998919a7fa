"""Calls of torch and loops over blocks, told: which operations became one call, and why a loop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from derive.ir.text import to_text
from derive.plan.costs import find_kept, find_true_axes
from derive.plan.log import Costs, Entry
from derive.plan.meaning import to_expr, to_step_equation
from derive.plan.ops import Cell, Source, axes_of
from derive.plan.steps import walk_ops
from derive.plan.strides import Memory, find_copied, find_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.plan.ops import Op
    from derive.plan.steps import Plan, Tile

CALL = ("call_torch", "one call of torch does what these operations do")
LOOP = "loop_over_blocks"


def tell_calls(plan: Plan, old: Costs, new: Costs) -> list[Entry]:
    """An entry for each call; the last one has the costs of them all."""
    found = []
    for step in plan.steps:
        for op in walk_ops(step.op):
            if isinstance(op, Cell):
                target = to_step_equation(step).target if op is step.op else None
                remarks = (f"by {_write_call(op)}", *_tell_condition(op))
                entry = Entry(*CALL, step.name, to_expr(op), target=target, remarks=remarks)
                found.append(entry)
    if not found:
        return []
    *before, last = found
    together = ("costs of all calls together",) if before else ()
    remarks = (*last.remarks, *together)
    counted = Entry(
        *CALL, last.equation, last.before, target=last.target, old=old, new=new, remarks=remarks
    )
    return [*before, counted]


def _tell_condition(cell: Cell) -> tuple[str, ...]:
    return (f"where {_fill(cell.when, cell.args)}, else as above",) if cell.when else ()


def _write_call(cell: Cell) -> str:
    return _fill(cell.call, cell.args)


def _fill(text: str, args: Sequence[Op]) -> str:
    """The text of a call with its arguments as expressions."""

    def write(found: re.Match[str]) -> str:
        word = found[1]
        return to_text(to_expr(args[int(word)])) if word.isdigit() else word

    return re.sub(r"\{(\w+)\}", write, text)


def tell_loop(whole: Plan, plan: Plan, old: Costs, new: Costs, most: int | None = None) -> Entry:
    """The loop, how long a block is, and which large tensors and copies it does without.

    `most`: the elements that may be alive at once.
    """
    at = plan.tile
    assert at is not None
    names = _list_names(plan, at)
    law = _tell_length(plan, at)
    remarks = (
        f"in the loop: {', '.join(names)}",
        *_tell_inside(plan, at),
        *_tell_largest(whole, at, names),
        *_tell_copies(whole, plan, at, names),
        *_tell_memory(old, most),
    )
    return Entry(LOOP, law, names[-1], old=old, new=new, remarks=remarks)


def _list_names(plan: Plan, at: Tile) -> list[str]:
    return [step.name for step in plan.steps[at.first : at.last + 1]]


def _tell_length(plan: Plan, at: Tile) -> str:
    sizes = plan.complete(plan.sizes)
    extent = Memory(sizes).extent(at.index)
    return f"a block of {at.index.name} at a time, {sizes[at.block]} of {extent} positions"


def _tell_inside(plan: Plan, at: Tile) -> list[str]:
    """What runs from block to block, and the loop inside."""
    told = [f"from block to block: {', '.join(r.name for r in at.running)}"] if at.running else []
    if at.inner is None:
        return told
    names = ", ".join(_list_names(plan, at.inner))
    return [*told, f"in it {_tell_length(plan, at.inner)}: {names}", *_tell_inside(plan, at.inner)]


def _tell_memory(old: Costs, most: int | None) -> list[str]:
    """What was asked for that the whole does not keep to."""
    if most is None or old.elements_at <= most:
        return []
    return [f"without it {old.elements_at:,} elements are alive at once, and {most:,} may be"]


def _tell_largest(whole: Plan, at: Tile, names: Sequence[str]) -> list[str]:
    """The largest tensor that is made in the loop only block by block."""
    joined = [name for name, _, _ in at.joined]
    made = [
        (step, op)
        for step in whole.steps
        for op in walk_ops(step.op)
        if step.name in names and at.index in find_true_axes(op)
        if not (op is step.op and step.name in joined)
    ]
    if not made:
        return []
    step, op = max(made, key=lambda pair: whole.at_sizes(find_kept(pair[1])))
    count = whole.at_sizes(find_kept(op))
    name = step.name if op is step.op else f"a part of {step.name}"
    shape = ", ".join(to_text(i.extent) for i in find_true_axes(op))
    return [f"{name} [{shape}], {count:,} elements, never exists as a whole"] if count else []


def _tell_copies(whole: Plan, plan: Plan, at: Tile, names: Sequence[str]) -> list[str]:
    """What torch copies for products of whole tensors, and not for those of blocks."""
    copied = _find_copies(whole, names, ())
    roots = {name: _find_roots(op) for name, op in at.sliced}
    in_blocks = _find_copies(plan, names, at.sliced)
    still = {root for name in in_blocks for root in roots.get(name, (name,))}
    gone = {name: count for name, count in copied.items() if name not in still}
    if not gone:
        return []
    return [f"torch does not copy {', '.join(gone)} any more, {sum(gone.values()):,} elements"]


def _find_copies(
    plan: Plan, names: Sequence[str], sliced: Sequence[tuple[str, Op]]
) -> dict[str, int]:
    """The elements that torch copies in some of the steps, by the names of the tensors."""
    memory, found = Memory(plan.complete(plan.sizes)), dict[str, int]()
    for step in plan.steps:
        if step.name == names[0]:
            memory.strides |= {name: find_strides(op, memory) for name, op in sliced}
        if step.name in names:
            for arg in (arg for op in walk_ops(step.op) for arg in find_copied(op, memory)):
                name = ", ".join(_find_roots(arg))
                found[name] = found.get(name, 0) + memory.count(axes_of(arg))
        memory.strides[step.name] = find_strides(step.op, memory)
    return found


def _find_roots(op: Op) -> tuple[str, ...]:
    """The tensors that an operation reads."""
    return tuple(dict.fromkeys(p.name for p in walk_ops(op) if isinstance(p, Source)))
