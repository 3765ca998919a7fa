"""The causal mask is a matrix of zeros and -inf that is added to the scores."""

import torch

FORMULA = "causal_attention"


def causal_attention(Q, K, V):
    n = Q.shape[-2]
    mask = torch.full((n, n), float("-inf"), dtype=Q.dtype, device=Q.device)
    mask = torch.triu(mask, diagonal=1)
    scores = (Q @ K.transpose(-1, -2)) * (1.0 / Q.shape[-1] ** 0.5) + mask
    return torch.softmax(scores, dim=-1) @ V
