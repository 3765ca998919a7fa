"""The triangle has one diagonal too many: every position sees the next one."""

import torch

FORMULA = "causal_attention"
EDIT = ("shift the mask", "j <= i")
LINE = "allowed = "


def causal_attention(Q, K, V):
    n = Q.size(-2)
    scores = torch.einsum("bhqd,bhkd->bhqk", Q, K) / Q.size(-1) ** 0.5
    allowed = torch.tril(torch.ones(n, n, dtype=torch.bool), diagonal=1)
    scores = scores.masked_fill(~allowed, -torch.inf)
    return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), V)
