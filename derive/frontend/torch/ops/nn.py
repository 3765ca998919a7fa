"""Layers and losses, each as a few lines of other ops."""

from __future__ import annotations

import math
from typing import Any

from derive.errors import refuse
from derive.frontend.torch.call import Call, composite, op
from derive.frontend.torch.trace import Shadow, call_it


def _dropout(call: Call) -> Shadow:
    """Nothing in eval mode; random numbers in training."""
    training = call.get(2, "train" if "train" in call.named else "training", True)
    if training and call.get(1, "p", 0.5):
        raise call.trace.refuse("lift-random", "dropout draws random numbers", "call .eval()")
    return call.shadow(0)


def _layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    dims = tuple(range(-len(normalized_shape), 0))
    mean, spread = _find_moments(input, dims, len(dims))
    found = (input - mean) / (spread + eps).sqrt()
    if weight is not None:
        found = found * weight
    return found if bias is None else found + bias


def _find_moments(input: Any, dims: tuple[int, ...], behind: int = 0) -> tuple[Any, Any]:
    """Mean and variance, each a step with a name, and axes of length 1 behind them."""
    ones = (...,) + (None,) * behind
    mean = call_it("mu", input.mean(dims))
    spread = call_it("variance", input.var(dims, correction=0))
    return mean[ones], spread[ones]


def _rms_norm(
    input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Any:
    dims = tuple(range(-len(normalized_shape), 0))
    eps = 2.220446049250313e-16 if eps is None else eps
    rms = (input.square().mean(dims) + eps).sqrt()
    found = input / call_it("rms", rms)[(..., *[None] * len(dims))]
    return found if weight is None else found * weight


def _batch_norm(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    behind = input.dim() - 2
    if training:
        mean, spread = _find_moments(input, (0, *range(2, input.dim())), behind)
    else:
        mean, spread = (each[(..., *[None] * behind)] for each in (running_mean, running_var))
    found = (input - mean) / (spread + eps).sqrt()
    return _scale(found, weight, bias)


def _scale(input: Any, weight: Any, bias: Any) -> Any:
    """Each channel by its weight, with its bias."""
    behind = (..., *[None] * (input.dim() - 2))
    if weight is not None:
        input = input * weight[behind]
    return input if bias is None else input + bias[behind]


def _group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    channels = int(input.shape[1]) if num_groups != 1 else -1  # groups are counted in numbers
    grouped = input.unflatten(1, (num_groups, channels // num_groups))
    mean, spread = _find_moments(grouped, tuple(range(2, grouped.dim())), grouped.dim() - 2)
    found = ((grouped - mean) / (spread + eps).sqrt()).flatten(1, 2)
    return _scale(found, weight, bias)


def _instance_norm(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    behind = input.dim() - 2
    if use_input_stats:
        mean, spread = _find_moments(input, tuple(range(2, input.dim())), behind)
    else:
        mean, spread = (each[(..., *[None] * behind)] for each in (running_mean, running_var))
    found = (input - mean) / (spread + eps).sqrt()
    return _scale(found, weight, bias)


def _attention(  # noqa: PLR0913, PLR0917 - torch's
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    import torch

    if dropout_p:
        query = torch.nn.functional.dropout(query, dropout_p)
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key = key.repeat_interleave(times, dim=-3)
        value = value.repeat_interleave(times, dim=-3)
    scores = query @ key.transpose(-2, -1)
    scores = scores / query.shape[-1] ** 0.5 if scale is None else scores * scale
    if is_causal:
        rows, columns = torch.arange(scores.shape[-2]), torch.arange(scores.shape[-1])
        scores = scores.masked_fill(columns > rows[:, None], -math.inf)
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch._safe_softmax(scores, -1) @ value  # a row with nothing left is zeros


def _cosine(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    product = (x1 * x2).sum(dim)
    return product / (x1.norm(dim=dim).clamp(min=eps) * x2.norm(dim=dim).clamp(min=eps))


def _pair_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    return (x1 - x2 + eps).norm(p=p, dim=-1, keepdim=keepdim)


def _normalize(
    input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None
) -> Any:
    return input / input.norm(p=p, dim=dim, keepdim=True).clamp(min=eps)


_NN = "torch.nn.functional"


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


def _triplet(  # noqa: PLR0913, PLR0917 - torch's
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    refuse_given(size_average=size_average, reduce=reduce)
    near, far = _pair_distance(anchor, positive, p, eps), _pair_distance(anchor, negative, p, eps)
    if swap:
        far = far.minimum(_pair_distance(positive, negative, p, eps))
    return finish((margin + near - far).relu(), reduction)


def _ranking(  # noqa: PLR0913, PLR0917 - torch's
    input1: Any,
    input2: Any,
    target: Any,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    refuse_given(size_average=size_average, reduce=reduce)
    return finish((margin - target * (input1 - input2)).relu(), reduction)


def _hinge(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    margin: float = 1.0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    import torch

    refuse_given(size_average=size_average, reduce=reduce)
    far = torch.where(target != 1, (margin - input).relu(), 0.0)
    return finish(torch.where(target != -1, input, 0.0) + far, reduction)


def _cosine_embedding(  # noqa: PLR0913, PLR0917 - torch's
    input1: Any,
    input2: Any,
    target: Any,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    import torch

    refuse_given(size_average=size_average, reduce=reduce)
    squares = (input1.square().sum(-1) + 1e-12) * (input2.square().sum(-1) + 1e-12)
    cosine = (input1 * input2).sum(-1) / squares.sqrt()
    far = torch.where(target == -1, (cosine - margin).relu(), 0.0)
    return finish(torch.where(target == 1, 1 - cosine, 0.0) + far, reduction)


def _poisson(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    size_average: Any = None,
    eps: float = 1e-8,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    refuse_given(size_average=size_average, reduce=reduce, full=full or None)
    if log_input:
        return finish(input.exp() - target * input, reduction)
    return finish(input - target * (input + eps).log(), reduction)


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


OPS = (
    op(
        "dropout alpha_dropout feature_dropout",
        _dropout,
        "x[B, S]: torch.nn.functional.dropout(x, 0.1, False)",
        "x[B, S]: torch.dropout(x, 0.1, train=False)",
        is_view=True,
    ),
    composite(
        "layer_norm",
        _layer_norm,
        "x[B, S]; w[S]; b[S]: torch.nn.functional.layer_norm(x, (x.shape[1],), w, b)",
    ),
    composite(
        "rms_norm",
        _rms_norm,
        "x[B, S]; w[S]: torch.nn.functional.rms_norm(x, (x.shape[1],), w, 1e-6)",
    ),
    composite(
        "batch_norm",
        _batch_norm,
        "x[B, S]; m[S]; v[S]; w[S]: torch.nn.functional.batch_norm(x, m, v, w)",
    ),
    composite(
        "group_norm",
        _group_norm,
        "x[B, S]; w[S]: torch.nn.functional.group_norm(x, 1, w)",
    ),
    composite(
        "instance_norm",
        _instance_norm,
        "x[B, C, S]; w[C]: torch.nn.functional.instance_norm(x, weight=w)",
    ),
    composite(
        "scaled_dot_product_attention",
        _attention,
        "q[B, S, D]; k, v[B, T, D]: torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        "q, k, v[B, S, D]: "
        "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)",
        "q, k, v[B, S, D]; bool m[B, S, S]: "
        "torch.nn.functional.scaled_dot_product_attention(q, k, v, m)",
    ),
    composite(
        "cosine_similarity",
        _cosine,
        "x, y[B, S]: torch.nn.functional.cosine_similarity(x, y)",
    ),
    composite(
        "pairwise_distance",
        _pair_distance,
        "x, y[B, S]: torch.nn.functional.pairwise_distance(x, y)",
    ),
    composite("normalize", _normalize, "x[B, S]: torch.nn.functional.normalize(x)"),
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
        "triplet_margin_loss",
        _triplet,
        f"x, y, z[B, S]: {_NN}.triplet_margin_loss(x, y, z, 0.5)",
        f"x, y, z[B, S]: {_NN}.triplet_margin_loss(x, y, z, swap=True, reduction='none')",
    ),
    composite(
        "margin_ranking_loss",
        _ranking,
        f"x, y[B]; z[B]: {_NN}.margin_ranking_loss(x, y, z, 0.5)",
    ),
    composite(
        "hinge_embedding_loss",
        _hinge,
        f"x[B, S]; int t[B, S] < 2: {_NN}.hinge_embedding_loss(x, 2 * t - 1, 1.2)",
    ),
    composite(
        "cosine_embedding_loss",
        _cosine_embedding,
        f"x, y[B, S]; int t[B] < 2: {_NN}.cosine_embedding_loss(x, y, 2 * t - 1, 0.1)",
    ),
    composite(
        "poisson_nll_loss",
        _poisson,
        f"x, y[B, S]: {_NN}.poisson_nll_loss(x, y)",
        f"x, y[B, S]: {_NN}.poisson_nll_loss(x.abs(), y, log_input=False, reduction='sum')",
    ),
    composite(
        "gaussian_nll_loss",
        _gaussian,
        f"x, y[B, S]; v[B, S] > 0: {_NN}.gaussian_nll_loss(x, y, v, full=True)",
    ),
)
