"""Transposed convolutions: sums that add a kernel at strided positions of the result.

    y[n,o,l] = sum[c, t, k](x[n,c,t] * w[c,o,k] * [l == z*t + q*k - p])

in one, two or three dimensions l, with stride z, dilation q and padding p. A kernel read at
l - z*t, or a tensor read at (l - q*k)//z where the division is exact, is prepared in this form: the
position that is read becomes a summed index.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

from derive.analysis.facts import is_never_negative, is_positive
from derive.ir import nodes as ir
from derive.ir.polynomial import ONE, Polynomial
from derive.ir.text import to_text
from derive.ir.walk import find_free, split_guards
from derive.plan import ops
from derive.plan.calls import CellArgument, Operand, Subscript, TorchCall
from derive.plan.lower.condition import lower_condition
from derive.plan.lower.context import Context
from derive.plan.lower.guarded import Wanted
from derive.plan.lower.places import cut_run
from derive.rewrite.rules.sums import find_factors

MOST = 3  # most dimensions of torch's convolutions
FUNCTIONAL = "torch.nn.functional."
Part = tuple[ir.Index, Polynomial]  # a summed index and its step


@dataclass(frozen=True, slots=True)
class Tie:
    """A guard place == first*step + second*step - cut."""

    place: ir.Index
    parts: tuple[Part, Part]
    cut: Polynomial


@dataclass(frozen=True, slots=True)
class TransposedSum:
    """A sum of products with ties as its guards."""

    bound: tuple[ir.Index, ...]
    ties: tuple[Tie, ...]
    factors: tuple[ir.Expr, ...]


def find_transposed_sum(
    bound: Sequence[ir.Index], condition: ir.Expr, factors: Sequence[ir.Expr]
) -> TransposedSum | None:
    """Return the sum with its ties if every part of the condition is one, else None."""
    found = TransposedSum(tuple(bound), (), tuple(factors))
    for part in ir.split_and(condition):
        tie = _read_tie(part, found.bound)
        if tie is None:
            return None
        found = replace(found, ties=(*found.ties, tie))
    used = [index for tie in found.ties for index in (tie.place, *dict(tie.parts))]
    is_plain = 0 < len(found.ties) <= MOST and len({*used}) == len(used)
    inner = {*found.bound}
    is_plain = is_plain and not any(
        tie.place in find_free(f) and inner & {*find_free(f)} for tie in found.ties for f in factors
    )
    return found if is_plain else None


def _read_tie(condition: ir.Expr, bound: Sequence[ir.Index]) -> Tie | None:
    match condition:
        case ir.Compare("==", left, right):
            value = Polynomial.of(left) - Polynomial.of(right)
        case _:
            return None
    indices = [atom for atom in value.atoms if isinstance(atom, ir.Index)]
    places = [i for i in indices if i not in bound]
    if (
        len(indices) != 3
        or len(places) != 1
        or any(find_free(a) for a in value.atoms if a not in indices)
    ):
        return None
    steps: dict[ir.Index, Polynomial] = {}
    for index in indices:
        halves = value.split_linear(index)
        if halves is None or find_free(halves[0].to_expr()):
            return None
        steps[index], value = halves
    lead = steps.pop(places[0])
    if lead not in (ONE, -ONE) or find_free(value.to_expr()):
        return None
    one, other = ((i, -(step * lead)) for i, step in steps.items())
    if not (is_positive(one[1]) and is_positive(other[1])):
        return None
    return Tie(places[0], (one, other), value * lead)


def lower_transposed_sum(reduce: ir.Reduce, wanted: Wanted) -> ops.Op | None:
    """Lower a sum to a transposed convolution, or return None."""
    context, order = wanted.context, wanted.order
    guards, factors = split_guards(find_factors(reduce.body))
    condition = ir.all_of(reduce.condition, *guards)
    if reduce.kind != "sum" or wanted.counted or not all(map(context.is_finite, factors)):
        return None
    transposed = find_transposed_sum(reduce.bound, condition, factors)
    if transposed is None:
        return None
    inner = {*transposed.bound}
    outside = [f for f in transposed.factors if not inner & {*find_free(f)}]
    inside = [f for f in transposed.factors if f not in outside]
    sides = _split_factors(transposed.ties, inside)
    if sides is None:
        return None
    axes = (*(i for i in order if i not in inner), *transposed.bound)
    one, other = (_multiply(side, axes, context) for side in sides)
    is_real = not any(ops.is_integral(op) or ops.is_complex(op) for op in (one, other))
    if not is_real:
        return None
    tied = {index for tie in transposed.ties for index in dict(tie.parts)}
    spans = [context.count(i for i in ops.axes_of(op) if i in tied) for op in (one, other)]
    if spans[0] < spans[1]:
        one, other = other, one
    result = _write_call(transposed, one, other, context)
    for tie in transposed.ties:
        axes = ops.axes_of(result)
        if tie.place not in axes:
            at = [axis.name for axis in axes].index(f"{tie.place.name}'")
            result = cut_run(result, at, tie.cut, tie.place)
    for factor in outside:
        result = ops.combine("*", (result, context.lower(factor, order)), order)
    return result


def _split_factors(
    ties: Sequence[Tie], factors: Sequence[ir.Expr]
) -> tuple[list[ir.Expr], list[ir.Expr]] | None:
    """Split the factors by the indices of the ties: those with one, those with the other."""
    for choice in product((0, 1), repeat=len(ties)):
        first_indices = {tie.parts[k][0] for tie, k in zip(ties, choice, strict=True)}
        other_axes = {tie.parts[1 - k][0] for tie, k in zip(ties, choice, strict=True)}
        one = [f for f in factors if first_indices & {*find_free(f)}]
        other = [f for f in factors if other_axes & {*find_free(f)}]
        free = [{i for f in side for i in find_free(f)} for side in (one, other)]
        rest = [f for f in factors if f not in one and f not in other]
        if first_indices <= free[0] and other_axes <= free[1] and not any(f in other for f in one):
            for factor in rest:
                (one if {*find_free(factor)} <= free[0] else other).append(factor)
            return one, other
    return None


def _multiply(factors: Sequence[ir.Expr], axes: tuple[ir.Index, ...], context: Context) -> ops.Op:
    parts = [context.lower(factor, axes) for factor in factors]
    return reduce(lambda one, other: ops.combine("*", (one, other), axes), parts)


def _write_call(
    transposed: TransposedSum, data: ops.Op, kernel: ops.Op, context: Context
) -> ops.Op:
    """Return the call; the result has the full extent of axes that the call cannot cut."""
    data, kernel = _sum_alone(data, kernel, transposed), _sum_alone(kernel, data, transposed)
    straight = kernel
    own, other_axes = ops.axes_of(data), ops.axes_of(kernel)
    pairs = [sorted(tie.parts, key=lambda part: part[0] in other_axes) for tie in transposed.ties]
    places, taps = ([pair[k][0] for pair in pairs] for k in (0, 1))
    shared = [i for i in own if i in other_axes]
    groups, channels = ([i for i in shared if (i in transposed.bound) is b] for b in (False, True))
    batch = [i for i in own if i not in other_axes and i not in places]
    made = [i for i in other_axes if i not in own and i not in taps]
    cuts = [_find_cut(tie, pair[0][1]) for tie, pair in zip(transposed.ties, pairs, strict=True)]
    ends = [cut.place for cut in cuts]
    name, sides = "conv_transpose", ([*groups, *channels], made)
    fronts = [cut.front for cut in cuts]
    reaches = [step * (Polynomial.of(index.extent) - ONE) for _, (index, step) in pairs]
    pads = [reach - Polynomial.of(cut.front) for reach, cut in zip(reaches, cuts, strict=True)]
    if all(pair[0][1] == ONE for pair in pairs) and all(map(is_never_negative, pads)):
        name, sides = "conv", ([*groups, *made], channels)  # with the flipped kernel: faster
        fronts = [pad.to_expr() for pad in pads]
        for index in taps:
            turned = ir.Index(f"{index.name}-", index.extent)
            kernel = ops.rename_indices(kernel, {index: turned})
            kernel = ops.Flip(kernel, ops.axes_of(kernel).index(turned), index)
    given, first = _pad_leading_axes(0, data, (batch, [*groups, *channels]), places)
    weight, second = _pad_leading_axes(1, kernel, sides, taps)
    args: list[ops.Op] = [given, weight]
    keywords = write_arguments(
        args,
        stride=[pair[0][1].to_expr() for pair in pairs],
        padding=fronts,
        output_padding=[cut.more for cut in cuts],
        dilation=[pair[1][1].to_expr() for pair in pairs],
        groups=[ir.product_of([i.extent for i in groups])] if groups else [],
    )
    call = TorchCall(f"{FUNCTIONAL}{name}{len(ends)}d", (first, second), keywords)
    whole = data
    for tie, cut in zip(transposed.ties, cuts, strict=True):
        total = reduce(Polynomial.__add__, (step * Polynomial.of(i) for i, step in tie.parts))
        there = ir.Add((cut.place, cut.front))
        mask = lower_condition(ir.Compare("==", there, total.to_expr()), context, (cut.place, *own))
        met = dict.fromkeys((*ops.axes_of(whole), *ops.axes_of(mask)))
        whole = ops.Einsum((whole, ops.Cast(mask)), tuple(i for i in met if i not in places))
    whole = ops.Einsum((whole, straight), (*batch, *groups, *made, *ends))
    whole = _merge(whole, (batch, [*groups, *made]), ends)
    strides = (ir.Index(to_text(e), e) for e in (pair[0][1].to_expr() for pair in pairs))
    filled = (*groups, *channels, *made, *places, *taps, *strides)  # torch rejects extents of 0
    volume = (*own, *made, *taps)
    axes = ops.axes_of(whole)
    op: ops.Op = ops.Cell(call, tuple(args), whole, axes, volume=volume, filled=filled)
    for at, parts in ((1, [*groups, *made]), (0, batch)):
        if len(parts) > 1:
            op = ops.Unflatten(op, at, tuple(parts))
        elif not parts:
            op = ops.Select(op, at, ir.ZERO)
    return op


@dataclass(frozen=True, slots=True)
class Cut:
    """An axis of a call's result, the call's padding and its output_padding."""

    place: ir.Index
    front: ir.Expr
    more: ir.Expr


def _find_cut(tie: Tie, stride: Polynomial) -> Cut:
    """Return the padding and output_padding that cut a result to the extent, else no cut."""
    spans = (step * (Polynomial.of(index.extent) - ONE) for index, step in tie.parts)
    full = reduce(Polynomial.__add__, spans, ONE)
    more = tie.cut + tie.cut + Polynomial.of(tie.place.extent) - full
    if all(map(is_never_negative, (tie.cut, more, stride - ONE - more))):
        return Cut(tie.place, tie.cut.to_expr(), more.to_expr())
    return Cut(ir.Index(f"{tie.place.name}'", full.to_expr()), ir.ZERO, ir.ZERO)


def _sum_alone(op: ops.Op, other: ops.Op, transposed: TransposedSum) -> ops.Op:
    """Sum one side over the bound indices that neither the other side nor a tie has."""
    tied = {index for tie in transposed.ties for index in dict(tie.parts)}
    alone = tuple(
        i
        for i in ops.axes_of(op)
        if i in transposed.bound and i not in {*ops.axes_of(other), *tied}
    )
    return ops.Reduction("sum", op, alone) if alone else op


def _merge(op: ops.Op, groups: Sequence[Sequence[ir.Index]], rest: Sequence[ir.Index]) -> ops.Op:
    """Flatten the indices of each group to one axis, of size 1 for an empty group."""
    unit_axes = [ir.Index(f"#{k}", ir.ONE) for k in range(len(groups))]
    parts = [[*group] or [unit_axes[k]] for k, group in enumerate(groups)]
    axes = (*(i for part in parts for i in part), *rest)
    op = ops.arrange(op, axes) if {*axes} == {*ops.axes_of(op)} else ops.Arrange(op, axes)
    return ops.merge(op, [*map(tuple, parts), *((i,) for i in rest)])


def _pad_leading_axes(
    place: int, op: ops.Op, groups: Sequence[Sequence[ir.Index]], rest: Sequence[ir.Index]
) -> tuple[ops.Op, Operand]:
    """Return an argument and its text, which inserts an axis of size 1 for leading empty groups."""
    lacking = next((k for k, group in enumerate(groups) if group), len(groups))
    op = _merge(op, groups[lacking:], rest)
    none = (None,) * lacking
    return op, Subscript(CellArgument(place), none) if none else CellArgument(place)


def write_arguments(
    args: list[ops.Op], **values: Sequence[ir.Expr]
) -> tuple[tuple[str, Operand], ...]:
    """Return the keywords that differ from torch's defaults; append their values to `args`."""
    usual: dict[str, ir.Expr] = dict.fromkeys(("stride", "dilation", "groups"), ir.ONE)
    usual |= dict.fromkeys(("padding", "output_padding"), ir.ZERO)
    keywords: list[tuple[str, Operand]] = []
    for name, each in values.items():
        if name in usual and all(value is usual[name] for value in each):
            continue
        numbers: list[Operand] = []
        for value in each:
            numbers.append(CellArgument(len(args)))
            args.append(ops.Num(value))
        keywords.append((name, numbers[0] if len({*each}) == 1 else tuple(numbers)))
    return tuple(keywords)
