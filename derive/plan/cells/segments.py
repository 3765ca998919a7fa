"""Sums over parts of a range: sum_n [seg_n = g] x_nd, the sums of segments, are torch's index_add.

Only where the formula says that the numbers of segments are below the extent of g, as torch wants
them. index_add adds one by one, which half precision would round each time, and the sum of a
product does not: there the sum stays.

Rows of a table that integers name, summed over one of their two indices, are its embedding_bag.

log sum_{j <= i} exp(x_j) is its logcumsumexp, and from i on the same of what is read backwards.

sum_d q_id (sum_{j <= i} k_jd v_je) takes chunks of places: within one the scores of its own places,
before it one running sum, so that neither every k_jd v_je nor every score is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.ir.nodes import MINUS_INFINITY, ONE, ZERO
from derive.ir.polynomial import is_same_extent
from derive.plan.cells.matching import CellRule, is_same, strip
from derive.plan.ops import (
    Along,
    Apply,
    Cast,
    Cell,
    Choose,
    Einsum,
    Expand,
    Extents,
    Given,
    Iota,
    Local,
    Num,
    NumTensor,
    Op,
    Operand,
    Reduction,
    Source,
    Take,
    TorchCall,
    Triangle,
    align,
    arrange,
    axes_of,
    is_integral,
)
from derive.plan.steps import free_name

if TYPE_CHECKING:
    from derive.ir.nodes import Index
    from derive.plan.cells.matching import Definitions

RUNNING = "_sum_so_far"  # a function of the file
LATER = "sums so far, in chunks: 0 * x = 0, so entries that come later must be finite"
FEW = 8  # segments below which a product with the mask is as fast


@dataclass(frozen=True, slots=True)
class Segments:
    """The mask seg_n = g, the tensor seg, and what is left of the others: a weight, or nothing."""

    mask: Apply
    numbers: Source
    segment: Index
    weight: Op | None


def match_segment_sum(op: Op, definitions: Definitions) -> Op | None:
    """A sum over one index, in which a mask leaves to each segment what belongs to it."""
    match op:
        case Einsum((one, other), axes):
            for mask, value in ((one, other), (other, one)):
                found = _find_segments(mask, definitions)
                if found is not None:
                    return _write(found, strip(value), axes)
            return None
        case Reduction("sum", mask, over):
            found = _find_segments(mask, definitions)
            if found is None or over != found.numbers.axes:
                return None
            ones = Expand(NumTensor(ONE), found.numbers.axes)  # the number of entries is their sum
            return _write(found, ones if found.weight is None else None, axes_of(op))
        case _:
            return None


def _find_segments(op: Op, definitions: Definitions) -> Segments | None:
    """What a factor chooses, if it is 0 but where an index is the number of a segment."""
    match strip(definitions.look(strip(op))):
        case Cast(arg):
            return _read_mask(arg, None, definitions)
        case Choose(mask, weight, Num(other)) if other is ZERO and not isinstance(weight, Num):
            return _read_mask(mask, strip(weight), definitions)
        case _:
            return None


def _read_mask(mask: Op, weight: Op | None, definitions: Definitions) -> Segments | None:
    """The mask, if it compares an index with a tensor whose values are bounded by its extent."""
    opened = strip(definitions.look(strip(mask)))
    if not isinstance(opened, Apply) or opened.function != "==":
        return None
    left, right = (strip(arg) for arg in opened.args)
    for numbers, place in ((left, right), (right, left)):
        index = definitions.look(place)
        if not isinstance(numbers, Source) or not isinstance(index, Iota):
            continue
        bound = definitions.bounds.get(numbers.name)
        if bound is None or len(numbers.axes) != 1 or definitions.memory.extent(index.index) < FEW:
            continue
        if is_same_extent(bound, index.index.extent):
            whole = Apply("==", align((numbers, index), opened.axes), opened.axes)
            return Segments(whole, numbers, index.index, weight)
    return None


def _write(found: Segments, value: Op | None, order: tuple[Index, ...]) -> Op | None:
    """The call, if what is summed has the index of the tensor of numbers, which alone goes."""
    (index,) = found.numbers.axes
    parts = [part for part in (value, found.weight) if part is not None]
    widest = max(parts, key=lambda part: len(axes_of(part)))
    axes = axes_of(widest)
    exchanged = tuple(found.segment if i is index else i for i in axes)
    inside = all(set(axes_of(part)) <= set(axes) for part in parts)
    if index not in axes or found.segment in axes or not inside or set(exchanged) != set(order):
        return None
    arg = widest
    for part in parts:
        if part is not widest:
            arg = Apply("*", align((arg, part), axes), axes)
    whole = Einsum((Cast(found.mask), arg), exchanged)
    place = axes.index(index)
    is_count = isinstance(arg, Expand)  # ones, which are not there yet
    zeros = _make_zeros(place, len(axes))
    if is_count:
        zeros = TorchCall(".new_zeros", (Local("like"), Given(2)), (("dtype", Local("dtype")),))
    call = TorchCall(".index_add", (zeros, place, Given(1), Given(0)))
    args = (arg, found.numbers, Num(found.segment.extent))
    return arrange(Cell(call, args, whole, exchanged, ("wide",), axes), order)


def _make_zeros(place: int, count: int) -> TorchCall:
    """Zeros as many as the argument has, but in one place as many as there are segments."""
    before = (Extents(Given(0), 0, place),) if place else ()
    after = (Extents(Given(0), place + 1, None),) if place + 1 < count else ()
    return TorchCall(".new_zeros", (Given(0), *before, Given(2), *after))


def match_running_logsumexp(op: Op, definitions: Definitions) -> Op | None:
    """A logsumexp over a triangle of what has the index that is summed alone."""
    match op:
        case Reduction("logsumexp", Choose(mask, then, Num(other), wide), (summed,)):
            triangle, value = strip(definitions.look(strip(mask))), strip(then)
        case _:
            return None
    if other is not MINUS_INFINITY or not isinstance(triangle, Triangle):
        return None
    edges = [i for i in (triangle.rows, triangle.columns) if i is not summed]
    if len(edges) != 1 or triangle.offset is not ZERO or summed not in axes_of(value):
        return None
    (edge,) = edges
    if edge in axes_of(value) or not is_same_extent(edge.extent, summed.extent):
        return None
    axes = tuple(edge if i is summed else i for i in axes_of(value))
    if set(axes) != set(axes_of(op)):
        return None
    is_backwards = triangle.upper == (summed is triangle.columns)
    place = axes.index(edge)
    arg: Operand = TorchCall(".flip", (Given(0), place)) if is_backwards else Given(0)
    call = TorchCall(".logcumsumexp", (arg, place))
    call = TorchCall(".flip", (call, place)) if is_backwards else call
    shown, taken = align((triangle, value), wide)
    chosen = Choose(shown, taken, Num(MINUS_INFINITY), wide)
    whole = Reduction("logsumexp", chosen, (summed,))
    return arrange(Cell(call, (value,), arrange(whole, axes), axes, ("wide",)), axes_of(op))


def match_running_product(op: Op, definitions: Definitions) -> Op | None:
    """A contraction with the running sum of a product, perhaps without what each place adds."""
    match op:
        case Einsum((one, other), axes) if definitions.chunks:
            pairs = ((one, other), (other, one))
        case _:
            return None
    for query, total in pairs:
        match strip(definitions.unwrap(total)):
            case Apply("-", (left, own)):
                running, is_strict = strip(definitions.unwrap(left)), True
            case running:
                own, is_strict = running, False
        if not isinstance(running, Along) or running.kind != "cumsum":
            continue
        added = definitions.look(strip(running.arg))
        chunk = free_name(f"{running.index.name}_chunk", definitions.names)
        if is_strict and not is_same(definitions.look(strip(own)), added):
            continue
        match strip(added):
            case Apply("*", (key, value)):
                factors = (strip(key), strip(value))
                for pair in (factors, factors[::-1]):
                    taken = (strip(query), *pair)
                    found = _write_product(taken, (running.index, chunk), axes, is_strict)
                    if found is not None:
                        return found
    return None


def _write_product(
    factors: tuple[Op, Op, Op], along: tuple[Index, str], order: tuple[Index, ...], is_strict: bool
) -> Op | None:
    """The call, where the query and the key have one index that the value and the result lack."""
    (query, key, value), (index, chunk) = factors, along
    summed = [i for i in axes_of(query) if i in axes_of(key) and i not in (*axes_of(value), *order)]
    made = [i for i in axes_of(value) if i not in axes_of(key)]
    if len(summed) != 1 or len(made) != 1:
        return None
    batch = tuple(i for i in order if i not in (index, *made))
    ends = ((query, summed), (key, summed), (value, made))
    if set(order) != {*batch, index, *made}:
        return None
    if any({*axes_of(op)} != {*batch, index, *last} for op, last in ends):
        return None
    args = tuple(arrange(op, (*batch, index, *last)) for op, last in ends)
    wide = (*batch, *summed, *made, index)
    product = Apply("*", align(args[1:], wide), wide)
    total: Op = Along("cumsum", product, index)
    if is_strict:
        total = Apply("-", (total, product), wide)
    axes = (*batch, index, *made)
    call = TorchCall(RUNNING, (*map(Given, range(3)), -int(is_strict)), (("chunk", Local(chunk)),))
    scratch = (axes, axes_of(args[0]))
    whole = Einsum((args[0], total), axes)
    return arrange(Cell(call, args, whole, axes, (), wide, LATER, scratch), order)


BAG = "torch.nn.functional.embedding_bag"
LACKS = "it has no second and no forward derivatives; what --no-cells builds has them"


def match_bag(op: Op, definitions: Definitions) -> Op | None:
    """The sum or the mean of rows of a table, those that the integers of each bag name."""
    weights: Op | None = None
    match op:
        case Reduction("sum" | "mean" as mode, arg, (index,)):
            rows = strip(definitions.open(strip(arg)))
        case Einsum((one, other), axes) if len(axes) == 2:
            mode, pair = "sum", [strip(definitions.open(strip(each))) for each in (one, other)]
            pair.sort(key=lambda each: isinstance(each, Take))
            weights, rows = pair
        case _:
            return None
    if not isinstance(rows, Take) or rows.places != (0,) or len(axes_of(rows.arg)) != 2:
        return None
    places, table = strip(rows.by[0]), rows.arg
    column = axes_of(table)[1]
    if not isinstance(places, Source) or len(set(places.axes)) != 2 or is_integral(table):
        return None
    if weights is not None:
        summed = [i for i in axes_of(rows) if i not in axes_of(op)]
        if len(summed) != 1 or set(axes_of(weights)) != set(places.axes) or is_integral(weights):
            return None
        (index,) = summed
    if index not in places.axes or column in places.axes:
        return None
    (bag,) = (i for i in places.axes if i is not index)
    inner, made = (bag, index), (bag, column)
    if set(axes_of(op)) != set(made):
        return None
    args = [arrange(places, inner), table]
    keywords: list[tuple[str, Operand]] = [("mode", mode)]
    if weights is not None:
        args.append(arrange(weights, inner))
        keywords.append(("per_sample_weights", Given(2)))
    call = TorchCall(BAG, (Given(0), Given(1)), tuple(keywords))
    note, filled = f"{BAG}: {LACKS}", (index,)  # torch takes no bags without entries
    bare = Reduction(mode, rows, (index,)) if weights is None else Einsum((weights, rows), made)
    cell = Cell(call, tuple(args), arrange(bare, made), made, note=note, filled=filled)
    return arrange(cell, axes_of(op))


CELLS = (
    CellRule(
        call=BAG,
        computes="E[V, D]; int t[B, K] < V\ny[b,d] = sum[k](E[t[b,k],d])",
        refuses="E[V, D]; int t[B, K] < V\ny[b,d] = max[k](E[t[b,k],d])",
        match=match_bag,
        lacks=LACKS,
    ),
    CellRule(
        call=RUNNING,
        computes="q, k[N, D]; v[N, E]\nz[i,e] = sum[d](q[i,d] * cumsum[i](k[i,d] * v[i,e]))",
        refuses="q, k[N, D]; v[N, E]\nz[i,e] = sum[d](q[i,d] * exp(cumsum[i](k[i,d] * v[i,e])))",
        match=match_running_product,
    ),
    CellRule(
        call=".logcumsumexp",
        computes="x[B, N]; index i < N\ns[b,i] = logsumexp[j, j >= i](x[b,j])",
        refuses="x[B, N]; index i < N\ns[b,i] = logsumexp[j, j > i](x[b,j])",
        match=match_running_logsumexp,
    ),
    CellRule(
        call=".index_add",
        computes=(
            "size G\nx[N, D]; int seg[N] < G; index g < G\ns[g,d] = sum[n, seg[n] == g](x[n,d])"
        ),
        refuses=("size G\nx[N, D]; int seg[N]; index g < G\ns[g,d] = sum[n, seg[n] == g](x[n,d])"),
        match=match_segment_sum,
    ),
)
