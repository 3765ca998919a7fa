"""Lines of a generated function: a step with its comment, a loop over the blocks of an index."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from derive.backend.lines import INDENT, WIDTH, fit_append, fit_assignment, fit_for, wrap_text
from derive.backend.to_python import ATOM, to_python
from derive.ir.text import to_text
from derive.plan.meaning import to_step_equation
from derive.plan.ops import Op, axes_of
from derive.plan.steps import find_reads

if TYPE_CHECKING:
    from derive.backend.to_torch import Printer
    from derive.plan.steps import Plan, Step, Tile

OUTER = WIDTH - len(INDENT)  # columns of a line of the function
INNER = WIDTH - 2 * len(INDENT)  # and of its loop


def write_step(step: Step, printer: Printer, name: str, room: int = OUTER) -> list[str]:
    """The comment and the line of a step; without a name it is returned."""
    return [*write_comment(step, room), *fit_assignment(name, printer.text(step.op), room)]


def write_comment(step: Step, room: int = INNER) -> list[str]:
    """What the line computes, and its shape."""
    text = to_text(to_step_equation(step))
    shape = f"[{', '.join(to_python(i.extent) for i in step.axes)}]".replace(" * ", "*")
    lines = wrap_text(f"# {text}", later="#     ", width=room)
    if len(lines[-1]) + 2 + len(shape) <= room:
        return [*lines[:-1], f"{lines[-1]}  {shape}"]
    return [*lines, f"#     {shape}"]


def write_loop(plan: Plan, tile: Tile, printer: Printer, last: Step | None) -> list[str]:
    """The loop over blocks, and the blocks of each result joined."""
    printer = replace(printer, block=tile.block)
    lists = {made: blocks for made, blocks, _ in tile.joined}
    inside = plan.steps[tile.first : tile.last + 1]
    read = {name for step in inside for name in find_reads(step.op)}
    body: list[str] = []
    for step in inside:
        if step.name in lists and step.name not in read:
            body += [*write_comment(step), *fit_append(lists[step.name], printer.text(step.op))]
            continue
        body += write_step(step, printer, step.name, INNER)
        if step.name in lists:
            body.append(f"{lists[step.name]}.append({step.name})")
    blocks = [_split(printer, op, tile) for _, op in tile.sliced]
    head = fit_for([name for name, _ in tile.sliced], blocks)
    lines = [*_choose_block(tile), *(f"{name} = []" for name in lists.values()), *head]
    lines += [f"{INDENT}{line}" for line in body]
    for made, name, place in tile.joined:
        is_returned = last is not None and made == last.name
        lines += fit_assignment("" if is_returned else made, f"torch.cat({name}, dim={place})")
    return lines


def _split(printer: Printer, op: Op, tile: Tile) -> str:
    return f"{printer.text(op, ATOM)}.split({tile.block}, {axes_of(op).index(tile.index)})"


def _choose_block(tile: Tile) -> list[str]:
    """The length of a block: the argument, or as many positions as keep its tensors small.

    A compiler would unroll the loop and be bound to the sizes; it gets one block.
    """
    unit, whole = to_python(tile.unit.to_expr()), to_python(tile.index.extent)
    return [
        "if torch.compiler.is_compiling():  # it would unroll the loop",
        f"{INDENT}{tile.block} = {whole} or 1",
        f"elif {tile.block} is None:",
        f"{INDENT}{tile.block} = {tile.target} // ({unit} or 1) or 1",
    ]
