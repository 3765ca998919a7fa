"""Reductions over segments: over all n whose number seg_n is g, as over the edges into a node.

    sum_n [seg_n = g] x_nd, max_{n: seg_n = g} x_nd, logsumexp_{n: seg_n = g} x_nd

They are torch's index_add and scatter_reduce, and no mask over n and g exists, where the formula
says that the numbers of segments are below the extent of g, as torch wants them. A sum is added up
one by one, in float32 at least. What is read at seg_m, sum_n [seg_n = seg_m] x_n, is computed for
every segment, and taken there.

Numbers that are computed, of one index or of several, say where in the result an entry is added, if
it is anywhere there: floor(x_n m) counts in bins, z*l + k adds rows that overlap, and those of two
indices, [seg_ek = i] [seg_el = j], assemble a matrix. The other way, sum_m [floor(x_n k) = m] c_m
takes an entry at such a number.
"""

from dataclasses import dataclass

from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.plan import ops
from derive.plan.cells.matching import CellRule, Definitions, join_product, strip
from derive.plan.lower.product import NEUTRAL

SUMS, EXTREMES, LOGSUMEXP = "_sum_segments", "_reduce_segments", "_segment_logsumexp"
PLACES, PICK, AVERAGE = "_sum_places", "_take_places", "_average_segments"  # others
TORCH = {"max": "amax", "min": "amin", "prod": "prod"}  # torch's words in scatter_reduce
FEW = 8  # segments below which a product with the mask is as fast


@dataclass(frozen=True, slots=True)
class Segments:
    """The mask seg_n = g, what seg is, and what is left of the others: a weight, or nothing.

    Or seg_n = seg_m, with `reader` for seg_m, and m for g. `is_inside`: seg is a tensor whose
    numbers are below the extent.
    """

    mask: ops.Op
    numbers: ops.Op
    segment: ir.Index
    weight: ops.Op | None
    extent: ir.Expr
    reader: ops.Source | None = None
    is_inside: bool = True

    @property
    def is_told(self) -> bool:
        """Is it a tensor over one index, whose numbers are below the extent?"""
        return self.is_inside and len(ops.axes_of(self.numbers)) == 1


def match_segment_sum(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A sum in which masks leave to each segment what belongs to it."""
    match op:
        case ops.Einsum(args, axes):
            factors = _split_factors(args, axes, definitions)
        case ops.Reduction("sum", arg):
            factors, axes = [arg], ops.axes_of(op)
        case _:
            return None
    masks: list[Segments] = []
    others: list[ops.Op] = []
    for factor in factors:
        found = _find_segments(factor, axes, definitions)
        if found is None:
            others.append(strip(factor))
            continue
        masks.append(found)
        others += [found.weight] if found.weight is not None else []
    if not masks:
        return None
    (first, *more), spans = masks, {i for other in others for i in ops.axes_of(other)}
    is_count = not others
    if is_count:
        each = tuple(dict.fromkeys(i for mask in masks for i in ops.axes_of(mask.numbers)))
        others = [ops.Expand(ops.NumTensor(ir.ONE), each)]  # the number of entries is their sum
    if ops.is_integral(op) and (is_count or more or not first.is_told):
        return _count(first, others, axes) if not more and first.is_told else None
    if not more and first.is_told and not {*ops.axes_of(first.numbers)} & {*axes}:
        return _write_sum(first, others, axes)
    if ops.is_integral(op) or any(m.reader is not None or m.segment in spans for m in masks):
        return None
    return _write_places(masks, others, axes)


def _split_factors(
    args: tuple[ops.Op, ...], axes: tuple[ir.Index, ...], definitions: Definitions
) -> list[ops.Op]:
    """The factors of a product, and of those products in it that have a mask."""
    found: list[ops.Op] = []
    taken = {i for arg in args for i in ops.axes_of(arg)}
    for arg in args:
        inner = strip(definitions.unwrap(arg))
        if isinstance(inner, ops.Einsum) and any(
            _find_segments(each, axes, definitions) for each in inner.args
        ):
            bound = {i for each in inner.args for i in ops.axes_of(each)} - {*inner.axes}
            if not bound & taken:
                found += _split_factors(inner.args, axes, definitions)
                continue
        found.append(arg)
    return found


def match_segment_average(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A mean by a softmax that runs over each segment for itself."""
    match op:
        case ops.Einsum((one, other), axes):
            pairs = ((one, other), (other, one))
        case _:
            return None
    for soft, averaged in pairs:
        match strip(definitions.unwrap(soft)):
            case ops.Along("softmax", arg, index, None):
                chosen = strip(definitions.unwrap(arg))
            case _:
                continue
        if not isinstance(chosen, ops.Choose) or chosen.other != NEUTRAL["softmax"]:
            continue
        found = _read_mask(chosen.condition, strip(chosen.then), axes, definitions)
        if found is None or found.reader is not None or not found.is_told or not found.weight:
            continue
        kept = tuple(i for i in ops.axes_of(averaged) if i is not index)
        made = (found.segment, *kept)
        own = {*ops.axes_of(found.weight)}
        is_row = ops.axes_of(found.numbers) == (index,) and index in own and own <= {index, *kept}
        if not is_row or index not in ops.axes_of(averaged) or {*made} != {*axes}:
            continue
        inner = (index, *kept)
        logits, x = ops.arrange(found.weight, inner), ops.arrange(strip(averaged), inner)
        wide = (found.segment, *inner)
        shown, taken = ops.align((found.mask, logits), wide)
        masked = ops.Along("softmax", ops.Choose(shown, taken, chosen.other, wide), index)
        args = (logits, x, found.numbers, ops.Num(found.extent))
        call = ops.TorchCall(AVERAGE, tuple(map(ops.Given, range(4))))
        whole = ops.Einsum((masked, x), made)
        cell = ops.Cell(call, args, whole, made, volume=inner, scratch=(inner, made))
        return ops.arrange(cell, axes)
    return None


def match_pick(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A sum over all places of which a computed number leaves one, or none."""
    pairs: tuple[tuple[ops.Op, ops.Op | None], ...]
    match op:
        case ops.Einsum((one, other), axes):
            pairs = ((one, other), (other, one))
        case ops.Reduction("sum", arg):
            pairs, axes = ((arg, None),), ops.axes_of(op)
        case _:
            return None
    for factor, rest in pairs:
        summed = tuple(i for i in ops.axes_of(factor) if i not in axes)
        found = _find_segments(factor, summed, definitions)
        parts = [part for part in (rest, found.weight if found else None) if part is not None]
        if found is None or len(parts) != 1:
            continue
        (value,) = parts
        told, own = ops.axes_of(found.numbers), ops.axes_of(value)
        kept = tuple(i for i in own if i is not found.segment)
        is_pick = found.reader is None and summed == (found.segment,) and found.segment in own
        if not is_pick or {*told} & {*own} or {*told, *kept} != {*axes}:
            continue
        table = ops.arrange(strip(value), (found.segment, *kept))
        call = ops.TorchCall(PICK, (ops.Given(0), ops.Given(1)))
        wide = (*told, found.segment, *kept)
        shown, taken = ops.align((found.mask, table), wide)
        chosen = ops.Choose(shown, taken, ops.Num(ir.ZERO), wide)
        whole = ops.Reduction("sum", chosen, (found.segment,))
        made = (*told, *kept)
        args, scratch = (table, found.numbers), (ops.axes_of(table),)
        cell = ops.Cell(call, args, whole, made, volume=made, scratch=scratch)
        return ops.arrange(cell, axes)
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
    found = _read_mask(chosen.condition, strip(chosen.then), ops.axes_of(op), definitions)
    value = found.weight if found else None
    if found is None or value is None or not found.is_told or over != ops.axes_of(found.numbers):
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
    cell = _read_back(found, call, value, whole, axes, scratch=(axes,))
    return ops.arrange(cell, ops.axes_of(op))


def _find_segments(
    op: ops.Op, order: tuple[ir.Index, ...], definitions: Definitions
) -> Segments | None:
    """What a factor chooses, if it is 0 but where an index is the number of a segment."""
    match strip(definitions.look(strip(op))):
        case ops.Cast(arg):
            return _read_mask(arg, None, order, definitions)
        case ops.Apply("==") as mask:
            return _read_mask(mask, None, order, definitions)
        case ops.Choose(mask, weight, ops.Num(other)) if other is ir.ZERO and not isinstance(
            weight, ops.Num
        ):
            return _read_mask(mask, strip(weight), order, definitions)
    return None


def _read_mask(
    mask: ops.Op, weight: ops.Op | None, order: tuple[ir.Index, ...], definitions: Definitions
) -> Segments | None:
    """The mask, if it compares whole numbers with an index of the result, or with others there."""
    opened = strip(definitions.look(strip(mask)))
    if not isinstance(opened, ops.Apply) or opened.function != "==":
        return None
    left, right = (definitions.narrow(arg) for arg in opened.args)
    for numbers, place in ((left, right), (right, left)):
        index, bound = strip(definitions.look(place)), None
        if isinstance(numbers, ops.Source):
            bound = definitions.bounds.get(numbers.name)
        if isinstance(index, ops.Iota):
            segment, extent, reader = index.index, index.index.extent, None
        elif bound is not None and isinstance(place, ops.Source) and len(place.axes) == 1:
            (segment,), extent, reader = place.axes, bound, place
            if not is_same_extent(bound, definitions.bounds.get(place.name) or ir.ZERO):
                continue
        else:
            continue
        is_whole = _is_whole(numbers, definitions)
        if segment not in order or segment in ops.axes_of(numbers) or not is_whole:
            continue
        if definitions.memory.extent(ir.Index(segment.name, extent)) < FEW:
            continue
        is_inside = bound is not None and is_same_extent(bound, extent)
        pair = ops.align((numbers, place if reader else index), opened.axes)
        whole = ops.Apply("==", pair, opened.axes)
        return Segments(whole, numbers, segment, weight, extent, reader, is_inside)
    return None


def _is_whole(op: ops.Op, definitions: Definitions) -> bool:
    """Are its values whole numbers, and not the places of one index as they stand?"""
    opened = strip(definitions.look(op))
    match opened:
        case ops.Apply("floor"):
            return True
        case ops.Apply("+" | "-" | "*" | "neg", args):
            return all(_is_whole(arg, definitions) or ops.is_integral(arg) for arg in args)
    return ops.is_integral(opened) and not isinstance(opened, (ops.Iota, ops.Num))


def _write_sum(found: Segments, parts: list[ops.Op], order: tuple[ir.Index, ...]) -> ops.Op | None:
    """The call, if what is summed has the index of the tensor of numbers, which alone goes."""
    (index,) = ops.axes_of(found.numbers)
    widest = max(parts, key=lambda part: len(ops.axes_of(part)))
    axes = ops.axes_of(widest)
    exchanged = tuple(found.segment if i is index else i for i in axes)
    inside = all(set(ops.axes_of(part)) <= set(axes) for part in parts)
    if index not in axes or found.segment in axes or not inside or set(exchanged) != set(order):
        return None
    arg = join_product([widest, *(part for part in parts if part is not widest)], axes)
    assert arg is not None
    kind = "int" if ops.is_integral(arg) else "real"
    whole = ops.Einsum((ops.Cast(found.mask, kind), arg), exchanged)
    place = axes.index(index)
    call = ops.TorchCall(SUMS, (*map(ops.Given, range(3)), *([place] if place else [])))
    return ops.arrange(_read_back(found, call, arg, whole, exchanged, place=place), order)


def _count(found: Segments, parts: list[ops.Op], axes: tuple[ir.Index, ...]) -> ops.Op | None:
    """How many entries each segment has, in integers, whatever the formula's dtype holds."""
    one = ops.Expand(ops.NumTensor(ir.ONE), ops.axes_of(found.numbers))
    if axes != (found.segment,) or parts != [one] or found.reader is not None:
        return None
    ones = ops.TorchCall("torch.ones_like", (ops.Given(0),))
    empty = ops.TorchCall(".new_zeros", (ops.Given(0), ops.Given(1)))
    call = ops.TorchCall(".index_add", (empty, 0, ops.Given(0), ones))
    args, whole = (found.numbers, ops.Num(found.extent)), ops.Reduction("sum", found.mask, one.axes)
    return ops.Cell(call, args, whole, axes, volume=one.axes, scratch=(one.axes,))


def _read_back(  # noqa: PLR0913 - the call, and what it computes
    found: Segments,
    call: ops.Operand,
    arg: ops.Op,
    whole: ops.Op,
    axes: tuple[ir.Index, ...],
    *,
    place: int = 0,
    scratch: tuple[tuple[ir.Index, ...], ...] = (),
) -> ops.Op:
    """The cell of a call on each segment, of which the reader takes what is there."""
    args: tuple[ops.Op, ...] = (arg, found.numbers, ops.Num(found.extent))
    if found.reader is not None:
        args = (*args, found.reader)
        call = ops.TorchCall(".index_select", (call, place, ops.Given(3)))
        rest = tuple(i for i in axes if i is not found.segment)
        scratch = (*scratch, (*rest, ir.Index(f"{found.segment.name}'", found.extent)))
    return ops.Cell(call, args, whole, axes, volume=ops.axes_of(arg), scratch=scratch)


def _write_places(
    masks: list[Segments], parts: list[ops.Op], order: tuple[ir.Index, ...]
) -> ops.Op | None:
    """The call where numbers say the places of several indices, or may say none.

    An index that numbers have and the result keeps is a place of its own.
    """
    masks = sorted(masks, key=lambda mask: order.index(mask.segment))
    told = tuple(dict.fromkeys(i for mask in masks for i in ops.axes_of(mask.numbers)))
    spanned = dict.fromkeys((*told, *(i for part in parts for i in ops.axes_of(part))))
    rest = tuple(i for i in order if i in spanned and i not in told)
    segments = tuple(mask.segment for mask in masks)
    batch = tuple(i for i in told if i in order)
    axes = (*batch, *segments, *rest)
    if {*spanned} != {*told, *rest} or len({*axes}) < len(axes) or {*axes} != {*order}:
        return None
    if {*told} == {*batch}:  # nothing is added up
        return None
    each: list[ops.Op] = [ops.Iota(i) for i in batch]
    numbers = [ops.arrange(op, told) for op in (*each, *(mask.numbers for mask in masks))]
    whole_axes = (*told, *rest)
    arg = join_product(parts, whole_axes)
    assert arg is not None
    if {*ops.axes_of(arg)} != {*whole_axes}:
        arg = ops.Expand(arg, whole_axes)
    arg = ops.arrange(arg, whole_axes)
    extents = [i.extent for i in (*batch, *segments)]
    args = (arg, *numbers, *map(ops.Num, extents))
    count = len(numbers)
    given = (tuple(map(ops.Given, range(1 + k * count, 1 + (k + 1) * count))) for k in range(2))
    shown = [ops.Cast(mask.mask) for mask in masks]
    whole: ops.Op = ops.Einsum((*shown, arg), axes)
    inside = (("is_inside", True),) if all(mask.is_inside for mask in masks) else ()
    call = ops.TorchCall(PLACES, (ops.Given(0), *given), inside)
    return ops.arrange(ops.Cell(call, args, whole, axes, volume=whole_axes), order)


CELLS = (
    CellRule(
        call=AVERAGE,
        computes=(
            "s[E, H]; h[E, H, D]; int dst[E] < V; size V; index n < V\n"
            "y[n,k,d] = sum[e](softmax[e, dst[e] == n](s[e,k]) * h[e,k,d])"
        ),
        refuses=(
            "s[E, H]; h[E, H, D]; int dst[E] < V; size V; index n < V\n"
            "y[n,k,d] = sum[e](softmax[e, dst[e] <= n](s[e,k]) * h[e,k,d])"
        ),
        match=match_segment_average,
    ),
    CellRule(
        call=PICK,
        computes="c[K, D]; 0 <= x[N] < 1\ny[n,d] = sum[k](c[k,d] * [floor(x[n] * K) == k])",
        refuses="c[K, D]; 0 <= x[N] < 1\ny[n,d] = sum[k](c[k,d] * [floor(x[n] * K) <= k])",
        match=match_pick,
    ),
    CellRule(
        call=PLACES,
        computes=(
            "A[E, K, K]; int node[E, K] < N; index i, j < N; size N\n"
            "S[i,j] = sum[e, k, m](A[e,k,m] * [node[e,k] == i] * [node[e,m] == j])"
        ),
        refuses=(
            "A[E, K, K]; int node[E, K] < N; index i, j < N; size N\n"
            "S[i,j] = sum[e, k, m](A[e,k,m] * [node[e,k] <= i] * [node[e,m] <= j])"
        ),
        match=match_segment_sum,
    ),
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
