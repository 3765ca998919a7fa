"""Variants of attention, through their whole matrices of weights."""

import math

import torch
from torch import Tensor
from torch.nn import functional


def linear_attention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """The quadratic form: a weight for every pair, each row divided by its sum."""
    weights = (functional.elu(Q) + 1) @ (functional.elu(K) + 1).mT
    return weights / weights.sum(dim=-1, keepdim=True) @ V


def talking_heads_attention(Q: Tensor, K: Tensor, V: Tensor, P_l: Tensor, P_w: Tensor) -> Tensor:
    scores = Q.transpose(1, 2) @ K.permute(0, 2, 3, 1) / math.sqrt(Q.shape[-1])
    talked = functional.linear(scores.movedim(1, -1), P_l.T)  # [B, N, M, L]
    weights = functional.linear(torch.softmax(talked, dim=2), P_w.T)  # [B, N, M, G]
    return (weights.movedim(-1, 1) @ V.transpose(1, 2)).transpose(1, 2)


def luong_dot_attention(s: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    found = functional.scaled_dot_product_attention(s, h, h, scale=1.0)
    return found, torch.bmm(s, h.transpose(1, 2)).softmax(dim=2)


def luong_attention(s: Tensor, h: Tensor, W_a: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.bmm(functional.linear(s, W_a.T), h.transpose(1, 2)).softmax(dim=2)
    return torch.bmm(weights, h), weights


def luong_concat_attention(
    s: Tensor, h: Tensor, W_s: Tensor, W_h: Tensor, v_a: Tensor
) -> tuple[Tensor, Tensor]:
    """One weight for both vectors side by side, place by place."""
    weight = torch.cat([W_s, W_h], dim=1)
    scores = []
    for place in h.unbind(dim=1):
        both = torch.cat([s, place.unsqueeze(1).expand(-1, s.shape[1], -1)], dim=-1)
        scores.append(torch.tanh(functional.linear(both, weight)) @ v_a)
    weights = torch.stack(scores, dim=-1).softmax(dim=-1)
    return torch.bmm(weights, h), weights


def bahdanau_attention(
    s: Tensor, h: Tensor, W_a: Tensor, U_a: Tensor, v_a: Tensor
) -> tuple[Tensor, Tensor]:
    energies = torch.tanh((s @ W_a).unsqueeze(1) + h @ U_a) @ v_a
    weights = functional.softmax(energies, dim=1)
    return torch.bmm(weights.unsqueeze(1), h).squeeze(1), weights


def relative_key_attention(query: Tensor, key: Tensor, value: Tensor, A_K: Tensor) -> Tensor:
    shifted = key[:, :, None] + A_K  # [B, H, N, M, D]
    scores = torch.matmul(shifted, query[..., None])[..., 0] / math.sqrt(query.shape[-1])
    return scores.softmax(dim=-1) @ value


def transformer_xl_attention(
    *, q: Tensor, k: Tensor, v: Tensor, r: Tensor, u: Tensor, w: Tensor
) -> Tensor:
    content = (q + u[:, None]) @ k.mT
    position = ((q + w[:, None])[:, :, :, None] * r.permute(2, 0, 1, 3)).sum(dim=-1)
    scores = (content + position) / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, -math.inf).softmax(dim=-1)
    return (weights @ v).transpose(1, 2)


def causal_linear_attention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """The quadratic form, its rows cut at the diagonal."""
    weights = ((functional.elu(Q) + 1) @ (functional.elu(K) + 1).mT).tril()
    return weights / weights.sum(dim=-1, keepdim=True) @ V
