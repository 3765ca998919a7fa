"""From a system to a plan: rewrite and lower each equation, then share what stands twice."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from derive.ir.nodes import Size, System, Tensor
from derive.ir.walk import walk
from derive.plan.align import arrange
from derive.plan.context import Context, is_truth, layout_of
from derive.plan.layout import find_layouts
from derive.plan.lower import lower, lower_equation
from derive.plan.naming import free_name, name_op, name_part
from derive.plan.ops import (
    VIEWS,
    Along,
    Arrange,
    Cast,
    Einsum,
    Fill,
    Flatten,
    Num,
    NumTensor,
    Op,
    Reduction,
    Source,
    Unflatten,
    args_of,
    axes_of,
    merge_indices,
    with_args,
)
from derive.plan.steps import Plan, Step, walk_ops
from derive.rewrite.recipes import prepare

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.ir.nodes import Equation


LINE = 78  # columns of an expression that still reads at a glance
SHORTEST = 12  # columns below which a part needs no name
COLUMNS = {Einsum: 34, Along: 23, Fill: 23, Reduction: 9, Cast: 14, Arrange: 9, Unflatten: 21}


def make_plan(system: System, sizes: Mapping[str, int]) -> Plan:
    """The plan of a system, its orders of contraction chosen at the given sizes."""
    prepared, notes = prepare(system)
    context = Context(prepared, sizes, _reserved(system), lower)
    context.layouts = find_layouts(prepared)
    sources: dict[str, tuple[Equation, Source]] = {}
    for equation in prepared.equations:
        context.names.discard(equation.target.tensor.name)
        sources[equation.target.tensor.name] = (equation, lower_equation(equation, context))
    results = tuple(_result(*sources[tensor.name], context) for tensor in system.results)
    steps = drop_unused(tuple(context.steps), results)
    steps, results = inline_result(steps, results)
    steps = split_long(share_ops(steps), context.names)
    return Plan(system, steps, results, dict(sizes), notes)


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
    whole = Step(last.name, _replace(results[0], root[0], last.op))
    return (*before, whole), (Source(last.name, whole.axes),)


def drop_unused(steps: tuple[Step, ...], results: tuple[Op, ...]) -> tuple[Step, ...]:
    """The steps that the results need."""
    needed = _find_names(results)
    kept: list[Step] = []
    for step in reversed(steps):
        if step.name in needed:
            needed |= _find_names((step.op,))
            kept.insert(0, step)
    return tuple(kept)


def _find_names(ops: tuple[Op, ...]) -> set[str]:
    return {part.name for op in ops for part in walk_ops(op) if isinstance(part, Source)}


def share_ops(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Operations that stand more than once, each computed in a step of its own."""
    taken = {step.name for step in steps}
    while True:
        counts = Counter(op for step in steps for op in walk_ops(step.op) if _is_work(op))
        twice = [op for op, times in counts.items() if times > 1]
        if not twice:
            return steps
        op = max(twice, key=lambda op: sum(1 for _ in walk_ops(op)))
        name = free_name(name_op(op, steps[-1].name), taken)
        taken.add(name)
        steps = _extract(op, name, steps)


def split_long(steps: tuple[Step, ...], taken: set[str]) -> tuple[Step, ...]:
    """Lines too long to read, in two: the part nearest to half of it gets a name."""
    taken |= {step.name for step in steps}
    out: list[Step] = []
    for step in steps:
        whole = step.op
        while _length(whole) > LINE and (part := _find_half(whole)) is not None:
            name = free_name(name_part(part, whole, step.name), taken)
            taken.add(name)
            out += split_long((Step(name, part),), taken)
            source = Source(name, axes_of(part), "bool" if is_truth(part) else "real")
            whole = _replace(whole, part, source)
        out.append(Step(step.name, whole))
    return tuple(out)


def _length(op: Op) -> int:
    """About how many columns its text takes."""
    own = len(op.name) if isinstance(op, Source) else COLUMNS.get(type(op), 4)
    return own + sum(map(_length, args_of(op)))


def _find_half(whole: Op) -> Op | None:
    parts = [part for part in walk_ops(whole) if part is not whole and _is_work(part)]
    half = _length(whole) / 2
    best = min(parts, key=lambda part: abs(_length(part) - half), default=None)
    return best if best is not None and _length(best) >= SHORTEST else None


def _is_work(op: Op) -> bool:
    return not isinstance(op, (*VIEWS, Num, NumTensor))


def _extract(op: Op, name: str, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The operation as a step before its first use, and its name in its place everywhere."""
    first = next(k for k, step in enumerate(steps) if op in tuple(walk_ops(step.op)))
    if steps[first].op is op:
        name = steps[first].name
        before, after = steps[: first + 1], steps[first + 1 :]
    else:
        before, after = (*steps[:first], Step(name, op)), steps[first:]
    source = Source(name, axes_of(op), "bool" if is_truth(op) else "real")
    return (*before, *(Step(step.name, _replace(step.op, op, source)) for step in after))


def _replace(whole: Op, old: Op, new: Op) -> Op:
    if whole is old:
        return new
    args = args_of(whole)
    return with_args(whole, tuple(_replace(a, old, new) for a in args)) if args else whole
