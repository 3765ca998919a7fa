"""Contractions: operands multiplied in pairs and summed, and other reductions index by index.

sum_jk a_ij b_jk c_k = sum_j a_ij (sum_k b_jk c_k)      max_jk (a_ij + b_jk), likewise
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import reduce as fold

from derive.analysis.facts import is_never_negative
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.walk import find_free
from derive.plan import ops
from derive.plan.lower.context import Context
from derive.plan.lower.number import lower_number, scale
from derive.plan.path import Order, Path, count_operations, find_path

WORTH = 1 << 18  # multiplications in a matrix product from which its orientation matters
THIN = 16  # rows below which the layout of its operands dominates a matrix product


def order_operand(
    order: Sequence[ir.Index],
    own: Collection[ir.Index],
    others: Collection[ir.Index],
    bound: Sequence[ir.Index],
) -> tuple[ir.Index, ...]:
    """Return the axes of an operand that torch multiplies without a copy: batch, own, summed."""
    summed = sorted((i for i in own if i in bound), key=lambda i: i.name)
    kept = [i for i in dict.fromkeys((*order, *own)) if i in own and i not in bound]
    return (*sorted(kept, key=lambda i: i not in others), *summed)


def contract(
    operands: list[ops.Op],
    bound: tuple[ir.Index, ...],
    number: ir.Expr,
    context: Context,
    order: tuple[ir.Index, ...],
) -> ops.Op:
    """Multiply operands and a number, in pairs, and sum over the bound indices."""
    idle = [i.extent for i in bound if all(i not in op.axes for op in operands)]
    number = ir.Mul((number, *idle)) if idle else number
    if not operands:
        return lower_number(number)
    axes = ops.sort_axes((i for op in operands for i in op.axes if i not in bound), order)
    negative = number is ir.MINUS_ONE
    late = None
    if number is not ir.ONE and not negative:
        smallest = min(range(len(operands)), key=lambda k: context.count(operands[k].axes))
        if context.count(axes) < context.count(operands[smallest].axes):
            late = number
        else:
            operands[smallest] = scale(operands[smallest], number)
    if len(operands) > 1:
        counts = Counter(i for op in operands for i in dict.fromkeys(op.axes))
        alone = (tuple(i for i in o.axes if counts[i] < 2 and i not in axes) for o in operands)
        operands = list(map(sum_operand, operands, alone))
    inverses = [op for op in operands if _is_inverse(op, context)]
    rows = {op.axes[-2] for op in inverses}  # solving from the left needs no transpose
    parts = sorted(operands, key=lambda op: op not in inverses and {*op.axes} & rows != set())
    inner = (*(i for i in order if i not in bound), *bound)
    extents = {i: context.extent(i) for op in parts for i in op.axes}
    path = find_path([op.axes for op in parts], axes, extents, context.minimize)
    path = _prefer_row_sums(path, parts, axes, context) if len(parts) == 3 and bound else path
    if len(parts) > 2 and bound:
        context.orders.append(Order(tuple(parts), axes, context.minimize, path))
    for pair in path:
        met = [parts[k] for k in pair]
        parts = [op for k, op in enumerate(parts) if k not in pair]
        needed = {*axes, *(i for op in parts for i in op.axes)}
        kept = ops.sort_axes((i for op in met for i in op.axes if i in needed), inner)
        if parts and set(kept) == {i for op in met for i in op.axes}:
            kept = order_operand(inner, kept, {i for op in parts for i in op.axes}, bound)
        result = multiply_and_sum(met, order_thin_product(met, kept, context), context)
        result = result if parts else ops.arrange(result, kept)
        parts.append(
            context.add_step(result) if parts and isinstance(result, ops.Einsum) else result
        )
    (result,) = parts
    if late is not None:
        result = scale(result, late)
    return negate_op(result) if negative else result


def _is_inverse(op: ops.Op, context: Context) -> bool:
    """Whether an operation is a matrix inverse, or the name of one."""
    if isinstance(op, ops.Source):
        op = next((step.op for step in context.steps if step.name == op.name), op)
    return isinstance(op, ops.Along) and op.kind == "inverse"


def negate_op(op: ops.Op) -> ops.Op:
    """Negate an operation: b - a for a - b, -2 * a for 2 * a."""
    match op:
        case ops.Apply("-", (one, other), axes):
            return ops.Apply("-", (other, one), axes)
        case ops.Apply("*" | "/" as function, (arg, ops.Num(ir.Number(value))), axes):
            return ops.Apply(function, (arg, ops.Num(ir.Number(-value))), axes)
    return ops.Apply("neg", (op,), op.axes)


NEUTRAL = {word: ops.Num(ir.NUMBERS[row.left_out]) for word, row in ROWS.items() if row.left_out}


def split_combined(reduce: ir.Reduce) -> tuple[str, tuple[ir.Expr, ...]] | None:
    """Return (operator, operands) of a body over which the reduction distributes, else None."""
    match reduce.body:
        case ir.Add(parts):
            function = "+"
        case ir.Mul(parts) if all(map(is_never_negative, parts)):
            function = "*"
        case ir.Call("max" | "min" as function, parts):
            parts = tuple(_flatten_calls(function, parts))
        case _:
            return None
    return (function, parts) if function in ROWS[reduce.kind].passes.split() else None


def _flatten_calls(function: str, parts: Sequence[ir.Expr]) -> Iterator[ir.Expr]:
    for part in parts:
        if isinstance(part, ir.Call) and part.function == function:
            yield from _flatten_calls(function, part.arguments)
        else:
            yield part


def eliminate_indices(
    reduce: ir.Reduce, context: Context, order: tuple[ir.Index, ...]
) -> ops.Op | None:
    """Lower a reduction by eliminating indices along a contraction path; None if not cheaper.

    None also under a condition, and for parts that may be infinite: oo - oo in another order.
    """
    split = split_combined(reduce)
    if split is None or not all(map(context.is_finite, split[1])):
        return None
    if reduce.condition is not ir.TRUE:
        return None
    function, bound = split[0], set(reduce.bound)
    groups: dict[frozenset[ir.Index], list[ir.Expr]] = {}
    for part in split[1]:
        groups.setdefault(frozenset(find_free(part)), []).append(part)
    spans = [set(axes) for axes in groups]
    whole = set[ir.Index]().union(*spans)
    if not bound <= whole:
        return None
    kept = ops.sort_axes(whole - bound, order)
    inner = (*kept, *reduce.bound)
    others = [set[ir.Index]().union(*spans[:k], *spans[k + 1 :]) for k in range(len(spans))]
    alone = [axes & bound - other for axes, other in zip(spans, others, strict=True)]
    work = sum(context.count(axes) for axes, over in zip(spans, alone, strict=True) if over)
    left = [ops.sort_axes(axes - over, inner) for axes, over in zip(spans, alone, strict=True)]
    extents = {i: context.extent(i) for i in inner}
    path = find_path(left, kept, extents) if len(left) > 1 else ()
    if work + count_operations(path, left, kept, extents) >= 2 * context.count(whole):
        return None

    def reduce_over(op: ops.Op, over: set[ir.Index]) -> ops.Op:
        last = tuple(i for i in inner if i in over)
        rows = (*(i for i in inner if i in op.axes and i not in over), *last)
        return ops.Reduction(reduce.kind, ops.arrange(op, rows), last) if over else op

    made = []
    for parts in groups.values():
        made.append(context.lower(combine_parts(function, parts), inner))
    made = [reduce_over(op, over) for op, over in zip(made, alone, strict=True)]
    for pair in path:
        result: ops.Op = ops.combine(function, [made[k] for k in pair], inner)
        made = [op for k, op in enumerate(made) if k not in pair]
        over = {*result.axes} - {*kept, *(i for op in made for i in op.axes)}
        result = reduce_over(result, over)
        made.append(context.add_step(result) if made and over else result)
    return ops.arrange(made[0], kept)


def combine_parts(function: str, parts: Sequence[ir.Expr]) -> ir.Expr:
    """Return the sum, product, max or min of the parts."""
    if len(parts) == 1:
        return parts[0]
    if function in {"+", "*"}:
        return (ir.Add if function == "+" else ir.Mul)(tuple(parts))
    return fold(lambda one, other: ir.Call(function, (one, other)), parts)


def sum_operand(op: ops.Op, over: tuple[ir.Index, ...]) -> ops.Op:
    """Sum an operand over some of its indices; booleans are counted in integers."""
    if isinstance(op, ops.Cast) and op.kind == "real" and ops.is_boolean(op.arg) and over:
        return ops.Cast(ops.Reduction("sum", op.arg, over))
    return ops.Reduction("sum", op, over) if over else op


def multiply_and_sum(
    parts: Sequence[ops.Op], kept: tuple[ir.Index, ...], context: Context
) -> ops.Op:
    """Multiply one or two operands and sum over the indices that are not kept."""
    if len(parts) == 1:
        over = tuple(i for i in parts[0].axes if i not in kept)
        return sum_operand(parts[0], over)
    one, other = parts
    if set(one.axes) | set(other.axes) == set(kept):
        return ops.Apply("*", ops.align(parts, kept), kept)
    if not kept and min(len(part.axes) for part in parts) == 1:
        return ops.Einsum((one, other), kept)
    if set(one.axes) == set(other.axes):
        # A sum of elementwise products beats a batched matmul with 1 x 1 results.
        rows = ops.combine("*", parts, one.axes)
        over = tuple(i for i in rows.axes if i not in kept)
        return ops.arrange(ops.Reduction("sum", rows, over), kept)
    for vector, matrix in ((one, other), (other, one)):
        own, its = ({*vector.axes}, matrix.axes)
        if own < {*its} and its[-1] not in kept:  # a matrix-vector product along contiguous rows
            made = tuple(i for i in its if i in kept) if own == {its[-1]} else kept
            return ops.arrange(ops.Einsum((matrix, vector), made), kept)
    # If the last index of the larger operand is kept, a matmul with it second needs no copy.
    is_kept = bool(one.axes) and one.axes[-1] in kept
    is_larger = context.count(other.axes) < context.count(one.axes)
    return ops.Einsum((other, one) if is_kept and is_larger else (one, other), kept)


def _prefer_row_sums(
    path: Path, parts: Sequence[ops.Op], axes: tuple[ir.Index, ...], context: Context
) -> Path:
    """Among the cheapest orders, choose one that sums a large operand along its last index.

    Otherwise a product of 512 to 4096 rows with 16 to 256 columns takes 1.1 to 1.7 times as long.
    """
    operands = [(op.arg if isinstance(op, ops.Arrange) else op).axes for op in parts]
    extents = {i: context.extent(i) for own in operands for i in own}

    def count_turned(order: Path) -> tuple[int, int]:
        met, (left,) = order[0], (own for k, own in enumerate(operands) if k not in order[0])
        own = max((operands[k] for k in met), key=context.count)
        made = {i for k in met for i in operands[k]} & {*left, *axes}
        is_turned = len(left) > 1 and made == {*left} and own[-1] in made
        return count_operations(order, operands, axes, extents), is_turned * context.count(own)

    others: list[Path] = [((0, 1), (0, 1)), ((0, 2), (0, 1)), ((1, 2), (0, 1))]
    return min((path, *others), key=count_turned)


def order_thin_product(
    parts: Sequence[ops.Op], kept: tuple[ir.Index, ...], context: Context
) -> tuple[ir.Index, ...]:
    """Return the axes of a product, ordered so that torch multiplies a thin matrix from the left.

    Torch chooses the sides by the order of the result. A right operand with few columns is many
    times slower than its transpose on the left.
    """
    if len(parts) != 2:
        return kept
    one, other = (set(op.axes) for op in parts)
    first, second = (
        tuple(i for i in kept if i in mine - its) for mine, its in ((one, other), (other, one))
    )
    thin, wide = sorted((first, second), key=context.count)
    if not first or not second or not one & other - {*kept} or context.count(thin) >= THIN:
        return kept
    spanned = context.count(i for op in parts for i in op.axes)
    if spanned < WORTH or kept[-1] not in thin:
        return kept
    return (*(i for i in kept if i in one & other), *thin, *wide)
