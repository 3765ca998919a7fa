"""Convolutions and pooling over a tower: sums and means of windows."""

from __future__ import annotations

from functools import partial
from math import prod
from operator import itemgetter, methodcaller
from typing import TYPE_CHECKING, Any

import torch

from derive.verify import fields_algebra as algebra
from derive.verify.fields_parts import NotModelledError, Parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.verify.fields_run import Handler, Run


def _convolve(run: Run, value: Any, weight: Any, bias: Any, *how: Any) -> Parts:
    """A convolution: stride, padding, dilation, is it transposed, output padding, groups."""
    stride, padding, dilation, transposed, extra, groups = how
    data, kernel = run.parts(value), run.parts(weight)
    reach = [(n - 1) * d for n, d in zip(kernel.shape[2:], dilation, strict=True)]
    borders = [(each, each) for each in padding]
    if transposed:  # what it was strided by, it is now spread by; the kernel goes backwards
        data, stride = _spread(data, stride), [1] * len(stride)
        kernel = _turn(kernel, groups)
        widths = zip(reach, padding, extra, strict=True)
        borders = [(far - each, far - each + more) for far, each, more in widths]
    border = [width for pair in reversed(borders) for width in pair]
    windows = data.map(partial(torch.nn.functional.pad, pad=border))
    for dim, (far, step, gap) in enumerate(zip(reach, stride, dilation, strict=True)):
        windows = windows.map(methodcaller("unfold", dim + 2, far + 1, step))
        windows = windows.map(itemgetter((..., slice(None, None, gap))))
    total = _sum_windows(run, windows, kernel, groups)
    if bias is None:
        return total
    ones = [1] * len(reach)
    return run.add(total, run.parts(bias).map(lambda part: part.reshape(-1, *ones)))


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


def _average(run: Run, value: Any, window: Any, *how: Any) -> Parts:
    """Means of windows without a border."""
    step = list(how[0]) if how and how[0] else list(window)
    border = [any(each) if isinstance(each, (list, tuple)) else each for each in how[1:3]]
    if any(border) or any(how[4:5]):
        raise NotModelledError("pooling with a border or a divisor")
    windows, count = run.parts(value), len(window)
    for size, each in zip(window, step, strict=True):  # the next dimension has moved to its place
        windows = windows.map(methodcaller("unfold", -count, size, each))
    return run.mean(windows, tuple(range(-count, 0)))


WINDOWS: dict[str, Handler] = {
    "convolution": _convolve,
    "avg_pool2d": _average,
    "avg_pool3d": _average,
}
