"""Reductions of windows: torch's convolutions and pools.

    conv            sum_ck x[b, c, z*t + q*k] w[o, c, k] + bias[o]     stride z, dilation q
    conv_transpose  sum_ct x[b, c, t] w[c, o, s - z*t] + bias[o]       stride z
    max_pool        max_k x[b, c, z*t + q*k]
    avg_pool        mean_k x[b, c, z*t + k]

in one, two or three dimensions. An index that both operands and the result have counts groups of
channels. Symmetric padding with zeros becomes an argument of the call.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from derive.analysis.facts import is_never_negative
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.plan import ops
from derive.plan.cells.matching import Definitions, Signed, join_sum, sort_stored, split_sum, strip
from derive.plan.cost import Storage, find_true_axes
from derive.plan.lower.forms import find_left_over, to_stride
from derive.plan.lower.patterns import make_cell, split_axes

FUNCTIONAL = "torch.nn.functional."
KEYWORDS = "stride=stride, padding=padding, dilation=dilation"
MOST = 3  # most dimensions of torch's convolutions
ONE = Polynomial.of(ir.ONE)


@dataclass(frozen=True, slots=True)
class Window:
    """Windows along the axis `place`: `outer` counts windows, `inner` the entries within one."""

    place: ir.Index
    outer: ir.Index
    inner: ir.Index
    stride: ir.Expr
    dilation: ir.Expr


def _read_windows(op: ops.Op) -> tuple[ops.Op, int, Window] | None:
    """Return (the tensor, the place of an axis, the windows cut from it), or None."""
    match op:
        case ops.Slice(ops.Unfold(arg, place, outer, _, step), last, inner, start, dilation):
            if last != len(op.axes) - 1 or start is not ir.ZERO:
                return None
        case ops.Unfold(arg, place, outer, inner, step):
            dilation = ir.ONE
        case _:
            return None
    return arg, place, Window(arg.axes[place], outer, inner, step, dilation)


def split_windows(op: ops.Op) -> tuple[ops.Op, tuple[Window, ...]]:
    """Return (the tensor below the windows, the windows in order of its axes; () if nested)."""
    found: dict[ir.Index, Window] = {}
    while (windows := _read_windows(op)) is not None:
        op, _, window = windows
        found[window.place] = window
    # nested windows are not supported
    nested = {w.outer for w in found.values()} | {w.inner for w in found.values()}
    return op, () if nested & found.keys() else tuple(found[i] for i in op.axes if i in found)


def swap_window_indices(op: ops.Op, inside: Collection[ir.Index]) -> ops.Op:
    """Exchange the roles of two indices of windows so that the indices `inside` run within them.

    Position z*t + q*k has two readings: windows over t at offsets k, or windows over k at offsets
    t. For the exchange, the axis is cut to the least length that contains all windows.
    """
    found = _read_windows(op)
    if found is None:
        return op
    arg, place, window = found
    inner, outer, dilation, stride = window.outer, window.inner, window.stride, window.dilation
    arg = swap_window_indices(arg, inside)
    if inner not in inside or outer in inside:
        below = ops.with_args(op.args[0], (arg,)) if isinstance(op, ops.Slice) else arg
        return ops.with_args(op, (below,))
    axis = arg.axes[place]
    size = Polynomial.of(dilation) * (Polynomial.of(inner.extent) - ONE) + ONE
    length = Polynomial.of(stride) * (Polynomial.of(outer.extent) - ONE) + size
    left = Polynomial.of(axis.extent) - length
    if left != Polynomial.of(ir.ZERO) and left != find_left_over(outer, Polynomial.of(stride)):
        arg = ops.Slice(arg, place, ir.Index(f"{axis.name}'", length.to_expr()), ir.ZERO)
    if dilation is ir.ONE:
        return ops.Unfold(arg, place, outer, inner, stride)
    turned = ops.Unfold(arg, place, outer, ir.Index(f"{axis.name}.", size.to_expr()), stride)
    return ops.Slice(turned, len(turned.axes) - 1, inner, ir.ZERO, dilation)


def move_flip_to_kernel(data: ops.Op, kernel: ops.Op) -> tuple[ops.Op, ops.Op]:
    """Return both operands, with flips within windows, if any, moved from `data` to the kernel.

    Both are summed over the flipped index, so reversing both changes nothing.
    """
    match data:
        case ops.Flip(arg, place, index) if index in kernel.axes:
            old, at = arg.axes[place], kernel.axes.index(index)
            return move_flip_to_kernel(
                ops.rename_indices(arg, {old: index}), ops.Flip(kernel, at, index)
            )
        case ops.Unfold(arg) | ops.Slice(arg):
            below, kernel = move_flip_to_kernel(arg, kernel)
            return ops.with_args(data, (below,)), kernel
    return data, kernel


def split_padding(
    op: ops.Op, windows: Sequence[Window], value: ir.Expr = ir.ZERO
) -> tuple[ops.Op, list[ir.Expr], list[ir.Index]]:
    """Return (the operand without symmetric padding of `value`, the amounts, the windows' axes).

    If the padding of any axis is asymmetric, or may be negative, none is removed.
    """
    amounts: list[ir.Expr] = [ir.ZERO] * len(windows)
    inside, whole = [w.place for w in windows], op
    while isinstance(op := _hoist_padding(op), ops.Pad) and op.value is value:
        before, axis = Polynomial.of(op.before), op.arg.axes[op.place]
        after = Polynomial.of(op.index.extent) - Polynomial.of(axis.extent) - before
        if before != after or op.index not in inside or not is_never_negative(before):
            return whole, [ir.ZERO] * len(windows), [w.place for w in windows]
        place = inside.index(op.index)
        amounts[place], inside[place] = op.before, axis
        op = op.arg
    return op, amounts, inside


def _hoist_padding(op: ops.Op) -> ops.Op:
    """Move a padding outside of a slice of the same axis or an unflatten of another axis.

    The slice cuts an excess of padding, which is written for a size of 0.
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


SHORT = 16  # extent of a filter up to which bmm takes half the time of conv1d


def match_convolution(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A product of windows with a kernel, and a bias of its output channels, as conv; or None."""
    match op:
        case ops.Einsum((_, _)):
            terms: Sequence[Signed] = (Signed(op),)
        case ops.Apply("+" | "-"):
            terms = split_sum(op, definitions.unwrap)
        case _:
            return None
    for term in terms:
        product = definitions.unwrap(term.op)
        if term.negative or not isinstance(product, ops.Einsum) or len(product.args) != 2:
            continue
        (one, other), axes = _inline_flipped(product, definitions), product.axes
        ways = [_find_window_product(one, other, axes), _find_window_product(other, one, axes)]
        found = [way for way in ways if way is not None]
        if op is product:
            return found[0].write(axes, definitions.memory) if found else None
        for bias in terms:
            if bias.negative or isinstance(bias.op, ops.Num) or bias is term:
                continue
            for way in found:
                cell = _write_convolution(way, axes, bias.op)
                if cell is not None:
                    rest = [each for each in terms if each is not term and each is not bias]
                    return ops.arrange(join_sum([Signed(cell), *rest], op.axes), op.axes)
    return None


def _inline_flipped(product: ops.Einsum, definitions: Definitions) -> list[ops.Op]:
    """Return the operands, with steps inlined that are flips, windows or slices."""
    opened = [definitions.unwrap(arg) for arg in product.args]
    pairs = zip(product.args, opened, strict=True)
    turned = (ops.Flip, ops.Unfold, ops.Slice)
    return [each if isinstance(each, turned) else arg for arg, each in pairs]


@dataclass(frozen=True, slots=True)
class WindowProduct:
    """A convolution: windows, a kernel, and the other indices by role.

    `batch` are indices of the windows only, `made` of the kernel only; `channels` are in both and
    summed, `groups` are in both and kept.
    """

    data: ops.Op
    kernel: ops.Op
    base: ops.Op
    windows: tuple[Window, ...]
    batch: list[ir.Index]
    made: list[ir.Index]
    channels: list[ir.Index]
    groups: list[ir.Index]

    def write(self, axes: tuple[ir.Index, ...], memory: Storage) -> ops.Op | None:
        """Return the call; for a short filter of one channel an einsum, which is a bmm of views."""
        is_lone = not (self.made or self.channels or self.groups) and len(self.windows) == 1
        if is_lone and memory.extent(self.windows[0].inner) <= SHORT:
            return _write_filter(self, axes, memory)
        return _write_convolution(self, axes, None)


def _find_window_product(
    data: ops.Op, kernel: ops.Op, axes: tuple[ir.Index, ...]
) -> WindowProduct | None:
    data, kernel = move_flip_to_kernel(data, kernel)
    data = swap_window_indices(data, kernel.axes)
    base, windows = split_windows(data)
    inner, outer = [w.inner for w in windows], [w.outer for w in windows]
    own, other = data.axes, kernel.axes
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
    return WindowProduct(data, kernel, base, windows, batch, made, channels, groups)


def _write_convolution(
    product: WindowProduct, axes: tuple[ir.Index, ...], bias: ops.Op | None
) -> ops.Op | None:
    windows, groups, channels = product.windows, product.groups, product.channels
    if len(product.batch) > 1:
        return None
    roles = _assign_roles(product)
    batch, made = roles.batch, roles.made
    unit_axes = [ir.Index(f"#{k}", ir.ONE) for k in range(2)]  # axes that torch requires
    first = channels or ([] if groups else unit_axes[:1])
    parts = (*groups, *(made or ([] if groups else unit_axes[1:])))
    if bias is not None and {*parts} != {*find_true_axes(bias)}:
        return None
    inputs = (*batch, *groups, *first, *roles.places)
    weights = (*parts, *(channels or unit_axes[:1]), *roles.inner)
    if roles.is_transposed:
        weights = (*groups, *first, *(made or unit_axes[1:]), *roles.inner)
    data, weight = ops.arrange(roles.given, inputs), ops.arrange(roles.weight, weights)
    if groups and channels:
        data = ops.flatten(data, len(batch), len(batch) + 1)
    if groups and (channels if roles.is_transposed else made):
        weight = ops.flatten(weight, 0, 1)
    given: dict[str, Any] = {"x": data, "w": weight}
    given |= {"lead": _find_unit_axes(inputs, unit_axes), "at": _find_unit_axes(weights, unit_axes)}
    if bias is not None:
        given["bias"] = ops.merge(bias, [parts])
    given |= find_arguments(
        stride=roles.strides,
        padding=roles.padding,
        dilation=roles.dilations,
        groups=[groups[0].extent] if groups else [],
    )
    name = "conv_transpose" if roles.is_transposed else "conv"
    operands = f"x[lead], w[at]{'' if bias is None else ', bias'}"
    text = f"{FUNCTIONAL}{name}{len(windows)}d({operands}, {KEYWORDS}, groups=groups)"
    merged = (ops.merge_indices(parts),) if len(parts) > 1 else parts
    order = (*batch, *merged, *(w.outer for w in windows))
    merged_axes = [*((i,) for i in batch), parts, *((w.outer,) for w in windows)]
    shared = {*product.data.axes, *product.kernel.axes}
    kept = tuple(i for group in merged_axes for i in group if i in shared)
    whole = ops.merge(ops.Einsum((product.data, product.kernel), kept), merged_axes)
    if bias is not None:
        whole = ops.combine("+", (whole, given["bias"]), order)
    volume = (*inputs, *made, *roles.inner) if roles.is_transposed else ()
    filled = (*groups, *channels, *made, *(w.inner for w in windows))
    cell = make_cell(text, given, whole, order, filled=filled, volume=volume)
    result = split_axes(cell, merged_axes)
    if parts == tuple(unit_axes[1:]):
        result = ops.Select(result, len(batch), ir.ZERO)
    return ops.arrange(result, axes)


def _write_filter(product: WindowProduct, axes: tuple[ir.Index, ...], memory: Storage) -> ops.Op:
    """Return a short filter as an einsum over windows, along the contiguous axis of the data."""
    inner = product.windows[0].inner
    *rows, last = (i for i in sort_stored(product.data, memory) if i is not inner)
    args = product.kernel, ops.arrange(product.data, (*rows, inner, last))
    given, whole = dict(zip("wx", args, strict=True)), ops.Einsum(args, (*rows, last))
    cell = make_cell("torch.einsum('k,...kt->...t', w, x)", given, whole, filled=(inner,))
    return ops.arrange(cell, axes)


@dataclass(frozen=True, slots=True)
class Roles:
    """The operands of a convolution, or of a transposed one, as torch's input and weight."""

    given: ops.Op
    places: list[ir.Index]  # the axes of the input that the kernel moves along
    weight: ops.Op
    inner: list[ir.Index]  # the axes of the weight within the kernel
    batch: list[ir.Index]
    made: list[ir.Index]
    strides: list[ir.Expr]
    dilations: list[ir.Expr]
    padding: list[ir.Expr]
    is_transposed: bool = False


def _assign_roles(product: WindowProduct) -> Roles:
    """Return the operands by role.

    In sum_t w[s - z*t] x[t], a transposed convolution, the windows are cut from padded w, and the
    kernel is the reversed x. The dilation z of the windows is torch's stride.
    """
    windows, batch, made = product.windows, product.batch, product.made
    base, padding, inner = split_padding(product.base, windows)
    strides, dilations = [w.stride for w in windows], [w.dilation for w in windows]
    given, turned = strip(product.kernel), dict[ir.Index, ir.Index]()
    while isinstance(given, ops.Flip):
        turned[given.index] = given.arg.axes[given.place]
        given = strip(given.arg)
    left = [
        Polynomial.of(w.dilation) * (Polynomial.of(w.inner.extent) - ONE) - Polynomial.of(zeros)
        for w, zeros in zip(windows, padding, strict=True)
    ]
    is_spread = any(each is not ir.ONE for each in dilations) and {*strides} == {ir.ONE}
    is_spread = is_spread and turned.keys() == {w.inner for w in windows}
    if not is_spread or any(factor < 0 for each in left for factor in each.terms.values()):
        own = [w.inner for w in windows]
        return Roles(base, inner, product.kernel, own, batch, made, strides, dilations, padding)
    places, cut = [turned[w.inner] for w in windows], [each.to_expr() for each in left]
    return Roles(given, places, base, inner, made, batch, dilations, [], cut, True)


def _find_unit_axes(axes: Sequence[ir.Index], unit_axes: Sequence[ir.Index]) -> tuple[None, ...]:
    """Return a None, as in x[None], for each leading axis that is among `unit_axes`."""
    first = next((k for k, axis in enumerate(axes) if axis not in unit_axes), len(axes))
    return (None,) * first


def find_arguments(**values: Sequence[ir.Expr]) -> dict[str, Any]:
    """Return the numbers of each keyword, one if all are the same, None for torch's default."""
    usual: dict[str, ir.Expr] = dict.fromkeys(("stride", "dilation", "groups"), ir.ONE)
    usual |= {"padding": ir.ZERO}
    found: dict[str, Any] = {}
    for name, each in values.items():
        is_usual = name in usual and all(value is usual[name] for value in each)
        numbers = tuple(map(ops.Num, each))
        found[name] = None if is_usual else numbers[0] if len({*each}) == 1 else numbers
    return found


def match_pool(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The maximum or the mean of each window as max_pool or avg_pool, or None."""
    match op:
        case ops.Apply("*", (total, ops.Num(scale))) if (
            isinstance(total := definitions.unwrap(total), ops.Reduction)
            and Polynomial.of(scale) * to_stride(total.over) == ONE
        ):
            found = match_pool(ops.Reduction("mean", total.arg, total.over), definitions)
            return found and ops.arrange(found, op.axes)
        case ops.Reduction("max" | "mean" as kind, arg, over):
            arg = swap_window_indices(arg, over)
            base, windows = split_windows(arg)
        case _:
            return None
    inner, outer = {w.inner for w in windows}, [w.outer for w in windows]
    others = [i for i in base.axes if i not in {w.place for w in windows}]
    if not windows or len(windows) > MOST or inner != set(over) or len(others) > 2:
        return None
    if kind != "max" and any(w.dilation is not ir.ONE for w in windows):
        return None
    is_apart = len(windows) == 1 and is_same_extent(windows[0].stride, windows[0].inner.extent)
    if not others and kind != "max" and is_apart:  # a reduction of matrix rows is faster
        return None
    value = ir.MINUS_INFINITY if kind == "max" else ir.ZERO
    inside, padding, places = split_padding(base, windows, value)
    half = [
        to_stride((w.inner,)) - Polynomial.of(2) * Polynomial.of(p)
        for w, p in zip(windows, padding, strict=True)
    ]
    if all(map(is_never_negative, half)):  # torch allows padding by half a window at most
        base = inside
    else:
        padding, places = [], [w.place for w in windows]
    given: dict[str, Any] = {"x": ops.arrange(base, (*others, *places))}
    given |= find_arguments(
        kernel_size=[w.inner.extent for w in windows],
        stride=[w.stride for w in windows],
        padding=padding,
        dilation=[w.dilation for w in windows],
    )
    unit_axes = () if others else (ir.Index("#", ir.ONE),)  # torch requires an axis of channels
    given["lead"] = _find_unit_axes(unit_axes, unit_axes)
    name = f"{FUNCTIONAL}{'max' if kind == 'max' else 'avg'}_pool{len(windows)}d"
    end = "" if given["stride"] else ", stride=1"
    text = f"{name}(x[lead], kernel_size=kernel_size, {KEYWORDS}{end})"
    axes, filled = (*unit_axes, *others, *outer), (*others[-1:], *over)
    whole = ops.arrange(ops.Reduction(kind, arg, over), (*others, *outer))
    whole = ops.Arrange(whole, axes) if unit_axes else whole
    result: ops.Op = make_cell(text, given, whole, filled=filled)
    return ops.arrange(ops.Select(result, 0, ir.ZERO) if unit_axes else result, op.axes)
