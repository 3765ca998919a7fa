"""Segment reductions: over all m with segment number seg_m = n, such as the edges into a node.

    sum_m [seg_m = n] x_md, max_{m: seg_m = n} x_md, logsumexp_{m: seg_m = n} x_md

They become torch's index_add and scatter_reduce, without a mask over m and n. Sums are accumulated
entry by entry, in float32 at least. For a read at seg_k, sum_m [seg_m = seg_k] x_m, all segments
are computed and then gathered. Under a guard seg_m = n, other factors use seg_m in place of n.

Segment numbers may be computed, over one index or several, and may be out of range, where entries
are dropped: floor(x_n m) is a histogram, z*l + k adds overlapping rows, and two numbers per entry,
[seg_ek = i] [seg_el = j], assemble a matrix. Conversely, sum_m [floor(x_n k) = m] c_m is a gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derive.analysis.integers import is_counted
from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import find_free, is_number, is_whole, rename_apart, substitute
from derive.plan import ops
from derive.plan.lower.condition import lower_sides, push_into_exponential
from derive.plan.lower.context import Context
from derive.plan.lower.guarded import (
    Guarded,
    Wanted,
    find_row,
    finish,
    finish_operation,
    is_real,
    keep_where,
    lower_masked,
    name_operation,
    read_guarded,
    take_where,
)
from derive.plan.lower.patterns import make_cell

SUMS, EXTREMES, LOGSUMEXP = "_sum_segments", "_reduce_segments", "_segment_logsumexp"
PLACES, ADDED = "_sum_places", "_add_places"
PICK, AVERAGE = "_take_places", "_average_segments"
TORCH = {"max": "amax", "min": "amin", "prod": "prod"}  # torch's words in scatter_reduce
FEW = 8  # number of segments below which a product with the mask is as fast


@dataclass(frozen=True, slots=True)
class Label:
    """A guard `numbers == segment`, which assigns each entry to the segment with its number.

    For `numbers == reader`, both integers of tensors, `segment` is a new index, and the result is
    read at `reader`. `is_inside`: no number is out of range.
    """

    guard: ir.Expr
    numbers: ir.Expr
    segment: ir.Index
    is_inside: bool
    reader: ir.Expr | None = None


def lower_segments(reduce: ir.Reduce, wanted: Wanted) -> ops.Op | None:
    """A reduction over the entries of each segment; None where no guard assigns entries to them."""
    for form in read_guarded(reduce, wanted.context):
        soft = find_row(form, form.bound)
        inner = () if soft is None else ir.split_and(soft.condition)
        labels = [
            label
            for guard in dict.fromkeys((*form.guards, *inner))
            if (label := _match_label(guard, form.bound, wanted.context)) is not None
        ]
        if not labels:
            continue
        if form.kind == "sum" and any(label.segment in form.bound for label in labels):
            found = _take_at_numbers(form, labels, wanted)
        elif soft is not None:
            found = _average_segments(form, soft, labels, wanted)
        else:
            found = _reduce_by_labels(form, labels, wanted)
        if found is not None:
            return found
    return None


def _match_label(guard: ir.Expr, bound: tuple[ir.Index, ...], context: Context) -> Label | None:
    """Return a guard `numbers == index`, or `numbers == other numbers`, as a label, or None."""
    if not isinstance(guard, ir.Compare) or guard.relation != "==":
        return None
    for numbers, place in ((guard.left, guard.right), (guard.right, guard.left)):
        below = numbers.tensor.below if isinstance(numbers, ir.Access) else None
        reader = None
        if isinstance(place, ir.Index):
            segment = place
        elif _is_reader(place, below, bound):
            taken = {i.name for i in find_free(guard)} | context.names
            assert below is not None
            segment, reader = rename_apart(ir.Index("segment", below), taken), place
        else:
            continue
        own = {*find_free(numbers)}
        is_apart = bool(own & {*bound}) is not (segment in bound)
        if (
            not is_apart
            or is_number(numbers)
            or segment in own
            or not _is_integer_valued(numbers, context.system.equations)
        ):
            continue
        if context.extent(segment) < FEW:
            continue
        is_inside = below is not None and is_same_extent(below, segment.extent)
        return Label(guard, numbers, segment, is_inside, reader)
    return None


def _is_reader(place: ir.Expr, below: ir.Expr | None, bound: tuple[ir.Index, ...]) -> bool:
    """Whether an expression reads integers over free indices with the bound `below`."""
    if not isinstance(place, ir.Access) or below is None or place.tensor.below is None:
        return False
    return is_same_extent(below, place.tensor.below) and not {*find_free(place)} & {*bound}


def _is_integer_valued(numbers: ir.Expr, equations: Sequence[ir.Equation]) -> bool:
    """Whether an expression has integer values and is not an index."""
    match numbers:
        case ir.Index():
            return False
        case ir.Call("floor"):
            return True
        case ir.Access(tensor) if tensor.kind == "real":
            names = [equation.target.tensor.name for equation in equations]
            at = names.index(tensor.name) if tensor.name in names else -1
            return at >= 0 and _is_integer_valued(equations[at].value, equations[:at])
        case ir.Add(parts) | ir.Mul(parts):
            rest = [part for part in parts if not (is_number(part) and is_whole(part))]
            return all(_is_integer_valued(part, equations) or is_counted(part) for part in rest)
    return is_counted(numbers)


def _reduce_by_labels(form: Guarded, labels: Sequence[Label], wanted: Wanted) -> ops.Op | None:
    """Lower a reduction by a call over segments; None if none fits, as with a mask over them."""
    segments = {label.segment: label for label in labels}
    reader = next((label.reader for label in labels if label.reader is not None), None)
    if len(segments) < len(labels) or (reader is not None and len(labels) > 1):
        return None
    own_indices = dict.fromkeys(i for label in labels for i in find_free(label.numbers))
    (guards, factors), _ = form.partition(form.bound)
    opened = _read_segments(
        [*(g for g in guards if all(g is not label.guard for label in labels)), *factors], segments
    )
    if opened is None or not {*form.bound} & {*own_indices}:
        return None
    count = len(opened) - len(factors)
    masks, factors = opened[:count], opened[count:]
    rest = tuple(i for i in form.bound if i not in own_indices)
    if rest and {*rest} & {i for mask in masks for i in find_free(mask)}:
        return None
    body = ir.product_of(factors)
    if rest:
        body = ir.Reduce(form.kind, rest, ir.TRUE, body)
    inner = (*own_indices, *wanted.order)
    condition = ir.all_of(*masks)
    if form.kind == "sum":
        condition, body = push_into_exponential(condition, body, wanted.context)
    body = wanted.context.protect(body, condition)
    masks = [mask for mask in ir.split_and(condition) if mask is not ir.TRUE]
    value = lower_masked(form.kind, (body, masks), inner, wanted)
    made = _write_call(form, labels, value, wanted)
    if made is None:
        return None
    own = tuple(i for i in form.bound if i in own_indices)
    total = ir.Reduce("sum", own, ir.all_of(*guards), ir.ONE)
    if reader is not None:
        read = substitute(name_operation(made, wanted.context), {labels[0].segment: reader})
        return finish(form, read, total, form.bound, wanted)
    return finish_operation(form, made, total, form.bound, wanted)


def _read_segments(
    parts: Sequence[ir.Expr], segments: dict[ir.Index, Label]
) -> list[ir.Expr] | None:
    """Put the entries' numbers for indices of segments; None if out of range, or impossible."""
    found = []
    for part in parts:
        met = [i for i in find_free(part) if i in segments]
        if not all(segments[i].is_inside for i in met):
            return None
        try:
            found.append(substitute(part, {i: segments[i].numbers for i in met}))
        except ValueError:  # a function along the index
            return None
    return found


def _write_call(
    form: Guarded, labels: Sequence[Label], value: ops.Op | None, wanted: Wanted
) -> ops.Op | None:
    """Return the call for values by segment, or for counts without a value; None if none fits."""
    kind = form.kind
    numbers, counted = [_lower_numbers(label, wanted.context) for label in labels], wanted.counted
    own_indices = tuple(dict.fromkeys(i for op in numbers for i in op.axes))
    is_plain = len(labels) == 1 == len(own_indices) and labels[0].is_inside
    if value is None and kind == "sum" and is_plain:
        return _count_entries(labels[0], numbers[0])
    if value is None:
        value = ops.Expand(ops.NumTensor(ir.ONE), own_indices)
        value = ops.Cast(value, "int") if counted else value
    elif ops.is_integral(value) is not counted:
        return None
    if not {*own_indices} <= {*value.axes}:
        value = ops.Expand(
            value, ops.sort_axes((*value.axes, *own_indices), (*own_indices, *wanted.order))
        )
    if any(label.segment in value.axes for label in labels):
        return None
    if not is_plain:
        return _add_places(labels, numbers, value, form.bound) if kind == "sum" else None
    return _reduce_segments(kind, labels[0], numbers[0], value)


def _lower_numbers(label: Label, context: Context) -> ops.Op:
    """Lower the numbers of a label, without a cast to float64."""
    op, _ = lower_sides(label.numbers, label.segment, context, ())
    return op.arg if isinstance(op, ops.Cast) and op.kind == "wide" else op


def _write_mask(label: Label, numbers: ops.Op) -> ops.Op:
    wide = (label.segment, *numbers.axes)
    return ops.combine("==", (numbers, ops.Iota(label.segment)), wide)


def _count_entries(label: Label, numbers: ops.Op) -> ops.Op:
    given, over = {"t": numbers, "n": ops.Num(label.segment.extent)}, numbers.axes
    whole = ops.Reduction("sum", _write_mask(label, numbers), over)
    text = "t.new_zeros(n).index_add(0, t, torch.ones_like(t))"
    return make_cell(text, given, whole, (label.segment,), volume=over, scratch=(over,))


def _reduce_segments(kind: str, label: Label, numbers: ops.Op, value: ops.Op) -> ops.Op:
    """Return the call that reduces by numbers over a single index."""
    (index,), axes = numbers.axes, value.axes
    option = ""
    if kind != "sum":
        value = ops.arrange(value, (index, *(i for i in axes if i is not index)))
        axes = value.axes
        option = f", '{TORCH[kind]}'" if kind in TORCH else ""
    elif axes[0] is not index:
        option = f", {axes.index(index)}"
    made = tuple(label.segment if i is index else i for i in axes)
    if kind == "sum":
        mask = ops.Cast(_write_mask(label, numbers), "int" if ops.is_integral(value) else "real")
        whole: ops.Op = ops.Einsum((mask, value), made)
    else:
        shown = _write_mask(label, numbers)
        chosen = keep_where(kind, shown, value, (label.segment, *axes))
        whole = ops.Reduction(kind, chosen, (index,))
    name = SUMS if kind == "sum" else EXTREMES if kind in TORCH else LOGSUMEXP
    given = {"x": value, "t": numbers, "n": ops.Num(label.segment.extent)}
    scratch = () if kind == "sum" else (made,)
    text = f"{name}(x, t, n{option})"
    return make_cell(text, given, whole, made, volume=axes, scratch=scratch)


def _add_places(
    labels: Sequence[Label], numbers: Sequence[ops.Op], value: ops.Op, bound: tuple[ir.Index, ...]
) -> ops.Op:
    """Return the call for numbers over several indices, for several numbers, or any out of range.

    An index of the numbers that the result keeps becomes a further number, its own position.
    """
    pairs = [*zip(labels, numbers, strict=True)]
    own_indices = tuple(dict.fromkeys(i for _, op in pairs for i in op.axes))
    rest = tuple(i for i in value.axes if i not in own_indices)
    batch = tuple(i for i in own_indices if i not in bound)
    is_row = len(labels) == 1 and not rest and len(own_indices) == len(batch) + 1
    if is_row:  # torch requires the batch first
        own_indices = (*batch, *(i for i in own_indices if i in bound))
    segments = tuple(label.segment for label, _ in pairs)
    axes = (*batch, *segments, *rest)
    each = [ops.Iota(i) for i in batch]
    places = [ops.arrange(op, own_indices) for op in (*each, *(op for _, op in pairs))]
    value = ops.arrange(value, (*own_indices, *rest))
    extents = [i.extent for i in (*batch, *segments)]
    kind = "int" if ops.is_integral(value) else "real"
    shown = [ops.Cast(_write_mask(label, op), kind) for label, op in pairs]
    whole: ops.Op = ops.Einsum((*shown, value), axes)
    is_inside = all(label.is_inside for label in labels)
    places = places[-1:] if is_row and is_inside and ops.find_reads(value) else places
    given = {"x": value, "at": tuple(places), "shape": tuple(map(ops.Num, extents))}
    text = f"{PLACES}(x, at, shape{', is_inside=True' if is_inside else ''})"
    if len(places) < len(extents):
        given["at"], text = places[0], f"{ADDED}(x.new_zeros(shape), x, at, {len(batch)})"
    return make_cell(text, given, whole, axes, volume=value.axes)


def _average_segments(
    form: Guarded, soft: ir.Along, labels: Sequence[Label], wanted: Wanted
) -> ops.Op | None:
    """Return the call that averages by a softmax over each segment, or None."""
    label, index, context = labels[0], soft.index, wanted.context
    if wanted.counted or len(labels) > 1 or label.reader is not None or not label.is_inside:
        return None
    (guards, factors), _ = form.partition(form.bound)
    rows = [part for part in ir.split_and(soft.condition) if part is not label.guard]
    masks = [guard for guard in guards if guard is not label.guard]
    averaged = ir.product_of([factor for factor in factors if factor is not soft])
    opened = _read_segments([soft.body, averaged, *rows, *masks], {label.segment: label})
    if opened is None or find_free(label.numbers) != (index,):
        return None
    body, averaged, rows, masks = *opened[:2], opened[2 : 2 + len(rows)], opened[2 + len(rows) :]
    rest = tuple(i for i in form.bound if i is not index)
    if {*rest} & {i for part in (body, *rows) for i in find_free(part)}:
        return None
    averaged = ir.sum_over(rest, averaged)
    logits = lower_masked("logsumexp", (body, rows), (index, *wanted.order), wanted)
    x = lower_masked("sum", (averaged, masks), (index, *wanted.order), wanted)
    numbers = _lower_numbers(label, context)
    if logits is None or x is None or not (is_real(x) and is_real(logits)):
        return None
    if index not in logits.axes or not {*logits.axes} <= {*x.axes}:
        return None
    first = (index, *(i for i in logits.axes if i is not index))
    inner = (*first, *(i for i in x.axes if i not in first))
    made = (label.segment, *inner[1:])
    logits, x = ops.arrange(logits, first), ops.arrange(x, inner)
    mask = _write_mask(label, numbers)
    row = ops.Along("softmax", keep_where("softmax", mask, logits, (label.segment, *inner)), index)
    given = {"w": logits, "x": x, "t": numbers, "n": ops.Num(label.segment.extent)}
    zeros = ", zeros=True" if context.system.empty_row == "zeros" else ""
    text, whole = f"{AVERAGE}(w, x, t, n{zeros})", ops.Einsum((row, x), made)
    cell = make_cell(text, given, whole, volume=inner, scratch=(inner, made))
    return finish_operation(form, cell, None, form.bound, wanted)


def _take_at_numbers(form: Guarded, labels: Sequence[Label], wanted: Wanted) -> ops.Op | None:
    """Lower a sum whose only entry is selected by a computed number as a gather, or return None."""
    label = labels[0]
    index = label.segment
    (guards, factors), _ = form.partition((index,))
    if wanted.counted or label.reader is not None or len(guards) > 1 or not factors:
        return None
    table = wanted.context.lower(ir.product_of(factors), (index, *wanted.order))
    own_indices, own = find_free(label.numbers), table.axes
    if {*own_indices} & {*own} or index not in own or not is_real(table):
        return None
    kept = tuple(i for i in own if i is not index)
    table, numbers = ops.arrange(table, (index, *kept)), _lower_numbers(label, wanted.context)
    own_indices = numbers.axes
    made = (*own_indices, *kept)
    whole = take_where(numbers, index, table, index, (*own_indices, index, *kept))
    given, fields = {"x": table, "t": numbers}, {"volume": made, "scratch": (table.axes,)}
    cell = make_cell(f"{PICK}(x, t)", given, whole, made, **fields)
    return finish_operation(form, cell, None, (index,), wanted)
