"""softmax_j(q . k + bias) v is torch's scaled_dot_product_attention, which keeps no weights.

Vaswani et al. 2017, eq. 1; Dao et al. 2022 for the kernel. It takes four places: one or two indices
of the batch, the query's or the key's, the features.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from derive.analysis.extents import is_always, is_never_empty
from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import substitute
from derive.plan import ops
from derive.plan.cells.matching import CellRule, Definitions, strip
from derive.plan.cost import find_strides, find_true_axes
from derive.plan.lower.condition import fill
from derive.plan.meaning import to_expr

NAME = "torch.nn.functional.scaled_dot_product_attention"
LACKS = (
    "it may lack second and forward derivatives, and give zeros for nan; "
    "what --no-cells builds does neither"
)
NOTE = f"{NAME}: {LACKS}"
EMPTY_ROW_NOTE = f"{NOTE}; a row of nothing but -oo in what is added gives zeros, not nan"


@dataclass(frozen=True)
class Scores:
    """What stands under the softmax: the product, what is added to it, the mask."""

    query: ops.Op
    key: ops.Op
    bias: ops.Op | None = None
    mask: ops.Op | None = None
    zeros: bool = False  # rows of nothing but minus infinity are to be zeros
    causal: bool = False  # the mask is j <= i, which torch makes itself


@dataclass(frozen=True)
class Places:
    """The indices of an attention, by their part in it."""

    batch: tuple[ir.Index, ...]
    group: ir.Index | None  # of queries that share a head of keys
    row: ir.Index
    column: ir.Index
    feature: ir.Index  # of queries and keys
    result: ir.Index  # the feature of the value

    @property
    def merged(self) -> ir.Index | None:
        """The index of all heads, where torch wants a batch of heads in two places as one."""
        if self.group is None or len(self.batch) < 2:
            return None
        return ops.merge_indices((self.batch[1], self.group))


def match_attention(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The weights times the value, where the weights are a softmax that nothing else reads."""
    if not isinstance(op, ops.Einsum) or len(op.args) != 2:
        return None
    for weights, value in (op.args, op.args[::-1]):
        soft, emptied = _find_softmax(definitions.unwrap(weights), definitions)
        scores = (
            None
            if soft is None
            else _find_scores(_open_logits(soft, emptied, definitions), definitions)
        )
        if soft is None or scores is None:
            continue
        places = _find_places(op, soft, scores, value, definitions)
        if places is None:
            continue
        # Rows with nothing left are zeros in torch's function; some masks leave none.
        is_zeros = scores.mask is None and emptied is strip(soft.arg)
        is_same = emptied is scores.mask or is_zeros
        if not is_zeros and _may_be_infinite(scores.bias, definitions):
            continue
        if is_same or (emptied is None and _leaves_some(scores.mask, places, definitions)):
            causal = ops.Triangle(places.row, places.column, ir.ZERO, False)
            mask = None if scores.mask is None else definitions.look(scores.mask)
            is_causal = scores.bias is None and mask is causal
            scores = replace(scores, zeros=is_zeros, causal=is_causal)
            return _make_cell(op, scores, strip(value), places, definitions)
    return None


def _find_softmax(op: ops.Op, definitions: Definitions) -> tuple[ops.Along | None, ops.Op | None]:
    """(the softmax, the mask by which empty rows become zeros)."""
    match op:
        case ops.Along("softmax"):
            return op, None
        case ops.Fill(arg, mask, ops.Num(value), where) if value is ir.ZERO:
            inner = definitions.unwrap(arg)
            if isinstance(inner, ops.Along) and inner.kind == "softmax":
                emptied = _find_gone(mask, definitions) if where else strip(mask)
                if not where or emptied is strip(inner.arg):
                    return inner, emptied
    return None, None


def _find_gone(mask: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The logits, where the mask says which of them are minus infinity."""
    match definitions.unwrap(mask):
        case ops.Apply("==", (logits, ops.Num(value))) if value is ir.MINUS_INFINITY:
            return strip(logits)
    return None


def _open_logits(soft: ops.Along, emptied: ops.Op | None, definitions: Definitions) -> ops.Op:
    """What the softmax is taken of; besides, only the test for minus infinity may read it."""
    logits = strip(soft.arg)
    is_read_twice = isinstance(logits, ops.Source) and definitions.count_reads(logits.name) == 2
    return definitions.unwrap(
        definitions.look(logits) if emptied is logits and is_read_twice else logits
    )


def _find_scores(op: ops.Op, definitions: Definitions) -> Scores | None:
    match op:
        case ops.Fill(arg, mask, ops.Num(value), False) if value is ir.MINUS_INFINITY:
            scores = _find_scores(definitions.unwrap(arg), definitions)
            is_plain = scores is not None and scores.mask is None
            return replace(scores, mask=strip(mask)) if scores and is_plain else None
        case ops.Apply("+", (one, other)):
            for product, rest in ((one, other), (other, one)):
                scores = _find_scores(definitions.unwrap(product), definitions)
                if scores is not None and scores.mask is None:
                    return replace(scores, bias=_add(scores.bias, strip(rest)))
            return None
        case ops.Apply("-", (product, rest)):
            scores = _find_scores(definitions.unwrap(product), definitions)
            taken = ops.Apply("neg", (strip(rest),), ops.axes_of(strip(rest)))
            is_plain = scores is not None and scores.mask is None
            return replace(scores, bias=_add(scores.bias, taken)) if scores and is_plain else None
        case ops.Apply("*" | "/" as function, (product, ops.Num() as scale)):
            scores = _find_scores(definitions.unwrap(product), definitions)
            if scores is None or scores.mask is not None:
                return None
            query, bias = scores.query, scores.bias
            query = ops.Apply(function, (query, scale), ops.axes_of(query))
            bias = None if bias is None else ops.Apply(function, (bias, scale), ops.axes_of(bias))
            return replace(scores, query=query, bias=bias)
        case ops.Einsum((query, key), _):
            return Scores(strip(query), strip(key))
    return None


def _add(bias: ops.Op | None, rest: ops.Op) -> ops.Op:
    if bias is None:
        return rest
    axes = tuple(dict.fromkeys((*ops.axes_of(bias), *ops.axes_of(rest))))
    return ops.Apply("+", (ops.arrange(bias, axes), ops.arrange(rest, axes)), axes)


def _find_places(
    op: ops.Einsum, soft: ops.Along, scores: Scores, value: ops.Op, definitions: Definitions
) -> Places | None:
    """The part of every index; None where they do not make an attention of four places."""
    query, key, worth = map(ops.axes_of, (scores.query, scores.key, value))
    kept = ops.axes_of(soft)
    features = [i for i in query if i in key and i not in kept]
    batch = tuple(i for i in query if i in key and i in kept)
    rows = [i for i in query if i not in key]
    results = [i for i in worth if i not in kept]
    if len(features) != 1 or len(results) != 1 or not 1 <= len(rows) <= 2 or len(batch) > 2:
        return None
    rows.sort(key=definitions.memory.extent)  # a group has few heads, a sequence many rows
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
        return None  # a mask of heads in two places would have to be copied
    is_square = definitions.memory.extent(found.feature) == definitions.memory.extent(found.result)
    if not is_square:
        return None  # torch falls back to plain steps
    # To hide part of as much as the scores are takes what it takes of the scores.
    is_more = scores.mask is not None and scores.bias is not None and {*others[0]} == {*kept}
    return None if is_more else found


def _leaves_some(mask: ops.Op | None, places: Places, definitions: Definitions) -> bool:
    """Is there a column in every row, say that of the row's own place?"""
    condition = to_expr(_open(mask, definitions)) if mask is not None else ir.FALSE
    is_square = is_same_extent(places.row.extent, places.column.extent)
    own = substitute(condition, {places.column: places.row}) if is_square else ir.FALSE
    return is_always(own) or is_never_empty(condition, places.column)


def _open(op: ops.Op, definitions: Definitions) -> ops.Op:
    """The operation with all steps that it reads written out."""
    op = definitions.look(op)
    return ops.with_args(op, tuple(_open(arg, definitions) for arg in ops.args_of(op)))


def _make_cell(
    op: ops.Einsum, scores: Scores, value: ops.Op, places: Places, definitions: Definitions
) -> ops.Op:
    """The call, its result in the order of the operation's axes."""
    batch, group, merged = places.batch, places.group, places.merged
    heads = batch if group is None else (*batch, group)
    columns = (*batch, places.column)
    own, scale = _unscale(scores.query, places.feature, definitions)
    query = ops.arrange(own, (*heads, places.row, places.feature))
    key = ops.arrange(scores.key, (*columns, places.feature))
    worth = ops.arrange(value, (*columns, places.result))
    if merged is not None:
        query = ops.Flatten(query, 1, 2, merged)
    pad = 4 - len(ops.axes_of(query))
    shared = (":", None) if group and len(batch) == 1 else (2 - len(batch)) * (None,)
    args: list[ops.Op] = [query, key, worth]
    operands = [
        _pick(_make_rows(k, args[k], definitions), at)
        for k, at in enumerate((pad * (None,), shared, shared))
    ]
    keywords: list[tuple[str, ops.Operand]] = []
    masked = heads[:-1] if merged is not None else heads  # no mask has an index of merged heads
    mask = None if scores.causal else _make_mask(scores, (*masked, places.row, places.column))
    if scores.causal:
        keywords.append(("is_causal", True))
    elif mask is not None:
        args.append(mask)
        keywords.append(
            ("attn_mask", _pick(ops.Given(3), (None,) if _count_places(mask) in (1, 3) else ()))
        )
    if isinstance(scale, ir.Number):
        keywords.append(("scale", float(scale.value)))
    if group is not None:
        keywords.append(("enable_gqa", True))
    axes = (*heads, places.row, places.result)
    if merged is not None:
        axes = (batch[0], merged, places.row, places.result)
    call = _pick(ops.TorchCall(NAME, tuple(operands), tuple(keywords)), pad * (0,))
    plain = query
    if group is not None and merged is not None:
        plain = ops.Unflatten(query, 1, (batch[1], group))
    if scale is not ir.ONE:
        plain = ops.Apply("*", (plain, ops.Num(scale)), ops.axes_of(plain))
    soft = _spell_weights(scores, (plain, key), places, mask)
    whole: ops.Op = ops.Einsum((soft, worth), (*heads, places.row, places.result))
    if merged is not None:
        whole = ops.Flatten(whole, 1, 2, merged)
    is_bare = scores.bias is not None and not scores.zeros
    note = EMPTY_ROW_NOTE if is_bare else NOTE
    scratch = (
        (find_true_axes(mask),) if mask is not None and ops.is_boolean(mask) else ()
    )  # as floats
    cell: ops.Op = ops.Cell(call, tuple(args), whole, axes, note=note, scratch=scratch)
    if group is not None and merged is not None:
        cell = ops.Unflatten(cell, 1, (batch[1], group))
    return ops.arrange(cell, op.axes)


def _unscale(query: ops.Op, feature: ir.Index, definitions: Definitions) -> tuple[ops.Op, ir.Expr]:
    """The query, and the scale that torch can be told; one out of sizes it can be only by default.

    As an argument that would be a constant in a traced graph.
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


def _may_be_infinite(bias: ops.Op | None, definitions: Definitions) -> bool:
    """May what is added be -oo without an argument that is? A row of it is nan, and torch's 0."""
    infinite = ops.Num(ir.MINUS_INFINITY)
    for part in () if bias is None else definitions.walk(bias):
        match part:
            case ops.Fill(value=value) if value is infinite:
                return True
            case ops.Apply("log"):
                return True
            case _ if part is infinite:
                return True
    return False


def _make_rows(place: int, op: ops.Op, definitions: Definitions) -> ops.Operand:
    """A copy, where the features do not lie side by side: torch falls back to plain steps there."""
    is_near = find_strides(op, definitions.memory)[-1] == 1
    if is_near or definitions.memory.extent(ops.axes_of(op)[-1]) == 1:
        return ops.Given(place)
    return ops.TorchCall(".contiguous", (ops.Given(place),))


def _pick(arg: ops.Operand, at: tuple[str | int | None, ...]) -> ops.Operand:
    return ops.Pick(arg, at) if at else arg


def _make_mask(scores: Scores, order: tuple[ir.Index, ...]) -> ops.Op | None:
    """What is added to the scores or chooses among them, its places in this order."""
    if scores.bias is None:
        return None if scores.mask is None else ops.arrange(scores.mask, order)
    if scores.mask is None:
        return ops.arrange(scores.bias, order)
    return ops.arrange(
        fill(scores.bias, scores.mask, ops.Num(ir.MINUS_INFINITY), False, order), order
    )


def _count_places(op: ops.Op) -> int:
    """How many places the text of an operand has: leading ones that it lacks are not written."""
    axes, real = ops.axes_of(op), find_true_axes(op)
    first = next((k for k, index in enumerate(axes) if index in real), len(axes))
    return len(axes) - first


def _spell_weights(
    scores: Scores, given: tuple[ops.Op, ops.Op], places: Places, mask: ops.Op | None
) -> ops.Op:
    """The softmax that the call stands for, in terms of its arguments."""
    heads = places.batch if places.group is None else (*places.batch, places.group)
    kept = (*heads, places.row, places.column)
    logits: ops.Op = ops.Einsum(given, kept)
    if scores.causal:
        causal = ops.Triangle(places.row, places.column, ir.ZERO, False)
        logits = ops.Fill(logits, causal, ops.Num(ir.MINUS_INFINITY), False)
    elif mask is not None and ops.is_boolean(mask):
        logits = ops.Fill(logits, mask, ops.Num(ir.MINUS_INFINITY), False)
    elif mask is not None:
        logits = ops.Apply("+", (logits, mask), kept)
    weights: ops.Op = ops.Along("softmax", logits, places.column)
    if mask is not None and ops.is_boolean(mask):
        weights = ops.Fill(weights, mask, ops.Num(ir.ZERO), False)
    elif scores.zeros:
        gone = ops.Apply("==", (logits, ops.Num(ir.MINUS_INFINITY)), kept)
        weights = ops.Fill(weights, gone, ops.Num(ir.ZERO), True)
    return weights


APART = "_weigh_apart"  # a function of the file


def match_apart(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Weights that are a softmax of a sum, no part of which has all of its indices."""
    if not isinstance(op, ops.Einsum) or len(op.args) != 2:
        return None
    for weights, value in (op.args, op.args[::-1]):
        soft, worth = definitions.unwrap(weights), strip(value)
        logits = definitions.unwrap(soft.arg) if isinstance(soft, ops.Along) else None
        if not isinstance(soft, ops.Along) or soft.kind != "softmax":
            continue
        match logits:
            case ops.Apply("+" | "-" as sign, (one, other)):
                pass
            case _:
                continue
        if sign == "-":
            other = ops.Apply("neg", (other,), ops.axes_of(other))
        for pair in ((strip(one), strip(other)), (strip(other), strip(one))):
            found = _write_apart(*pair, worth, soft.index, op.axes)
            if found is not None:
                return found
    return None


def _write_apart(
    rows: ops.Op, columns: ops.Op, worth: ops.Op, index: ir.Index, order: tuple[ir.Index, ...]
) -> ops.Op | None:
    """The call, where the value has no index of the rows but what the columns have too."""
    first, second, third = (set(ops.axes_of(op)) for op in (rows, columns, worth))
    own = [i for i in ops.axes_of(rows) if i not in second]
    free = [i for i in ops.axes_of(columns) if i not in first]
    if len(own) != 1 or not free or not third <= second or {*order} != (first | second) - {index}:
        return None
    if any(index not in axes for axes in (first, second, third)):
        return None
    last = free[-1]
    batch = tuple(i for i in order if i not in (own[0], last))
    args = (
        ops.Arrange(rows, (*batch, own[0], index)),
        ops.Arrange(columns, (*batch, index, last)),
        ops.Arrange(worth, (*batch, index, last)),
    )
    axes, wide = (*batch, own[0], last), (*batch, own[0], last, index)
    logits = ops.Apply("+", ops.align((rows, columns), wide), wide)
    whole = ops.Einsum((ops.Along("softmax", logits, index), worth), axes)
    call = ops.TorchCall(APART, tuple(map(ops.Given, range(3))))
    scratch = ((*batch, index, last),) * 2
    return ops.arrange(ops.Cell(call, args, whole, axes, volume=wide, scratch=scratch), order)


CELLS = (
    CellRule(
        call=NAME,
        computes=(
            "q[B, N, D]; k, v[B, M, D]\n"
            "z[b,i,e] = sum[j](softmax[j](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D)) * v[b,j,e])"
        ),
        refuses=(
            "q[B, N, D]; k, v[B, M, D]\n"
            "z[b,j,e] = sum[i](softmax[j](sum[d](q[b,i,d] * k[b,j,d])) * q[b,i,e] * v[b,j,e])"
        ),
        lacks=LACKS,
        match=match_attention,
    ),
    CellRule(
        call=APART,
        computes="w[N, N]; k, v[B, N, D]\n"
        "z[b,i,d] = sum[j](softmax[j](k[b,j,d] + w[i,j]) * v[b,j,d])",
        refuses="w[N, N]; k, v[N, N]\nz[i] = sum[j](softmax[j](k[i,j] + w[i,j]) * v[i,j])",
        match=match_apart,
    ),
)
