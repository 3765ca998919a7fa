"""Reductions over segments and prefixes of an index.

    embedding_bag    sum_k w_bk E[t_bk, d], rows of a table selected by integers
    scatter_add      x_bv + sum_t a_bt [c_bt = v]
    cumprod, cummax, cummin, logcumsumexp
                     the reduction of x_j over j <= i; over j >= i, of the reversed x

A reduction over j <= i - c is the same, shifted by c positions and padded with neutral elements.

sum_d q_id (sum_{j <= i} k_jd v_je) is computed in chunks of positions: scores within a chunk, and
one running sum of the chunks before it. So neither all k_jd v_je nor all scores are stored.
"""

from typing import Any

from derive.analysis.facts import is_never_negative
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.plan import ops
from derive.plan.calls import LocalName, TorchCall
from derive.plan.cells.matching import (
    LACKS,
    Definitions,
    Signed,
    divide_by_each,
    join_product,
    join_sum,
    list_pairs,
    split_product,
    split_sum,
    strip,
)
from derive.plan.cost import find_true_axes
from derive.plan.lower.contraction import NEUTRAL
from derive.plan.lower.guarded import keep_where
from derive.plan.lower.patterns import make_cell
from derive.plan.lower.segments import ADDED, SUMS
from derive.plan.steps import free_name

RUNNING = "_sum_so_far"  # a function of the file
LATER = "sums so far, in chunks: 0 * x = 0, so entries that come later must be finite"
SCANS = {
    "prod": ".cumprod",
    "logsumexp": ".logcumsumexp",
    "max": ".cummax",  # returns (values, positions); the positions are dropped
    "min": ".cummin",
}
EQUAL = "of equal largest or smallest entries so far the last one alone has a derivative"


def match_running_reduction(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A reduction of x_j over j <= i as a cumulative product, maximum, .. of torch, or None."""
    match op:
        case ops.Reduction(kind, ops.Choose(mask, then, neutral, every), (bound,)):
            triangle, value = strip(definitions.definition_of(strip(mask))), strip(then)
        case _:
            return None
    is_real = not (ops.is_integral(value) or ops.is_boolean(value))
    if kind not in SCANS or neutral != NEUTRAL[kind] or not is_real:
        return None
    if not isinstance(triangle, ops.Triangle):
        return None
    edges = [i for i in (triangle.rows, triangle.columns) if i is not bound]
    offset = Polynomial.of(triangle.offset) * Polynomial.of(1 if triangle.upper else -1)
    if len(edges) != 1 or not is_never_negative(offset) or bound not in value.axes:
        return None
    (edge,) = edges
    if edge in value.axes or not is_same_extent(edge.extent, bound.extent):
        return None
    axes = tuple(edge if i is bound else i for i in value.axes)
    if set(axes) != set(op.axes):
        return None
    is_backwards = triangle.upper == (bound is triangle.columns)
    place = axes.index(edge)
    flip, is_extreme = f".flip({place})" if is_backwards else "", kind in {"max", "min"}
    # half precision loses digits
    text = f"x.to(torch.promote_types(dtype, torch.float32)){flip}{SCANS[kind]}({place})"
    text += "[0]" if is_extreme else ""
    given: dict[str, Any] = {"x": value}
    if triangle.offset is not ir.ZERO:  # shift by the offset
        given |= {"shift": ops.Num(offset.to_expr()), "n": ops.Num(edge.extent)}
        given["empty"] = LocalName({"prod": "1", "min": "torch.inf"}.get(kind, "-torch.inf"))
        amounts = "0, " * (2 * (len(axes) - place - 1))
        text = f"torch.nn.functional.pad({text}, ({amounts}shift, 0), value=empty)"
        text += f".narrow({place}, 0, n)"
    text += f"{flip}.to(dtype)"
    whole = ops.Reduction(kind, keep_where(kind, triangle, value, every), (bound,))
    note = EQUAL if is_extreme else ""
    return ops.arrange(make_cell(text, given, ops.arrange(whole, axes), note=note), op.axes)


def match_running_product(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """sum_d q_id * (sum_{j <= i} k_jd * v_je) as one call in chunks of positions, or None."""
    for query, total in list_pairs(op) if definitions.chunks else ():
        running = strip(definitions.unwrap(total))
        if not isinstance(running, ops.Along) or running.kind != "cumsum":
            continue
        added = definitions.definition_of(strip(running.arg))
        chunk = free_name(f"{running.index.name}_chunk", definitions.names)
        match strip(added):
            case ops.Apply("*", (key, value)):
                factors = (strip(key), strip(value))
                for pair in (factors, factors[::-1]):
                    taken = (strip(query), *pair)
                    found = _write_product(taken, (running.index, chunk), op.axes)
                    if found is not None:
                        return found
    return None


def _write_product(
    factors: tuple[ops.Op, ops.Op, ops.Op], along: tuple[ir.Index, str], order: tuple[ir.Index, ...]
) -> ops.Op | None:
    """Return the call for query, key, value if the first two share one summed index; else None."""
    (query, key, value), (index, chunk) = factors, along
    summed = [i for i in query.axes if i in key.axes and i not in (*value.axes, *order)]
    made = [i for i in value.axes if i not in key.axes]
    if len(summed) != 1 or len(made) != 1:
        return None
    batch = tuple(i for i in order if i not in (index, *made))
    ends = ((query, summed), (key, summed), (value, made))
    if set(order) != {*batch, index, *made}:
        return None
    if any({*op.axes} != {*batch, index, *last} for op, last in ends):
        return None
    args = tuple(ops.arrange(op, (*batch, index, *last)) for op, last in ends)
    wide = (*batch, *summed, *made, index)
    product = ops.Apply("*", ops.align(args[1:], wide), wide)
    total: ops.Op = ops.Along("cumsum", product, index)
    axes = (*batch, index, *made)
    whole = ops.Einsum((args[0], total), axes)
    given = {**dict(zip("qkv", args, strict=True)), "chunk": LocalName(chunk)}
    fields: dict[str, Any] = {"volume": wide, "note": LATER, "scratch": (axes, args[0].axes)}
    cell = make_cell(f"{RUNNING}(q, k, v, 0, chunk=chunk)", given, whole, **fields)
    return ops.arrange(cell, order)


BAG = "torch.nn.functional.embedding_bag(t, x, mode='sum', per_sample_weights=w)"


def match_bag(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A weighted sum of table rows that integers select as embedding_bag, or None."""
    match op:
        case ops.Einsum((one, other), axes) if len(axes) == 2:
            pair = [strip(definitions.inline_single_use(strip(each))) for each in (one, other)]
            weights, rows = sorted(pair, key=lambda each: isinstance(each, ops.Take))
        case _:
            return None
    if not isinstance(rows, ops.Take) or rows.places != (0,) or len(rows.arg.axes) != 2:
        return None
    places, table = strip(rows.by[0]), rows.arg
    column = table.axes[1]
    if not isinstance(places, ops.Source) or len(set(places.axes)) != 2 or ops.is_integral(table):
        return None
    summed = [i for i in rows.axes if i not in op.axes]
    if len(summed) != 1 or {*weights.axes} != {*places.axes} or ops.is_integral(weights):
        return None
    (index,) = summed
    if index not in places.axes or column in places.axes:
        return None
    (bag,) = (i for i in places.axes if i is not index)
    inner, made = (bag, index), (bag, column)
    if set(op.axes) != set(made):
        return None
    given = {"t": ops.arrange(places, inner), "x": table, "w": ops.arrange(weights, inner)}
    note, whole = f"{BAG[: BAG.index('(')]}: {LACKS}", ops.Einsum((weights, rows), made)
    cell = make_cell(BAG, given, whole, note=note, filled=(index,))  # torch rejects empty bags
    return ops.arrange(cell, op.axes)


def match_scatter_add(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A segment sum that is scaled, or added to a tensor, as one call; or None.

    The scale is applied to the entries if there are fewer of them than segments.
    """
    if not isinstance(op, ops.Apply) or op.function not in {"+", "-", "*", "/"}:
        return None
    terms = split_sum(op, definitions.unwrap)
    for term in terms:
        found = _split_segment_sum(term, definitions)
        others = [each for each in terms if each is not term]
        if found is None or {*found[0].axes} != {*op.axes}:
            continue
        (cell, value), (entries, numbers, *_) = found, found[0].args
        few, many = map(definitions.memory.count, (value.axes, op.axes))
        if value is not entries and few >= many:
            continue
        made = ops.with_args(cell, (value, *cell.args[1:]))
        assert isinstance(made, ops.Cell)
        if not others:
            return None if made is cell else ops.arrange(made, op.axes)
        total = ops.arrange(join_sum(others, op.axes), cell.axes)
        if {*find_true_axes(total)} == {*op.axes}:
            place = next(k for k, i in enumerate(cell.axes) if i not in value.axes)
            given = {"x": total, "value": value, "numbers": numbers}
            whole = ops.Apply("+", (total, made.whole), cell.axes)
            text = f"{ADDED}(x, value, numbers, {place})"
            return ops.arrange(make_cell(text, given, whole, volume=cell.volume), op.axes)
    return None


def _split_segment_sum(term: Signed, definitions: Definitions) -> tuple[ops.Cell, ops.Op] | None:
    """The segment sum in a term, and its entries times the term's sign, factors and divisors.

    None unless there is one, and its entries have the indices of all factors.
    """
    parts = split_product(term.op, definitions.unwrap)
    opened = [definitions.unwrap(factor) for factor in parts.over]
    cells = [
        each
        for each in opened
        if isinstance(each, ops.Cell)
        and isinstance(each.call, TorchCall)
        and each.call.function in {SUMS, ADDED}
        and isinstance(each.whole, ops.Einsum)
    ]
    if len(cells) != 1:
        return None
    factors = [f for f, each in zip(parts.over, opened, strict=True) if each is not cells[0]]
    value, axes = cells[0].args[0], cells[0].args[0].axes
    if any(not {*f.axes} <= {*axes} & {*cells[0].axes} for f in (*factors, *parts.under)):
        return None
    scaled = divide_by_each(join_product([value, *factors], axes) or value, parts.under, axes)
    if term.negative is not parts.negative:
        scaled = ops.Apply("neg", (scaled,), axes)
    return cells[0], ops.arrange(scaled, axes)
