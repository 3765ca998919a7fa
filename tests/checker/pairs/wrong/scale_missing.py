"""The scores are never divided by the root of the width."""

import torch

FORMULA = "causal_attention"
EDIT = ("scale the argument of softmax", "by 1/sqrt(d)")
LINE = "scores = Q @"


def causal(Q, K, V):
    N = Q.shape[2]
    scores = Q @ K.mT
    future = torch.ones(N, N, dtype=torch.bool, device=Q.device).triu(1)
    scores = scores.masked_fill(future, float("-inf"))
    return scores.softmax(-1) @ V
