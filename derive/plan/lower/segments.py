"""Reductions over segments: over all m whose number seg_m is n, as over the edges into a node.

    sum_m [seg_m = n] x_md, max_{m: seg_m = n} x_md, logsumexp_{m: seg_m = n} x_md

They are torch's index_add and scatter_reduce, and no mask over m and n exists. A sum is added up
one by one, in float32 at least. What is read at seg_k, sum_m [seg_m = seg_k] x_m, is computed for
every segment, and taken there. Beside a guard seg_m = n another factor's n is seg_m.

Numbers that are computed, of one index or of several, say where in the result an entry is added, if
it is anywhere there: floor(x_n m) counts in bins, z*l + k adds rows that overlap, and those of two
indices, [seg_ek = i] [seg_el = j], assemble a matrix. The other way, sum_m [floor(x_n k) = m] c_m
takes an entry at such a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import find_free, is_whole, rename_apart, substitute
from derive.plan import ops
from derive.plan.lower.condition import lower_sides, push_into_exponential
from derive.plan.lower.context import Context
from derive.plan.lower.guarded import (
    Guarded,
    Wanted,
    choose,
    find_row,
    finish,
    finish_made,
    is_real,
    lower_masked,
    name_value,
    read_guarded,
    take_where,
)

SUMS, EXTREMES, LOGSUMEXP = "_sum_segments", "_reduce_segments", "_segment_logsumexp"
PLACES, ADDED = "_sum_places", "_add_places"
PICK, AVERAGE = "_take_places", "_average_segments"  # others
TORCH = {"max": "amax", "min": "amin", "prod": "prod"}  # torch's words in scatter_reduce
FEW = 8  # segments below which a product with the mask is as fast


@dataclass(frozen=True, slots=True)
class Label:
    """A guard that says by numbers which place of an index an entry belongs to.

    Where numbers are compared with others, `reader`, the index is a new one, which is read there.
    They are `inside` if all of them are places of the index.
    """

    guard: ir.Expr
    numbers: ir.Expr
    segment: ir.Index
    is_inside: bool
    reader: ir.Expr | None = None


def lower_segments(reduce: ir.Reduce, wanted: Wanted) -> ops.Op | None:
    """The operation for a reduction over segments; None where it is none."""
    for form in read_guarded(reduce, wanted.context):
        soft = find_row(form, form.bound)
        inner = () if soft is None else ir.split_and(soft.condition)
        labels = [
            label
            for guard in dict.fromkeys((*form.guards, *inner))
            if (label := _find_label(guard, form.bound, wanted.context)) is not None
        ]
        if not labels:
            continue
        if form.kind == "sum" and any(label.segment in form.bound for label in labels):
            found = _pick(form, labels, wanted)
        elif soft is not None:
            found = _average(form, soft, labels, wanted)
        else:
            found = _eliminate(form, labels, wanted)
        if found is not None:
            return found
    return None


def _find_label(guard: ir.Expr, bound: tuple[ir.Index, ...], context: Context) -> Label | None:
    """The numbers in a guard, if they are whole and those of an index, or of others."""
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
        if not is_apart or segment in own or not _is_whole(numbers, context.system.equations):
            continue
        if context.extent(segment) < FEW:
            continue
        is_inside = below is not None and is_same_extent(below, segment.extent)
        return Label(guard, numbers, segment, is_inside, reader)
    return None


def _is_reader(place: ir.Expr, below: ir.Expr | None, bound: tuple[ir.Index, ...]) -> bool:
    """Is it an integer without a bound index, with the bound of the numbers?"""
    if not isinstance(place, ir.Access) or below is None or place.tensor.below is None:
        return False
    return is_same_extent(below, place.tensor.below) and not {*find_free(place)} & {*bound}


def _is_whole(numbers: ir.Expr, equations: Sequence[ir.Equation]) -> bool:
    """Are its values whole numbers, and not the places of one index as they stand?"""
    match numbers:
        case ir.Index():
            return False
        case ir.Call("floor"):
            return True
        case ir.Access(tensor) if tensor.kind == "real":
            names = [equation.target.tensor.name for equation in equations]
            at = names.index(tensor.name) if tensor.name in names else -1
            return at >= 0 and _is_whole(equations[at].value, equations[:at])
        case ir.Add(parts) | ir.Mul(parts):
            rest = [part for part in parts if not (ops.is_number(part) and is_whole(part))]
            return all(_is_whole(part, equations) or ops.is_integer(part) for part in rest)
    return ops.is_integer(numbers)


def _eliminate(form: Guarded, labels: Sequence[Label], wanted: Wanted) -> ops.Op | None:
    """The reduction over all indices that the numbers have, and over those beside them."""
    segments = {label.segment: label for label in labels}
    reader = next((label.reader for label in labels if label.reader is not None), None)
    if len(segments) < len(labels) or (reader is not None and len(labels) > 1):
        return None
    told = dict.fromkeys(i for label in labels for i in find_free(label.numbers))
    (guards, factors), _ = form.part(form.bound)
    opened = _read_segments(
        [*(g for g in guards if all(g is not label.guard for label in labels)), *factors], segments
    )
    if opened is None or not {*form.bound} & {*told}:
        return None
    count = len(opened) - len(factors)
    masks, factors = opened[:count], opened[count:]
    rest = tuple(i for i in form.bound if i not in told)
    if rest and {*rest} & {i for mask in masks for i in find_free(mask)}:
        return None
    body = ir.product_of(factors)
    if rest:
        body = ir.Reduce(form.kind, rest, ir.TRUE, body)
    inner = (*told, *wanted.order)
    condition = ir.all_of(*masks)
    if form.kind == "sum":
        condition, body = push_into_exponential(condition, body, wanted.context)
    body = wanted.context.protect(body, condition)
    masks = [mask for mask in ir.split_and(condition) if mask is not ir.TRUE]
    value = lower_masked(form.kind, (body, masks), inner, wanted)
    made = _write(form, labels, value, wanted)
    if made is None:
        return None
    own = tuple(i for i in form.bound if i in told)
    total = ir.Reduce("sum", own, ir.all_of(*guards), ir.ONE)
    if reader is not None:
        read = substitute(name_value(made, wanted.context), {labels[0].segment: reader})
        return finish(form, read, total, form.bound, wanted)
    return finish_made(form, made, total, form.bound, wanted)


def _read_segments(
    parts: Sequence[ir.Expr], segments: dict[ir.Index, Label]
) -> list[ir.Expr] | None:
    """The parts with numbers in place of the indices that they are the places of."""
    found = []
    for part in parts:
        met = [i for i in find_free(part) if i in segments]
        if not all(segments[i].is_inside for i in met):
            return None
        try:
            found.append(substitute(part, {i: segments[i].numbers for i in met}))
        except ValueError:  # a row along the index
            return None
    return found


def _write(
    form: Guarded, labels: Sequence[Label], value: ops.Op | None, wanted: Wanted
) -> ops.Op | None:
    """The call for values, each in its segments; without values it is the number of entries."""
    kind = form.kind
    numbers, counted = [_lower_numbers(label, wanted.context) for label in labels], wanted.counted
    told = tuple(dict.fromkeys(i for op in numbers for i in ops.axes_of(op)))
    is_plain = len(labels) == 1 == len(told) and labels[0].is_inside
    if value is None and kind == "sum" and is_plain:
        return _count(labels[0], numbers[0])
    if value is None:
        value = ops.Expand(ops.NumTensor(ir.ONE), told)
        value = ops.Cast(value, "int") if counted else value
    elif ops.is_integral(value) is not counted:
        return None
    if not {*told} <= {*ops.axes_of(value)}:
        value = ops.Expand(
            value, ops.sort_axes((*ops.axes_of(value), *told), (*told, *wanted.order))
        )
    if any(label.segment in ops.axes_of(value) for label in labels):
        return None
    if not is_plain:
        return _add_places(labels, numbers, value, form.bound) if kind == "sum" else None
    return _reduce_segments(kind, labels[0], numbers[0], value)


def _lower_numbers(label: Label, context: Context) -> ops.Op:
    """The numbers of a label as they were before they went to float64."""
    op, _ = lower_sides(label.numbers, label.segment, context, ())
    return op.arg if isinstance(op, ops.Cast) and op.kind == "wide" else op


def _write_mask(label: Label, numbers: ops.Op, rest: Sequence[ir.Index] = ()) -> ops.Op:
    wide = (label.segment, *ops.axes_of(numbers), *rest)
    return ops.combine("==", (numbers, ops.Iota(label.segment)), wide)


def _count(label: Label, numbers: ops.Op) -> ops.Op:
    """How many entries each segment has, in integers, whatever the formula's dtype holds."""
    ones = ops.TorchCall("torch.ones_like", (ops.Given(0),))
    empty = ops.TorchCall(".new_zeros", (ops.Given(0), ops.Given(1)))
    call = ops.TorchCall(".index_add", (empty, 0, ops.Given(0), ones))
    args, over = (numbers, ops.Num(label.segment.extent)), ops.axes_of(numbers)
    whole = ops.Reduction("sum", _write_mask(label, numbers), over)
    return ops.Cell(call, args, whole, (label.segment,), volume=over, scratch=(over,))


def _reduce_segments(kind: str, label: Label, numbers: ops.Op, value: ops.Op) -> ops.Op:
    """The call where a tensor of one index has the numbers."""
    (index,), axes = ops.axes_of(numbers), ops.axes_of(value)
    options: tuple[ops.Operand, ...] = ()
    if kind != "sum":
        value = ops.arrange(value, (index, *(i for i in axes if i is not index)))
        axes = ops.axes_of(value)
        options = (TORCH[kind],) if kind in TORCH else ()
    elif axes[0] is not index:
        options = (axes.index(index),)
    made = tuple(label.segment if i is index else i for i in axes)
    if kind == "sum":
        mask = ops.Cast(_write_mask(label, numbers), "int" if ops.is_integral(value) else "real")
        whole: ops.Op = ops.Einsum((mask, value), made)
    else:
        shown = _write_mask(label, numbers)
        chosen = choose(kind, shown, value, (label.segment, *axes))
        whole = ops.Reduction(kind, chosen, (index,))
    name = SUMS if kind == "sum" else EXTREMES if kind in TORCH else LOGSUMEXP
    call = ops.TorchCall(name, (*map(ops.Given, range(3)), *options))
    args = (value, numbers, ops.Num(label.segment.extent))
    scratch = () if kind == "sum" else (made,)
    return ops.Cell(call, args, whole, made, volume=axes, scratch=scratch)


def _add_places(
    labels: Sequence[Label], numbers: Sequence[ops.Op], value: ops.Op, bound: tuple[ir.Index, ...]
) -> ops.Op:
    """The call where numbers say the places of several indices, or may say none.

    An index that numbers have and the result keeps is a place of its own.
    """
    pairs = [*zip(labels, numbers, strict=True)]
    told = tuple(dict.fromkeys(i for _, op in pairs for i in ops.axes_of(op)))
    rest = tuple(i for i in ops.axes_of(value) if i not in told)
    batch = tuple(i for i in told if i not in bound)
    is_row = len(labels) == 1 and not rest and len(told) == len(batch) + 1
    told = (*batch, *(i for i in told if i in bound)) if is_row else told  # as torch wants them
    segments = tuple(label.segment for label, _ in pairs)
    axes = (*batch, *segments, *rest)
    each = [ops.Iota(i) for i in batch]
    places = [ops.arrange(op, told) for op in (*each, *(op for _, op in pairs))]
    value = ops.arrange(value, (*told, *rest))
    extents = [i.extent for i in (*batch, *segments)]
    kind = "int" if ops.is_integral(value) else "real"
    shown = [ops.Cast(_write_mask(label, op), kind) for label, op in pairs]
    whole: ops.Op = ops.Einsum((*shown, value), axes)
    is_inside = all(label.is_inside for label in labels)
    places = places[-1:] if is_row and is_inside and ops.find_reads(value) else places
    args = (value, *places, *map(ops.Num, extents))
    given = tuple(map(ops.Given, range(1, len(args))))
    at, shape = given[: len(places)], given[len(places) :]
    if len(places) < len(extents):
        zeros = ops.TorchCall(".new_zeros", (ops.Given(0), shape))
        call = ops.TorchCall(ADDED, (zeros, ops.Given(0), *at, len(batch)))
    else:
        inside = (("is_inside", True),) if is_inside else ()
        call = ops.TorchCall(PLACES, (ops.Given(0), at, shape), inside)
    return ops.Cell(call, args, whole, axes, volume=ops.axes_of(value))


def _average(
    form: Guarded, soft: ir.Along, labels: Sequence[Label], wanted: Wanted
) -> ops.Op | None:
    """A mean by a softmax that runs over each segment for itself."""
    label, index, context = labels[0], soft.index, wanted.context
    if wanted.counted or len(labels) > 1 or label.reader is not None or not label.is_inside:
        return None
    (guards, factors), _ = form.part(form.bound)
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
    if index not in ops.axes_of(logits) or not {*ops.axes_of(logits)} <= {*ops.axes_of(x)}:
        return None
    first = (index, *(i for i in ops.axes_of(logits) if i is not index))
    inner = (*first, *(i for i in ops.axes_of(x) if i not in first))
    made = (label.segment, *inner[1:])
    logits, x = ops.arrange(logits, first), ops.arrange(x, inner)
    mask = _write_mask(label, numbers)
    row = ops.Along("softmax", choose("softmax", mask, logits, (label.segment, *inner)), index)
    args = (logits, x, numbers, ops.Num(label.segment.extent))
    zeros = (("zeros", True),) if context.system.empty_row == "zeros" else ()
    call = ops.TorchCall(AVERAGE, tuple(map(ops.Given, range(4))), zeros)
    cell = ops.Cell(
        call, args, ops.Einsum((row, x), made), made, volume=inner, scratch=(inner, made)
    )
    return finish_made(form, cell, None, form.bound, wanted)


def _pick(form: Guarded, labels: Sequence[Label], wanted: Wanted) -> ops.Op | None:
    """A sum over all places of which a computed number leaves one, or none."""
    label = labels[0]
    index = label.segment
    (guards, factors), _ = form.part((index,))
    if wanted.counted or label.reader is not None or len(guards) > 1 or not factors:
        return None
    table = wanted.context.lower(ir.product_of(factors), (index, *wanted.order))
    told, own = find_free(label.numbers), ops.axes_of(table)
    if {*told} & {*own} or index not in own or not is_real(table):
        return None
    kept = tuple(i for i in own if i is not index)
    table, numbers = ops.arrange(table, (index, *kept)), _lower_numbers(label, wanted.context)
    told = ops.axes_of(numbers)
    made = (*told, *kept)
    whole = take_where(numbers, index, table, index, (*told, index, *kept))
    call = ops.TorchCall(PICK, (ops.Given(0), ops.Given(1)))
    cell = ops.Cell(call, (table, numbers), whole, made, volume=made, scratch=(ops.axes_of(table),))
    return finish_made(form, cell, None, (index,), wanted)
