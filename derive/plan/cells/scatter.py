"""Reductions over segments: over all n whose number seg_n is g, as over the edges into a node.

    sum_n [seg_n = g] x_nd, max_{n: seg_n = g} x_nd, logsumexp_{n: seg_n = g} x_nd

They are torch's index_add and scatter_reduce, and no mask over n and g exists. Only where the
formula says that the numbers of segments are below the extent of g, as torch wants them. A sum is
added up one by one, in float32 at least.
"""

from __future__ import annotations

from dataclasses import dataclass

from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.plan import ops
from derive.plan.cells.matching import CellRule, Definitions, join_product, strip
from derive.plan.lower.product import NEUTRAL

SUMS, EXTREMES, LOGSUMEXP = "_sum_segments", "_reduce_segments", "_segment_logsumexp"
TORCH = {"max": "amax", "min": "amin", "prod": "prod"}  # torch's words in scatter_reduce
FEW = 8  # segments below which a product with the mask is as fast


@dataclass(frozen=True, slots=True)
class Segments:
    """The mask seg_n = g, the tensor seg, and what is left of the others: a weight, or nothing."""

    mask: ops.Op
    numbers: ops.Source
    segment: ir.Index
    weight: ops.Op | None


def match_segment_sum(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A sum over one index, in which a mask leaves to each segment what belongs to it."""
    match op:
        case ops.Einsum((one, other), axes):
            for mask, value in ((one, other), (other, one)):
                found = _find_segments(mask, definitions)
                if found is not None:
                    return _write_sum(found, strip(value), axes)
            return None
        case ops.Reduction("sum", mask, over):
            found = _find_segments(mask, definitions)
            if found is None or over != found.numbers.axes:
                return None
            ones = ops.Expand(ops.NumTensor(ir.ONE), over)  # the number of entries is their sum
            return _write_sum(found, ones if found.weight is None else None, ops.axes_of(op))
        case _:
            return None


def match_segment_extreme(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The largest or least entry of each segment, their product, their logsumexp."""
    match op:
        case ops.Reduction("max" | "min" | "prod" | "logsumexp" as kind, arg, over):
            chosen = strip(arg)
        case _:
            return None
    if not isinstance(chosen, ops.Choose) or chosen.other != NEUTRAL[kind]:
        return None
    found = _read_mask(chosen.condition, strip(chosen.then), definitions)
    value = found.weight if found else None
    if found is None or value is None or over != found.numbers.axes:
        return None
    kept = [i for i in ops.axes_of(value) if i not in over]
    is_whole = {*ops.axes_of(op)} == {*kept, found.segment}
    if over[0] not in ops.axes_of(value) or found.segment in kept or not is_whole:
        return None
    if ops.is_integral(value) or ops.is_boolean(value):
        return None
    value, axes = ops.arrange(value, (*over, *kept)), (found.segment, *kept)
    wide = (found.segment, *ops.axes_of(value))
    shown, taken = ops.align((found.mask, value), wide)
    whole = ops.Reduction(kind, ops.Choose(shown, taken, NEUTRAL[kind], wide), over)
    word = (TORCH[kind],) if kind in TORCH else ()
    name = EXTREMES if kind in TORCH else LOGSUMEXP
    call = ops.TorchCall(name, (*map(ops.Given, range(3)), *word))
    args = (value, found.numbers, ops.Num(found.segment.extent))
    cell = ops.Cell(call, args, whole, axes, volume=ops.axes_of(value), scratch=(axes,))
    return ops.arrange(cell, ops.axes_of(op))


def _find_segments(op: ops.Op, definitions: Definitions) -> Segments | None:
    """What a factor chooses, if it is 0 but where an index is the number of a segment."""
    match strip(definitions.look(strip(op))):
        case ops.Cast(arg):
            return _read_mask(arg, None, definitions)
        case ops.Choose(mask, weight, ops.Num(other)) if other is ir.ZERO and not isinstance(
            weight, ops.Num
        ):
            return _read_mask(mask, strip(weight), definitions)
        case _:
            return None


def _read_mask(mask: ops.Op, weight: ops.Op | None, definitions: Definitions) -> Segments | None:
    """The mask, if it compares an index with a tensor whose values are bounded by its extent."""
    opened = strip(definitions.look(strip(mask)))
    if not isinstance(opened, ops.Apply) or opened.function != "==":
        return None
    left, right = (strip(arg) for arg in opened.args)
    for numbers, place in ((left, right), (right, left)):
        index = definitions.look(place)
        if not isinstance(numbers, ops.Source) or not isinstance(index, ops.Iota):
            continue
        bound = definitions.bounds.get(numbers.name)
        if bound is None or len(numbers.axes) != 1 or definitions.memory.extent(index.index) < FEW:
            continue
        if is_same_extent(bound, index.index.extent):
            whole = ops.Apply("==", ops.align((numbers, index), opened.axes), opened.axes)
            return Segments(whole, numbers, index.index, weight)
    return None


def _write_sum(found: Segments, value: ops.Op | None, order: tuple[ir.Index, ...]) -> ops.Op | None:
    """The call, if what is summed has the index of the tensor of numbers, which alone goes."""
    (index,) = found.numbers.axes
    parts = [part for part in (value, found.weight) if part is not None]
    widest = max(parts, key=lambda part: len(ops.axes_of(part)))
    axes = ops.axes_of(widest)
    exchanged = tuple(found.segment if i is index else i for i in axes)
    inside = all(set(ops.axes_of(part)) <= set(axes) for part in parts)
    if index not in axes or found.segment in axes or not inside or set(exchanged) != set(order):
        return None
    arg = join_product([widest, *(part for part in parts if part is not widest)], axes)
    assert arg is not None
    whole = ops.Einsum((ops.Cast(found.mask), arg), exchanged)
    place = axes.index(index)
    call = ops.TorchCall(SUMS, (*map(ops.Given, range(3)), *([place] if place else [])))
    args = (arg, found.numbers, ops.Num(found.segment.extent))
    return ops.arrange(ops.Cell(call, args, whole, exchanged, (), axes), order)


CELLS = (
    CellRule(
        call=SUMS,
        computes=(
            "size G\nx[N, D]; int seg[N] < G; index g < G\ns[g,d] = sum[n, seg[n] == g](x[n,d])"
        ),
        refuses=("size G\nx[N, D]; int seg[N]; index g < G\ns[g,d] = sum[n, seg[n] == g](x[n,d])"),
        match=match_segment_sum,
    ),
    CellRule(
        call=EXTREMES,
        computes=(
            "size G\nx[N, D]; int seg[N] < G; index g < G\ns[g,d] = max[n, seg[n] == g](x[n,d])"
        ),
        refuses=("size G\nx[N, D]; int seg[N]; index g < G\ns[g,d] = max[n, seg[n] == g](x[n,d])"),
        match=match_segment_extreme,
    ),
    CellRule(
        call=LOGSUMEXP,
        computes=(
            "size G\nx[N, D]; int seg[N] < G; index g < G\n"
            "s[g,d] = logsumexp[n, seg[n] == g](x[n,d])"
        ),
        refuses=(
            "size G\nx[N, D]; int seg[N] < G; index g < G\n"
            "s[g,d] = logsumexp[n, seg[n] <= g](x[n,d])"
        ),
        match=match_segment_extreme,
    ),
)
