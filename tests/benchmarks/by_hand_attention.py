"""Attention as people write it: heads by view and transpose, weights by softmax, matmul."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def relative_attention(
    *, X: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, A_K: Tensor, A_V: Tensor
) -> Tensor:
    """The accepted answer's way: add what depends on the pair to k and v, multiply, sum."""
    q = torch.einsum("bshd,hde->bshe", X, W_Q)
    k = torch.einsum("bshd,hde->bshe", X, W_K)
    v = torch.einsum("bshd,hde->bshe", X, W_V)
    scores = (q.unsqueeze(2) * (k.unsqueeze(1) + A_K)).sum(dim=-1) / math.sqrt(q.shape[-1])
    alpha = torch.softmax(scores, dim=2)
    return (alpha.unsqueeze(-1) * (v.unsqueeze(1) + A_V)).sum(dim=2)


def self_attention(*, X: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> tuple[Tensor, Tensor]:
    """The way of every tutorial on self-attention from scratch."""
    queries, keys, values = X @ W_Q, X @ W_K, X @ W_V
    weights = torch.softmax(queries @ keys.T / math.sqrt(keys.shape[-1]), dim=-1)
    return weights @ values, weights


def masked_attention(
    *, query: Tensor, key: Tensor, value: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The Annotated Transformer's way, with ESPnet's second masked_fill for empty rows."""
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
    hidden = ~mask.unsqueeze(1)
    weights = scores.masked_fill(hidden, -1e9).softmax(dim=-1).masked_fill(hidden, 0.0)
    return torch.matmul(weights, value), weights


def _split_heads(tokens: Tensor, heads: int) -> Tensor:
    """The Annotated Transformer's way: view, then transpose."""
    return tokens.view(tokens.size(0), -1, heads, tokens.size(-1) // heads).transpose(1, 2)


def _join_heads(heads: Tensor) -> Tensor:
    """The Annotated Transformer's way back: transpose, contiguous, view."""
    batch, number, tokens, width = heads.shape
    return heads.transpose(1, 2).contiguous().view(batch, tokens, number * width)


def multi_head_attention(
    *,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    W_q: Tensor,
    W_k: Tensor,
    W_v: Tensor,
    W_O: Tensor,
    H: int,
) -> tuple[Tensor, Tensor]:
    """The Annotated Transformer's way."""
    q, k, v = (
        _split_heads(tokens @ W, H) for tokens, W in ((query, W_q), (key, W_k), (value, W_v))
    )
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    weights = scores.softmax(dim=-1)
    return _join_heads(torch.matmul(weights, v)) @ W_O, weights


def masked_multi_head_attention(
    *,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    W_q: Tensor,
    W_k: Tensor,
    W_v: Tensor,
    W_O: Tensor,
    H: int,
) -> tuple[Tensor, Tensor]:
    """ESPnet's way: one mask for all heads, and zeros where a row is empty."""
    q, k, v = (
        _split_heads(tokens @ W, H) for tokens, W in ((query, W_q), (key, W_k), (value, W_v))
    )
    heads, weights = masked_attention(query=q, key=k, value=v, mask=mask)
    return _join_heads(heads) @ W_O, weights


def token_attention(
    *, x: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, H: int
) -> Tensor:
    """The way of nanoGPT and of torch's own tutorial: the fused attention between linear maps."""
    q, k, v = (_split_heads(x @ W, H) for W in (W_q, W_k, W_v))
    return _join_heads(functional.scaled_dot_product_attention(q, k, v)) @ W_o


def causal_attention(*, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """What torch's documentation names for it."""
    return functional.scaled_dot_product_attention(Q, K, V, is_causal=True)


def head_projection(*, x: Tensor, w: Tensor) -> Tensor:
    """The accepted answer's way to be rid of the loop over heads: broadcast matmul."""
    return torch.matmul(x.unsqueeze(1), w)


def head_projection_merged(*, x: Tensor, w: Tensor, N: int) -> Tensor:
    """The way of every multi-head module: one matmul, view, transpose."""
    return _split_heads(x @ w, N)


def linear_attention(*, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """The authors' way in fast-transformers, where the last einsum has three operands."""
    queries, keys = functional.elu(Q) + 1, functional.elu(K) + 1
    memory = torch.einsum("bhsd,bhsm->bhmd", keys, V)
    weight = 1 / torch.einsum("bhld,bhd->bhl", queries, keys.sum(dim=2))
    return torch.einsum("bhld,bhmd,bhl->bhlm", queries, memory, weight)


def talking_heads_attention(*, Q: Tensor, K: Tensor, V: Tensor, P_l: Tensor, P_w: Tensor) -> Tensor:
    """The paper's pseudocode, an einsum a line."""
    logits = torch.einsum("bnhd,bmhd->bhnm", Q, K) / math.sqrt(Q.shape[-1])
    mixed = torch.einsum("bhnm,hl->blnm", logits, P_l)
    weights = torch.softmax(mixed, dim=-1)
    spread = torch.einsum("blnm,lg->bgnm", weights, P_w)
    return torch.einsum("bgnm,bmge->bnge", spread, V)


def luong_dot_attention(*, s: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """OpenNMT's way, two bmm."""
    weights = torch.softmax(torch.bmm(s, h.transpose(1, 2)), dim=-1)
    return torch.bmm(weights, h), weights


def luong_attention(*, s: Tensor, h: Tensor, W_a: Tensor) -> tuple[Tensor, Tensor]:
    """OpenNMT's way: the query through the linear layer, two bmm."""
    scores = torch.bmm(s @ W_a, h.transpose(1, 2))
    weights = torch.softmax(scores, dim=-1)
    return torch.bmm(weights, h), weights


def luong_concat_attention(
    *, s: Tensor, h: Tensor, W_s: Tensor, W_h: Tensor, v_a: Tensor
) -> tuple[Tensor, Tensor]:
    """OpenNMT's way: both linear layers first, then all pairs by expand."""
    batch, target, _ = s.shape
    source, width = h.shape[1], len(v_a)
    query = functional.linear(s, W_s).view(batch, target, 1, width)
    memory = functional.linear(h, W_h).view(batch, 1, source, width)
    pairs = torch.tanh(
        query.expand(batch, target, source, width) + memory.expand(batch, target, source, width)
    )
    scores = (pairs.view(-1, width) @ v_a).view(batch, target, source)
    weights = torch.softmax(scores, dim=-1)
    return torch.bmm(weights, h), weights


def bahdanau_attention(
    *, s: Tensor, h: Tensor, W_a: Tensor, U_a: Tensor, v_a: Tensor
) -> tuple[Tensor, Tensor]:
    """The way of torch's tutorial on translation."""
    scores = torch.tanh((s @ W_a).unsqueeze(1) + h @ U_a) @ v_a
    weights = functional.softmax(scores, dim=-1)
    return torch.bmm(weights.unsqueeze(1), h).squeeze(1), weights


def relative_key_attention(*, query: Tensor, key: Tensor, value: Tensor, A_K: Tensor) -> Tensor:
    """The way of BERT with relative keys in transformers: a matmul and an einsum, added."""
    scores = torch.matmul(query, key.transpose(-1, -2))
    scores = scores + torch.einsum("bhld,lrd->bhlr", query, A_K)
    weights = functional.softmax(scores / math.sqrt(query.size(-1)), dim=-1)
    return torch.matmul(weights, value)


def transformer_xl_attention(
    *, q: Tensor, k: Tensor, v: Tensor, r: Tensor, u: Tensor, w: Tensor
) -> Tensor:
    """The authors' way: the biases added to q, then two einsums."""
    content = torch.einsum("bhid,bhjd->bhij", q + u.unsqueeze(1), k)
    position = torch.einsum("bhid,ijhd->bhij", q + w.unsqueeze(1), r)
    hidden = torch.ones(q.size(2), q.size(2), dtype=torch.bool, device=q.device).triu(1)
    scores = ((content + position) / math.sqrt(q.size(-1))).masked_fill(hidden, -float("inf"))
    return torch.einsum("bhij,bhjd->bihd", functional.softmax(scores, dim=-1), v)


def causal_linear_attention(*, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """The way without a kernel of its own, as in the Performer's ports: cumulative sums."""
    queries, keys = functional.elu(Q) + 1, functional.elu(K) + 1
    weight = 1 / torch.einsum("bhnd,bhnd->bhn", queries, keys.cumsum(dim=2))
    memory = torch.einsum("bhnd,bhne->bhnde", keys, V).cumsum(dim=2)
    return torch.einsum("bhnde,bhnd,bhn->bhne", memory, queries, weight)
