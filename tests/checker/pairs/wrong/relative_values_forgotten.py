"""The relative values A_V are taken as an argument and then left out of the sum."""

import torch

FORMULA = "relative_attention"
EDIT = ("add the term", "a_v")
LINE = "return torch.einsum"


def shaw_attention(X, W_Q, W_K, W_V, A_K, A_V):
    q = torch.einsum("bshd,hde->bshe", X, W_Q)
    k = torch.einsum("bshd,hde->bshe", X, W_K)
    v = torch.einsum("bshd,hde->bshe", X, W_V)
    keys = k[:, None] + A_K
    scores = (q[:, :, None] * keys).sum(-1) / X.shape[-1] ** 0.5
    alpha = torch.softmax(scores, dim=2)
    return torch.einsum("bijh,bjhe->bihe", alpha, v)
