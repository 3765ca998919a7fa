"""Queries at the end of a longer sequence: the triangle is shifted by the number of cached keys."""

import torch

FORMULA = """
    q[B, N, D]; k, v[B, P + N, D]
    index i < N
    index j < P + N
    p[b,i,j] = softmax[j, j <= i + P](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,d] = sum[j](p[b,i,j] * v[b,j,d])
"""


def decode(q, k, v):
    n, m = q.shape[1], k.shape[1]
    keep = torch.ones(n, m, dtype=torch.bool).tril(diagonal=m - n)
    scores = torch.bmm(q, k.mT) / q.shape[-1] ** 0.5
    return scores.masked_fill(~keep, float("-inf")).softmax(-1) @ v
