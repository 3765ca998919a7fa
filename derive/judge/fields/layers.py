"""Definitions of convolutions, averages of windows and other layers by simpler operations."""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate
from math import nan, prod
from typing import Any

import torch

from derive.judge.fields.algebra import NotModelledError
from derive.libraries import enable_autograd

Definition = Callable[..., Any]  # a function of torch's arguments


def _convolve(value: Any, weight: Any, bias: Any, *how: Any) -> Any:
    """A convolution; `how` is stride, padding, dilation, is_transposed, output padding, groups."""
    stride, padding, dilation, is_transposed, extra, groups = _widen(how, weight)
    reach = [(n - 1) * d for n, d in zip(weight.shape[2:], dilation, strict=True)]
    borders = [(each, each) for each in padding]
    if is_transposed:  # a convolution of the dilated data with the flipped kernel
        value, stride = _dilate(value, stride), [1] * len(stride)
        weight = _transpose_kernel(weight, groups)
        widths = zip(reach, padding, extra, strict=True)
        borders = [(far - each, far - each + more) for far, each, more in widths]
    windows = _find_windows(value, borders, reach, stride, dilation)
    total = _sum_windows(windows, weight, groups)
    return total if bias is None else total + bias.reshape(-1, *[1] * (total.dim() - 2))


def _widen(how: Sequence[Any], kernel: Any) -> list[Any]:
    """The settings with a single number repeated for each dimension."""
    count = kernel.dim() - 2
    return [
        list(each) * count if isinstance(each, (list, tuple)) and len(each) == 1 else each
        for each in how
    ]


def _find_windows(data: Any, borders: Sequence[tuple[int, int]], *how: Sequence[int]) -> Any:
    """Windows of padded data as trailing axes; `how`: their lengths less 1, strides, dilations."""
    border = [width for pair in reversed(borders) for width in pair]
    windows = torch.nn.functional.pad(data, border)
    for dim, (far, step, gap) in enumerate(zip(*how, strict=True)):
        windows = windows.unfold(dim + 2, far + 1, step)[..., ::gap]
    return windows


def _sum_windows(windows: Any, kernel: Any, groups: int) -> Any:
    """Contract [batch, channels, *places, *window] with [outer, channels per group, *window]."""
    batch, channels, *places = windows.shape[: kernel.dim()]
    length = prod(kernel.shape[1:])
    split = (batch, groups, channels // groups, prod(places), length * groups // channels)
    flat = windows.reshape(split).transpose(2, 3).reshape(batch, groups, prod(places), length)
    total = flat @ kernel.reshape(groups, -1, length).transpose(1, 2)
    return total.transpose(2, 3).reshape(batch, kernel.shape[0], *places)


def _dilate(data: Any, stride: Sequence[int]) -> Any:
    """The data with zeros between neighbours, which become a stride apart."""
    shape = [(n - 1) * step + 1 for n, step in zip(data.shape[2:], stride, strict=True)]
    wide = data.new_zeros((*data.shape[:2], *shape))
    wide[(..., *(slice(None, None, step) for step in stride))] = data
    return wide


def _transpose_kernel(kernel: Any, groups: int) -> Any:
    """The kernel with input and output channels exchanged and all windows flipped."""
    inner, outer, *window = kernel.shape
    split = kernel.reshape(groups, inner // groups, outer, *window).transpose(1, 2)
    joined = split.reshape(groups * outer, inner // groups, *window)
    return joined.flip(tuple(range(2, 2 + len(window))))


def _average(value: Any, window: Any, *how: Any) -> Any:
    """The means of windows; NotModelledError for padding or another divisor."""
    border = [any(each) if isinstance(each, (list, tuple)) else each for each in how[1:3]]
    if any(border) or any(how[4:5]):
        raise NotModelledError("pooling with a border or a divisor")
    step, count = list(how[0] if how and how[0] else window), len(window)
    for size, each in zip(window, step, strict=True):  # unfold moves the axis to the end
        value = value.unfold(-count, size, each)
    return value.mean(tuple(range(-count, 0)))


def _mean(value: Any, dims: Any = (), keepdim: bool = False) -> Any:
    total = value.sum(() if dims is None else dims, keepdim)
    return total / (value.numel() // max(total.numel(), 1))


def _variance_and_mean(value: Any, *args: Any, **named: Any) -> tuple[Any, Any]:
    """The variance and the mean, with torch's overloads.

    (dims, correction=, keepdim=), (dims, unbiased, keepdim), (unbiased)
    """
    if args and isinstance(args[0], bool):
        args = (None, *args)
    words = dict(zip(("dim", "unbiased", "keepdim"), args, strict=False)) | named
    dims, keepdim = words.get("dim"), bool(words.get("keepdim", False))
    correction = words.get("correction", words.get("unbiased", 1))
    square = ((value - _mean(value, dims, True)) ** 2).sum(() if dims is None else dims, keepdim)
    count = value.numel() // max(square.numel(), 1) - (1 if correction is None else correction)
    return square / count if count > 0 else square * nan, _mean(value, dims, keepdim)


def _product(value: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None or not value.dim():
        value, dim, keepdim = value.reshape(-1), 0, False
    found = reduce(torch.mul, value.unbind(dim), torch.ones_like(value.sum(dim)))
    return found.unsqueeze(dim) if keepdim else found


def _cumulate_product(value: Any, dim: int) -> Any:
    return torch.cat([*accumulate(value.split(1, dim), torch.mul)], dim) if value.dim() else value


def _solve_system(value: Any, right: Any, left: bool = True, **_: Any) -> tuple[Any, ...]:
    """The solution for a vector, a vector for each matrix, or matrices that broadcast.

    Stand-ins for torch's three other results follow it.
    """
    is_vector = right.dim() == 1 or right.shape == value.shape[:-1]
    beside, inverse = right.unsqueeze(-1) if is_vector else right, torch.linalg.inv(value)
    found = inverse @ beside if left else beside @ inverse
    found = found.squeeze(-1) if is_vector else found
    return found, inverse, value, torch.zeros(found.shape[:-2], dtype=torch.int32)


def _add_products(added: Any, one: Any, other: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """`beta * added + alpha * (the sum of the matrix products)`."""
    product = (one @ other).sum(0) * alpha
    return added * beta + product if beta else product


def _multiply_three(*given: Any) -> Any:
    wide = [
        reduce(torch.unsqueeze, sorted(expand), tensor)
        for tensor, expand in zip(given[:3], given[3:6], strict=True)
    ]
    return reduce(torch.mul, wide).sum(given[6])


def _cross_entropy(value: Any, target: Any, weight: Any = None, how: int = 1) -> Any:
    """The binary cross entropy of probabilities, without torch's bound of -100 on logarithms."""
    found = -(target * value.log() + (1 - target) * (1 - value).log())
    found = found if weight is None else weight * found
    return found.mean() if how == 1 else found.sum() if how else found


def _logit(value: Any, eps: Any = None) -> Any:
    if eps is not None:
        raise NotModelledError("logit with an epsilon")
    return (value / (1 - value)).log()


def _topk(value: Any, k: int, dim: int = -1, largest: bool = True, *_: Any) -> tuple[Any, Any]:
    found, places = value.sort(dim, largest)
    return (found.narrow(dim, 0, k), places.narrow(dim, 0, k)) if value.dim() else (found, places)


def _kth(value: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, ...]:
    found = tuple(each.narrow(dim, k - 1, 1) for each in value.sort(dim))
    return found if keepdim else tuple(each.squeeze(dim) for each in found)


def _distances(one: Any, other: Any, power: Any = 2.0, _: Any = None) -> Any:
    """The distances between all rows of one tensor and all rows of the other."""
    return torch.linalg.vector_norm(one.unsqueeze(-2) - other.unsqueeze(-3), power, -1)


def _split_bags(places: Any, offsets: Any) -> int:
    """The number of entries of each bag; NotModelledError if the bags differ in length."""
    count = places.shape[0] // max(offsets.shape[0], 1)
    if not bool((offsets == torch.arange(offsets.shape[0]) * count).all()):
        raise NotModelledError("bags of unlike length")
    return int(count)


def _fill_bags(
    table: Any, places: Any, offsets: Any, scale: bool = False, mode: int = 0, *rest: Any
) -> Any:
    """The sums or means of the table's rows in each bag, and stand-ins for torch's other ones."""
    count, weights = _split_bags(places, offsets), rest[1] if len(rest) > 1 else None
    if scale or mode > 1:
        raise NotModelledError("embedding_bag in this mode")
    rows = table[places] if weights is None else table[places] * weights.unsqueeze(-1)
    found = rows.unflatten(0, (offsets.shape[0], count)).sum(1)
    return found / count if mode else found, places, offsets, offsets


def _find_gradients(grad: Any, forward: Definition, *leaves: Any) -> tuple[Any, ...]:
    """The gradients by the leaves, arguments of `forward`, whose result has the gradient `grad`."""
    with enable_autograd():
        given = [each.detach().requires_grad_() for each in leaves]
        return torch.autograd.grad(forward(*given), given, grad)


def _convolve_backward(grad: Any, value: Any, weight: Any, sizes: Any, *how: Any) -> Any:
    """The gradients of a convolution by data, kernel and bias; None for those not wanted."""
    *made, wanted = how
    bias = [grad.new_zeros(sizes)] if wanted[2] else []

    def forward(data: Any, kernel: Any, bias: Any = None) -> Any:
        return _convolve(data, kernel, bias, *made)

    found = _find_gradients(grad, forward, value, weight, *bias)
    return tuple(
        each if asked else None for each, asked in zip((*found, None), wanted, strict=False)
    )


def _differentiate_first(forward: Definition) -> Definition:
    """The gradient of a definition by its first argument, as a definition."""
    return lambda grad, one, *rest: _find_gradients(grad, lambda x: forward(x, *rest), one)[0]


DEFINITIONS: dict[str, Definition] = {
    "_embedding_bag": _fill_bags,
    "_embedding_bag_forward_only": _fill_bags,
    "convolution": _convolve,
    "convolution_backward": _convolve_backward,
    "avg_pool2d": _average,
    "avg_pool3d": _average,
    "avg_pool2d_backward": _differentiate_first(_average),
    "avg_pool3d_backward": _differentiate_first(_average),
    "mean": _mean,
    "var": lambda *given, **named: _variance_and_mean(*given, **named)[0],
    "var_mean": _variance_and_mean,
    "prod": _product,
    "cumprod": _cumulate_product,
    "_linalg_solve_ex": _solve_system,
    "addbmm": _add_products,
    "_trilinear": _multiply_three,
    "binary_cross_entropy": _cross_entropy,
    "binary_cross_entropy_backward": _differentiate_first(_cross_entropy),
    "_cdist_forward": _distances,
    "_cdist_backward": _differentiate_first(_distances),
    "_euclidean_dist": _distances,  # torch composes its backward of other operations
    "logcumsumexp": lambda value, dim: value.exp().cumsum(dim).log(),
    "logit": _logit,
    "logit_backward": _differentiate_first(_logit),
    "topk": _topk,
    "kthvalue": _kth,
}
