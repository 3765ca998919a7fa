"""Attention as the people wrote it who asked, in their own steps."""

import math

import torch
from torch import Tensor
from torch.nn import functional


def relative_attention(
    *, X: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, A_K: Tensor, A_V: Tensor
) -> Tensor:
    queries, keys, values = (torch.einsum("bshd,hde->bshe", X, W) for W in (W_Q, W_K, W_V))
    scores = (queries.unsqueeze(2) * (keys.unsqueeze(1) + A_K)).sum(dim=-1)
    alpha = functional.softmax(scores / math.sqrt(X.shape[-1]), dim=2)
    return torch.einsum("bijh,bijhd->bihd", alpha, values.unsqueeze(1) + A_V)


def self_attention(X: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> tuple[Tensor, Tensor]:
    Q, K, V = X @ W_Q, X @ W_K, X @ W_V
    weights = torch.softmax(Q @ K.transpose(-2, -1) / math.sqrt(K.shape[-1]), dim=-1)
    return functional.scaled_dot_product_attention(Q[None], K[None], V[None])[0], weights


def masked_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    weights = torch.zeros_like(scores)
    for b, n in mask.any(-1).nonzero().tolist():
        kept = mask[b, n].nonzero()[:, 0]
        weights[b, :, n, kept] = torch.softmax(scores[b, :, n, kept], dim=-1)
    return weights @ value, weights


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
    heads, weights = [], []
    columns = (W.split(W.shape[1] // H, dim=1) for W in (W_q, W_k, W_v))
    for w_q, w_k, w_v in zip(*columns, strict=True):
        scores = (query @ w_q) @ (key @ w_k).mT / math.sqrt(w_q.shape[1])
        weights.append(torch.softmax(scores, dim=-1))
        heads.append(weights[-1] @ (value @ w_v))
    return torch.cat(heads, dim=-1) @ W_O, torch.stack(weights, dim=1)


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
    """The linear maps of all heads at once, around the attention above."""
    heads = (
        (tokens @ W).unflatten(-1, (H, -1)).transpose(1, 2)
        for tokens, W in ((query, W_q), (key, W_k), (value, W_v))
    )
    attended, weights = masked_attention(*heads, mask)
    return functional.linear(attended.transpose(1, 2).flatten(2), W_O.T), weights


def token_attention(
    *, x: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, H: int
) -> Tensor:
    batch, tokens, _ = x.shape

    def split_heads(t: Tensor) -> Tensor:
        return t.view(batch, tokens, H, t.shape[-1] // H).transpose(1, 2)

    Qh, Kh, Vh = (split_heads(x @ W) for W in (W_q, W_k, W_v))
    scores = Qh @ Kh.transpose(-2, -1) / math.sqrt(Qh.shape[-1])
    merged = (functional.softmax(scores, dim=-1) @ Vh).transpose(1, 2).reshape(batch, tokens, -1)
    return merged @ W_o


def causal_attention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    later = torch.triu(torch.ones(Q.shape[2], Q.shape[2], dtype=torch.bool), diagonal=1)
    scores = (Q @ K.transpose(-2, -1)) * (Q.shape[-1] ** -0.5)
    return torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1) @ V


def head_projection(x: Tensor, w: Tensor) -> Tensor:
    """The loop over heads."""
    return torch.stack([x @ w[i, ...] for i in range(len(w))], dim=1)


def head_projection_merged(x: Tensor, w: Tensor, N: int) -> Tensor:
    """One product of matrices, and a reshape."""
    batch, places, width = x.shape
    out = x.view(-1, width) @ w
    return out.view(batch, places, N, -1).permute(0, 2, 1, 3).contiguous()
