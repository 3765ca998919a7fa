"""Losses and windows, each as a few lines of other ops."""

from __future__ import annotations

from typing import Any

from derive.frontend.torch_call import composite


def finish(losses: Any, reduction: str) -> Any:
    """The mean, the sum, or each."""
    if reduction == "mean":
        return losses.mean()
    if reduction == "batchmean":
        return losses.sum() / losses.shape[0]
    return losses.sum() if reduction == "sum" else losses


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and value:
            raise NotImplementedError(f"{name} is not known to the lifter")


def _square_error(input: Any, target: Any, *_: Any, reduction: str = "mean", **__: Any) -> Any:
    return finish((input - target) ** 2, reduction)


def _absolute_error(input: Any, target: Any, *_: Any, reduction: str = "mean", **__: Any) -> Any:
    return finish((input - target).abs(), reduction)


def _cross_entropy(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    _refuse(weight=weight, size_average=size_average, reduce=reduce)
    _refuse(label_smoothing=label_smoothing)
    logs = input.log_softmax(1 if input.dim() > 1 else 0)
    if target.is_floating_point():
        losses = -(logs * target).sum(1)
        return losses.mean() if reduction == "mean" else finish(losses, reduction)
    return _nll(logs, target, ignore_index=ignore_index, reduction=reduction)


def _nll(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    """The target has no entry below zero: an index that is ignored would be one."""
    _refuse(weight=weight, size_average=size_average, reduce=reduce)
    if ignore_index >= 0:
        raise NotImplementedError("ignore_index is not known to the lifter")
    if input.dim() == 1:
        return -input[target]
    return finish(-input.gather(1, target.unsqueeze(1)).squeeze(1), reduction)


def _divergence(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Any:
    _refuse(size_average=size_average, reduce=reduce)
    if log_target:
        return finish(target.exp() * (target - input), reduction)
    return finish(target * (target.log() - input), reduction)


def _binary(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Any = None,
) -> Any:
    import torch

    _refuse(weight=weight, size_average=size_average, reduce=reduce, pos_weight=pos_weight)
    losses = torch.nn.functional.softplus(input) - input * target
    return finish(losses, reduction)


def _pool(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, *rest: Any, **named: Any
) -> Any:
    size = kernel_size[0] if isinstance(kernel_size, (tuple, list)) else kernel_size
    step = size if stride in {None, ()} else stride
    step = step[0] if isinstance(step, (tuple, list)) else step
    edge = padding[0] if isinstance(padding, (tuple, list)) else padding
    _refuse(padding=edge, ceil_mode=rest[0] if rest else named.get("ceil_mode"))
    return input.unfold(-1, size, step).mean(-1)


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

    step, edge, gap = (
        each[0] if isinstance(each, (tuple, list)) else each for each in (stride, padding, dilation)
    )
    if isinstance(edge, str):
        raise NotImplementedError("padding by a word is not known to the lifter")
    if edge:
        input = torch.nn.functional.pad(input, (edge, edge))
    windows = input.unfold(-1, (weight.shape[2] - 1) * gap + 1, step)[..., ::gap]
    if groups == 1:
        found = torch.einsum("bclk,ock->bol", windows, weight)
    else:
        split = windows.unflatten(1, (groups, -1))
        kernels = weight.unflatten(0, (groups, -1))
        found = torch.einsum("bgclk,gock->bgol", split, kernels).flatten(1, 2)
    return found if bias is None else found + bias[:, None]


_NN = "torch.nn.functional"

OPS = (
    composite("mse_loss", _square_error, f"x, y[B, S]: {_NN}.mse_loss(x, y)"),
    composite("l1_loss", _absolute_error, f"x, y[B, S]: {_NN}.l1_loss(x, y)"),
    composite(
        "cross_entropy",
        _cross_entropy,
        f"x[B, V]; int t[B] < V: {_NN}.cross_entropy(x, t)",
        f"x[B, V, S]; int t[B, S] < V: {_NN}.cross_entropy(x, t, reduction='none')",
    ),
    composite("nll_loss", _nll, f"x[B, V]; int t[B] < V: {_NN}.nll_loss(x, t, reduction='sum')"),
    composite(
        "kl_div",
        _divergence,
        f"x, y[B, S]: {_NN}.kl_div(x, y, reduction='batchmean', log_target=True)",
        f"x[B, S]; y[B, S] > 0: {_NN}.kl_div(x, y, reduction='sum')",
    ),
    composite(
        "binary_cross_entropy_with_logits",
        _binary,
        f"x, y[B, S]: {_NN}.binary_cross_entropy_with_logits(x, y)",
    ),
    composite("avg_pool1d", _pool, f"x[B, C, S]: {_NN}.avg_pool1d(x, 2, 1)"),
    composite(
        "conv1d",
        _convolve,
        f"x[B, C, S]; w[O, C, 2]; b[O]: {_NN}.conv1d(x, w, b)",
        f"x[B, C, S]; w[O, C, 2]: {_NN}.conv1d(x, w, padding=1)",
    ),
)
