"""Norms: (x - mean x) / sqrt(var x + eps), and x / sqrt(mean x**2 + eps).

    layer_norm       the normalised entries are contiguous          Ba, Kiros, Hinton 2016, eq. 4
    rms_norm         the same, by the mean square                   Zhang, Sennrich 2019, eq. 4
    batch_norm       all indices but one are normalised             Ioffe, Szegedy 2015
    group_norm       a weight for each channel within a group       Wu, He 2018
    instance_norm    a group_norm whose groups are single channels

A weight and a bias are part of the call. Torch computes half precision in float32. An instance_norm
can be traced for any number of channels. A tensor that is scaled and shifted per channel, without
being normalised, is a batch_norm with given moments, in one pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.plan import ops
from derive.plan.cells.matching import (
    Definitions,
    Factors,
    Signed,
    divide_by_each,
    is_same,
    join_product,
    join_sum,
    sort_stored,
    split_product,
    split_sum,
    strip,
)
from derive.plan.cost import find_strides, find_true_axes
from derive.plan.lower.contraction import negate_op
from derive.plan.lower.guarded import is_real
from derive.plan.lower.patterns import make_cell, make_op, split_axes

LAYER = "torch.nn.functional.layer_norm(x, n, weight=weight, bias=bias, eps=eps)"
RMS = "torch.nn.functional.rms_norm(x, n, weight=weight, eps=eps)"
BATCH = "torch.batch_norm(x, weight, bias, None, None, True, 0.0, eps, False)"
INSTANCE = "torch.instance_norm(x, weight, bias, None, None, True, 0.0, eps, False)"
GROUP = "torch.group_norm(x, n, weight, bias, eps)"
CENTRED = "(x - mean[over](x)) / sqrt(var[over](x) + eps) * weight + bias"
SCALED = "x / sqrt(mean[over](x ** 2) + eps) * weight"  # rms_norm
MOMENTS = "torch.zeros_like(a), torch.ones_like(a), False, 0.0, 0.0, False"


@dataclass(frozen=True, slots=True)
class Norm:
    """The call of a norm, the tensor, the indices it is normalised over, and the epsilon.

    `negative` is whether the formula has mean x - x.
    """

    call: str
    arg: ops.Op
    over: tuple[ir.Index, ...]
    eps: ir.Expr
    negative: bool = False


def match_norm(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A product with a normalised factor, and a bias added to it, as a call of a norm; or None."""
    if not isinstance(op, ops.Apply) or op.function not in {"+", "-", "*", "/", "neg"}:
        return None
    terms = split_sum(op, definitions.unwrap)
    for place, term in enumerate(terms):
        factors = split_product(term.op, lambda part: definitions.unwrap_small(part, op.axes))
        norm = _find_norm(factors, definitions)
        if norm is not None:
            others = [*terms[:place], *terms[place + 1 :]]
            factors.negative ^= term.negative ^ norm.negative
            return _make_cell(norm, factors, others, op.axes)
    return None


def _find_norm(factors: Factors, definitions: Definitions) -> Norm | None:
    """Return a norm in a product, and remove its two factors there; None if there is none."""
    for root in factors.under:
        if not isinstance(root, ops.Apply) or root.function != "sqrt":
            continue
        spread, eps = _split_epsilon(root.args[0], definitions)
        if eps is None:
            continue
        for factor in factors.over:
            over = tuple(i for i in factor.axes if i not in spread.axes)
            if not over or len(factor.axes) != len(over) + len(spread.axes):
                continue
            norm = _classify_norm(factor, spread, over, eps, definitions)
            if norm is not None:
                factors.over.remove(factor)
                factors.under.remove(root)
                return norm
    return None


def _split_epsilon(op: ops.Op, definitions: Definitions) -> tuple[ops.Op, ir.Expr | None]:
    """Return (variance under the root, epsilon; None for one that is no constant or scalar)."""
    terms = split_sum(op, lambda part: definitions.definition_of(strip(part)))
    numbers = [term for term in terms if isinstance(term.op, ops.Num)]
    others = [term for term in terms if term not in numbers]
    eps: ir.Expr | None = None
    match numbers:
        case []:
            eps = ir.ZERO
        case [Signed(ops.Num(ir.Scalar() as eps), False)]:
            pass
        case [Signed(ops.Num(value), False)]:
            constant = Polynomial.of(value).constant
            eps = None if constant is None else ir.Number(constant)
    return (join_sum(others, op.axes), eps) if others else (op, None)


def _classify_norm(
    factor: ops.Op,
    spread: ops.Op,
    over: tuple[ir.Index, ...],
    eps: ir.Expr,
    definitions: Definitions,
) -> Norm | None:
    """Return the norm if (factor, spread) is (x - mean x, var x) or (x, mean x**2); else None."""
    for arg in dict.fromkeys(_find_tensors(factor, factor.axes, definitions)):
        stored = ops.arrange(arg, sort_stored(arg, definitions.memory))
        axes, kept = stored.axes, ops.find_reads(arg)
        last = axes[-len(over) :]
        is_close = {*last} == {*over}  # the normalised entries are contiguous
        centred, deviation = (
            definitions.inline_elementwise(part, kept) for part in (factor, spread)
        )
        texts = "x - mean[over](x)", "mean[over](x) - x", "var[over](x)", "mean[over](x ** 2)"
        *ways, variance, square = (make_op(text, axes, x=arg, over=over) for text in texts)
        is_spread = is_same(deviation, variance)
        found = [is_spread and is_same(centred, way) for way in ways]
        if any(found):
            if is_close:
                return Norm(LAYER, stored, last, eps, negative=not found[0])
            # without epsilon torch returns 0 for 0 / 0
            is_batch = len(over) == len(axes) - 1 and eps is not ir.ZERO
            return Norm(BATCH, stored, over, eps, negative=not found[0]) if is_batch else None
        if is_close and is_same(deviation, square) and is_same(centred, arg):
            return Norm(RMS, stored, last, eps)
    return None


def _find_tensors(
    op: ops.Op, axes: tuple[ir.Index, ...], definitions: Definitions
) -> Iterator[ops.Op]:
    """Yield the real tensors over all of the axes that the operation depends on, sources first."""
    for part in ops.walk_ops(op):
        bare = part.arg if isinstance(part, ops.Unflatten) else part
        if not isinstance(bare, ops.Source) or bare.kind != "real":
            continue
        if set(part.axes) == set(axes):
            step = definitions.definition_of(part)
            if step is not part:
                yield from _find_tensors(step, axes, definitions)
            yield part


def _make_cell(
    norm: Norm, factors: Factors, others: Sequence[Signed], order: tuple[ir.Index, ...]
) -> ops.Op:
    """Return a norm's call, with a weight of `factors` and a bias of `others`, and their rest."""
    rest = list(others)
    affine = _find_affine(norm, [*factors.over, *(term.op for term in rest)])
    weight = next((op for op in factors.over if set(op.axes) == {*affine}), None)
    if weight is not None:
        factors.over.remove(weight)
    is_bare = not factors.over and not factors.under and not factors.negative
    able = [t for t in rest if not t.negative and set(t.op.axes) == {*affine}]
    bias = able[0] if able and is_bare and norm.call != RMS else None
    if bias is not None:
        rest.remove(bias)
    result = _write_call(norm, affine, {"weight": weight, "bias": bias.op if bias else None})
    over = join_product(factors.over, order)
    if over is not None:
        result = ops.combine("*", (result, over), order)
    result = divide_by_each(result, factors.under, order)
    return ops.arrange(join_sum([Signed(result, factors.negative), *rest], order), order)


def _find_affine(norm: Norm, parts: Sequence[ops.Op]) -> tuple[ir.Index, ...]:
    """Return the indices of the weight and the bias.

    For a batch_norm these are the kept indices, for a layer_norm the normalised ones, for a
    group_norm the last kept index, which counts groups, and the channels of a group.
    """
    kept = tuple(i for i in norm.arg.axes if i not in norm.over)
    if norm.call == BATCH:
        return kept
    able = [{*norm.over}]
    if norm.call == LAYER and len(kept) > 1:
        able += [{kept[-1], *norm.over[:k]} for k in range(len(norm.over) + 1)]
    found = [set(op.axes) for op in parts]
    fits = next((each for each in able if each in found), able[0])
    return tuple(i for i in norm.arg.axes if i in fits)


def _write_call(
    norm: Norm, affine: tuple[ir.Index, ...], affines: Mapping[str, ops.Op | None]
) -> ops.Op:
    """Return the call of a norm with weight and bias.

    A batch, group or instance norm has the channels on the second axis: their indices are flattened
    into one axis, and so are those before them. On a CPU torch accumulates the gradients of weight
    and bias in their own dtype. In half precision that loses digits: the result is scaled instead.
    """
    name, axes = norm.call, norm.arg.axes
    if name == LAYER and affine != norm.over:
        # without epsilon torch returns 0 for 0 / 0
        is_single = not {*affine} & {*norm.over} and norm.eps is not ir.ZERO
        name = INSTANCE if is_single else GROUP
    is_last, start = name in {LAYER, RMS}, axes.index(affine[0])
    channels = [(index,) for index in affine] if is_last else [affine]
    batch = [(index,) for index in axes[:start]] if is_last else [axes[:start]]
    groups = [*batch, *channels, *((index,) for index in axes[start + len(affine) :])]
    arg = ops.merge(norm.arg, groups)
    inside = [arg.axes[:1], *groups[1:]]  # the axes of the operations
    inner = split_axes(arg, inside)
    kept = affine if name == BATCH else inner.axes[:2]
    over = norm.over if is_last else tuple(i for i in inner.axes if i not in kept)
    given = {word: op and ops.merge(op, channels) for word, op in affines.items()}
    parts = {word: op and split_axes(op, channels) for word, op in given.items()}
    eps, extents = ops.Num(norm.eps), tuple(ops.Num(index.extent) for index in affine)
    root = None if norm.eps is ir.ZERO else eps
    text = SCALED if name == RMS else CENTRED
    whole = make_op(text, inner.axes, x=inner, over=over, eps=root, **parts)
    whole = ops.merge(whole, inside)
    fields: dict[str, Any] = {"when": ("eps",) if isinstance(norm.eps, ir.Scalar) else ()}
    if name == RMS:
        fields["scratch"] = (axes,)
    elif not is_last:  # with an extent of 0 torch raises, or returns nan gradients
        single = axes[:start] if name == INSTANCE else ()
        fields["filled"] = (*single, *affine, *norm.over)
    common = {"x": arg, "n": extents[0] if name == GROUP else extents if is_last else None}
    if name != RMS and any(given.values()):
        at: Any = () if is_last or len(arg.axes) == 2 else (":", *(None for _ in arg.axes[2:]))
        bare = {"weight": None, "bias": None, "w": given["weight"], "b": given["bias"]}
        text = f"{name} * w[at] + b[at]"
        whole = make_cell(text, {**common, **bare, "eps": eps, "at": at}, whole, **fields)
        fields["when"] += ("wide",)
    cell = make_cell(name, {**common, **given, "eps": eps}, whole, **fields)
    return split_axes(cell, groups)


def match_channels(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A tensor scaled and shifted along one index as a batch_norm with given moments, or None.

    With a shift m it is not used under `exact`: x * a + (b - m * a) loses digits. In half precision
    the operations are kept. Where the index is the last one, an addcmul is as fast.
    """
    if not isinstance(op, ops.Apply) or op.function not in {"+", "-", "*", "/"}:
        return None
    wide, shifts = _split_wide_term(op, op.axes, definitions)
    found = split_product(wide.op, definitions.unwrap) if wide else Factors()
    large = [factor for factor in found.over if {*find_true_axes(factor)} == {*op.axes}]
    if wide is None or len(large) != 1:
        return None
    scales = [factor for factor in found.over if factor not in large]
    inner, offsets = _split_wide_term(large[0], op.axes, definitions)
    arg, is_turned = (inner.op, inner.negative) if inner else (large[0], False)
    small = (*scales, *found.under, *(each.op for each in (*shifts, *offsets)))
    channels = tuple(dict.fromkeys(i for part in small for i in find_true_axes(part)))
    stored, memory = arg.axes, definitions.memory
    if len(channels) != 1 or channels[0] not in stored[1:-1] or (offsets and definitions.exact):
        return None
    if find_strides(arg, memory) != memory.find_dense(stored) or not is_real(arg):
        return None
    scale = divide_by_each(join_product(scales, channels) or ops.Num(ir.ONE), found.under, channels)
    if wide.negative ^ found.negative ^ is_turned:
        scale = negate_op(scale)
    # m in x - m, or in -(x - m)
    offsets = [Signed(each.op, each.negative is is_turned) for each in offsets]
    groups = [stored[: stored.index(channels[0])], *((i,) for i in stored if i in channels)]
    groups += [(i,) for i in stored[len(groups[0]) + 1 :]]
    given = {"x": ops.merge(arg, groups), "a": scale}
    for name, terms in (("m", offsets), ("b", shifts)):
        if terms:
            given[name] = join_sum(terms, channels)
    if len(given) == 2 or any(given[name].axes != channels for name in given if name != "x"):
        return None
    whole = make_op("(x - m) * a + b", given["x"].axes, **{"m": None, "b": None, **given})
    total = "b - m * a" if offsets else "b"
    text = f"torch.batch_norm(x, a, {total}, {MOMENTS})"
    cell = make_cell(text, {**given, "b": given.get("b")}, whole, when=("wide",), filled=channels)
    return ops.arrange(split_axes(cell, groups), op.axes)


def _split_wide_term(
    op: ops.Op, axes: tuple[ir.Index, ...], definitions: Definitions
) -> tuple[Signed | None, list[Signed]]:
    """Return (the only term of a sum with all indices, the other terms), else (None, [])."""
    terms = split_sum(op, definitions.unwrap)
    wide = [term for term in terms if {*find_true_axes(term.op)} == {*axes}]
    return (wide[0], [t for t in terms if t is not wide[0]]) if len(wide) == 1 else (None, [])
