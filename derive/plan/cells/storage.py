"""Calls that are chosen by the memory layout of their operands.

    matmul    sum_s W[r, s] x[.., s, c], a batch of products; einsum would copy x
    row       a softmax along an index that is not stored last; torch would copy the tensor
    @         a sum over a few contiguous entries, as a product with ones
    gather    x[i, p_i], one axis indexed by integers, the others by the result's own indices

Measured like the machine's defaults: a row of a sum takes 6 ns, a row of a product with ones 1 ns.
Copying an entry takes 0.7 ns in the cache and 1 ns outside, starting a matrix product 170 to 210 ns
(2 to 32 rows, 4 to 32 summed entries, 4 to 128 columns, 2 to 20 MiB).
"""

from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.polynomial import Polynomial
from derive.plan import ops
from derive.plan.calls import CellArgument, LocalName, TorchCall
from derive.plan.cells.matching import Definitions, sort_stored, strip
from derive.plan.cost import find_copied, find_copies, find_strides, find_true_axes

SHORT = 8  # entries up to which a product with ones is faster than their sum
MANY = 1 << 12  # results, or rows, from which the layout matters
LEAST = 1 << 8  # entries of each matrix from which a product takes longer than its start
THIN = 16  # columns below which a batched product is a loop over vectors
WIDE = 16  # contiguous entries from which a row operation along an outer axis is fast


def find_storage_order(op: ops.Op, definitions: Definitions) -> tuple[ir.Index, ...] | None:
    """Return the axes in storage order, the contiguous one last; None if the storage has gaps."""
    axes, memory = op.axes, definitions.memory
    order = sort_stored(op, memory)
    is_dense = find_strides(op, memory) == memory.find_dense(axes, order)
    return order if is_dense and set(find_true_axes(op)) == {*axes} else None


def match_matmul(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match a product of one matrix with each of a batch, which einsum would copy.

    Several adjacent indices of rows, of columns or of the sum are merged.
    """
    if not isinstance(op, ops.Einsum) or len(op.args) != 2:
        return None
    memory = definitions.memory
    for matrix, other in (op.args, op.args[::-1]):
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
        call = TorchCall("torch.matmul", (CellArgument(0), CellArgument(1)))
        found: ops.Op = ops.Cell(call, args, ops.Einsum(args, axes), axes)
        for place, parts in ((len(batch) + 1, columns), (len(batch), rows)):
            found = ops.Unflatten(found, place, parts) if len(parts) > 1 else found
        return ops.arrange(found, op.axes)
    return None


def match_merged_sum(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Merge the summed indices of a contraction in their storage order if that saves copies.

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
    """Compute a softmax or log-softmax of an input along an outer axis, in storage order.

    Torch would copy the tensor to have that axis last. For intermediate results, the plan chooses
    the order of the axes instead.
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
    """Match a sum or mean over a few contiguous entries."""
    if not isinstance(op, ops.Reduction) or op.kind not in {"sum", "mean"}:
        return None
    if ops.is_boolean(op.arg) or ops.is_integral(op.arg):
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
    whole = ops.Reduction(op.kind, arg, over)
    dtype = (("dtype", LocalName("dtype")),)
    ones = TorchCall(".new_ones", (LocalName("like"), CellArgument(1)), dtype)
    call = TorchCall("@", (CellArgument(0), ones))
    if op.kind == "mean":
        call = TorchCall("/", (call, CellArgument(1)))
    cell = ops.Cell(
        call, (arg, ops.Num(Polynomial.of(over[0].extent).to_expr())), whole, whole.axes
    )
    return ops.arrange(cell, kept)


def match_gather(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match entries indexed by integers along one axis and by the result's indices along others."""
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
    call = TorchCall(
        ".gather", (CellArgument(0), place, TorchCall(".unsqueeze", (CellArgument(1), place)))
    )
    call = TorchCall(".squeeze", (call, place))  # gather keeps the axis
    return ops.arrange(ops.Cell(call, (arg, integers), ops.arrange(op, own), own), axes)
