"""-10 is no infinity: what is masked still gets a little of the weight."""

import torch

FORMULA = """
    q, k[B, S, D]; bool mask[B, S, S]
    p[b,i,j] = softmax[j, mask[b,i,j]](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
"""
EDIT = ("mask before softmax",)
LINE = "masked_fill"


def weights(q, k, mask):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(~mask, -10.0), dim=-1)
