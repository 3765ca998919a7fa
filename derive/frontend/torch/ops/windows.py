"""Rows of convolutions and pools, defined by padding, windows, and a product or a reduction.

conv       x[step*i + gap*k - edge]        position k of the window of output i
transposed a convolution of the input with step - 1 zeros between neighbours, kernel reversed
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from derive.frontend.torch.call import Op, composite
from derive.frontend.torch.numbers import is_symbolic
from derive.frontend.torch.ops.composites import refuse_call
from derive.frontend.torch.ops.views import to_list
from derive.libraries import torch

_NN = "torch.nn.functional"
_OUTER, _INNER = "xyz", "uvw"  # indices of outputs and in windows, by axis


def _repeat_for_axes(value: Any, count: int) -> list[Any]:
    """Return a list with one number for each axis."""
    given = to_list(value)
    return given * count if len(given) == 1 else given


def _is_one(number: Any) -> bool:
    return not is_symbolic(number) and bool(number == 1)


def _open_windows(
    input: Any, lengths: Sequence[Any], how: Any, edges: Any, fill: float = 0.0
) -> Any:
    """Return the input, padded by `edges` of `fill`, with windows of `lengths` as further axes.

    `how` is the pair (steps, dilations).
    """
    count = len(lengths)
    border = [width for pair in reversed(edges) for width in pair]
    if any(is_symbolic(width) or width for width in border):
        input = torch.constant_pad_nd(input, border, fill)
    first = input.dim() - count
    steps, gaps = (_repeat_for_axes(each, count) for each in how)
    for dim, (length, step, gap) in enumerate(zip(lengths, steps, gaps, strict=True), first):
        input = input.unfold(dim, gap * (length - 1) + 1, step)
        input = input if _is_one(gap) else input[..., ::gap]
    return input


def _find_edges(lengths: Sequence[Any], steps: Any, gaps: Any, padding: Any) -> list[Any]:
    count = len(lengths)
    if padding == "same":
        if any(step != 1 for step in _repeat_for_axes(steps, count)):
            refuse_call("padding='same' with a stride is not known")
        wide = zip(_repeat_for_axes(gaps, count), lengths, strict=True)
        totals = [gap * (length - 1) for gap, length in wide]
        return [(total // 2, total - total // 2) for total in totals]
    edges = _repeat_for_axes(0 if padding == "valid" else padding, count)
    return list(zip(edges, edges, strict=True))


def _multiply(windows: Any, weight: Any, groups: Any, bias: Any, order: str) -> Any:
    """Return the product of windows and kernels; `order` is that of the kernel's channels."""
    count = weight.dim() - 2
    outer, inner = _OUTER[:count], _INNER[:count]
    if _is_one(groups):
        found = torch.einsum(f"bc{outer}{inner},{order}{inner}->bo{outer}", windows, weight)
    elif weight.shape[1] == 1 and weight.shape[0] == groups == windows.shape[1]:
        found = torch.einsum(f"bc{outer}{inner},c{inner}->bc{outer}", windows, weight[:, 0])
    else:
        parts = int(groups), -1
        pair = windows.unflatten(1, parts), weight.unflatten(0, parts)
        equation = f"bgc{outer}{inner},g{order}{inner}->bgo{outer}"
        found = torch.einsum(equation, *pair).flatten(1, 2)
    return found if bias is None else found + bias[(slice(None), *[None] * count)]


def _convolve(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> Any:
    data = input if input.dim() == weight.dim() else input.unsqueeze(0)
    lengths = weight.shape[2:]
    edges = _find_edges(lengths, stride, dilation, padding)
    windows = _open_windows(data, lengths, (stride, dilation), edges)
    found = _multiply(windows, weight, groups, bias, "oc")
    return found if data is input else found.squeeze(0)


def _convolve_transposed(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: Any = 1,
    dilation: Any = 1,
) -> Any:
    data = input if input.dim() == weight.dim() else input.unsqueeze(0)
    count, edges = weight.dim() - 2, list[Any]()
    given = (_repeat_for_axes(n, count) for n in (stride, padding, output_padding, dilation))
    for dim, (step, edge, more, gap) in enumerate(zip(*given, strict=True), 2):
        if not _is_one(step):
            places = torch.arange((data.shape[dim] - 1) * step + 1)
            is_read = (places % step == 0)[(slice(None), *[None] * (count + 1 - dim))]
            data = torch.where(is_read, data.index_select(dim, places // step), 0.0)
        far = gap * (weight.shape[dim] - 1) - edge
        edges.append((far, far + more))
    windows = _open_windows(data, weight.shape[2:], (1, dilation), edges)
    kernel = weight.flip(tuple(range(2, weight.dim())))
    found = _multiply(windows, kernel, groups, bias, "co")
    return found if data.dim() == input.dim() else found.squeeze(0)


def _pool_mean(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
    *,
    count: int,
) -> Any:
    """Return the mean of each window, in which padding counts as entries of 0."""
    lengths, edges = _repeat_for_axes(kernel_size, count), _repeat_for_axes(padding, count)
    if ceil_mode or not (count_include_pad or edges == [0] * count):
        refuse_call("a pool whose windows reach past the padding is not known")
    edges = list(zip(edges, edges, strict=True))
    windows = _open_windows(input, lengths, (stride or kernel_size, 1), edges)
    dims = tuple(range(-count, 0))
    return windows.sum(dims) / divisor_override if divisor_override else windows.mean(dims)


def _pool_largest(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    count: int,
) -> Any:
    if ceil_mode or return_indices:
        refuse_call("a pool with positions, or with windows that reach past the end, is not known")
    lengths, edges = _repeat_for_axes(kernel_size, count), _repeat_for_axes(padding, count)
    edges = list(zip(edges, edges, strict=True))
    windows = _open_windows(input, lengths, (stride or kernel_size, dilation), edges, -math.inf)
    return windows.amax(tuple(range(-count, 0)))


def _pool_wholly(
    input: Any, output_size: Any, return_indices: bool = False, *, kind: str, count: int
) -> Any:
    """Return the reduction `kind` of each channel over its last `count` axes, which stay as 1."""
    if return_indices or any(is_symbolic(n) or n != 1 for n in to_list(output_size)):
        refuse_call("an adaptive pool is known for one place, without positions")
    return getattr(input, kind)(tuple(range(-count, 0)), True)


def _list_pools() -> Iterator[Op]:
    for count, shape in enumerate(("S + 2", "S + 2, T + 2", "S + 2, T + 2, U + 2"), 1):
        for pool, name, whole in ((_pool_mean, "avg", "mean"), (_pool_largest, "max", "amax")):
            given, word = f"x[B, C, {shape}]: {_NN}.", f"{name}_pool{count}d"
            examples = (f"{given}{word}(x, {each})" for each in ("2, 1", "3, 2, padding=1"))
            yield composite(word, partial(pool, count=count), *examples)
            word = f"adaptive_{word}"
            act = partial(_pool_wholly, kind=whole, count=count)
            yield composite(word, act, f"{given}{word}(x, 1)")


ROWS = (
    composite(
        "conv1d conv2d conv3d",
        _convolve,
        f"x[B, C, S]; w[O, C, 2]; b[O]: {_NN}.conv1d(x, w, b)",
        f"x[B, C, S]; w[O, C, 2]: {_NN}.conv1d(x, w, padding=1)",
        f"x[C, S]; w[O, C, 2]: {_NN}.conv1d(x, w, padding='same')",
        f"x[B, 4, S]; w[6, 2, K]: {_NN}.conv1d(x, w, groups=2)",
        f"x[B, C, S, T]; w[O, C, 2, 2]; b[O]: {_NN}.conv2d(x, w, b)",
        f"x[B, C, S, T]; w[O, C, 2, 3]: {_NN}.conv2d(x, w, stride=(2, 1), padding=(1, 2))",
        f"x[B, C, S + 2, T, U + 2]; w[O, C, 2, 1, 2]: {_NN}.conv3d(x, w, dilation=2)",
    ),
    composite(
        "conv_transpose1d conv_transpose2d conv_transpose3d",
        _convolve_transposed,
        f"x[B, C, S]; w[C, O, K]; b[O]: {_NN}.conv_transpose1d(x, w, b)",
        f"x[B, 4, S]; w[4, 3, K]: {_NN}.conv_transpose1d(x, w, stride=2, groups=2)",
        f"x[C, S]; w[C, O, K]: {_NN}.conv_transpose1d(x, w, stride=3, padding=1, dilation=2)",
        f"x[B, C, S, T]; w[C, O, 2, 3]: {_NN}.conv_transpose2d(x, w, None, 2, 1, 1)",
        f"x[B, C, S, T, U]; w[C, O, 2, 1, 2]: {_NN}.conv_transpose3d(x, w)",
    ),
    *_list_pools(),
)
