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
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.plan import ops
from derive.plan.calls import CellArgument, Condition, LocalName, Operand, Subscript, TorchCall
from derive.plan.cells.matching import (
    Definitions,
    Factors,
    Signed,
    divide,
    is_same,
    join_product,
    join_sum,
    sort_stored,
    split_product,
    split_sum,
    strip,
)
from derive.plan.cost import find_strides, find_true_axes
from derive.plan.lower.contraction import negate
from derive.plan.lower.guarded import is_real

LAYER = "torch.nn.functional.layer_norm"
RMS = "torch.nn.functional.rms_norm"
BATCH, GROUP, INSTANCE = "torch.batch_norm", "torch.group_norm", "torch.instance_norm"
SIGNS = {"weight": "*", "bias": "+"}
NONE = LocalName("None")
TWO = ir.Number(Fraction(2))


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalised tensor, the indices it is normalised over, and the epsilon.

    The call fails if an index in `filled` has extent 0. `negative`: the formula has mean x - x.
    """

    call: str
    arg: ops.Op
    over: tuple[ir.Index, ...]
    eps: ir.Expr
    filled: tuple[ir.Index, ...] = ()
    negative: bool = False


def match_norm(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match a product with a normalised factor, and a bias added to it."""
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
    """Return the norm in a product and remove its two factors from the product."""
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
    """Return (the variance under the root, epsilon); None unless it is a constant or a scalar."""
    terms = split_sum(op, lambda part: definitions.definition_of(strip(part)))
    numbers = [term for term in terms if isinstance(term.op, ops.Num)]
    others = [term for term in terms if not isinstance(term.op, ops.Num)]
    if not others:
        return op, None
    rest = join_sum(others, op.axes)
    match numbers:
        case []:
            return rest, ir.ZERO
        case [Signed(ops.Num(ir.Scalar() as value), False)]:
            return rest, value
        case [Signed(ops.Num(value), False)] if (
            constant := Polynomial.of(value).constant
        ) is not None:
            return rest, ir.Number(constant)
    return rest, None


def _classify_norm(
    factor: ops.Op,
    spread: ops.Op,
    over: tuple[ir.Index, ...],
    eps: ir.Expr,
    definitions: Definitions,
) -> Norm | None:
    """Return the norm if (factor, spread) is (x - mean x, var x) or (x, mean x**2), up to sign."""
    for arg in dict.fromkeys(_find_tensors(factor, factor.axes, definitions)):
        stored = ops.arrange(arg, sort_stored(arg, definitions.memory))
        axes = stored.axes
        is_close = set(axes[-len(over) :]) == {*over}  # the normalised entries are contiguous
        kept = ops.find_reads(arg)
        centred, deviation = (
            definitions.inline_elementwise(factor, kept),
            definitions.inline_elementwise(spread, kept),
        )
        mean, square = ops.Reduction("mean", arg, over), ops.combine("*", (arg, arg), axes)
        difference = ops.combine("-", (arg, mean), axes)
        ways = (difference, negate(difference))
        is_spread = is_same(deviation, ops.Reduction("var", arg, over))
        found = [is_spread and is_same(centred, way) for way in ways]
        if any(found):
            negative = not found[0]
            if is_close:
                return Norm(LAYER, stored, axes[-len(over) :], eps, negative=negative)
            # without epsilon torch returns 0 for 0 / 0
            is_batch = len(over) == len(axes) - 1 and eps is not ir.ZERO
            return Norm(BATCH, stored, over, eps, negative=negative) if is_batch else None
        is_square = is_close and is_same(deviation, ops.Reduction("mean", square, over))
        if is_square and is_same(centred, arg):
            return Norm(RMS, stored, axes[-len(over) :], eps)
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
    """Return the call with the weight and the bias that fit it, inside the remaining factors."""
    rest = list(others)
    affine = _find_affine(norm, [*factors.over, *(term.op for term in rest)])
    weight = next((op for op in factors.over if set(op.axes) == {*affine}), None)
    if weight is not None:
        factors.over.remove(weight)
    is_bare = not factors.over and not factors.under and not factors.negative
    bias = None
    if is_bare and norm.call != RMS:
        able = [t for t in rest if not t.negative and set(t.op.axes) == {*affine}]
        if able:
            bias = able[0].op
            rest.remove(able[0])
    if norm.call == LAYER and affine != norm.over:
        # without epsilon torch returns 0 for 0 / 0
        is_single = not {*affine} & {*norm.over} and norm.eps is not ir.ZERO
        norm = replace(norm, call=INSTANCE if is_single else GROUP)
    affines = {"weight": weight, "bias": bias}
    given = {name: ops.arrange(op, affine) for name, op in affines.items() if op is not None}
    result = (
        _write_channel_call if norm.call in {BATCH, GROUP, INSTANCE} else _write_trailing_call
    )(norm, affine, given)
    over = join_product(factors.over, order)
    if over is not None:
        result = ops.combine("*", (result, over), order)
    result = divide(result, factors.under, order)
    return ops.arrange(join_sum([Signed(result, factors.negative), *rest], order), order)


def _find_affine(norm: Norm, parts: Sequence[ops.Op]) -> tuple[ir.Index, ...]:
    """Return the indices of the weight and the bias.

    For a batch_norm these are the kept indices, for a layer_norm the normalised ones. For a
    group_norm they are the last kept index, which counts the groups, and the leading normalised
    ones, the channels of a group.
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


def _write_trailing_call(
    norm: Norm, affine: tuple[ir.Index, ...], given: Mapping[str, ops.Op]
) -> ops.Op:
    """Return the call of a norm over the last axes: layer_norm or rms_norm."""
    axes = (*(i for i in norm.arg.axes if i not in affine), *affine)
    args: list[ops.Op] = [ops.arrange(norm.arg, axes), *(ops.Num(index.extent) for index in affine)]
    plain: tuple[Operand, ...] = (
        CellArgument(0),
        tuple(CellArgument(k) for k in range(1, len(args))),
    )
    places = {name: CellArgument(len(args) + k) for k, name in enumerate(given)}
    eps = CellArgument(len(args) + len(given))
    args += [*given.values(), ops.Num(norm.eps)]
    bare = TorchCall(norm.call, plain, (("eps", eps),))
    call = TorchCall(norm.call, plain, (*places.items(), ("eps", eps)))
    whole = _write_reference(norm, args[0], axes)
    for name, part in given.items():
        whole = ops.combine(SIGNS[name], (whole, part), axes)
    return _choose_call(norm, tuple(args), (bare, call), places, whole)


def _write_channel_call(
    norm: Norm, affine: tuple[ir.Index, ...], given: Mapping[str, ops.Op]
) -> ops.Op:
    """Return the call of a norm with channels on the second axis: batch, group or instance.

    The indices of the channels are flattened into one axis, and so are those before them.
    """
    axes = norm.arg.axes
    start = axes.index(affine[0])
    rest = tuple((index,) for index in axes[start + len(affine) :])
    arg = ops.merge(norm.arg, (axes[:start], affine, *rest))
    given = {name: ops.merge(op, (affine,)) for name, op in given.items()}
    number = (ops.Num(affine[0].extent),) if norm.call == GROUP else ()
    args = (arg, *given.values(), *number, ops.Num(norm.eps))
    places = {name: CellArgument(1 + k) for k, name in enumerate(given)}
    eps = CellArgument(len(args) - 1)

    def write(places: Mapping[str, Operand]) -> TorchCall:
        weights = tuple(places.get(name, NONE) for name in SIGNS)
        if norm.call == GROUP:
            return TorchCall(GROUP, (CellArgument(0), CellArgument(len(args) - 2), *weights, eps))
        return TorchCall(norm.call, (CellArgument(0), *weights, NONE, NONE, True, 0.0, eps, False))

    inner = ops.Unflatten(arg, 1, affine) if len(affine) > 1 else arg
    made = inner.axes
    kept = affine if norm.call == BATCH else made[:2]
    over = tuple(i for i in made if i not in kept)
    whole = _write_reference(replace(norm, over=over), inner, made)
    for name, part in given.items():
        each = ops.Unflatten(part, 0, affine) if len(affine) > 1 else part
        whole = ops.combine(SIGNS[name], (whole, each), made)
    if len(affine) > 1:
        whole = ops.flatten(whole, 1, len(affine))
    after = (":", *(None for _ in arg.axes[2:]))
    aligned = {
        name: Subscript(place, after) if after[1:] else place for name, place in places.items()
    }
    batch = axes[:start] if norm.call == INSTANCE else ()
    # with an extent of 0 torch raises, or returns nan gradients
    norm = replace(norm, filled=(*batch, *affine, *norm.over))
    result = _choose_call(norm, args, (write({}), write(places)), aligned, whole)
    if len(affine) > 1:
        result = ops.Unflatten(result, 1, affine)
    return ops.Unflatten(result, 0, axes[:start]) if start > 1 else result


def _choose_call(
    norm: Norm,
    args: tuple[ops.Op, ...],
    calls: tuple[TorchCall, TorchCall],
    places: Mapping[str, Operand],
    whole: ops.Op,
) -> ops.Op:
    """Return the call with weight and bias; in half precision the call without, then both applied.

    On a CPU torch accumulates the gradients of weight and bias in their own dtype, which loses too
    many digits in half precision.
    """
    bare, call = calls
    axes = whole.axes
    when: tuple[Condition, ...] = ()
    if isinstance(norm.eps, ir.Scalar):
        when = (CellArgument(len(args) - 1),)
    if places and norm.call != RMS:
        for name, place in places.items():
            bare = TorchCall(SIGNS[name], (bare, place))
        whole = ops.Cell(bare, args, whole, axes, when, filled=norm.filled)
        when = (*when, "wide")
    scratch = (axes,) if norm.call == RMS else ()
    return ops.Cell(call, args, whole, axes, when, scratch=scratch, filled=norm.filled)


def _write_reference(norm: Norm, arg: ops.Op, axes: tuple[ir.Index, ...]) -> ops.Op:
    """Return the operations equivalent to the call, without weight and bias."""
    if norm.call != RMS:
        above: ops.Op = ops.combine("-", (arg, ops.Reduction("mean", arg, norm.over)), axes)
        below: ops.Op = ops.Reduction("var", arg, norm.over)
    else:
        square = ops.Apply("pow", (arg, ops.Num(TWO)), axes)
        above, below = arg, ops.Reduction("mean", square, norm.over)
    if norm.eps is not ir.ZERO:
        below = ops.Apply("+", (below, ops.Num(norm.eps)), below.axes)
    root = ops.Apply("sqrt", (below,), below.axes)
    return ops.combine("/", (above, root), axes)


def match_channels(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match a tensor scaled and shifted along one index: a batch_norm with given moments.

    (x - m) * a + b is computed as x * a + (b - m * a), for which half precision has too few digits.
    Where the index is the last one, an addcmul is as fast.
    """
    if not isinstance(op, ops.Apply) or op.function not in {"+", "-", "*", "/"}:
        return None
    axes = op.axes
    wide, shifts = _split_wide_term(split_sum(op, definitions.unwrap), axes)
    if wide is None:
        return None
    found = split_product(wide.op, definitions.unwrap)
    large = [factor for factor in found.over if {*find_true_axes(factor)} == {*axes}]
    if len(large) != 1:
        return None
    scales = [factor for factor in found.over if factor not in large]
    inner, offsets = _split_wide_term(split_sum(large[0], definitions.unwrap), axes)
    arg, is_turned = (inner.op, inner.negative) if inner else (large[0], False)
    small = (*scales, *found.under, *(each.op for each in (*shifts, *offsets)))
    channels = tuple(dict.fromkeys(i for part in small for i in find_true_axes(part)))
    stored, memory = arg.axes, definitions.memory
    if len(channels) != 1 or channels[0] not in stored[1:-1] or (offsets and definitions.exact):
        return None
    if find_strides(arg, memory) != memory.find_dense(stored) or not is_real(arg):
        return None
    scale = divide(join_product(scales, channels) or ops.Num(ir.ONE), found.under, channels)
    if wide.negative ^ found.negative ^ is_turned:
        scale = negate(scale)
    place = stored.index(channels[0])
    args = [ops.flatten(arg, 0, place - 1) if place > 1 else arg, scale]
    made, whole, shift = args[0].axes, args[0], list[Operand]()
    if offsets:  # m in x - m, or in -(x - m)
        args.append(join_sum([Signed(o.op, o.negative is is_turned) for o in offsets], channels))
        whole = ops.combine("-", (whole, args[2]), made)
        shift.append(TorchCall("*", (CellArgument(2), CellArgument(1))))
    whole = ops.combine("*", (whole, scale), made)
    if shifts:
        args.append(join_sum(shifts, channels))
        whole = ops.combine("+", (whole, args[-1]), made)
        shift.insert(0, CellArgument(len(args) - 1))
    if not shift or any(part.axes != channels for part in args[1:]):
        return None
    total = TorchCall("-", tuple(shift)) if len(shift) > 1 else shift[0]
    if offsets and not shifts:
        total = TorchCall("torch.neg", (total,))
    moments = (TorchCall(f"torch.{kind}_like", (CellArgument(1),)) for kind in ("zeros", "ones"))
    parts = (CellArgument(0), CellArgument(1), total, *moments, False, 0.0, 0.0, False)
    call = TorchCall(BATCH, parts)
    result: ops.Op = ops.Cell(call, tuple(args), whole, made, ("wide",), filled=channels)
    result = ops.Unflatten(result, 0, stored[:place]) if place > 1 else result
    return ops.arrange(result, axes)


def _split_wide_term(
    terms: Sequence[Signed], axes: tuple[ir.Index, ...]
) -> tuple[Signed | None, list[Signed]]:
    """Return (the only term with all indices, the other terms), else (None, [])."""
    wide = [term for term in terms if {*find_true_axes(term.op)} == {*axes}]
    return (wide[0], [t for t in terms if t is not wide[0]]) if len(wide) == 1 else (None, [])
