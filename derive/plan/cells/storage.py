"""Calls that are chosen by the memory layout of their operands.

    matmul    sum_s W[r, s] x[.., s, c], a batch of products; einsum would copy x
    stack     an operand with two short axes transposed relative to the other operand
    row       a softmax along an index that is not stored last; torch would copy the tensor
    @         a sum over a few contiguous entries, as a product with ones
    windows   x[.., t + k] along the last axis, copied so that torch's inner loop runs over t, not k
    gather    x[i, p_i], one axis indexed by integers, the others by the result's own indices

Measured like the machine's defaults: a row of a sum takes 6 ns, a row of a product with ones 1 ns.
Copying an entry takes 0.7 ns in the cache and 1 ns outside, starting a matrix product 170 to 210 ns
(2 to 32 rows, 4 to 32 summed entries, 4 to 128 columns, 2 to 20 MiB).
"""

from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.polynomial import Polynomial
from derive.plan import ops
from derive.plan.cells.matching import Definitions, is_floating, list_pairs, sort_stored, strip
from derive.plan.cost import Storage, find_copied, find_copies, find_strides, find_true_axes
from derive.plan.lower.patterns import make_cell, split_axes

STACK = "_stack_windows"  # a function of the file
SHORT = 8  # entries up to which a product with ones is faster than their sum
MANY = 1 << 12  # results, or rows, from which the layout matters
LEAST = 1 << 8  # entries of each matrix from which a product takes longer than its start
THIN = 16  # columns below which a batched product is a loop over vectors
FEW = 5  # extent from which torch reads a transposed operand as fast
LARGE = 1 << 20  # entries from which windows are worth a loop over blocks
WIDE = 16  # contiguous entries from which a row operation along an outer axis is fast


def find_storage_order(op: ops.Op, definitions: Definitions) -> tuple[ir.Index, ...] | None:
    """Return the axes in storage order, the contiguous one last; None if the storage has gaps."""
    axes, memory = op.axes, definitions.memory
    order = sort_stored(op, memory)
    is_dense = find_strides(op, memory) == memory.find_dense(axes, order)
    return order if is_dense and set(find_true_axes(op)) == {*axes} else None


def match_matmul(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A product of one matrix with each of a batch, which einsum would copy, as matmul; or None.

    Several adjacent indices of rows, of columns or of the sum are merged.
    """
    memory = definitions.memory
    for matrix, other in list_pairs(op):
        summed = {i for i in matrix.axes if i not in op.axes}
        rows = tuple(i for i in matrix.axes if i not in summed)
        stored = find_storage_order(other, definitions)
        if stored is None or other not in find_copied(op, memory):
            continue
        if not summed or not rows or {*rows} & {*stored} or not summed <= {*stored}:
            continue
        ends = [k for k, i in enumerate(stored) if i in summed]
        inside, after = stored[ends[0] : ends[-1] + 1], stored[ends[-1] + 1 :]
        before = stored[: ends[0]]
        columns, batch = (after, before) if after else (before[-1:], before[:-1])
        if len(inside) > len(summed) or not batch or {*rows, *batch, *columns} != {*op.axes}:
            continue
        if memory.count(columns) < THIN or memory.count((*inside, *columns)) < LEAST:
            continue
        if memory.count(matrix.axes) > memory.count(stored):
            continue
        one = ops.merge(strip(matrix), [rows, inside])
        two = ops.merge(strip(other), [*((i,) for i in before), inside, after])
        row, middle = one.axes
        (column,) = (i for i in two.axes[len(batch) :] if i is not middle)
        args, axes = (one, ops.arrange(two, (*batch, middle, column))), (*batch, row, column)
        given = dict(zip("xy", args, strict=True))
        found = make_cell("torch.matmul(x, y)", given, ops.Einsum(args, axes))
        groups = [*((i,) for i in batch), rows, columns]
        return ops.arrange(split_axes(found, groups), op.axes)
    return None


def match_merged_sum(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A contraction with its summed indices merged in storage order, if that saves copies, or None.

    Einsum merges them in the order of their names, and copies operands stored in another order.
    """
    if not isinstance(op, ops.Einsum) or not find_copied(op, definitions.memory):
        return None
    for lead in op.args:
        stored = find_storage_order(lead, definitions) or ()
        summed = tuple(i for i in stored if i not in op.axes)
        if len(summed) < 2:
            continue
        kept = ([(i,) for i in arg.axes if i not in summed] for arg in op.args)
        pairs = zip(op.args, kept, strict=True)
        merged = tuple(ops.merge(strip(arg), [*each, summed]) for arg, each in pairs)
        found = ops.Einsum(merged, op.axes)
        if _count_copies(found, definitions) < _count_copies(op, definitions):
            return found
    return None


def _count_copies(op: ops.Einsum, definitions: Definitions) -> int:
    return sum(find_copies(part, definitions.memory) for part in (op, *op.args))


def match_row_in_place(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A softmax or log-softmax of an input along an outer axis, in storage order, or None.

    Torch would copy the tensor to have that axis last. Other tensors are stored so by the plan.
    """
    if not isinstance(op, ops.Along) or not ROWS[op.kind].ignores_shift:
        return None
    if ops.find_reads(op.arg) & definitions.steps.keys():
        return None
    stored = find_storage_order(op.arg, definitions)
    if stored is None or stored == op.arg.axes:
        return None
    if definitions.memory.count(stored[stored.index(op.index) + 1 :]) < WIDE:
        return None
    arg = ops.arrange(strip(op.arg), stored)
    return ops.arrange(ops.Along(op.kind, arg, op.index), op.axes)


def match_short_sum(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A sum or mean over 2 to 8 contiguous entries as a product with ones, or None."""
    if not isinstance(op, ops.Reduction) or op.kind not in {"sum", "mean"}:
        return None
    if not is_floating(op.arg):
        return None
    memory, stored = definitions.memory, find_storage_order(op.arg, definitions)
    kept = op.axes
    if stored is None or {*stored[len(kept) :]} != {*op.over} or not kept:
        return None
    if not 1 < memory.count(op.over) <= SHORT or memory.count(kept) < MANY:
        return None
    at = len(kept)
    arg = ops.merge(strip(op.arg), [*((i,) for i in stored[:at]), stored[at:]])
    over = arg.axes[-1:]
    given = {"x": arg, "n": ops.Num(Polynomial.of(over[0].extent).to_expr())}
    text = f"x @ like.new_ones(n, dtype=dtype){' / n' if op.kind == 'mean' else ''}"
    return ops.arrange(make_cell(text, given, ops.Reduction(op.kind, arg, over)), kept)


def match_transposed_operand(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """An operation with operands copied whose two last, short axes are transposed; or None.

    Torch's inner loop over 2 or 3 contiguous entries of both takes ten times as long as the stack.
    """
    if not isinstance(op, ops.Apply):
        return None
    memory, first, args = definitions.memory, None, list[ops.Op]()
    for arg in op.args:
        stored = find_storage_order(arg, definitions) if len(arg.axes) > 2 else None
        if stored is None or memory.count(stored[:-2]) < MANY:
            pass
        elif first is None:
            first = stored
        elif stored == (*first[:-2], *first[:-3:-1]) and max(map(memory.extent, first[-2:])) < FEW:
            given = ops.arrange(strip(arg), stored)
            text = f"torch.stack(x.unbind({len(first) - 2}), {len(first) - 1})"
            cell = make_cell(text, {"x": given}, ops.arrange(given, first), first)
            args.append(ops.arrange(cell, arg.axes))
            continue
        args.append(arg)
    return ops.with_args(op, tuple(args)) if args != [*op.args] else None


def count_window_rows(op: ops.Op, memory: Storage) -> int:
    """Count windows that torch loops over one by one (short, not adjacent); 0 if there are none."""
    strides = dict(zip(op.axes, find_strides(op, memory), strict=True))
    while isinstance(op, ops.Unfold):
        short, apart = memory.extent(op.inner), strides.get(op.outer, 0)
        is_short = 1 < short < memory.extent(op.outer) and apart != short
        if strides.get(op.inner) == 1 and is_short:
            return memory.count(strides) // short
        op = op.arg
    return 0


def match_window_product(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A contraction of windows as a product and a sum, which copies no windows, or None."""
    if not isinstance(op, ops.Einsum) or len(op.args) != 2:
        return None
    other, large = sorted(op.args, key=lambda arg: len(arg.axes))
    memory, small = definitions.memory, other.axes
    if large not in find_copied(op, memory) or memory.count(large.axes) < MANY:
        return None
    if not isinstance(strip(large), ops.Unfold) or not {*small} < {*large.axes}:
        return None
    order = list(op.axes)
    for index in reversed(small):  # summed indices keep their order in the smaller operand
        if index not in order:
            after = small[small.index(index) + 1 :]
            order.insert(min([order.index(i) for i in after], default=len(order)), index)
    over = tuple(i for i in small if i not in op.axes)
    product = ops.combine("*", (other, large), tuple(order))
    return ops.arrange(ops.Reduction("sum", product, over), op.axes)


def match_windows(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """An elementwise operation on copies of windows, whose longer index is contiguous, or None.

    Both indices of a window have stride 1, and torch's inner loop runs over the shorter one, unless
    another operand determines the order. Windows with several readers are copied in any case.
    """
    if not isinstance(op, (ops.Apply, ops.Fill, ops.Choose)):
        return None
    memory, args = definitions.memory, op.args
    copied = tuple(_copy_windows(arg, op.axes, memory) for arg in args)
    if copied == args:
        return None
    found = ops.with_args(op, copied)
    read = {strip(arg) for arg, made in zip(args, copied, strict=True) if made is not arg}
    steps = definitions.steps.values()
    if sum(part in read for step in steps for part in ops.walk_ops(step.op)) > len(read):
        return found
    is_turned = sort_stored(op, memory)[-1:] != sort_stored(found, memory)[-1:]
    return found if is_turned else None


def _copy_windows(op: ops.Op, order: tuple[ir.Index, ...], memory: Storage) -> ops.Op:
    """Copy windows so that the index within a window precedes the window's position.

    It also precedes the axes that follow it in the reader. In a tensor large enough for a loop over
    blocks, windows along other than the last axis remain views.
    """
    view = strip(op)
    if not isinstance(view, ops.Unfold) or count_window_rows(view, memory) < MANY:
        return op
    is_large = memory.count(view.axes) >= LARGE
    made, axes = _stack_windows(view, order, memory, is_large=is_large), op.axes
    return ops.arrange(made, axes)


def _stack_windows(
    view: ops.Op, order: tuple[ir.Index, ...], memory: Storage, *, is_large: bool
) -> ops.Op:
    if not isinstance(view, ops.Unfold):
        return view
    arg = strip(_stack_windows(view.arg, order, memory, is_large=is_large))
    place = arg.axes.index(view.arg.axes[view.place])
    view = ops.Unfold(arg, place, view.outer, view.inner, view.step)
    if is_large and not count_window_rows(view, memory):
        return view
    rest, short = view.axes[:-1], view.inner
    first = order[: order.index(short)] if short in order else ()
    at = next((k for k, i in enumerate(rest) if i not in first or i is view.outer), 0)
    axes = (*rest[:at], short, *rest[at:])
    given = {"x": arg, "n": ops.Num(short.extent), "step": ops.Num(view.step)}
    return make_cell(f"{STACK}(x, {place}, n, step, {at})", given, ops.arrange(view, axes), axes)


def match_gather(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """x[i, p_i], with integers on one axis and own indices on the others, as a gather; or None."""
    match op:
        case ops.Take(arg, _, by, axes) if len(by) == len(arg.axes) == len(axes) + 1:
            opened = [definitions.definition_of(strip(each)) for each in by]
        case _:
            return None
    data_places = [k for k, each in enumerate(opened) if not isinstance(each, ops.Iota)]
    own = tuple(each.index for each in opened if isinstance(each, ops.Iota))
    if len(data_places) != 1 or set(own) != set(axes):
        return None
    place, integers = data_places[0], ops.arrange(strip(by[data_places[0]]), own)
    # gather keeps the axis
    text = f"x.gather({place}, t.unsqueeze({place})).squeeze({place})"
    cell = make_cell(text, {"x": arg, "t": integers}, ops.arrange(op, own), own)
    return ops.arrange(cell, axes)
