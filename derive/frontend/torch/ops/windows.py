"""Convolutions and pools: windows of the last axes, and what is summed or averaged over them."""

from __future__ import annotations

from typing import Any

from derive.errors import refuse
from derive.frontend.torch.call import composite


def _spell(value: Any, count: int) -> tuple[Any, ...]:
    """One number for each of the axes."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return given * count if len(given) == 1 else given


def _open_windows(input: Any, lengths: Any, steps: Any, gaps: Any) -> Any:
    """The last axes become places of windows; behind them stand the places in a window."""
    count = len(lengths)
    for k, (length, step, gap) in enumerate(zip(lengths, steps, gaps, strict=True)):
        input = input.unfold(k - count - k, (length - 1) * gap + 1, step)
        if gap != 1:
            input = input[..., ::gap]
    return input


def _find_edges(padding: Any, lengths: Any, gaps: Any, steps: Any) -> list[int]:
    """How much is put on both sides of each axis, the last axis first, as `pad` asks for it."""
    if padding == "valid":
        padding = 0
    if padding != "same":
        return [edge for each in reversed(_spell(padding, len(lengths))) for edge in (each, each)]
    if any(step != 1 for step in steps):
        raise refuse("lift-op", "padding='same' with a stride is not known to the lifter")
    totals = [gap * (length - 1) for length, gap in zip(lengths, gaps, strict=True)]
    return [side for total in reversed(totals) for side in (total // 2, total - total // 2)]


def _convolve(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    import torch

    count = weight.dim() - 2
    alone = input.dim() == count + 1
    value = input.unsqueeze(0) if alone else input
    steps, gaps = _spell(stride, count), _spell(dilation, count)
    lengths = tuple(weight.shape[2:])
    edges = _find_edges(padding, lengths, gaps, steps)
    if any(edges):
        value = torch.nn.functional.pad(value, edges)
    windows = _open_windows(value, lengths, steps, gaps)
    places, inner = "lmn"[:count], "xyz"[:count]
    if groups == 1:
        equation = f"bc{places}{inner},oc{inner}->bo{places}"
        found = torch.einsum(equation, windows, weight)
    else:
        split = windows.unflatten(1, (groups, -1))
        kernels = weight.unflatten(0, (groups, -1))
        equation = f"bgc{places}{inner},goc{inner}->bgo{places}"
        found = torch.einsum(equation, split, kernels).flatten(1, 2)
    found = found[0] if alone else found
    return found if bias is None else found + bias.reshape(-1, *([1] * count))


def _pool(input: Any, kernel_size: Any, stride: Any, count: int) -> Any:
    lengths = _spell(kernel_size, count)
    steps = lengths if stride is None or stride in ((), []) else _spell(stride, count)
    return _open_windows(input, lengths, steps, (1,) * count), tuple(range(-count, 0))


def _refuse_edges(padding: Any, ceil_mode: bool) -> None:
    if ceil_mode or any(_spell(padding, 1)):
        raise refuse("lift-op", "a pool with padding or ceil_mode is not known to the lifter")


def _average(count: int) -> Any:
    def act(  # noqa: PLR0913, PLR0917 - torch's
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Any:
        _refuse_edges(padding, ceil_mode)
        windows, dims = _pool(input, kernel_size, stride, count)
        if divisor_override is not None:
            return windows.sum(dims) / divisor_override
        return windows.mean(dims)

    return act


def _largest(count: int) -> Any:
    def act(  # noqa: PLR0913, PLR0917 - torch's
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        _refuse_edges(padding, ceil_mode)
        if return_indices or any(each != 1 for each in _spell(dilation, 1)):
            raise refuse("lift-op", "places or gaps of a pool are not known to the lifter")
        windows, dims = _pool(input, kernel_size, stride, count)
        return windows.amax(dims)

    return act


def _whole(count: int, kind: str) -> Any:
    """A pool that leaves one place."""

    def act(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        if return_indices or any(size != 1 for size in _spell(output_size, count)):
            raise refuse("lift-op", "an adaptive pool to more than one place is not known")
        dims = tuple(range(-count, 0))
        return input.mean(dims, True) if kind == "mean" else input.amax(dims, True)

    return act


_NN = "torch.nn.functional"

OPS = (
    composite(
        "conv1d",
        _convolve,
        f"x[B, C, S]; w[O, C, 2]; b[O]: {_NN}.conv1d(x, w, b)",
        f"x[B, C, S]; w[O, C, 2]: {_NN}.conv1d(x, w, padding=1)",
        f"x[C, S]; w[O, C, 2]: {_NN}.conv1d(x, w, padding='same')",
    ),
    composite(
        "conv2d",
        _convolve,
        f"x[B, C, S, T]; w[O, C, 2, 2]; b[O]: {_NN}.conv2d(x, w, b)",
        f"x[B, C, S, T]; w[O, C, 2, 3]: {_NN}.conv2d(x, w, stride=(2, 1), padding=(1, 2))",
    ),
    composite("avg_pool1d", _average(1), f"x[B, C, S]: {_NN}.avg_pool1d(x, 2, 1)"),
    composite("avg_pool2d", _average(2), f"x[B, C, S, T]: {_NN}.avg_pool2d(x, 2, 1)"),
    composite("max_pool1d", _largest(1), f"x[B, C, S]: {_NN}.max_pool1d(x, 2, 1)"),
    composite("max_pool2d", _largest(2), f"x[B, C, S, T]: {_NN}.max_pool2d(x, (2, 1), 1)"),
    composite(
        "adaptive_avg_pool1d", _whole(1, "mean"), f"x[B, C, S]: {_NN}.adaptive_avg_pool1d(x, 1)"
    ),
    composite(
        "adaptive_avg_pool2d", _whole(2, "mean"), f"x[B, C, S, T]: {_NN}.adaptive_avg_pool2d(x, 1)"
    ),
    composite(
        "adaptive_max_pool1d", _whole(1, "max"), f"x[B, C, S]: {_NN}.adaptive_max_pool1d(x, 1)"
    ),
)
