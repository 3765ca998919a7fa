"""Sums over parts of a range: sum_n [seg_n = g] x_nd, the sums of segments, are torch's index_add.

Only where the formula says that the numbers of segments are below the extent of g, as torch wants
them. index_add adds one by one, which half precision would round each time, and the sum of a
product does not: there the sum stays.

Rows of a table that integers name, summed over one of their two indices, are its embedding_bag.

log sum_{j <= i} exp(x_j) is its logcumsumexp, and from i on the same of what is read backwards.

sum_d q_id (sum_{j <= i} k_jd v_je) takes chunks of places: within one the scores of its own places,
before it one running sum, so that neither every k_jd v_je nor every score is kept.

sum_j [a_j <= b_i] v_j is the running sum of v in the order of a, read at the place of b_i there: a
sort and a search instead of all pairs. Nothing is subtracted, so it rounds as a running sum does.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.plan import ops
from derive.plan.cells.matching import CellRule, is_same, strip
from derive.plan.cost import find_true_axes
from derive.plan.steps import free_name

if TYPE_CHECKING:
    from derive.plan.cells.matching import Definitions

RUNNING = "_sum_so_far"  # a function of the file
LATER = "sums so far, in chunks: 0 * x = 0, so entries that come later must be finite"
BELOW = "_reduce_below"  # another one
PAIRED = 64  # comparisons of an element in whose time it is sorted: fewer stay comparisons
SORTED = ir.Index("sorted", ir.Number(Fraction(4096)))  # operations to sort an element and find it
FEW = 8  # segments below which a product with the mask is as fast


@dataclass(frozen=True, slots=True)
class Segments:
    """The mask seg_n = g, the tensor seg, and what is left of the others: a weight, or nothing."""

    mask: ops.Apply
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
                    return _write(found, strip(value), axes)
            return None
        case ops.Reduction("sum", mask, over):
            found = _find_segments(mask, definitions)
            if found is None or over != found.numbers.axes:
                return None
            ones = ops.Expand(
                ops.NumTensor(ir.ONE), found.numbers.axes
            )  # the number of entries is their sum
            return _write(found, ones if found.weight is None else None, ops.axes_of(op))
        case _:
            return None


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


def _write(found: Segments, value: ops.Op | None, order: tuple[ir.Index, ...]) -> ops.Op | None:
    """The call, if what is summed has the index of the tensor of numbers, which alone goes."""
    (index,) = found.numbers.axes
    parts = [part for part in (value, found.weight) if part is not None]
    widest = max(parts, key=lambda part: len(ops.axes_of(part)))
    axes = ops.axes_of(widest)
    exchanged = tuple(found.segment if i is index else i for i in axes)
    inside = all(set(ops.axes_of(part)) <= set(axes) for part in parts)
    if index not in axes or found.segment in axes or not inside or set(exchanged) != set(order):
        return None
    arg = widest
    for part in parts:
        if part is not widest:
            arg = ops.Apply("*", ops.align((arg, part), axes), axes)
    whole = ops.Einsum((ops.Cast(found.mask), arg), exchanged)
    place = axes.index(index)
    is_count = isinstance(arg, ops.Expand)  # ones, which are not there yet
    zeros = _make_zeros(place, len(axes))
    if is_count:
        zeros = ops.TorchCall(
            ".new_zeros", (ops.Local("like"), ops.Given(2)), (("dtype", ops.Local("dtype")),)
        )
    call = ops.TorchCall(".index_add", (zeros, place, ops.Given(1), ops.Given(0)))
    args = (arg, found.numbers, ops.Num(found.segment.extent))
    return ops.arrange(ops.Cell(call, args, whole, exchanged, ("wide",), axes), order)


def _make_zeros(place: int, count: int) -> ops.TorchCall:
    """Zeros as many as the argument has, but in one place as many as there are segments."""
    before = (ops.Extents(ops.Given(0), 0, place),) if place else ()
    after = (ops.Extents(ops.Given(0), place + 1, None),) if place + 1 < count else ()
    return ops.TorchCall(".new_zeros", (ops.Given(0), *before, ops.Given(2), *after))


def match_running_logsumexp(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A logsumexp over a triangle of what has the index that is summed alone."""
    match op:
        case ops.Reduction("logsumexp", ops.Choose(mask, then, ops.Num(other), wide), (summed,)):
            triangle, value = strip(definitions.look(strip(mask))), strip(then)
        case _:
            return None
    if other is not ir.MINUS_INFINITY or not isinstance(triangle, ops.Triangle):
        return None
    edges = [i for i in (triangle.rows, triangle.columns) if i is not summed]
    if len(edges) != 1 or triangle.offset is not ir.ZERO or summed not in ops.axes_of(value):
        return None
    (edge,) = edges
    if edge in ops.axes_of(value) or not is_same_extent(edge.extent, summed.extent):
        return None
    axes = tuple(edge if i is summed else i for i in ops.axes_of(value))
    if set(axes) != set(ops.axes_of(op)):
        return None
    is_backwards = triangle.upper == (summed is triangle.columns)
    place = axes.index(edge)
    arg: ops.Operand = (
        ops.TorchCall(".flip", (ops.Given(0), place)) if is_backwards else ops.Given(0)
    )
    call = ops.TorchCall(".logcumsumexp", (arg, place))
    call = ops.TorchCall(".flip", (call, place)) if is_backwards else call
    shown, taken = ops.align((triangle, value), wide)
    chosen = ops.Choose(shown, taken, ops.Num(ir.MINUS_INFINITY), wide)
    whole = ops.Reduction("logsumexp", chosen, (summed,))
    return ops.arrange(
        ops.Cell(call, (value,), ops.arrange(whole, axes), axes, ("wide",)), ops.axes_of(op)
    )


def match_running_product(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A contraction with the running sum of a product, perhaps without what each place adds."""
    match op:
        case ops.Einsum((one, other), axes) if definitions.chunks:
            pairs = ((one, other), (other, one))
        case _:
            return None
    for query, total in pairs:
        match strip(definitions.unwrap(total)):
            case ops.Apply("-", (left, own)):
                running, is_strict = strip(definitions.unwrap(left)), True
            case running:
                own, is_strict = running, False
        if not isinstance(running, ops.Along) or running.kind != "cumsum":
            continue
        added = definitions.look(strip(running.arg))
        chunk = free_name(f"{running.index.name}_chunk", definitions.names)
        if is_strict and not is_same(definitions.look(strip(own)), added):
            continue
        match strip(added):
            case ops.Apply("*", (key, value)):
                factors = (strip(key), strip(value))
                for pair in (factors, factors[::-1]):
                    taken = (strip(query), *pair)
                    found = _write_product(taken, (running.index, chunk), axes, is_strict)
                    if found is not None:
                        return found
    return None


def _write_product(
    factors: tuple[ops.Op, ops.Op, ops.Op],
    along: tuple[ir.Index, str],
    order: tuple[ir.Index, ...],
    is_strict: bool,
) -> ops.Op | None:
    """The call, where the query and the key have one index that the value and the result lack."""
    (query, key, value), (index, chunk) = factors, along
    summed = [
        i
        for i in ops.axes_of(query)
        if i in ops.axes_of(key) and i not in (*ops.axes_of(value), *order)
    ]
    made = [i for i in ops.axes_of(value) if i not in ops.axes_of(key)]
    if len(summed) != 1 or len(made) != 1:
        return None
    batch = tuple(i for i in order if i not in (index, *made))
    ends = ((query, summed), (key, summed), (value, made))
    if set(order) != {*batch, index, *made}:
        return None
    if any({*ops.axes_of(op)} != {*batch, index, *last} for op, last in ends):
        return None
    args = tuple(ops.arrange(op, (*batch, index, *last)) for op, last in ends)
    wide = (*batch, *summed, *made, index)
    product = ops.Apply("*", ops.align(args[1:], wide), wide)
    total: ops.Op = ops.Along("cumsum", product, index)
    if is_strict:
        total = ops.Apply("-", (total, product), wide)
    axes = (*batch, index, *made)
    call = ops.TorchCall(
        RUNNING, (*map(ops.Given, range(3)), -int(is_strict)), (("chunk", ops.Local(chunk)),)
    )
    scratch = (axes, ops.axes_of(args[0]))
    whole = ops.Einsum((args[0], total), axes)
    return ops.arrange(ops.Cell(call, args, whole, axes, (), wide, LATER, scratch), order)


@dataclass(frozen=True, slots=True)
class Sides:
    """key_j < bound_i, or <= where it `is_equal`, of what is negated where it was above."""

    key: ops.Op
    bound: ops.Op
    is_equal: bool


def match_below(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A sum, a mean or a logsumexp over those entries whose key is on one side of a bound."""
    parts: tuple[ops.Op, ...]
    match op:
        case ops.Reduction("sum" | "mean" | "logsumexp" as kind, arg, over):
            parts = (definitions.unwrap(arg),)
        case ops.Einsum((_, _) as parts, axes):
            spanned = dict.fromkeys(i for part in parts for i in ops.axes_of(part))
            kind, over = "sum", tuple(i for i in spanned if i not in axes)
        case _:
            return None
    neutral = ir.MINUS_INFINITY if kind == "logsumexp" else ir.ZERO
    for place, part in enumerate(parts):
        values = [strip(other) for k, other in enumerate(parts) if k != place]
        match strip(definitions.look(strip(part))):
            case ops.Cast(mask) if kind != "logsumexp":
                pass
            case ops.Choose(mask, then, ops.Num(other)) | ops.Fill(
                then, mask, ops.Num(other), False
            ) if other is neutral and not isinstance(then, ops.Num):
                values.append(strip(then))
            case _:
                continue
        for index in over:
            sides = _find_sides(mask, index, definitions)
            if sides is None or len(values) > 1:
                continue
            found = _write_below(kind, sides, values[0] if values else None, index)
            rest = tuple(i for i in over if i is not index)
            if found is None or {*ops.axes_of(found)} != {*ops.axes_of(op), *rest}:
                continue
            found = ops.Reduction(kind, found, rest) if rest else found
            return ops.arrange(found, ops.axes_of(op))
    return None


def _find_sides(mask: ops.Op, index: ir.Index, definitions: Definitions) -> Sides | None:
    """What a mask compares, if only one of the two has the index, and the other many others."""
    match strip(definitions.look(strip(mask))):
        case ops.Apply("<" | "<=" | ">" | ">=" as relation, (left, right)):
            key, bound = strip(left), strip(right)
        case _:
            return None
    if _spans_pairs(strip(mask), definitions):
        return None
    is_above = relation in {">", ">="}
    if index in ops.axes_of(bound):
        key, bound, is_above = bound, key, not is_above
    own = [i for i in ops.axes_of(bound) if i not in ops.axes_of(key)]
    if len(own) != 1 or index not in ops.axes_of(key) or index in ops.axes_of(bound):
        return None
    sides = (key, bound)
    if min(map(definitions.memory.extent, (*own, index))) < PAIRED:
        return None
    if any(isinstance(definitions.look(side), ops.Iota) for side in sides):
        return None
    if any(map(ops.is_integral, sides)):
        return None
    if is_above:
        key, bound = (ops.Apply("neg", (side,), ops.axes_of(side)) for side in sides)
    return Sides(key, bound, "=" in relation)


def _spans_pairs(mask: ops.Op, definitions: Definitions) -> bool:
    """Does a reader of this mask compute something for all pairs, so that all are compared?"""
    for step in definitions.steps.values() if isinstance(mask, ops.Source) else ():
        parts = list(ops.walk_ops(step.op))
        for read in parts:
            if isinstance(read, ops.Source) and read.name == mask.name:  # type: ignore[union-attr]
                wide = {*read.axes}
                if any(isinstance(p, ops.Apply) and wide <= {*find_true_axes(p)} for p in parts):
                    return True
    return False


def _write_below(kind: str, sides: Sides, value: ops.Op | None, index: ir.Index) -> ops.Op | None:
    """The call; the keys, the bounds and the values have their own index last."""
    known = [side for side in (sides.key, sides.bound, value) if side is not None]
    (own,) = (i for i in ops.axes_of(sides.bound) if i not in ops.axes_of(sides.key))
    if value is not None and (own in ops.axes_of(value) or index not in ops.axes_of(value)):
        return None
    if value is not None and (ops.is_boolean(value) or ops.is_integral(value)):
        return None
    every = dict.fromkeys(i for side in known for i in ops.axes_of(side))
    batch = tuple(i for i in every if i not in (index, own))
    shared = {i for side in known[:2] for i in ops.axes_of(side)}

    def arrange(side: ops.Op, last: ir.Index) -> ops.Op:
        lacks = shared - {*ops.axes_of(side), index, own}
        if lacks and side is not value:  # torch broadcasts no keys to bounds
            side = ops.Expand(side, (*(i for i in batch if i in shared), last))
        wanted = (*batch, last)
        return side if ops.axes_of(side) == wanted else ops.Arrange(side, wanted)

    key, bound = arrange(sides.key, index), arrange(sides.bound, own)
    axes, wide = (*batch, own), (*batch, own, index)
    mask = ops.Apply("<=" if sides.is_equal else "<", ops.align((key, bound), wide), wide)
    args: tuple[ops.Op, ...] = (key, bound)
    taken: ops.Operand = ops.Local("None")
    chosen: ops.Op = ops.Cast(mask)
    if value is not None:
        args, taken = (*args, arrange(value, index)), ops.Given(2)
        neutral = ops.Num(ir.MINUS_INFINITY if kind == "logsumexp" else ir.ZERO)
        chosen = ops.Choose(mask, ops.arrange(args[2], wide), neutral, wide)
    whole = ops.Reduction(kind, chosen, (index,))
    options = (("equal", sides.is_equal), ("kind", kind))
    call = ops.TorchCall(BELOW, (ops.Given(0), ops.Given(1), taken), options)
    volume = (*(i for i in batch if i in shared), index, SORTED)
    return ops.Cell(call, args, whole, axes, volume=volume, scratch=((*batch, index),) * 2)


BAG = "torch.nn.functional.embedding_bag"
LACKS = "it has no second and no forward derivatives; what --no-cells builds has them"


def match_bag(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The sum or the mean of rows of a table, those that the integers of each bag name."""
    weights: ops.Op | None = None
    match op:
        case ops.Reduction("sum" | "mean" as mode, arg, (index,)):
            rows = strip(definitions.open(strip(arg)))
        case ops.Einsum((one, other), axes) if len(axes) == 2:
            mode, pair = "sum", [strip(definitions.open(strip(each))) for each in (one, other)]
            pair.sort(key=lambda each: isinstance(each, ops.Take))
            weights, rows = pair
        case _:
            return None
    if not isinstance(rows, ops.Take) or rows.places != (0,) or len(ops.axes_of(rows.arg)) != 2:
        return None
    places, table = strip(rows.by[0]), rows.arg
    column = ops.axes_of(table)[1]
    if not isinstance(places, ops.Source) or len(set(places.axes)) != 2 or ops.is_integral(table):
        return None
    if weights is not None:
        summed = [i for i in ops.axes_of(rows) if i not in ops.axes_of(op)]
        if (
            len(summed) != 1
            or set(ops.axes_of(weights)) != set(places.axes)
            or ops.is_integral(weights)
        ):
            return None
        (index,) = summed
    if index not in places.axes or column in places.axes:
        return None
    (bag,) = (i for i in places.axes if i is not index)
    inner, made = (bag, index), (bag, column)
    if set(ops.axes_of(op)) != set(made):
        return None
    args = [ops.arrange(places, inner), table]
    keywords: list[tuple[str, ops.Operand]] = [("mode", mode)]
    if weights is not None:
        args.append(ops.arrange(weights, inner))
        keywords.append(("per_sample_weights", ops.Given(2)))
    call = ops.TorchCall(BAG, (ops.Given(0), ops.Given(1)), tuple(keywords))
    note, filled = f"{BAG}: {LACKS}", (index,)  # torch takes no bags without entries
    bare = (
        ops.Reduction(mode, rows, (index,))
        if weights is None
        else ops.Einsum((weights, rows), made)
    )
    cell = ops.Cell(call, tuple(args), ops.arrange(bare, made), made, note=note, filled=filled)
    return ops.arrange(cell, ops.axes_of(op))


CELLS = (
    CellRule(
        call=BELOW,
        computes="t, x[B, N]\nr[b,i] = logsumexp[j, t[b,j] >= t[b,i]](x[b,j])",
        refuses="t, x[B, N]\nr[b,i] = max[j, t[b,j] >= t[b,i]](x[b,j])",
        match=match_below,
    ),
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
