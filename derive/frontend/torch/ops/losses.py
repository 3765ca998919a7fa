"""Losses, each as a few lines of other ops."""

from __future__ import annotations

import math
from typing import Any

from derive.errors import refuse
from derive.frontend.torch.call import composite


def finish(losses: Any, reduction: str) -> Any:
    """The mean, the sum, or each."""
    if reduction == "mean":
        return losses.mean()
    if reduction == "batchmean":
        return losses.sum() / losses.shape[0]
    return losses.sum() if reduction == "sum" else losses


def refuse_given(**given: Any) -> None:
    """Arguments that have to be left out."""
    for name, value in given.items():
        if value is not None:
            raise refuse("lift-op", f"{name} is not known to the lifter")


def _square_error(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Any:
    refuse_given(size_average=size_average, reduce=reduce, weight=weight)
    return finish((input - target) ** 2, reduction)


def _absolute_error(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Any:
    refuse_given(size_average=size_average, reduce=reduce, weight=weight)
    return finish((input - target).abs(), reduction)


def _huber(
    input: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None
) -> Any:
    import torch

    refuse_given(weight=weight)
    gap = (input - target).abs()
    return finish(torch.where(gap < delta, gap**2 / 2, delta * (gap - delta / 2)), reduction)


def _smooth(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Any:
    import torch

    refuse_given(size_average=size_average, reduce=reduce)
    gap = (input - target).abs()
    if beta == 0:
        return finish(gap, reduction)
    return finish(torch.where(gap < beta, gap**2 / (2 * beta), gap - beta / 2), reduction)


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
    refuse_given(size_average=size_average, reduce=reduce)
    axis = 1 if input.dim() > 1 else 0
    logs = input.log_softmax(axis)
    if target.is_floating_point():
        refuse_given(weight=weight)
        if label_smoothing:
            share = label_smoothing * (1 / input.shape[axis])
            target = target * (1 - label_smoothing) + share
        losses = -(logs * target).sum(axis)
        return losses.mean() if reduction == "mean" else finish(losses, reduction)
    found = _nll(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    if not label_smoothing:
        return found
    if weight is not None or ignore_index >= 0:
        raise refuse("lift-op", "label_smoothing with weights or ignored classes is not known")
    spread = finish(-logs.mean(axis), reduction)
    return (1 - label_smoothing) * found + label_smoothing * spread


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
    import torch

    refuse_given(size_average=size_average, reduce=reduce)
    if input.dim() == 1:
        if weight is not None or ignore_index >= 0:
            raise refuse("lift-op", "weights or ignored classes of one row are not known")
        return -input[target]
    losses = -input.gather(1, target.unsqueeze(1)).squeeze(1)
    if weight is None and ignore_index < 0:
        return finish(losses, reduction)
    shares = torch.ones_like(losses) if weight is None else weight[target]
    if ignore_index >= 0:
        shares = torch.where(target == ignore_index, 0.0, shares)
    if reduction == "mean":
        return (losses * shares).sum() / shares.sum()
    return finish(losses * shares, reduction)


def _divergence(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Any:
    import torch

    refuse_given(size_average=size_average, reduce=reduce)
    if log_target:
        return finish(target.exp() * (target - input), reduction)
    return finish(torch.xlogy(target, target) - target * input, reduction)


def _binary_logits(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Any = None,
) -> Any:
    import torch

    refuse_given(size_average=size_average, reduce=reduce)
    if pos_weight is None:
        losses = torch.nn.functional.softplus(input) - input * target
    else:
        share = 1 + (pos_weight - 1) * target
        losses = (1 - target) * input + share * torch.nn.functional.softplus(-input)
    return finish(losses if weight is None else losses * weight, reduction)


def _binary(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    """Logarithms are at least -100."""
    refuse_given(size_average=size_average, reduce=reduce)
    yes, no = input.log().clamp(min=-100), (1 - input).log().clamp(min=-100)
    losses = (target - 1) * no - target * yes
    return finish(losses if weight is None else losses * weight, reduction)


def _margin(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    refuse_given(size_average=size_average, reduce=reduce)
    return finish((1 + (-target * input).exp()).log(), reduction)


def _gaussian(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    if isinstance(var, float) or var.dim() != input.dim():
        raise refuse("lift-op", "gaussian_nll_loss with a variance of another shape is not known")
    bounded = var.clamp(min=eps)
    losses = (bounded.log() + (input - target) ** 2 / bounded) / 2
    return finish(losses + math.log(2 * math.pi) / 2 if full else losses, reduction)


_NN = "torch.nn.functional"

OPS = (
    composite("mse_loss", _square_error, f"x, y[B, S]: {_NN}.mse_loss(x, y)"),
    composite("l1_loss", _absolute_error, f"x, y[B, S]: {_NN}.l1_loss(x, y)"),
    composite("huber_loss", _huber, f"x, y[B, S]: {_NN}.huber_loss(x, y, delta=0.5)"),
    composite("smooth_l1_loss", _smooth, f"x, y[B, S]: {_NN}.smooth_l1_loss(x, y, beta=0.5)"),
    composite(
        "cross_entropy",
        _cross_entropy,
        f"x[B, V]; int t[B] < V: {_NN}.cross_entropy(x, t)",
        f"x[B, V]; int t[B] < V: {_NN}.cross_entropy(x, t, label_smoothing=0.1)",
        f"x[B, V, S]; int t[B, S] < V: {_NN}.cross_entropy(x, t, reduction='none')",
        f"x, y[B, V]: {_NN}.cross_entropy(x, y, label_smoothing=0.1)",
    ),
    composite(
        "nll_loss",
        _nll,
        f"x[B, V]; int t[B] < V: {_NN}.nll_loss(x, t, reduction='sum')",
        f"x[B, V]; int t[B] < V; w[V]: {_NN}.nll_loss(x, t, w)",
        f"x[B, V]; int t[B] < V: {_NN}.nll_loss(x, t, ignore_index=0, reduction='none')",
    ),
    composite(
        "kl_div",
        _divergence,
        f"x, y[B, S]: {_NN}.kl_div(x, y, reduction='batchmean', log_target=True)",
        f"x[B, S]; y[B, S] > 0: {_NN}.kl_div(x, y, reduction='sum')",
        f"x, y[B, S]: {_NN}.kl_div(x, (y - 1).relu(), reduction='sum')",
    ),
    composite(
        "binary_cross_entropy_with_logits",
        _binary_logits,
        f"x, y[B, S]: {_NN}.binary_cross_entropy_with_logits(x, y)",
        f"x, y[B, S]; w[S]: {_NN}.binary_cross_entropy_with_logits(x, y, pos_weight=w)",
    ),
    composite(
        "binary_cross_entropy",
        _binary,
        f"x, y[B, S]: {_NN}.binary_cross_entropy(x.sigmoid(), y.sigmoid())",
    ),
    composite("soft_margin_loss", _margin, f"x, y[B, S]: {_NN}.soft_margin_loss(x, y)"),
    composite(
        "gaussian_nll_loss",
        _gaussian,
        f"x, y[B, S]; v[B, S] > 0: {_NN}.gaussian_nll_loss(x, y, v, full=True)",
    ),
)
