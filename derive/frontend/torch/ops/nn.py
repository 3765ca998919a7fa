"""Layers and losses, each as a few lines of other ops, convolutions and pools."""

from __future__ import annotations

import math
from typing import Any

from derive.errors import refuse
from derive.frontend.torch.call import Call, composite, op
from derive.frontend.torch.trace import Shadow


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
    centred = input - input.mean(dims, keepdim=True)
    found = centred / (input.var(dims, correction=0, keepdim=True) + eps).sqrt()
    if weight is not None:
        found = found * weight
    return found if bias is None else found + bias


def _rms_norm(
    input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Any:
    dims = tuple(range(-len(normalized_shape), 0))
    eps = 2.220446049250313e-16 if eps is None else eps
    found = input / (input.square().mean(dims, keepdim=True) + eps).sqrt()
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
    shape = (1, -1, *([1] * (input.dim() - 2)))
    if training:
        dims = (0, *range(2, input.dim()))
        running_mean, running_var = input.mean(dims), input.var(dims, correction=0)
    found = (input - running_mean.reshape(shape)) / (running_var.reshape(shape) + eps).sqrt()
    if weight is not None:
        found = found * weight.reshape(shape)
    return found if bias is None else found + bias.reshape(shape)


def _group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    grouped = input.unflatten(1, (num_groups, -1))
    dims = tuple(range(2, grouped.dim()))
    centred = grouped - grouped.mean(dims, keepdim=True)
    found = centred / (grouped.var(dims, correction=0, keepdim=True) + eps).sqrt()
    found = found.flatten(1, 2)
    shape = (-1, *([1] * (input.dim() - 2)))
    if weight is not None:
        found = found * weight.reshape(shape)
    return found if bias is None else found + bias.reshape(shape)


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
    shape = (-1, *([1] * (input.dim() - 2)))
    dims = tuple(range(2, input.dim()))
    if use_input_stats:
        mean, spread = input.mean(dims, keepdim=True), input.var(dims, correction=0, keepdim=True)
    else:
        mean, spread = running_mean.reshape(shape), running_var.reshape(shape)
    found = (input - mean) / (spread + eps).sqrt()
    if weight is not None:
        found = found * weight.reshape(shape)
    return found if bias is None else found + bias.reshape(shape)


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
