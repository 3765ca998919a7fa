"""Relative attention with both products distributed over the sums; no tensor has five indices."""

import torch

FORMULA = "relative_attention"


def relative(X, W_Q, W_K, W_V, A_K, A_V):
    q = torch.einsum("bshd,hde->bhse", X, W_Q) * X.shape[-1] ** -0.5
    k = torch.einsum("bshd,hde->bhse", X, W_K)
    v = torch.einsum("bshd,hde->bhse", X, W_V)
    scores = q @ k.mT
    scores = scores + torch.einsum("bhie,ijhe->bhij", q, A_K)
    p = scores.softmax(dim=-1)
    out = (p @ v).transpose(1, 2)
    return out + torch.einsum("bhij,ijhe->bihe", p, A_V)
