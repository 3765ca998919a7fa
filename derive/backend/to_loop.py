"""Lines of a generated function: a step with its comment, a loop over the blocks of an index."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from derive.backend.lines import INDENT, WIDTH, fit_append, fit_assignment, fit_for, wrap_text
from derive.backend.to_python import ATOM, to_python
from derive.ir.nodes import Number, Size
from derive.ir.text import to_text
from derive.plan.meaning import to_step_equation
from derive.plan.ops import Source, axes_of
from derive.plan.steps import find_reads

if TYPE_CHECKING:
    from derive.backend.to_torch import Printer
    from derive.ir.nodes import Index
    from derive.plan.steps import Plan, Step, Tile

OUTER = WIDTH - len(INDENT)  # columns of a line of the function
WIDE = ("zero", "one", "empty", "lowest")  # the starts of running sums and of what scales them
INNER = WIDTH - 2 * len(INDENT)  # and of its loop
REASONS = {  # of a start that is not what one expects
    "lowest": "# not -inf: a block of nothing but -inf has weights of 0 then, not nan",
    "empty": "# 0 / 1 where there is nothing to sum",
}


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


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a loop stands: the tensors and columns at hand there, and the loop around it."""

    plan: Plan
    printer: Printer
    room: int = OUTER
    around: Tile | None = None


def write_loop(plan: Plan, printer: Printer, last: Step | None) -> list[str]:
    """The loop over blocks, with those inside it; a lone last result is returned."""
    choices = [line for tile in plan.tiles for line in _choose_block(tile)]
    outer, *_ = plan.tiles
    for tile in plan.tiles:
        if tile.wide and any(each.start in WIDE for each in tile.running):
            choices.append("# half precision has too few digits for running sums")
            choices.append(f"{tile.wide} = torch.promote_types({printer.dtype}, torch.float32)")
    return [*choices, *_write_tile(outer, _Place(plan, printer), last)]


def _write_tile(tile: Tile, place: _Place, last: Step | None = None) -> list[str]:
    """What a loop begins with, its lines, and the blocks of each result joined."""
    blocks = [
        f"{place.printer.text(op, ATOM)}.split({tile.block}, {axes_of(op).index(tile.index)})"
        for _, op in tile.sliced
    ]
    lines = [*_write_starts(tile, place), *(f"{name} = []" for _, name, _ in tile.joined)]
    lines += fit_for([name for name, _ in tile.sliced], blocks, place.room, _write_end(tile))
    lines += [f"{INDENT}{line}" for line in _write_turn(tile, place)]
    for made, name, where in tile.joined:
        is_returned = last is not None and made == last.name
        joined = f"torch.cat({name}, dim={where})"
        lines += fit_assignment("" if is_returned else made, joined, place.room)
    return lines


def _write_turn(tile: Tile, place: _Place) -> list[str]:
    """The lines of one turn of a loop."""
    room = place.room - len(INDENT)
    printer = replace(place.printer, blocks=(*place.printer.blocks, tile.block))
    lists = {made: blocks for made, blocks, _ in tile.joined}
    steps = place.plan.steps
    ops = [step.op for step in steps[tile.first : tile.last + 1]]
    ops += [] if tile.inner is None else [op for _, op in tile.inner.sliced]
    read = {name for op in ops for name in find_reads(op)}
    lines: list[str] = []
    number = tile.first
    while number <= tile.last:
        step, number = steps[number], number + 1
        made = [step.name]
        if tile.inner is not None and number - 1 == tile.inner.first:
            lines += _write_tile(tile.inner, _Place(place.plan, printer, room, tile))
            number = tile.inner.last + 1
            made = [name for name, _, _ in tile.inner.joined]
        elif step.name in lists and step.name not in read:
            text = printer.text(step.op)
            lines += [*write_comment(step, room), *fit_append(lists[step.name], text, room)]
            continue
        elif isinstance(step.op, Source):
            lines.append(f"{step.name} = {step.op.name}")
        else:
            lines += write_step(step, printer, step.name, room)
        lines += [f"{lists[name]}.append({name})" for name in made if name in lists]
    return lines


def _write_starts(tile: Tile, place: _Place) -> list[str]:
    """The running values before the first block."""
    if not tile.running:
        return []
    some = to_python(tile.index.extent)
    like, dtype = place.printer.like, place.printer.dtype
    own = "" if dtype == f"{like}.dtype" else f", dtype={dtype}"
    starts = {
        "zero": f"new_zeros({{}}, dtype={tile.wide})",
        "one": f"new_ones({{}}, dtype={tile.wide})",
        "empty": f"new_full({{}}, 0 if {some} else 1, dtype={tile.wide})",
        "lowest": f"new_full({{}}, torch.finfo({tile.wide}).min, dtype={tile.wide})",
        "-oo": f"new_full({{}}, -torch.inf{own})",
        "oo": f"new_full({{}}, torch.inf{own})",
    }
    lines = []
    for each in tile.running:
        sizes = [_write_extent(index, place.around) for index in each.axes]
        shape = f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"
        lines += [REASONS[each.start]] if each.start in REASONS else []
        start = starts[each.start].format(shape)
        lines += fit_assignment(each.name, f"{like}.{start}", place.room)
    return lines


def _write_extent(index: Index, around: Tile | None) -> str:
    """An extent; a block of the loop around has the length of those cut with it."""
    if around is None or index.extent != Size(around.block):
        return to_python(index.extent)
    name, op = around.sliced[0]
    return f"{name}.shape[{axes_of(op).index(around.index)}]"


def _write_end(tile: Tile) -> str:
    """The end of the line that begins a loop: where nothing is summed, no block has a largest."""
    is_sure = isinstance(tile.index.extent, Number)
    if is_sure or not any(each.start in {"lowest", "-oo", "oo"} for each in tile.running):
        return ":"
    return f" if {to_python(tile.index.extent)} else ():"


def _choose_block(tile: Tile) -> list[str]:
    """The length of a block: the argument, or as many positions as keep its tensors small.

    A compiler would unroll the loop and be bound to the sizes; it gets one block.
    """
    unit, whole = to_python(tile.unit.to_expr()), to_python(tile.index.extent)
    return [
        f"if {tile.block} is None and torch.compiler.is_compiling():  # it would unroll the loop",
        f"{INDENT}{tile.block} = {whole} or 1",
        f"elif {tile.block} is None:",
        f"{INDENT}{tile.block} = {tile.target} // ({unit} or 1) or 1",
        f"elif {tile.block} < 1:",
        f'{INDENT}raise ValueError(f"{tile.block} must be at least 1, got {{{tile.block}}}")',
    ]
