"""Layers and losses, defined by other functions of torch or by windows.

    conv       x[step*i + gap*k - edge]           position k of the window of output i
    transposed x[(i + edge - gap*k)//step]        the inputs that reach output i, if step divides

A position outside the input counts as 0 or is left out, so every read has a condition.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Any

from derive.analysis import affine
from derive.frontend.torch import call, exprs, trace
from derive.frontend.torch.call import Call, Op, op
from derive.frontend.torch.exprs import add, multiply, subtract
from derive.frontend.torch.numbers import is_symbolic, to_expr, to_form
from derive.frontend.torch.ops.composites import unknown
from derive.frontend.torch.ops.views import insert_axis, to_list
from derive.frontend.torch.trace import RestartError, Shadow, Trace, at, hint_of
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, divide_wholly
from derive.ir.walk import find_size_names
from derive.libraries import internals, torch


def _standardize(input: Any, dims: Any, eps: float, behind: int, moments: Any = None) -> Any:
    """Subtract the mean, divide by the standard deviation; both get trailing axes of length 1."""
    if moments is None:  # each is a step with a name
        mean = trace.note_name("mu", input.mean(dims))
        moments = mean, trace.note_name("variance", input.var(dims, correction=0))
    mean, variance = (each[(..., *[None] * behind)] for each in moments)
    return (input - mean) / (variance + eps).sqrt()


def _scale(input: Any, weight: Any, bias: Any, behind: int = 0) -> Any:
    """Multiply each channel by its weight and add its bias."""
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
    return _scale(input / trace.note_name("rms", rms)[(..., *behind)], weight, None)


def _group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    """Standardise each group; channel c of C is in group c*groups // C, of C // groups channels."""
    channels, behind = input.shape[1], input.dim() - 2
    if weight is not None and num_groups != 1:
        channels = int(channels)  # the module's own number
    if num_groups == 1 or not is_symbolic(channels % num_groups):
        parts = (num_groups, channels // num_groups if num_groups != 1 else -1)
        grouped = input.unflatten(1, parts)
        dims = tuple(range(2, grouped.dim()))
        found = _standardize(grouped, dims, eps, behind + 1).flatten(1, 2)
        return _scale(found, weight, bias, behind)
    each = channels // num_groups
    places = torch.arange(num_groups)[:, None] * each + torch.arange(each)
    grouped, dims = input[:, places], tuple(range(2, input.dim() + 1))
    parts = grouped.mean(dims), grouped.var(dims, correction=0)
    own = torch.arange(channels) * num_groups // channels
    moments = tuple(map(trace.note_name, ("mu", "variance"), parts))
    moments = tuple(each[:, own] for each in moments)
    return _scale(_standardize(input, (), eps, behind, moments), weight, bias, behind)


def _unroll(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    """Return the windows as columns; row (c*K + k)*L + l holds element (k, l) of channel c."""
    lengths, gaps, edges, steps = (
        _repeat_for_axes(each, 2) for each in (kernel_size, dilation, padding, stride)
    )
    input = torch.constant_pad_nd(input, (edges[1], edges[1], edges[0], edges[0]), 0)
    places = []
    for dim, (length, gap, step) in enumerate(zip(lengths, gaps, steps, strict=True), -2):
        count = (input.shape[dim] - gap * (length - 1) - 1) // step + 1
        places.append(torch.arange(length)[:, None] * gap + torch.arange(count) * step)
    down, right = places
    taken = input[..., down[:, None, :, None], right[:, None]]
    return taken.flatten(-5, -3).flatten(-2)


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
                unknown(f"{other} is not known to the lifter")
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
            unknown("weight is not known to the lifter")
        if label_smoothing:
            rest = label_smoothing * (1 / input.shape[axis])
            target = target * (1 - label_smoothing) + rest
        return -(logs * target).sum(axis)
    found = _nll(logs, target, weight, ignore_index)
    if not label_smoothing:
        return found
    if isinstance(found, tuple):
        unknown("label_smoothing with weights or ignored classes is not known")
    return (1 - label_smoothing) * found + label_smoothing * -logs.mean(axis)


def _nll(input: Any, target: Any, weight: Any, ignore_index: int) -> Any:
    """Elements of the loss; no target is negative, so a negative ignore_index has no effect."""
    if input.dim() == 1:
        if weight is not None or ignore_index >= 0:
            unknown("weights or ignored classes of one row are not known")
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


def _triplet(  # noqa: PLR0913, PLR0917 - torch's
    anchor: Any, positive: Any, negative: Any, margin: float, p: float, eps: float, swap: bool
) -> Any:
    near, far = _pair_distance(anchor, positive, p, eps), _pair_distance(anchor, negative, p, eps)
    if swap:
        far = far.minimum(_pair_distance(positive, negative, p, eps))
    return (margin + near - far).relu()


def _cosine_embedding(input1: Any, input2: Any, target: Any, margin: float) -> Any:
    squares = (input1.square().sum(-1) + 1e-12) * (input2.square().sum(-1) + 1e-12)
    cosine = (input1 * input2).sum(-1) / squares.sqrt()
    far = (cosine - margin).relu().where(target == -1, 0.0)
    return (1 - cosine).where(target == 1, 0.0) + far


def _gaussian(input: Any, target: Any, var: Any, full: bool, eps: float) -> Any:
    if isinstance(var, float) or var.dim() != input.dim():
        unknown("gaussian_nll_loss with a variance of another shape is not known")
    bounded = var.clamp(min=eps)
    losses = (bounded.log() + (input - target) ** 2 / bounded) / 2
    return losses + math.log(2 * math.pi) / 2 if full else losses


_NN = "torch.nn.functional"

# fmt: off
OPS = (
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
            unknown("dropout draws random numbers", "lift-random", "call .eval()")
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
    call.composite("im2col", _unroll,
        f"x[B, C, S + 2, T + 2]: {_NN}.unfold(x, (3, 2), padding=(1, 0), stride=(2, 1))",
        f"x[C, S + 2, T + 2]: {_NN}.unfold(x, 2, dilation=2)"),
    call.composite("scaled_dot_product_attention", _attention,
        f"q[B, S, D]; k, v[B, T, D]: {_NN}.scaled_dot_product_attention(q, k, v)",
        f"q, k, v[B, S, D]: {_NN}.scaled_dot_product_attention(q, k, v, is_causal=True)",
        f"q, k, v[B, S, D]; bool m[B, S, S]: {_NN}.scaled_dot_product_attention(q, k, v, m)"),
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
    _loss("soft_margin_loss", lambda input, target: (1 + (-target * input).exp()).log(),
        "x, y[B, S]: LOSS(x, y)"),
    _loss("triplet_margin_loss", _triplet,
        "x, y, z[B, S]: LOSS(x, y, z, 0.5)",
        "x, y, z[B, S]: LOSS(x, y, z, swap=True, reduction='none')"),
    _loss("margin_ranking_loss",
        lambda input1, input2, target, margin: (margin - target * (input1 - input2)).relu(),
        "x, y[B]; z[B]: LOSS(x, y, z, 0.5)"),
    _loss("hinge_embedding_loss",
        lambda input, target, margin: (
            input.where(target != -1, 0.0) + (margin - input).relu().where(target != 1, 0.0)),
        "x[B, S]; int t[B, S] < 2: LOSS(x, 2 * t - 1, 1.2)"),
    _loss("cosine_embedding_loss", _cosine_embedding,
        "x, y[B, S]; int t[B] < 2: LOSS(x, y, 2 * t - 1, 0.1)"),
    _loss("poisson_nll_loss",
        lambda input, target, log_input, eps: (
            input.exp() - target * input if log_input else input - target * (input + eps).log()),
        "x, y[B, S]: LOSS(x, y)",
        "x, y[B, S]: LOSS(x.abs(), y, log_input=False, reduction='sum')"),
    _loss("gaussian_nll_loss", _gaussian, "x, y[B, S]; v[B, S] > 0: LOSS(x, y, v, full=True)"),
)


# fmt: on


@dataclass(frozen=True)
class Window:
    """One axis of a window: length, stride, dilation, and the padding before and after."""

    length: ir.Expr
    step: int  # step, gap, before and after may be symbolic
    gap: int
    before: int
    after: int


@dataclass
class Opened:
    """Indices of the outputs, indices in the windows, the places read, and their conditions."""

    outer: list[ir.Index]
    inner: list[ir.Index]
    places: list[ir.Expr]
    inside: list[ir.Expr]

    def sum(self, part: Sequence[ir.Index], *factors: ir.Expr, kind: str = "sum") -> ir.Expr:
        """Reduce the product, with 0 where a condition fails."""
        inside = ir.all_of(*self.inside)
        bracket = () if inside is ir.TRUE else (exprs.choose(inside, ir.ONE, ir.ZERO),)
        return exprs.reduce_over(kind, [*part, *self.inner], multiply(*bracket, *factors))


def _repeat_for_axes(value: Any, count: int) -> list[Any]:
    """Return a list with one number for each axis."""
    given = to_list(value)
    return given * count if len(given) == 1 else given


def _find_windows(
    trace: Trace, lengths: Sequence[ir.Expr], steps: Any, gaps: Any, padding: Any
) -> list[Window]:
    count, found = len(lengths), []
    edges = _repeat_for_axes(0 if padding == "valid" else padding, count)
    spelt = zip(
        lengths, _repeat_for_axes(steps, count), _repeat_for_axes(gaps, count), edges, strict=False
    )
    for length, step, gap, edge in spelt:
        before = after = edge
        if padding == "same":
            if step != 1:
                raise trace.refuse("lift-op", "padding='same' with a stride is not known")
            total = gap * (trace.to_int(length) - 1)
            before, after = total // 2, total - total // 2
        found.append(Window(length, step, gap, before, after))
    return found


def _fix(trace: Trace, extent: ir.Expr) -> int:
    """Return an extent as a number; restart with its sizes fixed."""
    if names := find_size_names(extent):
        raise RestartError(names)
    return trace.number(extent)


def _count_positions(trace: Trace, extent: ir.Expr, window: Window) -> ir.Expr:
    """Return the number of positions of a window."""
    room = trace.to_int(extent) + window.before + window.after
    room -= window.gap * (trace.to_int(window.length) - 1) + 1
    form, step = to_form(room), to_form(window.step)
    count = divide_wholly(form, step)
    if count is None:  # (H + 3)//2 is (H + 1)//2 + 1
        more = Polynomial.of(0 if step.constant is None else form.terms.get((), 0) // step.constant)
        rest = exprs.write_place((form - more * step).to_expr(), ())
        count = more + Polynomial.of(ir.Call("floordiv", (rest, step.to_expr())))
    return trace.extent(count + Polynomial.of(1))


def _index_like(trace: Trace, index: ir.Index, extent: ir.Expr) -> ir.Index:
    """Return a fresh index of another extent with the hint of an index."""
    size = index.extent.name if isinstance(index.extent, ir.Size) else ""
    return trace.index(extent, hint_of(index) or (size.lower() if size.isupper() else ""))


def _index_inside(trace: Trace, window: Window) -> ir.Index:
    """Return a fresh index in a window, named k unless its extent is a size."""
    return trace.index(window.length, "" if isinstance(window.length, ir.Size) else "k")


def _open_windows(trace: Trace, axes: Sequence[ir.Index], windows: Sequence[Window]) -> Opened:
    found = Opened([], [], [], [])
    for own, window in zip(axes, windows, strict=True):
        found.outer.append(_index_like(trace, own, _count_positions(trace, own.extent, window)))
        found.inner.append(_index_inside(trace, window))
        moved = multiply(to_expr(window.step), at(found.outer[-1]))
        far = multiply(to_expr(window.gap), at(found.inner[-1]))
        place = Polynomial.of(add(moved, far, to_expr(-window.before))).to_expr()
        found.places.append(place)
        found.inside.append(exprs.within(place, own.extent))
    return found


def _open_transposed(
    trace: Trace, axes: Sequence[ir.Index], windows: Sequence[Window], more: Sequence[Any]
) -> Opened:
    """Return the places that a transposed convolution reads; `more` is the output padding."""
    outer = []
    for own, window, extra in zip(axes, windows, more, strict=True):
        step, gap = to_expr(window.step), to_expr(window.gap)
        reach = multiply(gap, subtract(window.length, ir.ONE))
        far = multiply(step, subtract(own.extent, ir.ONE))
        length = add(far, reach, to_expr(1 + extra - 2 * window.before))
        outer.append(_index_like(trace, own, trace.extent(Polynomial.of(length))))
    return _open_reaching(trace, outer, [own.extent for own in axes], windows)


def _open_reaching(
    trace: Trace, outer: list[ir.Index], counts: Sequence[ir.Expr], windows: Sequence[Window]
) -> Opened:
    """Return the windows that reach a position; `counts` are their numbers along each axis."""
    found = Opened(outer, [], [], [])
    for own, count, window in zip(outer, counts, windows, strict=True):
        step = to_expr(window.step)
        found.inner.append(_index_inside(trace, window))
        far = multiply(to_expr(window.gap), at(found.inner[-1]))
        place = Polynomial.of(subtract(add(at(own), to_expr(window.before)), far)).to_expr()
        if is_symbolic(window.step) or window.step != 1:
            rest = ir.Call("mod", (place, step))
            found.inside.append(exprs.compare("==", rest, ir.ZERO))
            place = ir.Call("floordiv", (place, step))
        found.places.append(place)
        found.inside.append(exprs.within(place, count))
    return found


@op(
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    f"x[B, C, S]; w[O, C, 2]; b[O]: {_NN}.conv1d(x, w, b)",
    f"x[B, C, S]; w[O, C, 2]: {_NN}.conv1d(x, w, padding=1)",
    f"x[C, S]; w[O, C, 2]: {_NN}.conv1d(x, w, padding='same')",
    f"x[B, 4, S]; w[6, 2, K]: {_NN}.conv1d(x, w, groups=2)",
    f"x[B, C, S, T]; w[O, C, 2, 2]; b[O]: {_NN}.conv2d(x, w, b)",
    f"x[B, C, S, T]; w[O, C, 2, 3]: {_NN}.conv2d(x, w, stride=(2, 1), padding=(1, 2))",
    f"x[B, C, S + 2, T, U + 2]; w[O, C, 2, 1, 2]: {_NN}.conv3d(x, w, dilation=2)",
    f"x[B, C, S]; w[C, O, K]; b[O]: {_NN}.conv_transpose1d(x, w, b)",
    f"x[B, 4, S]; w[4, 3, K]: {_NN}.conv_transpose1d(x, w, stride=2, groups=2)",
    f"x[C, S]; w[C, O, K]: {_NN}.conv_transpose1d(x, w, stride=3, padding=1, dilation=2)",
    f"x[B, C, S, T]; w[C, O, 2, 3]: {_NN}.conv_transpose2d(x, w, None, 2, 1, 1)",
    f"x[B, C, S, T, U]; w[C, O, 2, 1, 2]: {_NN}.conv_transpose3d(x, w)",
)
def _convolve(call: Call) -> Shadow:
    """Return a convolution; in a transposed one every output gathers the inputs that reach it."""
    trace, given, weight = call.trace, call.shadow(0), call.shadow(1, "weight")
    is_transposed = "transpose" in call.name
    value = given if given.rank == weight.rank else insert_axis(trace, given, 0)
    batch, channel = trace.like(*value.indices[:2])
    first, second = weight.indices[:2]
    groups = call.argument(6, "groups", 1)
    number = trace.extent(groups)
    how = call.argument(7 if is_transposed else 5, "dilation", 1), call.argument(4, "padding", 0)
    windows = _find_windows(trace, weight.shape[2:], call.argument(3, "stride", 1), *how)

    def group(out: ir.Index, each: int, length: int, part: ir.Index) -> ir.Expr:
        """Return the channel at position `part` in the group of an output."""
        number = ir.Call("floordiv", (at(out), to_expr(each)))
        return affine.simplify_place(add(multiply(to_expr(length), number), at(part)))

    def index_number(index: ir.Index, hint: str) -> ir.Index:
        """Return a fresh index like another, with this hint if its extent is a number."""
        return trace.index(index.extent, hint if isinstance(index.extent, ir.Number) else "")

    if is_transposed:
        more = _repeat_for_axes(call.argument(5, "output_padding", 0), weight.rank - 2)
        opened = _open_transposed(trace, value.indices[2:], windows, more)
        trace.unify(channel.extent, first.extent)
        part, out = channel, index_number(second, "o")
        source, which = at(part), at(out)
        if is_symbolic(groups) or groups != 1:
            groups = int(groups)
            length, each = _fix(trace, channel.extent) // groups, _fix(trace, second.extent)
            part, out = trace.index(length, "c"), trace.index(each * groups, "o")
            source = group(out, each, length, part)
            which = affine.simplify_place(ir.Call("mod", (at(out), second.extent)))
        rows = source, which
    else:
        opened = _open_windows(trace, value.indices[2:], windows)
        part, out = channel, index_number(first, "o")
        if not is_symbolic(groups) and groups == 1:
            trace.unify(channel.extent, second.extent)
            source = at(part)
        elif second.extent is ir.ONE and trace.number(out.extent) == trace.number(number):
            for extent in (number, channel.extent):  # a depthwise convolution
                trace.unify(extent, out.extent)
            part, source = second, at(out)
        else:
            part, groups = index_number(second, "c"), int(groups)
            length, each = _fix(trace, channel.extent) // groups, _fix(trace, out.extent) // groups
            _fix(trace, part.extent)
            source = group(out, each, length, part)
        rows = at(out), at(part)
    taken = trace.read_number(value, [at(batch), source, *opened.places])
    kernel = trace.read_number(weight, [*rows, *map(at, opened.inner)])
    total = opened.sum([part], taken, kernel)
    if call.argument(2, "bias") is not None:
        bias = call.shadow(2, "bias")
        trace.unify(bias.shape[0], out.extent)
        total = add(total, trace.read_number(bias, [at(out)]))
    return trace.make_tensor(
        (*([batch] if value is given else []), out, *opened.outer), total, "real"
    )


@op(
    "col2im",
    f"x[B, 6, 10]: {_NN}.fold(x, (4, 5), (1, 3), padding=(0, 1), stride=(2, 1), dilation=1)",
    f"x[B, 4, S]: {_NN}.fold(x, (x.shape[2] + 1, 2), (2, 2))",
)
def _roll_up(call: Call) -> Shadow:
    """Return the sum of overlapping columns; every position gathers the windows that reach it."""
    trace, value = call.trace, call.shadow(0)
    lengths = [to_expr(n) for n in _repeat_for_axes(call.argument(2, "kernel_size"), 2)]
    how = (
        call.argument(5, "stride", 1),
        call.argument(3, "dilation", 1),
        call.argument(4, "padding", 0),
    )
    windows = _find_windows(trace, lengths, *how)
    sizes = map(trace.extent, _repeat_for_axes(call.argument(1, "output_size"), 2))
    whole = [trace.index(size, hint) for size, hint in zip(sizes, "hw", strict=True)]
    counts = [
        _count_positions(trace, i.extent, window) for i, window in zip(whole, windows, strict=True)
    ]
    trace.unify(value.shape[-1], multiply(*counts))
    rest = trace.like(*value.indices[:-2])
    channels = trace.to_int(value.shape[-2]) // math.prod(map(trace.number, lengths))
    channel = trace.index(trace.extent(channels), "c")
    opened = _open_reaching(trace, whole, counts, windows)
    row = affine.ravel([at(channel), *map(at, opened.inner)], [channel.extent, *lengths])
    column = affine.ravel(opened.places, counts)
    taken = trace.read_number(value, [*map(at, rest), row.to_expr(), column.to_expr()])
    return trace.make_tensor((*rest, channel, *whole), opened.sum([], taken), "real")


_MAX = "kernel_size stride padding dilation ceil_mode return_indices"
_MEAN = "kernel_size stride padding ceil_mode count_include_pad divisor_override"


def _pool(call: Call, kind: str, count: int) -> Shadow:
    """Return the maximum or the mean of each window."""
    trace, value = call.trace, call.shadow(0)
    words = (_MAX if kind == "max" else _MEAN).split()
    defaults = {"dilation": 1, "padding": 0}
    given = {name: call.argument(k, name, defaults.get(name)) for k, name in enumerate(words, 1)}
    lengths = [to_expr(n) for n in _repeat_for_axes(given["kernel_size"], count)]
    stride = given["kernel_size"] if given["stride"] in (None, [], ()) else given["stride"]
    windows = _find_windows(trace, lengths, stride, given.get("dilation", 1), given["padding"])
    if given.get("return_indices"):
        raise trace.refuse("lift-op", "the places of a pool's largest elements are not known")
    own = value.indices[-count:]
    # a last window may reach past the end if it begins inside or in the padding before
    if given["ceil_mode"]:
        reach = [w.gap * (trace.to_int(w.length) - 1) for w in windows]
        more = [min(w.after + w.step - 1, r) for w, r in zip(windows, reach, strict=True)]
        windows = [replace(w, after=n) for w, n in zip(windows, more, strict=True)]
    opened = _open_windows(trace, own, windows)
    rest = trace.like(*value.indices[:-count])
    taken = trace.read_number(value, [*map(at, rest), *opened.places])
    if given.get("divisor_override") is not None:
        found = exprs.divide(opened.sum([], taken), to_expr(given["divisor_override"]))
    elif kind == "max" or given["count_include_pad"] is False:
        found = exprs.reduce_over(kind, opened.inner, taken, ir.all_of(*opened.inside))
    else:  # the padding counts in the mean; positions beyond it do not
        ends = [add(i.extent, to_expr(w.before)) for i, w in zip(own, windows, strict=True)]
        counted = [exprs.decide("<", *pair) for pair in zip(opened.places, ends, strict=True)]
        bracket = exprs.choose(ir.all_of(*opened.inside), ir.ONE, ir.ZERO)
        whole = multiply(bracket, taken)
        found = exprs.reduce_over(kind, opened.inner, whole, ir.all_of(*counted))
    return trace.make_tensor((*rest, *opened.outer), found, "real")


def _adapt(call: Call, kind: str, count: int) -> Shadow:
    """Pool to n outputs; output i covers i*H//n up to (i + 1)*H/n, rounded up."""
    trace, value = call.trace, call.shadow(0)
    if call.argument(2, "return_indices", False):
        raise trace.refuse("lift-op", "the places of a pool's largest elements are not known")
    sizes = _repeat_for_axes(call.argument(1, "output_size"), count)
    indices = list(trace.like(*value.indices))
    places: list[ir.Expr] = [at(index) for index in indices]
    bound, inside = [], []
    for axis, size in zip(range(value.rank - count, value.rank), sizes, strict=True):
        own = indices[axis]
        if size is None or own.extent is ir.ONE:
            continue
        inner = trace.indices.copy(own)
        indices[axis] = _index_like(trace, own, trace.extent(size))
        bound.append(inner)
        places[axis] = inner
        number = to_expr(size)
        if number is ir.ONE:
            continue
        start = multiply(own.extent, indices[axis])
        end = add(start, own.extent, number, ir.MINUS_ONE)
        inside.append(exprs.compare("<=", ir.Call("floordiv", (start, number)), inner))
        inside.append(exprs.compare("<", inner, ir.Call("floordiv", (end, number))))
    taken = trace.read_number(value, places)
    return trace.make_tensor(
        indices, exprs.reduce_over(kind, bound, taken, ir.all_of(*inside)), "real"
    )


def _list_pools() -> list[Op]:
    found = []
    for count, shape in enumerate(("S + 2", "S + 2, T + 2", "S + 2, T + 2, U + 2"), 1):
        for kind, name in (("mean", "avg"), ("max", "max")):
            for word, act, *more in (
                (f"{name}_pool{count}d", _pool, "2, 1", "3, 2, padding=1"),
                (f"adaptive_{name}_pool{count}d", _adapt, "1", "2"),
            ):
                examples = (f"x[B, C, {shape}]: {_NN}.{word}(x, {each})" for each in more)
                found.append(Op(word, partial(act, kind=kind, count=count), tuple(examples)))
    return found


ROWS = _list_pools()
