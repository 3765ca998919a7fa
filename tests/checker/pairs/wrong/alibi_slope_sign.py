"""Far keys are favoured: the distance comes with the wrong sign."""

import torch

FORMULA = """
    q, k[B, H, N, D]; m[H]
    index i, j < N
    s[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D) - m[h] * (i - j)
    p[b,h,i,j] = softmax[j, j <= i](s[b,h,i,j])
"""
EDIT = ("m[h]", "by -1|sign")
LINE = "scores = scores + "


def alibi(q, k, m):
    n = q.shape[-2]
    distance = torch.arange(n)[:, None] - torch.arange(n)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores + m[:, None, None] * distance
    scores = scores.masked_fill(distance < 0, float("-inf"))
    return scores.softmax(-1)
