"""Windows that are multiplied, averaged or compared: torch's convolutions and pools.

    conv      sum_ck x[b, c, z*t + q*k] w[o, c, k]     stride z, dilation q, and what is added for o
    conv_transpose  sum_ct x[b, c, t] w[c, o, s - z*t]     stride z
    max_pool  max_k x[b, c, z*t + q*k]                 avg_pool  mean_k x[b, c, z*t + k]

in one, two or three places. An index that both operands have and the result keeps parts the
channels into groups. Zeros that stand on both sides alike are the call's padding.

Wide windows that are added up take blocks as wide as they are: each is the end of one block and the
start of the next, and no sum is taken off another.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

from derive.analysis.facts import is_never_negative
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.plan import ops
from derive.plan.cells.matching import (
    CellRule,
    Definitions,
    Signed,
    join_sum,
    sort_stored,
    split_sum,
    strip,
)
from derive.plan.cost import Storage, find_true_axes
from derive.plan.lower.places import find_left_over, to_stride
from derive.plan.lower.spread import FUNCTIONAL, MOST, write_arguments

SUMS = "_sum_windows"  # a function of the file
WIDE = 8  # entries of a window below which these are added as they stand
PASSES = ir.Index("passes", ir.Number(Fraction(6)))  # over all entries, to add up blocks both ways
ONE = Polynomial.of(ir.ONE)


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
    axis = ops.axes_of(arg)[place]
    size = Polynomial.of(dilation) * (Polynomial.of(inner.extent) - ONE) + ONE
    length = Polynomial.of(stride) * (Polynomial.of(outer.extent) - ONE) + size
    left = Polynomial.of(axis.extent) - length
    if left != Polynomial.of(ir.ZERO) and left != find_left_over(outer, Polynomial.of(stride)):
        arg = ops.Slice(arg, place, ir.Index(f"{axis.name}'", length.to_expr()), ir.ZERO)
    if dilation is ir.ONE:
        return ops.Unfold(arg, place, outer, inner, stride)
    window = ir.Index(f"{axis.name}.", size.to_expr())
    turned = ops.Unfold(arg, place, outer, window, stride)
    return ops.Slice(turned, len(ops.axes_of(turned)) - 1, inner, ir.ZERO, dilation)


def turn_over(data: ops.Op, kernel: ops.Op) -> tuple[ops.Op, ops.Op]:
    """Both operands, where an index runs in windows from their end: in the kernel it does instead.

    Only in the places of windows, which are what is summed.
    """
    match data:
        case ops.Flip(arg, place, index) if index in ops.axes_of(kernel):
            old, at = ops.axes_of(arg)[place], ops.axes_of(kernel).index(index)
            return turn_over(ops.rename_indices(arg, {old: index}), ops.Flip(kernel, at, index))
        case ops.Unfold(arg) | ops.Slice(arg):
            below, kernel = turn_over(arg, kernel)
            return ops.with_args(data, (below,)), kernel
    return data, kernel


def split_padding(
    op: ops.Op, windows: Sequence[Window], value: ir.Expr = ir.ZERO
) -> tuple[ops.Op, list[ir.Expr], list[ir.Index]]:
    """The operand without zeros that stand on both sides alike of windows, and how many these are.

    Or without other numbers of this value.

    Also what its places are called without them. None are taken where some are not alike.
    """
    amounts: list[ir.Expr] = [ir.ZERO] * len(windows)
    inside, whole = [w.place for w in windows], op
    while isinstance(op := _find_padding(op), ops.Pad) and op.value is value:
        before, axis = Polynomial.of(op.before), ops.axes_of(op.arg)[op.place]
        after = Polynomial.of(op.index.extent) - Polynomial.of(axis.extent) - before
        if before != after or op.index not in inside:
            return whole, [ir.ZERO] * len(windows), [w.place for w in windows]
        place = inside.index(op.index)
        amounts[place], inside[place] = op.before, axis
        op = op.arg
    return op, amounts, inside


def _find_padding(op: ops.Op) -> ops.Op:
    """The same; zeros that stand beside a place which is taken apart stand outside.

    More of them than are kept, as they are written for a size of 0, count as those that are kept.
    """
    match op:
        case ops.Slice(ops.Pad(arg, at, _, before, value), place, index, start, apart) if (
            at == place and start is ir.ZERO and apart is ir.ONE
        ):
            return ops.Pad(arg, at, index, before, value)
        case ops.Unflatten(ops.Pad(arg, at, index, before, value), place, parts) if at != place:
            inner = ops.Unflatten(arg, place, parts)
            return ops.Pad(inner, at + (len(parts) - 1 if at > place else 0), index, before, value)
    return op


SHORT = 16  # up to which bmm takes half the time of conv1d, and a fifth with gradients


def match_convolution(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A product of windows with a tensor that has the indices inside of them, and what is added."""
    match op:
        case ops.Einsum((_, _), axes):
            one, other = _open_turned(op, definitions)
            found = _find_product(one, other, axes) or _find_product(other, one, axes)
            if found is not None and found.is_short(definitions.memory):
                return _write_filter(found, axes, definitions.memory)
            return None if found is None else _write_convolution(found, axes, None)
        case ops.Apply("+" | "-", _, axes):
            return _convolve_and_add(op, axes, definitions)
    return None


def _open_turned(product: ops.Einsum, definitions: Definitions) -> list[ops.Op]:
    """The operands, of which some are others from their end."""
    opened = [definitions.unwrap(arg) for arg in product.args]
    pairs = zip(product.args, opened, strict=True)
    turned = (ops.Flip, ops.Unfold, ops.Slice)
    return [each if isinstance(each, turned) else arg for arg, each in pairs]


def _convolve_and_add(
    op: ops.Op, axes: tuple[ir.Index, ...], definitions: Definitions
) -> ops.Op | None:
    """A sum with such a product in it, and a term of the indices that its channels have."""
    terms = split_sum(op, definitions.unwrap)
    for term in terms:
        product = definitions.unwrap(term.op)
        if term.negative or not isinstance(product, ops.Einsum) or len(product.args) != 2:
            continue
        (one, other), own = _open_turned(product, definitions), product.axes
        for bias in terms:
            if bias.negative or isinstance(bias.op, ops.Num) or bias is term:
                continue
            found = _convolve(one, other, own, bias.op) or _convolve(other, one, own, bias.op)
            if found is not None:
                rest = [each for each in terms if each is not term and each is not bias]
                return ops.arrange(join_sum([Signed(found), *rest], axes), axes)
    return None


@dataclass(frozen=True, slots=True)
class Product:
    """Windows, a tensor with the indices inside of them, and what each other index is to torch.

    `batch` have the windows alone, `made` the other tensor, `channels` both, which are summed, and
    `groups` both, which are kept.
    """

    data: ops.Op
    kernel: ops.Op
    base: ops.Op
    windows: tuple[Window, ...]
    batch: list[ir.Index]
    made: list[ir.Index]
    channels: list[ir.Index]
    groups: list[ir.Index]

    def is_short(self, memory: Storage) -> bool:
        """Whether it is a filter of few places and one channel, which bmm does on a view."""
        is_lone = not (self.made or self.channels or self.groups) and len(self.windows) == 1
        return is_lone and memory.extent(self.windows[0].inner) <= SHORT


def _convolve(
    data: ops.Op, kernel: ops.Op, axes: tuple[ir.Index, ...], bias: ops.Op | None = None
) -> ops.Op | None:
    found = _find_product(data, kernel, axes)
    return None if found is None else _write_convolution(found, axes, bias)


def _find_product(data: ops.Op, kernel: ops.Op, axes: tuple[ir.Index, ...]) -> Product | None:
    data, kernel = turn_over(data, kernel)
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
    if any(len(each) > 1 for each in (groups, channels, made)):
        return None
    return Product(data, kernel, base, windows, batch, made, channels, groups)


def _write_convolution(
    product: Product, axes: tuple[ir.Index, ...], bias: ops.Op | None
) -> ops.Op | None:
    windows, groups, channels = product.windows, product.groups, product.channels
    if len(product.batch) > 1:
        return None
    weight, padding, inner = split_padding(product.base, windows)
    lone = [ir.Index(f"#{k}", ir.ONE) for k in range(2)]  # what a lacking place is to torch
    first = channels or ([] if groups else lone[:1])
    spread = _find_spread(product.kernel, windows, padding)
    strides, dilations = [w.stride for w in windows], [w.dilation for w in windows]
    if spread is None:
        name, batch, made = "conv", product.batch, product.made
        given, places = weight, inner
        weight, inner = product.kernel, [w.inner for w in windows]
    else:
        name, batch, made = "conv_transpose", product.made, product.batch
        given, places, padding = spread.op, spread.places, spread.cut
        strides, dilations = dilations, []
    parts = (*groups, *(made or ([] if groups else lone[1:])))
    if bias is not None and {*parts} != {*find_true_axes(bias)}:
        return None
    inputs = (*batch, *groups, *first, *places)
    weights = (*parts, *(channels or lone[:1]), *inner)
    if spread is not None:
        weights = (*groups, *first, *(made or lone[1:]), *inner)
    given, weight = ops.arrange(given, inputs), ops.arrange(weight, weights)
    if groups and channels:
        given = ops.flatten(given, len(batch), len(batch) + 1)
    if groups and (made if spread is None else channels):
        weight = ops.flatten(weight, 0, 1)
    args: list[ops.Op] = [given, weight]
    if bias is not None:
        added = ops.arrange(bias, parts)
        args.append(ops.flatten(added, 0, len(parts) - 1) if len(parts) > 1 else added)
    more = [ops.Given(k) for k in range(2, len(args))]
    operands = (_give(0, inputs, lone), _give(1, weights, lone), *more)
    keywords = write_arguments(
        args,
        stride=strides,
        padding=padding,
        dilation=dilations,
        groups=[groups[0].extent] if groups else [],
    )
    call = ops.TorchCall(f"{FUNCTIONAL}{name}{len(windows)}d", operands, keywords)
    merged = (ops.merge_indices(parts),) if len(parts) > 1 else parts
    order = (*batch, *merged, *(w.outer for w in windows))
    whole = _write_out(product, (*batch, *parts, *order[-len(windows) :]), parts, order)
    if bias is not None:
        whole = ops.Apply("+", ops.align((whole, args[2]), order), order)
    volume = () if spread is None else (*inputs, *made, *inner)
    filled = (*groups, *channels, *made, *(w.inner for w in windows))
    result: ops.Op = ops.Cell(call, tuple(args), whole, order, filled=filled, volume=volume)
    if len(parts) > 1:
        result = ops.Unflatten(result, len(batch), parts)
    elif parts == tuple(lone[1:]):
        result = ops.Select(result, len(batch), ir.ZERO)
    return ops.arrange(result, axes)


def _write_filter(product: Product, axes: tuple[ir.Index, ...], memory: Storage) -> ops.Op:
    """The sum over the few places of windows, which stand beside what lies closest in memory."""
    inner = product.windows[0].inner
    *rows, last = (i for i in sort_stored(product.data, memory) if i is not inner)
    args = product.kernel, ops.arrange(product.data, (*rows, inner, last))
    call = ops.TorchCall("torch.einsum", ("k,...kt->...t", *map(ops.Given, range(2))))
    whole = ops.Einsum(args, (*rows, last))
    return ops.arrange(ops.Cell(call, args, whole, (*rows, last), filled=(inner,)), axes)


def _write_out(
    product: Product,
    axes: Sequence[ir.Index],
    parts: Sequence[ir.Index],
    order: tuple[ir.Index, ...],
) -> ops.Op:
    """The operations of the call in the order of its result, where the parts are one index."""
    shared = {*ops.axes_of(product.data), *ops.axes_of(product.kernel)}
    whole: ops.Op = ops.Einsum(
        (product.data, product.kernel), tuple(i for i in axes if i in shared)
    )
    if len(parts) > 1:
        start = axes.index(parts[0])
        whole = ops.flatten(whole, start, start + len(parts) - 1)
    return ops.arrange(whole, order)


@dataclass(frozen=True, slots=True)
class Spread:
    """A tensor that puts the other one down at each of its places, and how much is cut off."""

    op: ops.Op
    places: list[ir.Index]
    cut: list[ir.Expr]


def _find_spread(
    kernel: ops.Op, windows: Sequence[Window], padding: Sequence[ir.Expr]
) -> Spread | None:
    """The kernel as what a transposed convolution is given, its places from the start.

    That is what windows of zeros and a few entries are, all of which the kernel meets, from its
    end: sum_t w[s - z*t] x[t] with t for its places, z their dilation, which torch calls a stride.
    """
    if all(w.dilation is ir.ONE for w in windows) or any(w.stride is not ir.ONE for w in windows):
        return None
    turned, cut = {}, []
    while isinstance(kernel := strip(kernel), ops.Flip):
        turned[kernel.index] = ops.axes_of(kernel.arg)[kernel.place]
        kernel = kernel.arg
    if turned.keys() != {w.inner for w in windows}:
        return None
    for window, zeros in zip(windows, padding, strict=True):
        reach = Polynomial.of(window.dilation) * (Polynomial.of(window.inner.extent) - ONE)
        left = reach - Polynomial.of(zeros)
        if any(factor < 0 for factor in left.terms.values()):
            return None
        cut.append(left.to_expr())
    return Spread(kernel, [turned[w.inner] for w in windows], cut)


def _give(place: int, axes: tuple[ir.Index, ...], lone: Sequence[ir.Index]) -> ops.Operand:
    """An argument with an axis of size 1 for each that it lacks at its front."""
    lacking = [axis for k, axis in enumerate(axes) if axis in lone and {*axes[:k]} <= {*lone}]
    return ops.Pick(ops.Given(place), (None,) * len(lacking)) if lacking else ops.Given(place)


def match_pool(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The largest, the mean or the sum of each window."""
    match op:
        case ops.Apply("*", (total, ops.Num(scale))) if (
            isinstance(total := definitions.unwrap(total), ops.Reduction)
            and Polynomial.of(scale) * to_stride(total.over) == ONE
        ):
            found = match_pool(ops.Reduction("mean", total.arg, total.over), definitions)
            return found and ops.arrange(found, ops.axes_of(op))
        case ops.Reduction("max" | "mean" | "sum" as kind, arg, over):
            arg = turn_windows(arg, over)
            base, windows = split_windows(arg)
        case _:
            return None
    inner, outer = {w.inner for w in windows}, [w.outer for w in windows]
    others = [i for i in ops.axes_of(base) if i not in {w.place for w in windows}]
    if not windows or len(windows) > MOST or inner != set(over) or len(others) > 2:
        return None
    if kind != "max" and any(w.dilation is not ir.ONE for w in windows):
        return None
    if kind == "sum" and len(windows) == 1:  # torch's function divides it then
        return None
    is_apart = len(windows) == 1 and is_same_extent(windows[0].stride, windows[0].inner.extent)
    if not others and kind != "max" and is_apart:  # rows of a matrix, which are faster
        return None
    value = ir.MINUS_INFINITY if kind == "max" else ir.ZERO
    inside, padding, places = split_padding(base, windows, value)
    half = [
        to_stride((w.inner,)) - Polynomial.of(2) * Polynomial.of(p)
        for w, p in zip(windows, padding, strict=True)
    ]
    if all(map(is_never_negative, half)):  # torch pads by half a window at most
        base = inside
    else:
        padding, places = [], [w.place for w in windows]
    args: list[ops.Op] = [ops.arrange(base, (*others, *places))]
    keywords = write_arguments(
        args,
        kernel_size=[w.inner.extent for w in windows],
        stride=[w.stride for w in windows],
        padding=padding,
        dilation=[w.dilation for w in windows],
    )
    if not any(name == "stride" for name, _ in keywords):
        keywords = (*keywords, ("stride", 1))
    if kind == "sum":
        keywords = (*keywords, ("divisor_override", 1))
    name = f"{'max' if kind == 'max' else 'avg'}_pool{len(windows)}d"
    lone = () if others else (ir.Index("#", ir.ONE),)  # torch wants channels
    given = _give(0, lone, lone)
    call = ops.TorchCall(FUNCTIONAL + name, (given,), keywords)
    axes, filled = (*lone, *others, *outer), (*others[-1:], *over)
    whole = ops.arrange(ops.Reduction(kind, arg, over), (*others, *outer))
    whole = ops.Arrange(whole, axes) if lone else whole
    result: ops.Op = ops.Cell(call, tuple(args), whole, axes, filled=filled)
    return ops.arrange(ops.Select(result, 0, ir.ZERO) if lone else result, ops.axes_of(op))


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
        call=f"{FUNCTIONAL}conv_transpose1d",
        computes=(
            "x[B, C, L]; w[C, O, 3]; c[O]; index s < 2*(L - 1) + 3\n"
            "y[b,o,s] = sum[i, t](x[b,i,t] * w[i,o,s - 2*t] * [0 <= s - 2*t < 3]) + c[o]"
        ),
        refuses=(
            "x[B, C, L]; w[C, O, 3]; index s < 2*(L - 1)\n"
            "y[b,o,s] = sum[i, t](x[b,i,t] * w[i,o,s - 2*t] * [0 <= s - 2*t < 3])"
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
