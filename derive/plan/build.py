"""From a system to a plan: lower equations, simplify the steps, call torch.

A number that scales a product is moved to the product's smallest operand. Lines too long to read
are split.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from derive.ir import functions
from derive.ir import nodes as ir
from derive.ir.norms import is_norm
from derive.ir.walk import find_entry_names
from derive.plan import ops
from derive.plan.cells import use_cells
from derive.plan.cells.linear import join_systems
from derive.plan.cells.matching import count_reads, rename_free_indices, sort_stored, strip
from derive.plan.common import (
    eliminate_common,
    is_work,
    share_orders,
    strip_permutes,
    to_product_key,
)
from derive.plan.cost import Storage, find_strides, is_matrix_product, time_op
from derive.plan.lower import lower, lower_equation
from derive.plan.lower.context import Context, find_layouts
from derive.plan.lower.orders import lower_rank
from derive.plan.lower.patterns import make_cell
from derive.plan.lower.product import FINITE
from derive.plan.masks import use_factors
from derive.plan.meaning import find_values, to_expr
from derive.plan.path import FLOPS
from derive.plan.plan import Plan
from derive.plan.steps import Step, free_name, is_mask, name_part
from derive.rewrite.guards import mark_harmful
from derive.rewrite.recipes import prepare
from derive.rewrite.rounding import find_roundable


def make_plan(system: ir.System, sizes: Mapping[str, int], *, cells: bool = True) -> Plan:
    """The plan of a system after the rules that always apply; `plan.search` finds better ones."""
    prepared, notes = prepare(system)
    return lower_system(Form(system, prepared, notes), sizes, cells=cells)


@dataclass(frozen=True, slots=True)
class Form:
    """A formula, and the system that rules rewrote it to: the input of lowering."""

    system: ir.System
    prepared: ir.System
    notes: tuple[str, ...]
    minimize: str = FLOPS  # the objective of contraction orders
    transforms: bool = False  # whether sums use fast Fourier transforms


def lower_system(
    form: Form,
    sizes: Mapping[str, int],
    *,
    cells: bool = True,
    chunks: bool = True,
    exact: bool = True,
) -> Plan:
    """The plan of a form, with contraction orders chosen at the given sizes."""
    system, prepared = form.system, form.prepared
    context = Context(prepared, sizes, find_entry_names(prepared), lower, minimize=form.minimize)
    context.layouts = {**find_layouts(prepared)}
    context.cells, context.compare = cells, lower_rank if cells else None
    marked = mark_harmful(prepared)
    context.roundable = find_roundable(marked) if not exact else set()
    context.transforms = form.transforms
    sources = {e.target.tensor.name: lower_equation(e, context) for e in marked.equations}
    names = [tensor.name for tensor in system.results]  # axes in the order of the left side
    results = tuple(ops.merge(sources[name], context.stored[name]) for name in names)
    steps = drop_unused(tuple(context.steps), results)
    steps, results = inline_result(steps, results)
    steps = pull_scales(steps)
    while steps != (
        steps := eliminate_common(share_orders(steps, set(sources)), set(sources), context.names)
    ):
        pass  # a new step is one operand in any order of axes: repeat to a fixed point
    steps = move_scales(steps, results, Storage(sizes), context.names)
    if cells:
        memory = Storage(sizes)
        known = (*system.inputs, *(e.target.tensor for e in prepared.equations))
        steps, is_changed = use_cells(
            steps,
            results,
            memory,
            known,
            context.names,
            varying=system.varying,
            chunks=chunks,
            exact=exact,
        )
        if is_changed:
            steps = eliminate_common(drop_unused(steps, results), set(sources), context.names)
            steps = join_systems(steps, context.names)
    if (factored := use_factors(steps)) != steps:
        context.notes[FINITE] = None
        steps = eliminate_common(factored, set(sources), context.names)
    steps = use_norms(steps)
    steps, results = keep_in_place(steps, results, Storage(sizes))
    steps = match_kinds(split_long(steps, context.names), prepared)
    if not any(is_mask(part) for step in steps for part in ops.walk_ops(step.op)):
        context.notes.pop(FINITE, None)  # the masks went into calls of torch
    found = (part.note for s in steps for part in ops.walk_ops(s.op) if isinstance(part, ops.Cell))
    notes = (*form.notes, *context.notes, *dict.fromkeys(filter(None, found)))
    orders = tuple(context.orders)
    return Plan(system, steps, results, dict(sizes), notes, orders=orders)


NORM = "_norm"


def use_norms(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Replace roots of sums of squares by norms, whose gradient at 0 is 0 instead of undefined."""
    applied = (op for step in steps for op in ops.walk_ops(step.op) if isinstance(op, ops.Apply))
    is_rooted = any(op.function in {"sqrt", "pow"} for op in applied)
    known = find_values(steps) if is_rooted else {}

    def use_norm(op: ops.Op) -> ops.Op:
        args = tuple(map(use_norm, op.args))
        here = ops.with_args(op, args)
        match op:
            case ops.Apply("sqrt" | "pow") if is_norm(to_expr(op), known):
                given = dict(zip("xp", args, strict=False))
                return make_cell(f"{NORM}({', '.join(given)})", given, here)
        return here

    return tuple(Step(step.name, use_norm(step.op)) for step in steps) if is_rooted else steps


def inline_result(
    steps: tuple[Step, ...], results: tuple[ops.Op, ...]
) -> tuple[tuple[Step, ...], tuple[ops.Op, ...]]:
    """(steps, results) with the last step inlined if the only result is a view of it."""
    if not steps:  # the results are views of arguments
        return steps, results
    *before, last = steps
    root = [part for op in results for part in ops.walk_ops(op) if isinstance(part, ops.Source)]
    if len(results) != 1 or len(root) != 1 or root[0].name != last.name or results[0] is root[0]:
        return steps, results
    op = ops.exchange(results[0], {root[0]: last.op})
    whole = Step(
        last.name,
        ops.flatten(op.arg, op.start, op.end, op.index) if isinstance(op, ops.Flatten) else op,
    )
    return (*before, whole), (ops.to_source(last.name, whole.op),)


def drop_unused(steps: tuple[Step, ...], results: tuple[ops.Op, ...]) -> tuple[Step, ...]:
    """The steps that the results depend on."""
    needed = {name for op in results for name in ops.find_reads(op)}
    kept: list[Step] = []
    for step in reversed(steps):
        if step.name in needed:
            needed |= ops.find_reads(step.op)
            kept.insert(0, step)
    return tuple(kept)


def match_kinds(steps: tuple[Step, ...], system: ir.System) -> tuple[Step, ...]:
    """Cast real operands of complex products to complex, as torch requires."""
    made = {e.name for e in system.inputs if isinstance(e, ir.Tensor) and e.kind == "complex"}

    def cast_operands(op: ops.Op) -> ops.Op:
        args = tuple(map(cast_operands, op.args))
        if isinstance(op, ops.Source):
            return ops.Source(op.name, op.axes, "complex") if op.name in made else op
        if isinstance(op, ops.Einsum) and any(map(ops.is_complex, args)):
            args = tuple(a if ops.is_complex(a) else ops.Cast(a, "complex") for a in args)
        return ops.with_args(op, args)

    is_real = not any(functions.holds_complex(equation.value) for equation in system.equations)
    if is_real and not any(isinstance(op, ops.Fourier) for s in steps for op in ops.walk_ops(s.op)):
        return steps
    found = []
    for step in steps:
        found.append(Step(step.name, cast_operands(step.op)))
        made |= {step.name} if ops.is_complex(found[-1].op) else set()
    return tuple(found)


LINE = 78  # columns of an expression that still reads at a glance
SHORTEST = 12  # columns below which a part needs no name
COLUMNS = {
    ops.Einsum: 34,
    ops.Along: 23,
    ops.Fill: 23,
    ops.Reduction: 9,
    ops.Cast: 14,
    ops.Arrange: 9,
    ops.Unflatten: 21,
}


def pull_scales(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Move numbers out of products that differ in them alone: (2*x) @ y is 2*(x @ y)."""
    scales: dict[Hashable, set[ir.Expr]] = {}
    for step in steps:
        for op in ops.walk_ops(step.op):
            if isinstance(op, ops.Einsum):
                bare, scale = _split_scale(op)
                scales.setdefault(to_product_key(bare)[0], set()).add(scale)

    def pull_scale(op: ops.Op) -> ops.Op:
        here = ops.with_args(op, tuple(map(pull_scale, op.args)))
        if isinstance(here, ops.Einsum) and isinstance(op, ops.Einsum):
            bare, scale = _split_scale(op)
            if scale is not ir.ONE and len(scales[to_product_key(bare)[0]]) > 1:
                return ops.Apply("*", (_split_scale(here)[0], ops.Num(scale)), here.axes)
        return here

    return tuple(Step(step.name, pull_scale(step.op)) for step in steps)


def _split_scale(op: ops.Einsum) -> tuple[ops.Einsum, ir.Expr]:
    """The product without the numbers in its operands, and the product of these numbers."""
    args, numbers = list[ops.Op](), list[ir.Expr]()
    for arg in op.args:
        match arg:
            case ops.Apply("*", (bare, ops.Num(number)), axes) if bare.axes == axes:
                args.append(bare)
                numbers.append(number)
            case _:
                args.append(arg)
    return ops.Einsum(tuple(args), op.axes), ir.product_of(numbers)


def split_long(steps: tuple[Step, ...], taken: set[str]) -> tuple[Step, ...]:
    """Split lines that are too long: the part nearest to half the length becomes a step."""
    taken |= {step.name for step in steps}
    out: list[Step] = []
    for step in steps:
        whole = step.op
        while _length(whole) > LINE and (part := _find_half(whole)) is not None:
            name = free_name(name_part(part, whole, step.name), taken)
            taken.add(name)
            out += split_long((Step(name, part),), taken)
            whole = ops.exchange(whole, {part: ops.to_source(name, part)})
        out.append(Step(step.name, whole))
    return tuple(out)


def _length(op: ops.Op) -> int:
    """The approximate number of columns of the printed text."""
    own = len(op.name) if isinstance(op, ops.Source) else COLUMNS.get(type(op), 4)
    return own + sum(map(_length, op.args))


def _find_half(whole: ops.Op) -> ops.Op | None:
    parts = [part for part in ops.walk_ops(whole) if part is not whole and is_work(part)]
    half = _length(whole) / 2
    best = min(parts, key=lambda part: abs(_length(part) - half), default=None)
    return best if best is not None and _length(best) >= SHORTEST else None


WORTH = 2  # size of a product over its operand from which scaling the operand pays


def keep_in_place(
    steps: Sequence[Step], results: Sequence[ops.Op], memory: Storage
) -> tuple[tuple[Step, ...], tuple[ops.Op, ...]]:
    """(the steps, the results) with operations along an index in the arguments' storage order.

    Torch is as fast along any index as along the last one, if enough entries are contiguous. A
    product of two matrices is computed in the axis order that is faster for its readers.
    """
    shown = {name for op in results for name in ops.find_reads(op)}
    turned: dict[str, tuple[int, ...]] = {}  # for each axis of a step, its position before
    made_here = {step.name for step in steps}  # stored in an order that was chosen for the readers

    def restore_op(op: ops.Op) -> ops.Op:
        args = tuple(map(restore_op, op.args))
        here = ops.with_args(op, args)
        match here:
            case ops.Along(kind, arg, index, None) if not ops.find_reads(arg) & made_here and (
                order := _find_order(here, memory)
            ):
                return ops.arrange(ops.Along(kind, _reorder_axes(arg, order), index), arg.axes)
            case ops.Reduction(kind, ops.Apply() as arg, over) if (
                not functions.ROWS[kind].is_matrix  # these work on the last two axes
            ):
                order = sort_stored(arg, memory)
                if order == arg.axes:
                    return here
                made = ops.Reduction(kind, _reorder_axes(arg, order), over)
                return ops.arrange(made, op.axes)
            case ops.Source(name, axes, kind) if name in turned:
                own = tuple(axes[k] for k in turned[name])
                return ops.arrange(ops.Source(name, own, kind), axes)
            case ops.Arrange(ops.Einsum(parts, own) as arg, axes) if is_matrix_product(arg):
                return ops.Einsum(parts, axes) if {*own} == {*axes} else here
            case ops.Arrange(ops.Along(kind, ops.Einsum(parts) as arg, index, None), axes) if (
                is_matrix_product(arg) and axes[-1] is index
            ):
                return ops.Along(kind, ops.Einsum(parts, axes), index)
            case ops.Arrange(arg, axes) if here is not op:
                return ops.arrange(strip(arg), axes)
            case ops.Einsum() if here is not op:
                return ops.with_args(op, tuple(_restore_order(arg, memory) for arg in args))
        return here

    done: list[Step] = []
    for step in steps:
        op = restore_op(step.op)
        if isinstance(op, ops.Einsum) and is_matrix_product(op) and step.name not in shown:
            read = [each.op for each in steps if step.name in ops.find_reads(each.op)]
            op = _order_matrices(op, step.name, read, memory)
        if _has_free_order(step.op, op) and strip_permutes(op) is not op:
            assert isinstance(op, ops.Arrange)
            turned[step.name] = tuple(op.axes.index(i) for i in op.arg.axes)
            op = op.arg
        done.append(Step(step.name, op) if op is not step.op else step)
        memory.record_strides([(step.name, op)])
    return tuple(done), tuple(map(restore_op, results))


def _has_free_order(whole: ops.Op, op: ops.Op) -> bool:
    """Whether a step's axes can be in any order: `whole` runs along axes, or `op` is a call."""
    made = strip(op)
    while isinstance(made, ops.Unflatten):
        made = made.arg
    return isinstance(whole, (ops.Along, ops.Einsum, ops.Reduction)) or isinstance(made, ops.Cell)


def _order_matrices(
    product: ops.Einsum, name: str, read: Sequence[ops.Op], memory: Storage
) -> ops.Op:
    """The product in the axis order that is faster for its readers, or has fewer transposes."""

    def weigh_order(axes: tuple[ir.Index, ...]) -> tuple[float, int]:
        memory.strides[name] = memory.find_dense(product.axes, axes)
        parts = (part for op in read for part in ops.walk_ops(op))
        own = [arg.axes for arg in product.args]
        turned = sum(
            (i in axes) and own_axes.index(i) != axes.index(i) for own_axes in own for i in own_axes
        )
        return sum(time_op(part, memory) for part in parts), turned

    axes = min((product.axes, product.axes[::-1]), key=weigh_order)
    return ops.arrange(ops.Einsum(product.args, axes), product.axes)


BESIDE = 16  # contiguous entries below which torch is faster along the last index


def _find_order(along: ops.Along, memory: Storage) -> tuple[ir.Index, ...] | None:
    """The argument's storage order, if an operation along the index is fast in it; else None."""
    order = sort_stored(along.arg, memory)
    axes = along.arg.axes
    is_dense = memory.find_dense(axes, order) == find_strides(along.arg, memory)
    if not functions.ROWS[along.kind].ignores_shift or order[-1] is along.index or not is_dense:
        return None
    return order if memory.count(order[order.index(along.index) + 1 :]) >= BESIDE else None


def _restore_order(arg: ops.Op, memory: Storage) -> ops.Op:
    """An elementwise operand in the storage order of its own operands; others unpermuted."""
    arg = strip(arg)
    return _reorder_axes(arg, sort_stored(arg, memory)) if isinstance(arg, ops.Apply) else arg


def _reorder_axes(op: ops.Op, order: tuple[ir.Index, ...]) -> ops.Op:
    """The elementwise operation with its axes in another order."""
    match op:
        case ops.Arrange(arg):
            return _reorder_axes(arg, order)
        case ops.Apply(function, args):
            parts = [a if isinstance(a, ops.Num) else _reorder_axes(a, order) for a in args]
            return ops.combine(function, parts, order)
    return ops.arrange(op, ops.sort_axes(op.axes, order))


def move_scales(
    steps: Sequence[Step], results: Sequence[ops.Op], memory: Storage, taken: Collection[str]
) -> tuple[Step, ...]:
    """Move scales from the readers of products to an operand; new names avoid `taken`."""
    done = tuple(steps)
    names = {*taken, *(step.name for step in steps)}
    reads = count_reads(steps, results)
    for product in steps:
        if reads[product.name] != 1 or not isinstance(product.op, ops.Einsum):
            continue
        counts = [memory.count(arg.axes) for arg in product.op.args]
        place = counts.index(min(counts))
        for reader in done:
            if product.name not in ops.find_reads(reader.op):
                continue
            scaled = _find_scaled(reader.op, product.name)
            if scaled is not None and memory.count(product.axes) >= WORTH * counts[place]:
                done = _move_scale(done, product, place, (reader, scaled), names)
                names |= {step.name for step in done}
    return done


def _find_scaled(op: ops.Op, name: str) -> ops.Apply | None:
    """The part of `op` that multiplies or divides this tensor by a number, or None."""
    for part in ops.walk_ops(op):
        match part:
            case ops.Apply("*" | "/", (ops.Source() as read, ops.Num()), axes):
                if read.name == name and read.axes == axes:
                    return part
    return None


def _move_scale(
    steps: tuple[Step, ...],
    product: Step,
    place: int,
    read: tuple[Step, ops.Apply],
    taken: Collection[str],
) -> tuple[Step, ...]:
    """Scale the operand at `place` of a product, not its result; `read`: (reader, scaled part)."""
    reader, scaled = read
    assert isinstance(product.op, ops.Einsum)
    args = list(product.op.args)
    args[place] = ops.Apply(scaled.function, (args[place], scaled.args[1]), args[place].axes)
    op = rename_free_indices(
        ops.Einsum(tuple(args), product.op.axes), dict(zip(product.axes, scaled.axes, strict=True))
    )
    is_all = reader.op is scaled
    made = Step(reader.name if is_all else free_name(f"{product.name}_scaled", taken), op)
    done = [made if step is product else step for step in steps if step is not reader or not is_all]
    left = ops.exchange(reader.op, {scaled: ops.Source(made.name, scaled.axes)})
    return tuple(Step(reader.name, left) if step is reader else step for step in done)
