"""Layers, each as a few lines of other ops."""

from __future__ import annotations

import math
from typing import Any

from derive.frontend.torch.call import Call, composite, op
from derive.frontend.torch.ops import windows
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
    *windows.OPS,
)
