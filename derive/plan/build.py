"""From a system to a plan: rewrite and lower each equation, then share what stands twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from derive.ir.nodes import Size, System, Tensor
from derive.ir.walk import walk
from derive.plan.align import arrange
from derive.plan.cells import find_notes, use_cells
from derive.plan.context import Context, layout_of
from derive.plan.layout import find_layouts
from derive.plan.lower import lower, lower_equation
from derive.plan.ops import Flatten, Op, Source, exchange, merge_indices
from derive.plan.path import FLOPS
from derive.plan.scales import absorb_scales
from derive.plan.share import share_ops, split_long
from derive.plan.steps import Plan, Step, find_reads, walk_ops
from derive.plan.strides import Memory
from derive.rewrite.guards import mark_harmful
from derive.rewrite.recipes import prepare

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.ir.nodes import Equation
    from derive.plan.log import Entry


def make_plan(system: System, sizes: Mapping[str, int], *, cells: bool = True) -> Plan:
    """The plan of a system as its own rules leave it; `plan.search` looks for better ones."""
    prepared, notes = prepare(system)
    return lower_system(Draft(system, prepared, notes), sizes, cells=cells)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a plan is made from: the formula, what rules made of it, and orders of storage."""

    system: System
    prepared: System
    notes: tuple[str, ...]
    layouts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # other than the usual
    log: tuple[Entry, ...] = ()  # what the search took on its way here
    minimize: str = FLOPS  # by the orders of contraction


def lower_system(draft: Draft, sizes: Mapping[str, int], *, cells: bool = True) -> Plan:
    """The plan of a draft, its orders of contraction chosen at the given sizes."""
    return lower_in(make_context(draft, sizes), draft, cells=cells)


def make_context(draft: Draft, sizes: Mapping[str, int]) -> Context:
    """What is known before the first equation is lowered."""
    names = _reserved(draft.prepared)
    context = Context(draft.prepared, sizes, names, lower, minimize=draft.minimize)
    context.layouts = {**find_layouts(draft.prepared), **draft.layouts}
    return context


def lower_in(context: Context, draft: Draft, *, cells: bool) -> Plan:
    """The plan of a draft; the context then knows the orders of contraction."""
    system, prepared, sizes = draft.system, draft.prepared, context.sizes
    sources: dict[str, tuple[Equation, Source]] = {}
    for equation in mark_harmful(prepared).equations:
        sources[equation.target.tensor.name] = (equation, lower_equation(equation, context))
    results = tuple(_result(*sources[tensor.name], context) for tensor in system.results)
    steps = drop_unused(tuple(context.steps), results)
    steps, results = inline_result(steps, results)
    steps = share_ops(steps, set(sources), context.names)
    steps = absorb_scales(steps, results, Memory(sizes), context.names)
    if cells:
        memory = Memory(sizes)
        steps, is_changed = use_cells(steps, results, memory, system.inputs, context.names)
        steps = drop_unused(steps, results) if is_changed else steps
    steps = split_long(steps, context.names)
    notes = (*draft.notes, *context.notes, *find_notes(steps))
    return Plan(system, steps, results, dict(sizes), notes, log=draft.log)


def _reserved(system: System) -> set[str]:
    """The names that the formula itself takes."""
    names = {entry.name for entry in (*system.inputs, *system.sizes)}
    names |= {equation.target.tensor.name for equation in system.equations}
    shapes = (entry.shape for entry in system.inputs if isinstance(entry, Tensor))
    sizes = (part for shape in shapes for extent in shape for part in walk(extent))
    return names | {part.name for part in sizes if isinstance(part, Size)}


def _result(equation: Equation, source: Source, context: Context) -> Op:
    """A result with its places in the order of the left side, merged letters merged."""
    target = equation.target.tensor
    layout = layout_of(target, context)
    places = context.stored[target.name]
    wanted = tuple(i for parts in places for i in parts)
    op = arrange(source, wanted) if layout != tuple(range(len(layout))) else source
    for k, parts in reversed(list(enumerate(places))):
        if len(parts) > 1:
            start = sum(map(len, places[:k]))
            op = Flatten(op, start, start + len(parts) - 1, merge_indices(parts))
    return op


def inline_result(
    steps: tuple[Step, ...], results: tuple[Op, ...]
) -> tuple[tuple[Step, ...], tuple[Op, ...]]:
    """A lone result that is a view of the last step becomes that step."""
    *before, last = steps
    root = [part for op in results for part in walk_ops(op) if isinstance(part, Source)]
    if len(results) != 1 or len(root) != 1 or root[0].name != last.name or results[0] is root[0]:
        return steps, results
    whole = Step(last.name, exchange(results[0], {root[0]: last.op}))
    return (*before, whole), (Source(last.name, whole.axes),)


def drop_unused(steps: tuple[Step, ...], results: tuple[Op, ...]) -> tuple[Step, ...]:
    """The steps that the results need."""
    needed = {name for op in results for name in find_reads(op)}
    kept: list[Step] = []
    for step in reversed(steps):
        if step.name in needed:
            needed |= find_reads(step.op)
            kept.insert(0, step)
    return tuple(kept)
