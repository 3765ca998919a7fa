"""Attention, convolutions and pools over a tower, as torch's operations."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from math import prod
from operator import itemgetter, methodcaller
from typing import TYPE_CHECKING, Any

import torch

from derive.judge.fields import algebra, functions
from derive.judge.fields.parts import BELOW, NotModelledError, Parts
from derive.judge.fields.tensor import FieldTensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from derive.judge.fields.tensor import Handler, Run


_transpose = methodcaller("transpose", -1, -2)


def _weigh(run: Run, query: Parts, key: Parts, how: Sequence[Any], **named: Any) -> Parts:
    """The weights of every key; none where nothing is left."""
    dropout, is_causal = how or (0.0, False)
    if dropout:
        raise NotModelledError("dropout")
    mask, scores = named.get("attn_mask"), algebra.matmul(run.tower, query, key.map(_transpose))
    scores = run.scale(scores, _find_scale(query, named))
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None and not isinstance(mask, FieldTensor) and mask.dtype is torch.bool:
        scores = functions.choose(mask, scores, run.parts(-float("inf")))
    elif mask is not None:
        scores = run.add(scores, run.parts(mask))
    empty = (scores.state == BELOW).all(-1, keepdim=True)
    found = functions.softmax(run.tower, run.usage, scores, -1)
    return functions.choose(empty, run.number(0), found)


def _find_scale(query: Parts, named: Mapping[str, Any]) -> float:
    scale = named.get("scale")
    return float(query.shape[-1] ** -0.5 if scale is None else scale)


def _share(parts: Parts, query: Parts) -> Parts:
    """Keys or values, each head as often as there are queries to it."""
    count = query.shape[-3] // parts.shape[-3]
    return parts.map(methodcaller("repeat_interleave", count, -3)) if count > 1 else parts


def _gather(run: Run, parts: Parts, given: Parts) -> Parts:
    """The sum over the queries of every head of keys."""
    *batch, _, length, width = parts.shape
    shape = (*batch, given.shape[-3], -1, length, width)
    return run.sum(parts.map(methodcaller("reshape", shape)), (-3,))


def _attend(run: Run, *given: Any, **named: Any) -> tuple[Parts, Parts]:
    """Query, key, value, a dropout, is it causal; the weights stand for what torch keeps."""
    query, key, value = map(run.parts, given[:3])
    weights = _weigh(run, query, _share(key, query), given[3:], **named)
    return algebra.matmul(run.tower, weights, _share(value, query)), weights


def _attend_backward(run: Run, grad: Any, *given: Any, **named: Any) -> tuple[Parts, ...]:
    """The gradients by query, key and value; what torch keeps is found again."""
    query, key, value = map(run.parts, given[:3])
    out, weights = run.parts(grad), _weigh(run, query, _share(key, query), given[5:], **named)

    def multiply(one: Parts, other: Parts) -> Parts:
        return algebra.matmul(run.tower, one, other)

    weighted = run.multiply(multiply(out, _share(value, query).map(_transpose)), weights)
    whole = run.multiply(weights, run.sum(weighted, (-1,), True))
    scores = run.scale(run.subtract(weighted, whole), _find_scale(query, named))
    return (
        multiply(scores, _share(key, query)),
        _gather(run, multiply(scores.map(_transpose), query), key),
        _gather(run, multiply(weights.map(_transpose), out), value),
    )


ATTENTION: dict[str, Handler] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attend,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attend_backward,
}


def _convolve(run: Run, value: Any, weight: Any, bias: Any, *how: Any) -> Parts:
    """A convolution: stride, padding, dilation, is it transposed, output padding, groups."""
    total = _convolve_parts(run, run.parts(value), run.parts(weight), *how)
    if bias is None:
        return total
    ones = [1] * (total.state.dim() - 2)
    return run.add(total, run.parts(bias).map(lambda part: part.reshape(-1, *ones)))


def _convolve_parts(run: Run, data: Parts, kernel: Parts, *how: Any) -> Parts:
    stride, padding, dilation, transposed, extra, groups = _widen(how, kernel)
    reach = [(n - 1) * d for n, d in zip(kernel.shape[2:], dilation, strict=True)]
    borders = [(each, each) for each in padding]
    if transposed:  # what it was strided by, it is now spread by; the kernel goes backwards
        data, stride = _spread(data, stride), [1] * len(stride)
        kernel = _turn(kernel, groups)
        widths = zip(reach, padding, extra, strict=True)
        borders = [(far - each, far - each + more) for far, each, more in widths]
    windows = _find_windows(data, borders, reach, stride, dilation)
    return _sum_windows(run, windows, kernel, groups)


def _widen(how: Sequence[Any], kernel: Parts) -> list[Any]:
    """One number for all dimensions is one for each."""
    count = kernel.state.dim() - 2
    return [list(each) * count if _is_one(each) else each for each in how]


def _is_one(each: Any) -> bool:
    return isinstance(each, (list, tuple)) and len(each) == 1


def _find_windows(data: Parts, borders: Sequence[tuple[int, int]], *how: Sequence[int]) -> Parts:
    """Every window at the end: its reach, the steps between windows and in them."""
    border = [width for pair in reversed(borders) for width in pair]
    windows = data.map(partial(torch.nn.functional.pad, pad=border))
    for dim, (far, step, gap) in enumerate(zip(*how, strict=True)):
        windows = windows.map(methodcaller("unfold", dim + 2, far + 1, step))
        windows = windows.map(itemgetter((..., slice(None, None, gap))))
    return windows


def _sum_windows(run: Run, windows: Parts, kernel: Parts, groups: int) -> Parts:
    """[batch, channels, *places, *window] times [outer, channels of a group, *window], summed."""
    batch, channels, *places = windows.shape[: kernel.state.dim()]
    length = prod(kernel.shape[1:])
    split = (batch, groups, channels // groups, prod(places), length * groups // channels)
    flat = (batch, groups, prod(places), length)
    spread = windows.map(lambda part: part.reshape(split).transpose(2, 3).reshape(flat))
    across = kernel.map(lambda part: part.reshape(groups, -1, length).transpose(1, 2))
    total = algebra.matmul(run.tower, spread, across)
    shape = (batch, kernel.shape[0], *places)
    return total.map(lambda part: part.transpose(2, 3).reshape(shape))


def _spread(data: Parts, stride: Sequence[int]) -> Parts:
    """Zeros between neighbours, so many that they lie a stride apart."""

    def act(part: torch.Tensor) -> torch.Tensor:
        shape = [(n - 1) * step + 1 for n, step in zip(part.shape[2:], stride, strict=True)]
        wide = part.new_zeros((*part.shape[:2], *shape))
        places: tuple[Any, ...] = (..., *(slice(None, None, step) for step in stride))
        wide[places] = part
        return wide

    return data.map(act)


def _turn(kernel: Parts, groups: int) -> Parts:
    """The kernel of the convolution that a transposed one is."""
    inner, outer, *window = kernel.shape
    split = (groups, inner // groups, outer, *window)
    joined = (groups * outer, inner // groups, *window)
    dims = tuple(range(2, 2 + len(window)))
    return kernel.map(lambda part: part.reshape(split).transpose(1, 2).reshape(joined).flip(dims))


def _convolve_backward(
    run: Run, grad: Any, value: Any, weight: Any, sizes: Any, *how: Any
) -> tuple[Parts | None, ...]:
    """By the data a convolution of the other kind; by the kernel, sums over all windows."""
    *how_made, wanted = how
    out, data, kernel = run.parts(grad), run.parts(value), run.parts(weight)
    stride, padding, dilation, transposed, _, groups = _widen(how_made, kernel)
    reach = [(n - 1) * d for n, d in zip(kernel.shape[2:], dilation, strict=True)]
    found: list[Parts | None] = [None, None, None]
    if wanted[0]:
        lengths = zip(data.shape[2:], out.shape[2:], stride, padding, reach, strict=True)
        extra = [n - ((m - 1) * s - 2 * p + far + 1) for n, m, s, p, far in lengths]
        turned = (stride, padding, dilation, not transposed, extra, groups)
        inside = tuple(slice(0, n) for n in data.shape[2:])  # a border may leave a rest
        made = _convolve_parts(run, out, kernel, *turned)
        found[0] = made.map(itemgetter((..., *inside)))
    if wanted[1]:
        wide, narrow = (out, data) if transposed else (data, out)
        borders = [(each, each) for each in padding]
        windows = _find_windows(wide, borders, reach, stride, dilation)
        places = tuple(slice(0, n) for n in narrow.shape[2:])  # a stride may leave a rest
        windows = windows.map(itemgetter((..., *places, *[slice(None)] * len(reach))))
        found[1] = _sum_places(run, windows, narrow, kernel, groups)
    if wanted[2]:
        found[2] = run.sum(out, (0, *range(2, out.state.dim())))
    return tuple(found)


def _sum_places(run: Run, windows: Parts, narrow: Parts, kernel: Parts, groups: int) -> Parts:
    """Windows times what they went into, summed over batch and places, in each group."""
    length = prod(kernel.shape[1:])
    count = narrow.shape[0] * prod(narrow.shape[2:])
    rank = len(kernel.shape) - 2

    def flatten(part: torch.Tensor) -> torch.Tensor:
        first = part.movedim(1, 0).flatten(1, rank + 1)  # [channels, places, *window]
        split = first.reshape(groups, -1, *first.shape[1:]).transpose(1, 2)
        return split.reshape(groups, count, length)

    one = narrow.map(lambda part: part.movedim(1, 0).reshape(groups, -1, count))
    total = algebra.matmul(run.tower, one, windows.map(flatten))
    return total.map(lambda part: part.reshape(kernel.shape))


def _average_backward(run: Run, grad: Any, value: Any, window: Any, *how: Any) -> Parts:
    """Every mean handed back to its window."""
    _check_border(how)
    step, count = list(how[0]) if how[0] else list(window), len(window)
    out, shape = run.parts(grad), value.shape
    flat = out.map(lambda part: part.reshape(-1, 1, *part.shape[-count:]))
    kernel = run.number(Fraction(1, prod(window))).map(methodcaller("expand", (1, 1, *window)))
    lengths = zip(shape[-count:], flat.shape[-count:], step, window, strict=True)
    extra = [n - ((m - 1) * s + size) for n, m, s, size in lengths]
    found = _convolve_parts(run, flat, kernel, step, [0] * count, [1] * count, True, extra, 1)
    return found.map(lambda part: part.reshape(shape))


def _check_border(how: Sequence[Any]) -> None:
    border = [any(each) if isinstance(each, (list, tuple)) else each for each in how[1:3]]
    if any(border) or any(how[4:5]):
        raise NotModelledError("pooling with a border or a divisor")


def _average(run: Run, value: Any, window: Any, *how: Any) -> Parts:
    """Means of windows without a border."""
    step = list(how[0]) if how and how[0] else list(window)
    _check_border(how)
    windows, count = run.parts(value), len(window)
    for size, each in zip(window, step, strict=True):  # the next dimension has moved to its place
        windows = windows.map(methodcaller("unfold", -count, size, each))
    return run.mean(windows, tuple(range(-count, 0)))


WINDOWS: dict[str, Handler] = {
    "convolution": _convolve,
    "convolution_backward": _convolve_backward,
    "avg_pool2d": _average,
    "avg_pool3d": _average,
    "avg_pool2d_backward": _average_backward,
    "avg_pool3d_backward": _average_backward,
}
