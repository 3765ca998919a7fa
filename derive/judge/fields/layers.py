"""Attention, convolutions, pools and others over a tower, as a few lines of torch's operations."""

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import torch

from derive.judge.fields.algebra import NotModelledError

Definition = Callable[..., Any]  # of the arguments that torch gives


def _weigh(query: Any, key: Any, how: Sequence[Any], **named: Any) -> Any:
    """The weights of every key; none where nothing is left."""
    dropout, is_causal = how or (0.0, False)
    attn_mask, scale = named.get("attn_mask"), named.get("scale")
    if dropout:
        raise NotModelledError("dropout")
    scores = query @ key.mT * _find_scale(query, scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        scores = scores.masked_fill(~attn_mask, -float("inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch.ops.aten._safe_softmax(scores, -1)


def _find_scale(query: Any, scale: float | None) -> float:
    return float(query.shape[-1] ** -0.5 if scale is None else scale)


def _repeat_heads(tensor: Any, query: Any) -> Any:
    """Keys or values, each head as often as there are queries to it."""
    count = query.shape[-3] // tensor.shape[-3]
    return tensor.repeat_interleave(count, -3) if count > 1 else tensor


def _sum_heads(tensor: Any, given: Any) -> Any:
    """The sum over the queries of every head of keys."""
    *batch, _, length, width = tensor.shape
    return tensor.reshape((*batch, given.shape[-3], -1, length, width)).sum(-3)


def _attend(query: Any, key: Any, value: Any, *how: Any, **named: Any) -> tuple[Any, Any]:
    """A dropout and whether it is causal; the weights stand for what torch keeps."""
    weights = _weigh(query, _repeat_heads(key, query), how, **named)
    return weights @ _repeat_heads(value, query), weights


def _attend_backward(grad: Any, *given: Any, **named: Any) -> tuple[Any, ...]:
    """The gradients by query, key and value; what torch keeps is found again."""
    query, key, value, _, _, *how = given
    keys, values = _repeat_heads(key, query), _repeat_heads(value, query)
    weights = _weigh(query, keys, how, **named)
    weighted = grad @ values.mT * weights
    scores = weighted - weights * weighted.sum(-1, True)
    scores = scores * _find_scale(query, named.get("scale"))
    by_key, by_value = scores.mT @ query, weights.mT @ grad
    return scores @ keys, _sum_heads(by_key, key), _sum_heads(by_value, value)


def _convolve(value: Any, weight: Any, bias: Any, *how: Any) -> Any:
    """A convolution: stride, padding, dilation, is it transposed, output padding, groups."""
    stride, padding, dilation, is_transposed, extra, groups = _widen(how, weight)
    reach = [(n - 1) * d for n, d in zip(weight.shape[2:], dilation, strict=True)]
    borders = [(each, each) for each in padding]
    if is_transposed:  # what it was strided by, it is now spread by; the kernel goes backwards
        value, stride = _spread(value, stride), [1] * len(stride)
        weight = _turn(weight, groups)
        widths = zip(reach, padding, extra, strict=True)
        borders = [(far - each, far - each + more) for far, each, more in widths]
    windows = _find_windows(value, borders, reach, stride, dilation)
    total = _sum_windows(windows, weight, groups)
    return total if bias is None else total + bias.reshape(-1, *[1] * (total.dim() - 2))


def _widen(how: Sequence[Any], kernel: Any) -> list[Any]:
    """One number for all dimensions is one for each."""
    count = kernel.dim() - 2
    return [
        list(each) * count if isinstance(each, (list, tuple)) and len(each) == 1 else each
        for each in how
    ]


def _find_windows(data: Any, borders: Sequence[tuple[int, int]], *how: Sequence[int]) -> Any:
    """Every window at the end: its reach, the steps between windows and in them."""
    border = [width for pair in reversed(borders) for width in pair]
    windows = torch.nn.functional.pad(data, border)
    for dim, (far, step, gap) in enumerate(zip(*how, strict=True)):
        windows = windows.unfold(dim + 2, far + 1, step)[..., ::gap]
    return windows


def _sum_windows(windows: Any, kernel: Any, groups: int) -> Any:
    """[batch, channels, *places, *window] times [outer, channels of a group, *window], summed."""
    batch, channels, *places = windows.shape[: kernel.dim()]
    length = prod(kernel.shape[1:])
    split = (batch, groups, channels // groups, prod(places), length * groups // channels)
    flat = windows.reshape(split).transpose(2, 3).reshape(batch, groups, prod(places), length)
    total = flat @ kernel.reshape(groups, -1, length).transpose(1, 2)
    return total.transpose(2, 3).reshape(batch, kernel.shape[0], *places)


def _spread(data: Any, stride: Sequence[int]) -> Any:
    """Zeros between neighbours, so many that they lie a stride apart."""
    shape = [(n - 1) * step + 1 for n, step in zip(data.shape[2:], stride, strict=True)]
    wide = data.new_zeros((*data.shape[:2], *shape))
    wide[(..., *(slice(None, None, step) for step in stride))] = data
    return wide


def _turn(kernel: Any, groups: int) -> Any:
    """The kernel of the convolution that a transposed one is."""
    inner, outer, *window = kernel.shape
    split = kernel.reshape(groups, inner // groups, outer, *window).transpose(1, 2)
    joined = split.reshape(groups * outer, inner // groups, *window)
    return joined.flip(tuple(range(2, 2 + len(window))))


def _convolve_backward(
    grad: Any, value: Any, weight: Any, sizes: Any, *how: Any
) -> tuple[Any | None, ...]:
    """By the data a convolution of the other kind; by the kernel, sums over all windows."""
    *how_made, wanted = how
    stride, padding, dilation, is_transposed, _, groups = _widen(how_made, weight)
    reach = [(n - 1) * d for n, d in zip(weight.shape[2:], dilation, strict=True)]
    found: list[Any | None] = [None, None, None]
    if wanted[0]:
        lengths = zip(value.shape[2:], grad.shape[2:], stride, padding, reach, strict=True)
        extra = [n - ((m - 1) * s - 2 * p + far + 1) for n, m, s, p, far in lengths]
        made = _convolve(
            grad, weight, None, *(stride, padding, dilation, not is_transposed, extra, groups)
        )
        found[0] = made[(..., *(slice(0, n) for n in value.shape[2:]))]  # a border leaves a rest
    if wanted[1]:
        wide, narrow = (grad, value) if is_transposed else (value, grad)
        borders = [(each, each) for each in padding]
        windows = _find_windows(wide, borders, reach, stride, dilation)
        places = (slice(0, n) for n in narrow.shape[2:])  # a stride may leave a rest
        windows = windows[(..., *places, *[slice(None)] * len(reach))]
        found[1] = _sum_places(windows, narrow, weight, groups)
    if wanted[2]:
        found[2] = grad.sum((0, *range(2, grad.dim())))
    return tuple(found)


def _sum_places(windows: Any, narrow: Any, kernel: Any, groups: int) -> Any:
    """Windows times what they went into, summed over batch and places, in each group."""
    length, count = prod(kernel.shape[1:]), narrow.shape[0] * prod(narrow.shape[2:])
    first = windows.movedim(1, 0).flatten(1, kernel.dim() - 1)  # [channels, places, *window]
    split = first.reshape(groups, -1, *first.shape[1:]).transpose(1, 2)
    across = narrow.movedim(1, 0).reshape(groups, -1, count)
    return (across @ split.reshape(groups, count, length)).reshape(kernel.shape)


def _average(value: Any, window: Any, *how: Any) -> Any:
    """Means of windows without a border."""
    _check_border(how)
    step, count = list(how[0] if how and how[0] else window), len(window)
    for size, each in zip(window, step, strict=True):  # the next dimension has moved to its place
        value = value.unfold(-count, size, each)
    return value.mean(tuple(range(-count, 0)))


def _average_backward(grad: Any, value: Any, window: Any, *how: Any) -> Any:
    """Every mean handed back to its window."""
    _check_border(how)
    step, count = list(how[0] or window), len(window)
    flat = grad.reshape(-1, 1, *grad.shape[-count:]) / prod(window)
    lengths = zip(value.shape[-count:], flat.shape[-count:], step, window, strict=True)
    extra = [n - ((m - 1) * s + size) for n, m, s, size in lengths]
    kernel = flat.new_ones((1, 1, *window))
    found = _convolve(flat, kernel, None, step, [0] * count, [1] * count, True, extra, 1)
    return found.reshape(value.shape)


def _check_border(how: Sequence[Any]) -> None:
    border = [any(each) if isinstance(each, (list, tuple)) else each for each in how[1:3]]
    if any(border) or any(how[4:5]):
        raise NotModelledError("pooling with a border or a divisor")


def _add_products(added: Any, one: Any, other: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Beta * added + alpha * the sum of the products."""
    product = (one @ other).sum(0) * alpha
    return added * beta + product if beta else product


def _multiply_three(*given: Any) -> Any:
    wide = [
        reduce(torch.unsqueeze, sorted(expand), tensor)
        for tensor, expand in zip(given[:3], given[3:6], strict=True)
    ]
    return reduce(torch.mul, wide).sum(given[6])


def _softmax_backward(grad: Any, output: Any, dim: int, *_: Any) -> Any:
    weighted = grad * output
    return weighted - output * weighted.sum(dim, True)


def _cross_entropy(value: Any, target: Any, weight: Any = None, how: int = 1) -> Any:
    """Of probabilities; that torch bounds logarithms by -100 is no part of it."""
    found = -(target * value.log() + (1 - target) * (1 - value).log())
    found = found if weight is None else weight * found
    return found.mean() if how == 1 else found.sum() if how else found


def _cross_entropy_backward(
    grad: Any, value: Any, target: Any, weight: Any = None, how: int = 1
) -> Any:
    found = grad * ((value - target) / (value * (1 - value)))
    found = found if weight is None else weight * found
    return found / value.numel() if how == 1 else found


def _refuse_bound(eps: Any) -> None:
    if eps is not None:
        raise NotModelledError("logit with an epsilon")


def _logit(value: Any, eps: Any = None) -> Any:
    _refuse_bound(eps)
    return (value / (1 - value)).log()


def _logit_backward(grad: Any, value: Any, eps: Any = None) -> Any:
    _refuse_bound(eps)
    return grad / (value * (1 - value))


def _topk(value: Any, k: int, dim: int = -1, largest: bool = True, *_: Any) -> tuple[Any, Any]:
    found, places = value.sort(dim, largest)
    return (found.narrow(dim, 0, k), places.narrow(dim, 0, k)) if value.dim() else (found, places)


def _distances(one: Any, other: Any, power: Any = 2.0, _: Any = None) -> Any:
    """Between every row of one and every row of the other."""
    return torch.linalg.vector_norm(one.unsqueeze(-2) - other.unsqueeze(-3), power, -1)


def _split_bags(places: Any, offsets: Any) -> int:
    """How many entries each bag has; bags of unlike length are not known."""
    count = places.shape[0] // max(offsets.shape[0], 1)
    if not bool((offsets == torch.arange(offsets.shape[0]) * count).all()):
        raise NotModelledError("bags of unlike length")
    return int(count)


def _fill_bags(
    table: Any, places: Any, offsets: Any, scale: bool = False, mode: int = 0, *rest: Any
) -> Any:
    """Torch's embedding_bag: the sum of each bag's rows, each times its weight, or the mean."""
    count, weights = _split_bags(places, offsets), rest[1] if len(rest) > 1 else None
    if scale or mode > 1:
        raise NotModelledError("embedding_bag in this mode")
    rows = table[places] if weights is None else table[places] * weights.unsqueeze(-1)
    found = rows.unflatten(0, (offsets.shape[0], count)).sum(1)
    return found / count if mode else found, places, offsets, offsets


def _empty_bags(grad: Any, places: Any, offsets: Any, *rest: Any) -> Any:
    """The gradient by the table of embedding_bag."""
    size, _, mode, _, weights = rest[3:8]
    count = _split_bags(places, offsets)
    rows = grad.repeat_interleave(count, 0) / (count if mode else 1)
    rows = rows if weights is None else rows * weights.unsqueeze(-1)
    return torch.zeros(size, grad.shape[-1]).index_add(0, places, rows)


def _weigh_bags(grad: Any, table: Any, places: Any, offsets: Any, *_: Any) -> Any:
    """The gradient by the weights of embedding_bag."""
    return (grad.repeat_interleave(_split_bags(places, offsets), 0) * table[places]).sum(-1)


DEFINITIONS: dict[str, Definition] = {
    "_embedding_bag": _fill_bags,
    "_embedding_bag_forward_only": _fill_bags,
    "_embedding_bag_backward": _empty_bags,
    "_embedding_bag_per_sample_weights_backward": _weigh_bags,
    "_scaled_dot_product_flash_attention_for_cpu": _attend,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attend_backward,
    "convolution": _convolve,
    "convolution_backward": _convolve_backward,
    "avg_pool2d": _average,
    "avg_pool3d": _average,
    "avg_pool2d_backward": _average_backward,
    "avg_pool3d_backward": _average_backward,
    "addbmm": _add_products,
    "_trilinear": _multiply_three,
    "_softmax_backward_data": _softmax_backward,
    "binary_cross_entropy": _cross_entropy,
    "binary_cross_entropy_backward": _cross_entropy_backward,
    "_cdist_forward": _distances,
    "logcumsumexp": lambda value, dim: value.exp().cumsum(dim).log(),
    "logit": _logit,
    "logit_backward": _logit_backward,
    "topk": _topk,
}
