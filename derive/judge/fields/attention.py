"""Torch's fused attention over a tower, and its gradient."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, Any

import torch

from derive.judge.fields import algebra, functions, order
from derive.judge.fields.parts import BELOW, NotModelledError, Parts
from derive.judge.fields.tensor import FieldTensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from derive.judge.fields.run import Handler, Run

_turn = methodcaller("transpose", -1, -2)


def _weigh(run: Run, query: Parts, key: Parts, how: Sequence[Any], **named: Any) -> Parts:
    """The weights of every key; none where nothing is left."""
    dropout, is_causal = how or (0.0, False)
    if dropout:
        raise NotModelledError("dropout")
    mask, scores = named.get("attn_mask"), algebra.matmul(run.tower, query, key.map(_turn))
    scores = run.scale(scores, _find_scale(query, named))
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None and not isinstance(mask, FieldTensor) and mask.dtype is torch.bool:
        scores = order.choose(mask, scores, run.parts(-float("inf")))
    elif mask is not None:
        scores = run.add(scores, run.parts(mask))
    empty = (scores.state == BELOW).all(-1, keepdim=True)
    found = functions.softmax(run.tower, run.usage, scores, -1)
    return order.choose(empty, run.number(0), found)


def _find_scale(query: Parts, named: Mapping[str, Any]) -> float:
    scale = named.get("scale")
    return float(query.shape[-1] ** -0.5 if scale is None else scale)


def _share(parts: Parts, query: Parts) -> Parts:
    """Keys or values, each head as often as there are queries to it."""
    count = query.shape[-3] // parts.shape[-3]
    return parts.map(methodcaller("repeat_interleave", count, -3)) if count > 1 else parts


def _gather(run: Run, parts: Parts, given: Parts) -> Parts:
    """The sum over the queries of every head of keys."""
    *batch, _, length, width = parts.shape
    shape = (*batch, given.shape[-3], -1, length, width)
    return run.sum(parts.map(methodcaller("reshape", shape)), (-3,))


def _attend(run: Run, *given: Any, **named: Any) -> tuple[Parts, Parts]:
    """Query, key, value, a dropout, is it causal; the weights stand for what torch keeps."""
    query, key, value = map(run.parts, given[:3])
    weights = _weigh(run, query, _share(key, query), given[3:], **named)
    return algebra.matmul(run.tower, weights, _share(value, query)), weights


def _attend_backward(run: Run, grad: Any, *given: Any, **named: Any) -> tuple[Parts, ...]:
    """The gradients by query, key and value; what torch keeps is found again."""
    query, key, value = map(run.parts, given[:3])
    out, weights = run.parts(grad), _weigh(run, query, _share(key, query), given[5:], **named)

    def multiply(one: Parts, other: Parts) -> Parts:
        return algebra.matmul(run.tower, one, other)

    weighted = run.multiply(multiply(out, _share(value, query).map(_turn)), weights)
    whole = run.multiply(weights, run.sum(weighted, (-1,), True))
    scores = run.scale(run.subtract(weighted, whole), _find_scale(query, named))
    return (
        multiply(scores, _share(key, query)),
        _gather(run, multiply(scores.map(_turn), query), key),
        _gather(run, multiply(weights.map(_turn), out), value),
    )


ATTENTION: dict[str, Handler] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attend,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attend_backward,
}
