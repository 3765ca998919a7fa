"""Rows of layers and losses, defined by other functions of torch."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

from derive.frontend.torch import call
from derive.frontend.torch.numbers import is_symbolic
from derive.frontend.torch.ops.composites import refuse_call
from derive.libraries import internals, torch


def _standardize(input: Any, dims: Any, eps: float, behind: int, moments: Any = None) -> Any:
    """Return (input - mean) / sqrt(variance + eps); both get `behind` trailing axes of length 1."""
    moments = moments or (input.mean(dims), input.var(dims, correction=0))
    mean, variance = (each[(..., *[None] * behind)] for each in moments)
    return (input - mean) / (variance + eps).sqrt()


def _scale(input: Any, weight: Any, bias: Any, behind: int = 0) -> Any:
    """Return input * weight + bias by channel, the axis before the last `behind` axes."""
    place = (..., *[None] * behind)
    input = input if weight is None else input * weight[place]
    return input if bias is None else input + bias[place]


def _last(shape: Any) -> tuple[int, ...]:
    return tuple(range(-len(shape), 0))


def _rms_norm(
    input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Any:
    eps = 2.220446049250313e-16 if eps is None else eps
    rms = (input.square().mean(_last(normalized_shape)) + eps).sqrt()
    behind = [None] * len(normalized_shape)
    return _scale(input / rms[(..., *behind)], weight, None)


def _group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    """Return group_norm: each group of C // groups channels is standardized."""
    channels, behind = input.shape[1], input.dim() - 2
    if num_groups != 1 and (weight is not None or is_symbolic(channels % num_groups)):
        channels = int(channels)  # a number with which the module was made
    parts = (num_groups, channels // num_groups if num_groups != 1 else -1)
    grouped = input.unflatten(1, parts)
    dims = tuple(range(2, grouped.dim()))
    found = _standardize(grouped, dims, eps, behind + 1).flatten(1, 2)
    return _scale(found, weight, bias, behind)


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
    if dropout_p:
        query = torch.nn.functional.dropout(query, dropout_p)
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = (each.repeat_interleave(times, dim=-3) for each in (key, value))
    scores = query @ key.transpose(-2, -1)
    scores = scores / query.shape[-1] ** 0.5 if scale is None else scores * scale
    if is_causal:
        rows, columns = torch.arange(scores.shape[-2]), torch.arange(scores.shape[-1])
        scores = scores.masked_fill(columns > rows[:, None], -math.inf)
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return internals.safe_softmax(scores, -1) @ value  # a row with nothing left is zeros


def _find_gates(input: Any, h: Any, weights: Sequence[Any], count: int) -> list[tuple[Any, Any]]:
    """Return for each of `count` gates the pair (linear map of the input, of the state h)."""
    biases = weights[2:] or (None, None)
    below, before = (
        torch.unflatten(torch.nn.functional.linear(value, weight, bias), -1, (count, h.shape[-1]))
        for value, weight, bias in zip((input, h), weights, biases, strict=False)
    )
    return [(below.select(-2, k), before.select(-2, k)) for k in range(count)]


def _step_rnn(
    input: Any, states: Sequence[Any], weights: Sequence[Any], *, act: str
) -> tuple[Any, ...]:
    ((below, before),) = _find_gates(input, states[0], weights, 1)
    return (getattr(below + before, act)(),)


def _step_gru(input: Any, states: Sequence[Any], weights: Sequence[Any]) -> tuple[Any, ...]:
    (r, r_old), (z, z_old), (n, n_old) = _find_gates(input, states[0], weights, 3)
    kept = (z + z_old).sigmoid()
    new = (n + (r + r_old).sigmoid() * n_old).tanh()
    return ((1 - kept) * new + kept * states[0],)


def _step_lstm(input: Any, states: Sequence[Any], weights: Sequence[Any]) -> tuple[Any, ...]:
    i, f, g, o = (one + other for one, other in _find_gates(input, states[0], weights, 4))
    c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _run_cell(
    input: Any, hx: Any, *weights: Any, step: Callable[..., tuple[Any, ...]], **named: Any
) -> Any:
    """Return the state, or several, after one step of a recurrent cell; biases may be None."""
    given = [each for each in (*weights, *named.values()) if each is not None]
    states = hx if isinstance(hx, (tuple, list)) else (hx,)
    found = step(input, states, given)
    return found if len(found) > 1 else found[0]


# Losses.


def _loss(name: str, find: Callable[..., Any], *examples: str) -> call.Op:
    """Return the row of a loss; `find` computes its elements, or a pair of elements and weights.

    `find` has the arguments that it names; a call may not set the others of torch's signature.
    """

    def run(*args: Any, **named: Any) -> Any:
        known = signature(getattr(torch.nn.functional, name))
        bound = known.bind(*args, **named)
        bound.apply_defaults()
        given = bound.arguments
        reduction = given.pop("reduction")
        losses = find(*(given.pop(each) for each in signature(find).parameters))
        for other, value in given.items():
            if value is not known.parameters[other].default:
                refuse_call(f"{other} is not known to the lifter")
        losses, weights = losses if isinstance(losses, tuple) else (losses, None)
        losses = losses if weights is None else losses * weights
        if reduction == "mean" and weights is not None:
            return losses.sum() / weights.sum()
        if reduction == "batchmean":
            return losses.sum() / losses.shape[0]
        return getattr(losses, reduction)() if reduction in {"mean", "sum"} else losses

    return call.composite(name, run, *(each.replace("LOSS", f"{_NN}.{name}") for each in examples))


def _cross_entropy(
    input: Any, target: Any, weight: Any, ignore_index: int, label_smoothing: float
) -> Any:
    axis = 1 if input.dim() > 1 else 0
    logs = input.log_softmax(axis)
    if target.is_floating_point():
        if weight is not None:
            refuse_call("weight is not known to the lifter")
        if label_smoothing:
            rest = label_smoothing * (1 / input.shape[axis])
            target = target * (1 - label_smoothing) + rest
        return -(logs * target).sum(axis)
    found = _nll(logs, target, weight, ignore_index)
    if not label_smoothing:
        return found
    if isinstance(found, tuple):
        refuse_call("label_smoothing with weights or ignored classes is not known")
    return (1 - label_smoothing) * found + label_smoothing * -logs.mean(axis)


def _nll(input: Any, target: Any, weight: Any, ignore_index: int) -> Any:
    """Return losses of nll_loss, or (losses, weights); `ignore_index` < 0 ignores nothing."""
    if input.dim() == 1:
        if weight is not None or ignore_index >= 0:
            refuse_call("weights or ignored classes of one row are not known")
        return -input[target]
    losses = -input.gather(1, target.unsqueeze(1)).squeeze(1)
    if weight is None and ignore_index < 0:
        return losses
    weights = losses.new_ones(losses.shape) if weight is None else weight[target]
    if ignore_index >= 0:
        weights = weights.masked_fill(target == ignore_index, 0.0)
    return losses, weights


def _binary_logits(input: Any, target: Any, weight: Any, pos_weight: Any) -> Any:
    softplus = torch.nn.functional.softplus
    if pos_weight is None:
        losses = softplus(input) - input * target
    else:
        losses = (1 - target) * input + (1 + (pos_weight - 1) * target) * softplus(-input)
    return losses if weight is None else losses * weight


def _binary(input: Any, target: Any, weight: Any) -> Any:
    """Return the elements of binary cross-entropy; torch clamps logarithms at -100."""
    yes, no = input.log().clamp(min=-100), (1 - input).log().clamp(min=-100)
    losses = (target - 1) * no - target * yes
    return losses if weight is None else losses * weight


def _pair_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    return (x1 - x2 + eps).norm(p=p, dim=-1, keepdim=keepdim)


_NN = "torch.nn.functional"
_WEIGHTS = "w[N, D]; u[N, N]"
_GATED = "x[B, D]; h[B, N]; w[{0}*N, D]; u[{0}*N, N]; b, c[{0}*N]"

# fmt: off
ROWS = (
    call.composite("cosine_similarity",
        lambda x1, x2, dim=1, eps=1e-8: (x1 * x2).sum(dim) / (
            x1.norm(dim=dim).clamp(min=eps) * x2.norm(dim=dim).clamp(min=eps)),
        f"x, y[B, S]: {_NN}.cosine_similarity(x, y)"),
    call.composite("pairwise_distance", _pair_distance,
        f"x, y[B, S]: {_NN}.pairwise_distance(x, y)"),
    call.composite("normalize",
        lambda input, p=2.0, dim=1, eps=1e-12, out=None: (
            input / input.norm(p=p, dim=dim, keepdim=True).clamp(min=eps)),
        f"x[B, S]: {_NN}.normalize(x)"),
    # layers
    call.composite("dropout alpha_dropout feature_dropout",
        lambda input, p=0.5, training=True, inplace=False, *, train=None: (
            refuse_call("dropout draws random numbers", "lift-random", "call .eval()")
            if p and (training if train is None else train) else input),
        f"x[B, S]: {_NN}.dropout(x, 0.1, False)", "x[B, S]: torch.dropout(x, 0.1, train=False)"),
    call.composite("layer_norm",
        lambda input, normalized_shape, weight=None, bias=None, eps=1e-5, *_: _scale(
            _standardize(input, _last(normalized_shape), eps, len(normalized_shape)), weight, bias),
        f"x[B, S]; w[S]; b[S]: {_NN}.layer_norm(x, (x.shape[1],), w, b)"),
    call.composite("rms_norm", _rms_norm,
        f"x[B, S]; w[S]: {_NN}.rms_norm(x, (x.shape[1],), w, 1e-6)"),
    call.composite("batch_norm",
        lambda input, running_mean, running_var, weight=None, bias=None, training=False,
            momentum=0.1, eps=1e-5, *_: _scale(
                _standardize(input, (0, *range(2, input.dim())), eps, input.dim() - 2,
                    None if training else (running_mean, running_var)),
                weight, bias, input.dim() - 2),
        f"x[B, S]; m[S]; v[S]; w[S]: {_NN}.batch_norm(x, m, v, w)"),
    call.composite("group_norm", _group_norm, f"x[B, S]; w[S]: {_NN}.group_norm(x, 1, w)"),
    call.composite("instance_norm",
        lambda input, running_mean=None, running_var=None, weight=None, bias=None,
            use_input_stats=True, momentum=0.1, eps=1e-5: _scale(
                _standardize(input, tuple(range(2, input.dim())), eps, input.dim() - 2,
                    None if use_input_stats else (running_mean, running_var)),
                weight, bias, input.dim() - 2),
        f"x[B, C, S]; w[C]: {_NN}.instance_norm(x, weight=w)"),
    call.composite("scaled_dot_product_attention", _attention,
        f"q[B, S, D]; k, v[B, T, D]: {_NN}.scaled_dot_product_attention(q, k, v)",
        f"q, k, v[B, S, D]: {_NN}.scaled_dot_product_attention(q, k, v, is_causal=True)",
        f"q, k, v[B, S, D]; bool m[B, S, S]: {_NN}.scaled_dot_product_attention(q, k, v, m)"),
    call.composite("rnn_tanh_cell", partial(_run_cell, step=partial(_step_rnn, act="tanh")),
        f"x[B, D]; h[B, N]; {_WEIGHTS}: torch.rnn_tanh_cell(x, h, w, u)"),
    call.composite("rnn_relu_cell", partial(_run_cell, step=partial(_step_rnn, act="relu")),
        f"x[B, D]; h[B, N]; {_WEIGHTS}: torch.rnn_relu_cell(x, h, w, u)"),
    call.composite("gru_cell", partial(_run_cell, step=_step_gru),
        f"{_GATED.format(3)}: torch.gru_cell(x, h, w, u, b, c)"),
    call.composite("lstm_cell", partial(_run_cell, step=_step_lstm),
        f"{_GATED.format(4)}: torch.lstm_cell(x, (h, 2 * h), w, u, b, c)[1]"),
    # losses
    _loss("mse_loss", lambda input, target: (input - target) ** 2, "x, y[B, S]: LOSS(x, y)"),
    _loss("l1_loss", lambda input, target: (input - target).abs(), "x, y[B, S]: LOSS(x, y)"),
    _loss("huber_loss",
        lambda input, target, delta: (
            ((gap := (input - target).abs()) ** 2 / 2).where(
                gap < delta, delta * (gap - delta / 2))),
        "x, y[B, S]: LOSS(x, y, delta=0.5)"),
    _loss("smooth_l1_loss",
        lambda input, target, beta: (
            (input - target).abs() if beta == 0
            else ((gap := (input - target).abs()) ** 2 / (2 * beta)).where(
                gap < beta, gap - beta / 2)),
        "x, y[B, S]: LOSS(x, y, beta=0.5)"),
    _loss("cross_entropy", _cross_entropy,
        "x[B, V]; int t[B] < V: LOSS(x, t)",
        "x[B, V]; int t[B] < V: LOSS(x, t, label_smoothing=0.1)",
        "x[B, V, S]; int t[B, S] < V: LOSS(x, t, reduction='none')",
        "x, y[B, V]: LOSS(x, y, label_smoothing=0.1)"),
    _loss("nll_loss", _nll,
        "x[B, V]; int t[B] < V: LOSS(x, t, reduction='sum')",
        "x[B, V]; int t[B] < V; w[V]: LOSS(x, t, w)",
        "x[B, V]; int t[B] < V: LOSS(x, t, ignore_index=0, reduction='none')"),
    _loss("kl_div",
        lambda input, target, log_target: (
            target.exp() * (target - input) if log_target
            else target.xlogy(target) - target * input),
        "x, y[B, S]: LOSS(x, y, reduction='batchmean', log_target=True)",
        "x[B, S]; y[B, S] > 0: LOSS(x, y, reduction='sum')",
        "x, y[B, S]: LOSS(x, (y - 1).relu(), reduction='sum')"),
    _loss("binary_cross_entropy_with_logits", _binary_logits,
        "x, y[B, S]: LOSS(x, y)", "x, y[B, S]; w[S]: LOSS(x, y, pos_weight=w)"),
    _loss("binary_cross_entropy", _binary, "x, y[B, S]: LOSS(x.sigmoid(), y.sigmoid())"),
)


# fmt: on
