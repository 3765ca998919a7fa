"""Windows that are multiplied, averaged or compared: torch's convolutions and pools.

    conv      sum_ck x[b, c, z*t + q*k] w[o, c, k]     stride z, dilation q
    max_pool  max_k x[b, c, z*t + q*k]                 avg_pool  mean_k x[b, c, z*t + k]

in one, two or three places. An index that both operands have and the result keeps parts the
channels into groups. Zeros that stand on both sides alike are the call's padding.

Wide windows that are added up take blocks as wide as they are: each is the end of one block and the
start of the next, and no sum is taken off another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.plan import ops
from derive.plan.cells.matching import CellRule, Definitions
from derive.plan.lower.places import find_left_over

SUMS = "_sum_windows"  # a function of the file
WIDE = 8  # entries of a window below which these are added as they stand
PASSES = ir.Index("passes", ir.Number(Fraction(6)))  # over all entries, to add up blocks both ways
MOST = 3  # places that torch's functions have windows in
FUNCTIONAL = "torch.nn.functional."


@dataclass(frozen=True, slots=True)
class Window:
    """The windows of one place: of which positions, how far apart, and how far apart inside."""

    place: ir.Index
    outer: ir.Index
    inner: ir.Index
    stride: ir.Expr
    dilation: ir.Expr


def split_windows(op: ops.Op) -> tuple[ops.Op, tuple[Window, ...]]:
    """What the windows are cut from, whose axes have their places, and the windows in its order."""
    found: dict[ir.Index, Window] = {}
    while True:
        match op:
            case ops.Slice(ops.Unfold(arg, place, outer, _, step), last, index, start, apart):
                if last != len(ops.axes_of(op)) - 1 or start is not ir.ZERO:
                    break
                inner, dilation = index, apart
            case ops.Unfold(arg, place, outer, inner, step):
                dilation = ir.ONE
            case _:
                break
        axis = ops.axes_of(arg)[place]
        found[axis] = Window(axis, outer, inner, step, dilation)
        op = arg
    # A window that is cut again is none of these.
    nested = {w.outer for w in found.values()} | {w.inner for w in found.values()}
    if nested & found.keys():
        return op, ()
    return op, tuple(found[axis] for axis in ops.axes_of(op) if axis in found)


def turn_windows(op: ops.Op, inside: Collection[ir.Index]) -> ops.Op:
    """The same windows, so that the indices `inside` run in them, where these count them now.

    Place z*t + q*k is both: windows of t, counted by k, or of k, counted by t. Of the latter there
    are as many as t has positions in the least length that has them all.
    """
    match op:
        case ops.Slice(ops.Unfold(arg, place, inner, _, dilation), last, outer, start, stride):
            is_slice = last == len(ops.axes_of(op)) - 1 and start is ir.ZERO
        case ops.Unfold(arg, place, inner, outer, dilation):
            is_slice, stride = True, ir.ONE
        case _:
            return op
    arg = turn_windows(arg, inside)
    if not is_slice or inner not in inside or outer in inside:
        below = ops.with_args(op.arg, (arg,)) if isinstance(op, ops.Slice) else arg
        return ops.with_args(op, (below,))
    one, axis = Polynomial.of(ir.ONE), ops.axes_of(arg)[place]
    size = Polynomial.of(dilation) * (Polynomial.of(inner.extent) - one) + one
    length = Polynomial.of(stride) * (Polynomial.of(outer.extent) - one) + size
    left = Polynomial.of(axis.extent) - length
    if left != Polynomial.of(ir.ZERO) and left != find_left_over(outer, Polynomial.of(stride)):
        arg = ops.Slice(arg, place, ir.Index(f"{axis.name}'", length.to_expr()), ir.ZERO)
    if dilation is ir.ONE:
        return ops.Unfold(arg, place, outer, inner, stride)
    window = ir.Index(f"{axis.name}.", size.to_expr())
    turned = ops.Unfold(arg, place, outer, window, stride)
    return ops.Slice(turned, len(ops.axes_of(turned)) - 1, inner, ir.ZERO, dilation)


def split_padding(
    op: ops.Op, windows: Sequence[Window]
) -> tuple[ops.Op, list[ir.Expr], list[ir.Index]]:
    """The operand without zeros that stand on both sides alike of windows, and how many these are.

    Also what its places are called without them. None are taken where some are not alike.
    """
    amounts: list[ir.Expr] = [ir.ZERO] * len(windows)
    inside, whole = [w.place for w in windows], op
    while isinstance(op, ops.Pad):
        before, axis = Polynomial.of(op.before), ops.axes_of(op.arg)[op.place]
        after = Polynomial.of(op.index.extent) - Polynomial.of(axis.extent) - before
        if before != after or op.index not in inside:
            return whole, [ir.ZERO] * len(windows), [w.place for w in windows]
        place = inside.index(op.index)
        amounts[place], inside[place] = op.before, axis
        op = op.arg
    return op, amounts, inside


def _write_arguments(
    args: list[ops.Op], **values: Sequence[ir.Expr]
) -> tuple[tuple[str, ops.Operand], ...]:
    """The keywords of a call that are not as torch has them by itself, their numbers in `args`."""
    usual = {"stride": ir.ONE, "dilation": ir.ONE, "padding": ir.ZERO, "groups": ir.ONE}
    keywords: list[tuple[str, ops.Operand]] = []
    for name, each in values.items():
        if name in usual and all(value is usual[name] for value in each):
            continue
        told: list[ops.Operand] = []
        for value in each:
            told.append(ops.Given(len(args)))
            args.append(ops.Num(value))
        keywords.append((name, told[0] if len({*each}) == 1 else tuple(told)))
    return tuple(keywords)


def match_convolution(op: ops.Op, _: Definitions) -> ops.Op | None:
    """A product of windows with a tensor that has the indices inside of them."""
    match op:
        case ops.Einsum((one, other), axes):
            return _convolve(one, other, axes) or _convolve(other, one, axes)
        case _:
            return None


def _convolve(data: ops.Op, kernel: ops.Op, axes: tuple[ir.Index, ...]) -> ops.Op | None:
    data = turn_windows(data, ops.axes_of(kernel))
    base, windows = split_windows(data)
    inner, outer = [w.inner for w in windows], [w.outer for w in windows]
    own, other = ops.axes_of(data), ops.axes_of(kernel)
    shared = [i for i in own if i in other and i not in inner]
    groups, channels = ([i for i in shared if (i in axes) is kept] for kept in (True, False))
    batch = [i for i in own if i not in other and i not in outer]
    made = [i for i in other if i not in own]
    is_alone = not set(made) <= set(axes) or not {*batch, *outer} <= set(axes)
    if not windows or len(windows) > MOST or is_alone or set(axes) & set(inner):
        return None
    if not set(inner) <= set(other) or set(outer) & set(other):
        return None
    if any(len(each) > 1 for each in (batch, groups, channels, made)):
        return None
    base, padding, places = split_padding(base, windows)
    lone = [ir.Index(f"#{k}", ir.ONE) for k in range(2)]  # what a lacking place is to torch
    inputs = (*batch, *groups, *(channels or ([] if groups else lone[:1])))
    given = ops.arrange(base, (*inputs, *places))
    weights = (*groups, *(made or ([] if groups else lone[1:])), *(channels or lone[:1]), *inner)
    weight = ops.arrange(kernel, weights)
    if groups and channels:
        given = ops.flatten(given, len(batch), len(batch) + 1)
    if groups and made:
        weight = ops.flatten(weight, 0, 1)
    args: list[ops.Op] = [given, weight]
    keywords = _write_arguments(
        args,
        stride=[w.stride for w in windows],
        padding=padding,
        dilation=[w.dilation for w in windows],
        groups=[groups[0].extent] if groups else [],
    )
    both = _give(0, (*inputs, *places), lone), _give(1, weights, lone)
    call = ops.TorchCall(f"{FUNCTIONAL}conv{len(windows)}d", both, keywords)
    parts = (*groups, *(made or ([] if groups else lone[1:])))
    merged = (ops.merge_indices(parts),) if len(parts) > 1 else parts
    order = (*batch, *(i for i in parts if i not in lone), *outer)
    whole: ops.Op = ops.Einsum((data, kernel), order)
    if len(parts) > 1:
        whole = ops.flatten(whole, len(batch), len(batch) + len(parts) - 1)
    whole = ops.arrange(whole, (*batch, *merged, *outer))
    filled = (*groups, *channels, *made, *inner)
    result: ops.Op = ops.Cell(call, tuple(args), whole, (*batch, *merged, *outer), filled=filled)
    if len(parts) > 1:
        result = ops.Unflatten(result, len(batch), parts)
    elif parts == tuple(lone[1:]):
        result = ops.Select(result, len(batch), ir.ZERO)
    return ops.arrange(result, axes)


def _give(place: int, axes: tuple[ir.Index, ...], lone: Sequence[ir.Index]) -> ops.Operand:
    """An argument with an axis of size 1 for each that it lacks at its front."""
    lacking = [axis for k, axis in enumerate(axes) if axis in lone and {*axes[:k]} <= {*lone}]
    return ops.Pick(ops.Given(place), (None,) * len(lacking)) if lacking else ops.Given(place)


def match_pool(op: ops.Op, _: Definitions) -> ops.Op | None:
    """The largest, or the mean, of each window."""
    match op:
        case ops.Reduction("max" | "mean" as kind, arg, over):
            arg = turn_windows(arg, over)
            base, windows = split_windows(arg)
        case _:
            return None
    inner, outer = {w.inner for w in windows}, [w.outer for w in windows]
    others = [i for i in ops.axes_of(base) if i not in {w.place for w in windows}]
    if not windows or len(windows) > MOST or inner != set(over) or len(others) not in {1, 2}:
        return None
    if kind == "mean" and any(w.dilation is not ir.ONE for w in windows):
        return None
    args: list[ops.Op] = [ops.arrange(base, (*others, *(w.place for w in windows)))]
    keywords = _write_arguments(
        args,
        kernel_size=[w.inner.extent for w in windows],
        stride=[w.stride for w in windows],
        dilation=[w.dilation for w in windows],
    )
    if not any(name == "stride" for name, _ in keywords):
        keywords = (*keywords, ("stride", 1))
    name = f"{'max' if kind == 'max' else 'avg'}_pool{len(windows)}d"
    call = ops.TorchCall(FUNCTIONAL + name, (ops.Given(0),), keywords)
    filled = (others[-1], *over)
    whole = ops.arrange(ops.Reduction(kind, arg, over), (*others, *outer))
    result = ops.Cell(call, tuple(args), whole, (*others, *outer), filled=filled)
    return ops.arrange(result, ops.axes_of(op))


def match_window_sum(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The sum of each window of many neighbours."""
    match op:
        case ops.Reduction("sum", arg, over):
            base, windows = split_windows(turn_windows(arg, over))
        case _:
            return None
    if len(windows) != 1 or windows[0].inner not in over:
        return None
    (window,), inner = windows, windows[0].inner
    rest = tuple(i for i in over if i is not inner)
    base = ops.Reduction("sum", base, rest) if rest else base
    if definitions.memory.extent(inner) < WIDE:
        return None
    if window.stride is not ir.ONE or window.dilation is not ir.ONE or ops.is_integral(base):
        return None
    batch = tuple(i for i in ops.axes_of(base) if i is not window.place)
    axes, spanned = (*batch, window.outer), (*batch, window.place)
    args = (ops.arrange(base, spanned), ops.Num(inner.extent))
    call = ops.TorchCall(SUMS, (ops.Given(0), ops.Given(1)))
    cell = ops.Cell(
        call,
        args,
        ops.arrange(op, axes),
        axes,
        volume=(*spanned, PASSES),
        scratch=(spanned,) * 3,
        filled=(inner,),
    )
    return ops.arrange(cell, ops.axes_of(op))


CELLS = (
    CellRule(
        call=SUMS,
        computes=(
            "x[B, L]; index t < L; index k < 9\n"
            "y[b,t] = sum[k](x[b,t + k - 4] * [0 <= t + k - 4 < L])"
        ),
        refuses=(
            "x[B, L]; index t < L; index k < 5\n"
            "y[b,t] = sum[k](x[b,t + 2*k - 4] * [0 <= t + 2*k - 4 < L])"
        ),
        match=match_window_sum,
    ),
    CellRule(
        call=f"{FUNCTIONAL}conv1d",
        computes=(
            "x[B, C, L]; w[O, C, 3]; index t < L\n"
            "y[b,o,t] = sum[c, k](x[b,c,t + k - 1] * w[o,c,k] * [0 <= t + k - 1 < L])"
        ),
        refuses=(
            "x[B, C, L]; w[O, C, 3, L]; index t < L\n"
            "y[b,o,t] = sum[c, k](x[b,c,t + k - 1] * w[o,c,k,t] * [0 <= t + k - 1 < L])"
        ),
        match=match_convolution,
    ),
    CellRule(
        call=f"{FUNCTIONAL}max_pool2d",
        computes=(
            "x[B, C, H, W]; index p < H - 1; index q < (W - 3)//2 + 1; index k < 2; index m < 3\n"
            "y[b,c,p,q] = max[k, m](x[b,c,p + k,2*q + m])"
        ),
        refuses=(
            "x[B, C, H, W]; index p < H - 1; index q < (W - 3)//2 + 1; index k < 2; index m < 3\n"
            "y[b,c,p,q] = min[k, m](x[b,c,p + k,2*q + m])"
        ),
        match=match_pool,
    ),
    CellRule(
        call=f"{FUNCTIONAL}avg_pool1d",
        computes="x[B, C, L]; index t < L//3; index k < 3\ny[b,c,t] = mean[k](x[b,c,3*t + k])",
        refuses=(
            "x[B, C, L]; index t < (L - 5)//3 + 1; index k < 3\n"
            "y[b,c,t] = mean[k](x[b,c,3*t + 2*k])"
        ),
        match=match_pool,
    ),
)
