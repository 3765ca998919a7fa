"""softmax_j(q . k + bias) v as torch's scaled_dot_product_attention, which stores no weights.

Vaswani et al. 2017, eq. 1; Dao et al. 2022 for the kernel. The operands have four axes: two of the
batch, the rows of queries or columns of keys, the features.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from derive.analysis.extents import is_always, is_never_empty
from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import substitute
from derive.plan import ops
from derive.plan.cells.matching import Definitions, list_pairs, strip
from derive.plan.cost import find_strides, find_true_axes
from derive.plan.lower.condition import fill
from derive.plan.lower.patterns import make_cell
from derive.plan.meaning import to_expr

NAME = "torch.nn.functional.scaled_dot_product_attention"
LACKS = (
    "it may lack second and forward derivatives, and give zeros for nan; "
    "what --no-cells builds does neither"
)
KEYWORDS = "is_causal=causal, attn_mask=mask[lead], scale=scale, enable_gqa=gqa"
NOTE = f"{NAME}: {LACKS}"
EMPTY_ROW_NOTE = f"{NOTE}; a row of nothing but -oo in what is added gives zeros, not nan"


@dataclass(frozen=True)
class Scores:
    """The argument of the softmax: query times key, the added bias, the mask."""

    query: ops.Op
    key: ops.Op
    bias: ops.Op | None = None
    mask: ops.Op | None = None
    causal: bool = False  # whether the mask is j <= i, torch's is_causal


@dataclass(frozen=True)
class Places:
    """The indices of an attention by role."""

    batch: tuple[ir.Index, ...]
    group: ir.Index | None  # the query heads that share one head of keys
    row: ir.Index
    column: ir.Index
    feature: ir.Index  # of queries and keys
    result: ir.Index  # the features of the value

    @property
    def merged(self) -> ir.Index | None:
        """The merged index of query heads counted by two indices, as torch takes one; else None."""
        if self.group is None or len(self.batch) < 2:
            return None
        return ops.merge_indices((self.batch[1], self.group))


def match_attention(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A product of a value and a softmax that nothing else reads as torch's attention, or None."""
    for weights, value in list_pairs(op):
        soft, emptied = _find_softmax(definitions.unwrap(weights), definitions)
        if soft is None:
            continue
        scores = _find_scores(definitions.unwrap(strip(soft.arg)), definitions)
        if scores is None:
            continue
        places = _classify_indices(op, soft, scores, value, definitions)
        if places is None:
            continue
        # Torch returns zeros for rows that are masked completely; some masks have no such row.
        if _may_add_infinity(scores.bias, definitions):
            continue
        is_kept = emptied is None and _keeps_a_column(scores.mask, places, definitions)
        if emptied is scores.mask or is_kept:
            causal = ops.Triangle(places.row, places.column, ir.ZERO, False)
            mask = scores.mask and definitions.definition_of(scores.mask)
            scores = replace(scores, causal=scores.bias is None and mask is causal)
            return _make_cell(op, scores, strip(value), places, definitions)
    return None


def _find_softmax(op: ops.Op, definitions: Definitions) -> tuple[ops.Along | None, ops.Op | None]:
    """Return (the softmax or None, the mask outside of which it is filled with 0, or None)."""
    match op:
        case ops.Along("softmax"):
            return op, None
        case ops.Fill(arg, mask, ops.Num(value), False) if value is ir.ZERO:
            inner = definitions.unwrap(arg)
            if isinstance(inner, ops.Along) and inner.kind == "softmax":
                return inner, strip(mask)
    return None, None


def _find_scores(op: ops.Op, definitions: Definitions) -> Scores | None:
    """Return the argument of a softmax by its parts, or None."""

    def find_unmasked(product: ops.Op) -> Scores | None:
        scores = _find_scores(definitions.unwrap(product), definitions)
        return scores if scores is not None and scores.mask is None else None

    match op:
        case ops.Fill(arg, mask, ops.Num(value), False) if value is ir.MINUS_INFINITY:
            scores = find_unmasked(arg)
            return scores and replace(scores, mask=strip(mask))
        case ops.Apply("+" | "-" as sign, (one, other)):
            for product, rest in ((one, other), (other, one))[: 1 if sign == "-" else 2]:
                scores, added = find_unmasked(product), strip(rest)
                if scores is not None:
                    if sign == "-":
                        added = ops.Apply("neg", (added,), added.axes)
                    if scores.bias is not None:
                        axes = (*scores.bias.axes, *added.axes)
                        added = ops.combine("+", (scores.bias, added), axes)
                    return replace(scores, bias=added)
        case ops.Apply("*" | "/" as function, (product, ops.Num() as scale)):
            scores = find_unmasked(product)
            if scores is None:
                return None
            query, bias = scores.query, scores.bias
            query = ops.Apply(function, (query, scale), query.axes)
            bias = bias and ops.Apply(function, (bias, scale), bias.axes)
            return replace(scores, query=query, bias=bias)
        case ops.Einsum((query, key), _):
            return Scores(strip(query), strip(key))
    return None


def _classify_indices(
    op: ops.Op, soft: ops.Along, scores: Scores, value: ops.Op, definitions: Definitions
) -> Places | None:
    """Return the role of every index; None if they do not form an attention with four axes."""
    query, key, worth = (each.axes for each in (scores.query, scores.key, value))
    kept = soft.axes
    features = [i for i in query if i in key and i not in kept]
    batch = tuple(i for i in query if i in key and i in kept)
    rows = [i for i in query if i not in key]
    results = [i for i in worth if i not in kept]
    if len(features) != 1 or len(results) != 1 or not 1 <= len(rows) <= 2 or len(batch) > 2:
        return None
    rows.sort(key=definitions.memory.extent)  # guess: the shorter index is the group of heads
    group = rows[0] if len(rows) == 2 else None
    found = Places(batch, group, rows[-1], soft.index, features[0], results[0])
    fits = (
        set(key) == {*batch, found.column, found.feature}
        and set(worth) == {*batch, found.column, found.result}
        and set(op.axes) == {*batch, *rows, found.result}
        and set(kept) == {*batch, *rows, found.column}
    )
    others = [find_true_axes(part) for part in (scores.bias, scores.mask) if part is not None]
    heads = {batch[1], group} if found.merged is not None else set()
    if not fits or any(heads & set(axes) for axes in others):
        return None  # merging the heads would copy a mask over them
    is_square = definitions.memory.extent(found.feature) == definitions.memory.extent(found.result)
    if not is_square:
        return None  # torch uses its unfused implementation
    # Masking a bias as large as the scores costs as much as masking the scores.
    is_more = scores.mask is not None and scores.bias is not None and {*others[0]} == {*kept}
    return None if is_more else found


def _keeps_a_column(mask: ops.Op | None, places: Places, definitions: Definitions) -> bool:
    """Whether the mask keeps a column in every row, such as the diagonal."""
    condition = to_expr(_inline_all(mask, definitions)) if mask is not None else ir.FALSE
    is_square = is_same_extent(places.row.extent, places.column.extent)
    own = substitute(condition, {places.column: places.row}) if is_square else ir.FALSE
    return is_always(own) or is_never_empty(condition, places.column)


def _inline_all(op: ops.Op, definitions: Definitions) -> ops.Op:
    """Inline all steps that the operation reads, recursively."""
    op = definitions.definition_of(op)
    return ops.with_args(op, tuple(_inline_all(arg, definitions) for arg in op.args))


def _make_cell(
    op: ops.Op, scores: Scores, value: ops.Op, places: Places, definitions: Definitions
) -> ops.Op:
    """Return the call of torch's attention, its result permuted to the axes of the operation."""
    batch, group, merged = places.batch, places.group, places.merged
    heads = batch if group is None else (*batch, group)
    columns = (*batch, places.column)
    own, scale = _split_scale(scores.query, places.feature, definitions)
    query = ops.arrange(own, (*heads, places.row, places.feature))
    key = ops.arrange(scores.key, (*columns, places.feature))
    worth = ops.arrange(value, (*columns, places.result))
    if merged is not None:
        query = ops.Flatten(query, 1, 2, merged)
    pad = 4 - len(query.axes)
    masked = heads[:-1] if merged is not None else heads  # masks lack the indices of merged heads
    mask = None if scores.causal else _make_mask(scores, (*masked, places.row, places.column))
    given: dict[str, Any] = {"q": query, "k": key, "v": worth, "mask": mask}
    # without contiguous features torch uses no fused kernel
    q, k, v = (
        name if _has_contiguous_rows(given[name], definitions) else f"{name}.contiguous()"
        for name in "qkv"
    )
    given |= {"before": pad * (None,), "after": pad * (0,)}
    given["shared"] = (":", None) if group and len(batch) == 1 else (2 - len(batch)) * (None,)
    given["lead"] = (None,) if mask and _count_written_axes(mask) in (1, 3) else ()
    given["causal"] = True if scores.causal else None
    given["scale"] = float(scale.value) if isinstance(scale, ir.Number) else None
    given["gqa"] = True if group is not None else None
    text = f"{NAME}({q}[before], {k}[shared], {v}[shared], {KEYWORDS})[after]"
    plain = query
    if group is not None and merged is not None:
        plain = ops.Unflatten(query, 1, (batch[1], group))
    if scale is not ir.ONE:
        plain = ops.Apply("*", (plain, ops.Num(scale)), plain.axes)
    soft = _write_weights(scores, (plain, key), places, mask)
    whole: ops.Op = ops.Einsum((soft, worth), (*heads, places.row, places.result))
    if merged is not None:
        whole = ops.Flatten(whole, 1, 2, merged)
    note = NOTE if scores.bias is None else EMPTY_ROW_NOTE
    # torch converts a boolean mask to floats
    scratch = (find_true_axes(mask),) if mask is not None and ops.is_boolean(mask) else ()
    cell: ops.Op = make_cell(text, given, whole, note=note, scratch=scratch)
    if group is not None and merged is not None:
        cell = ops.Unflatten(cell, 1, (batch[1], group))
    return ops.arrange(cell, op.axes)


def _split_scale(
    query: ops.Op, feature: ir.Index, definitions: Definitions
) -> tuple[ops.Op, ir.Expr]:
    """Return (the query without its scale, the scale): torch's default or a constant, else 1.

    A scale computed from sizes is not passed as an argument, because tracing would freeze it.
    """
    usual = ir.Pow(ir.Pow(feature.extent, ir.Number(Fraction(1, 2))), ir.MINUS_ONE)
    match definitions.unwrap(query):
        case ops.Apply("*", (one, ops.Num(scale))) if scale == usual:
            return one, usual
        case ops.Apply("/", (one, ops.Num(scale))) if ir.Pow(scale, ir.MINUS_ONE) == usual:
            return one, usual
        case ops.Apply("*", (one, ops.Num(ir.Number() as scale))):
            return one, scale
    return query, ir.ONE


def _may_add_infinity(bias: ops.Op | None, definitions: Definitions) -> bool:
    """Whether the bias may be -oo for finite inputs: torch returns 0, not nan, for a row of -oo."""
    infinite = ops.Num(ir.MINUS_INFINITY)
    return any(
        part is infinite
        or (isinstance(part, ops.Fill) and part.value is infinite)
        or (isinstance(part, ops.Apply) and part.function == "log")
        for part in (() if bias is None else definitions.walk_parts(bias))
    )


def _has_contiguous_rows(op: ops.Op, definitions: Definitions) -> bool:
    is_single = definitions.memory.extent(op.axes[-1]) == 1
    return is_single or find_strides(op, definitions.memory)[-1] == 1


def _make_mask(scores: Scores, order: tuple[ir.Index, ...]) -> ops.Op | None:
    """Return torch's attn_mask, a bias or a boolean mask, with these axes; None without either."""
    mask = scores.bias or scores.mask
    if scores.bias is not None and scores.mask is not None:
        mask = fill(scores.bias, scores.mask, ops.Num(ir.MINUS_INFINITY), False, order)
    return mask and ops.arrange(mask, order)


def _count_written_axes(op: ops.Op) -> int:
    """Count the axes of an operand in the text, which omits leading axes of size 1."""
    axes, real = op.axes, find_true_axes(op)
    first = next((k for k, index in enumerate(axes) if index in real), len(axes))
    return len(axes) - first


def _write_weights(
    scores: Scores, given: tuple[ops.Op, ops.Op], places: Places, mask: ops.Op | None
) -> ops.Op:
    """Return the softmax as operations on the call's arguments `given`, a query and a key."""
    heads = places.batch if places.group is None else (*places.batch, places.group)
    kept = (*heads, places.row, places.column)
    logits: ops.Op = ops.Einsum(given, kept)
    chosen = mask if mask is not None and ops.is_boolean(mask) else None
    if scores.causal or chosen is not None:
        causal = ops.Triangle(places.row, places.column, ir.ZERO, False)
        logits = ops.Fill(logits, chosen or causal, ops.Num(ir.MINUS_INFINITY), False)
    elif mask is not None:
        logits = ops.Apply("+", (logits, mask), kept)
    weights = ops.Along("softmax", logits, places.column)
    return weights if chosen is None else ops.Fill(weights, chosen, ops.Num(ir.ZERO), False)


SEPARABLE = "_weigh_apart"  # a function of the file


def match_separable_attention(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """An attention whose logits are a sum of two terms, neither with all indices, or None."""
    for weights, value in list_pairs(op):
        soft, worth = definitions.unwrap(weights), strip(value)
        if not isinstance(soft, ops.Along) or soft.kind != "softmax":
            continue
        match definitions.unwrap(soft.arg):
            case ops.Apply("+" | "-" as sign, (one, other)):
                pass
            case _:
                continue
        if sign == "-":
            other = ops.Apply("neg", (other,), other.axes)
        for pair in ((strip(one), strip(other)), (strip(other), strip(one))):
            found = _write_separable(*pair, worth, soft.index, op.axes)
            if found is not None:
                return found
    return None


def _write_separable(
    rows: ops.Op, columns: ops.Op, worth: ops.Op, index: ir.Index, order: tuple[ir.Index, ...]
) -> ops.Op | None:
    """Return the call for logits rows + columns; None if `columns` lacks an index of the value."""
    first, second, third = (set(op.axes) for op in (rows, columns, worth))
    own = [i for i in rows.axes if i not in second]
    free = [i for i in columns.axes if i not in first]
    if len(own) != 1 or not free or not third <= second or {*order} != (first | second) - {index}:
        return None
    if any(index not in axes for axes in (first, second, third)):
        return None
    last = free[-1]
    batch = tuple(i for i in order if i not in (own[0], last))
    inner, wide = (*batch, index, last), (*batch, own[0], last, index)
    given = {"x": ops.Arrange(rows, (*batch, own[0], index))}
    given |= {"y": ops.Arrange(columns, inner), "v": ops.Arrange(worth, inner)}
    logits = ops.combine("+", (rows, columns), wide)
    whole = ops.Einsum((ops.Along("softmax", logits, index), worth), wide[:-1])
    text = f"{SEPARABLE}(x, y, v)"
    return ops.arrange(make_cell(text, given, whole, volume=wide, scratch=(inner, inner)), order)
