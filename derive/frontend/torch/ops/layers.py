"""Definitions of recurrent layers, bags of embeddings, topk and scatter.

A recurrent layer inside other code is unrolled, so its steps must be a number, not a size.
Source: the equations in the documentation of torch.nn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from inspect import signature
from operator import or_
from typing import Any

from derive.frontend.torch.call import composite
from derive.frontend.torch.numbers import is_symbolic
from derive.frontend.torch.ops.composites import unknown
from derive.libraries import torch

_NN = "torch.nn.functional"


def _find_gates(input: Any, h: Any, weights: Sequence[Any], count: int) -> list[tuple[Any, Any]]:
    """Return the linear maps of the input and of the previous state, gate by gate."""
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
    """Run one step of a cell; absent biases are None or left out."""
    given = [each for each in (*weights, *named.values()) if each is not None]
    states = hx if isinstance(hx, (tuple, list)) else (hx,)
    found = step(input, states, given)
    return found if len(found) > 1 else found[0]


def _run_layers(  # noqa: PLR0913, PLR0917 - torch's
    input: Any,
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool = False,
    batch_first: bool = False,
    *,
    step: Callable[..., tuple[Any, ...]],
) -> tuple[Any, ...]:
    """Return the outputs of the last layer, and the final states of each layer and direction."""
    if not isinstance(num_layers, int) or isinstance(num_layers, bool):
        unknown("a recurrent layer of packed sequences is not known")
    if dropout and train and num_layers > 1:
        unknown("values are left out at random", help="lift it behind .eval()")
    states = hx if isinstance(hx, (tuple, list)) else (hx,)
    ways = 2 if bidirectional else 1
    each = len(params) // (num_layers * ways)
    if each != (4 if has_biases else 2):
        unknown("a recurrent layer that projects its values is not known")
    values = input.transpose(0, 1) if batch_first else input
    if is_symbolic(values.shape[0]):
        says = "a recurrent layer inside other code is known for a number of steps alone"
        unknown(says, help="write it, x[B, 12, D]")
    lasts: list[tuple[Any, ...]] = []
    for layer in range(num_layers):
        found: list[list[Any]] = []
        for way in range(ways):
            number = layer * ways + way
            weights = params[number * each : (number + 1) * each]
            state, outs = tuple(state[number] for state in states), list[Any]()
            for t in range(values.shape[0])[:: -1 if way else 1]:
                state = step(values[t], state, weights)
                outs.append(state[0])
            lasts.append(state)
            found.append(outs[:: -1 if way else 1])
        values = torch.cat([torch.stack(outs) for outs in found], -1)
    values = values.transpose(0, 1) if batch_first else values
    return (values, *(torch.stack(parts) for parts in zip(*lasts, strict=True)))


def _embed_bags(*args: Any, **named: Any) -> Any:
    """Return the sums, means or maxima of the rows of bags of one length."""
    bound = signature(torch.nn.functional.embedding_bag).bind(*args, **named)
    bound.apply_defaults()
    given = bound.arguments
    if given["offsets"] is not None:
        unknown("bags by their offsets are not known", help="give bags of one length, input[B, S]")
    if given["max_norm"] is not None:
        unknown("an embedding with max_norm writes into its weight")
    input, weights, mode = given["input"], given["per_sample_weights"], given["mode"]
    rows = torch.nn.functional.embedding(input, given["weight"])
    rows = rows if weights is None else rows * weights.unsqueeze(-1)
    if given["padding_idx"] is None:
        return rows.amax(1) if mode == "max" else getattr(rows, mode)(1)
    read = (input != given["padding_idx"]).unsqueeze(-1)
    if mode == "max":
        largest = rows.masked_fill(~read, -math.inf).amax(1)
        return largest.where(read.any(1), 0.0)
    total, count = (rows * read).sum(1), (read * 1.0).sum(1).clamp(min=1)
    return total / count if mode == "mean" else total


def _normalize_weight(v: Any, g: Any, dim: int = 0) -> Any:
    others = [k for k in range(v.dim()) if k != dim]
    return v * (g / v.square().sum(others, keepdim=True).sqrt())


def _find_largest(
    input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    """Return the k largest elements, found one by one with the earlier ones masked."""
    if is_symbolic(k):
        unknown("topk of as many as a size says is not known", help="give it a number")
    last = (input if largest else -input).movedim(dim, -1)
    every = torch.arange(last.shape[-1])
    place = last.argmax(-1, True)
    places, taken = [place], every == place
    while len(places) < k:
        last = last.masked_fill(taken, -math.inf)
        place = last.argmax(-1, True)
        again = reduce(or_, [place == each for each in places])  # all others are -oo
        place = torch.where(again, (~taken).long().argmax(-1, True), place)
        places.append(place)
        taken = taken | (every == place)
    found = [input.movedim(dim, -1).gather(-1, place) for place in places]
    pair = (torch.cat(each, -1).movedim(-1, dim) for each in (found, places))
    return torch.return_types.topk((next(pair), next(pair)))


def _scatter(input: Any, dim: int, index: Any, src: Any, **_: Any) -> Any:
    """Write elements at a few positions of an axis."""
    if is_symbolic(index.shape[dim]) or index.dim() != input.dim():
        unknown("scatter of as many places as a size says is not known", help="use index_add")
    whole, places = input.movedim(dim, -1), index.movedim(dim, -1)
    if whole.shape[:-1] != places.shape[:-1]:
        unknown("scatter into a part of a tensor is not known", help="use index_add")
    given = src.movedim(dim, -1) if isinstance(src, torch.Tensor) else None
    for k in range(index.shape[dim]):
        value = src if given is None else given[..., k : k + 1]
        at = torch.arange(whole.shape[-1]) == places[..., k : k + 1]
        whole = torch.where(at, value, whole)
    return whole.movedim(-1, dim)


_WEIGHTS = "w[N, D]; u[N, N]"
_LAYER = "False, 1, 0.0, False, False"
_GATED = "x[B, D]; h[B, N]; w[{0}*N, D]; u[{0}*N, N]; b, c[{0}*N]"

# fmt: off
OPS = (
    composite("rnn_tanh_cell", partial(_run_cell, step=partial(_step_rnn, act="tanh")),
        f"x[B, D]; h[B, N]; {_WEIGHTS}: torch.rnn_tanh_cell(x, h, w, u)"),
    composite("rnn_relu_cell", partial(_run_cell, step=partial(_step_rnn, act="relu")),
        f"x[B, D]; h[B, N]; {_WEIGHTS}: torch.rnn_relu_cell(x, h, w, u)"),
    composite("gru_cell", partial(_run_cell, step=_step_gru),
        f"{_GATED.format(3)}: torch.gru_cell(x, h, w, u, b, c)"),
    composite("lstm_cell", partial(_run_cell, step=_step_lstm),
        f"{_GATED.format(4)}: torch.lstm_cell(x, (h, 2 * h), w, u, b, c)[1]"),
    composite("rnn_tanh", partial(_run_layers, step=partial(_step_rnn, act="tanh")),
        f"x[3, B, D]; h[1, B, N]; {_WEIGHTS}: torch.rnn_tanh(x, h, (w, u), {_LAYER}, False)[0]"),
    composite("rnn_relu", partial(_run_layers, step=partial(_step_rnn, act="relu")),
        f"x[B, 2, D]; h[1, B, N]; {_WEIGHTS}: torch.rnn_relu(x, h, (w, u), {_LAYER}, True)[1]"),
    composite("gru", partial(_run_layers, step=_step_gru),
        f"x[3, B, D]; h[1, B, N]; w[3*N, D]; u[3*N, N]: "
        f"torch.gru(x, h, (w, u), {_LAYER}, False)[0]"),
    composite("lstm", partial(_run_layers, step=_step_lstm),
        f"x[3, B, D]; h[1, B, N]; w[4*N, D]; u[4*N, N]: "
        f"torch.lstm(x, (h, h), (w, u), {_LAYER}, False)[2]"),
    composite("embedding_bag", _embed_bags,
        f"E[V, D]; int t[B, S] < V: {_NN}.embedding_bag(t, E)",
        f"E[V + 1, D]; int t[B, S] < V: {_NN}.embedding_bag(t, E, mode='max', padding_idx=1)"),
    composite("_weight_norm", _normalize_weight,
        "x[S, D]; y[S, 1]: torch._weight_norm(x, y)"),
    composite("topk", _find_largest, "x[B, S + 1]: x.topk(2).values"),
    composite("scatter", _scatter,
        "x[B, S + 1]: torch.zeros_like(x).scatter(1, x.topk(2).indices, 0.5)"),
)
# fmt: on
