"""Queries are the last of a longer sequence of keys; the triangle starts at the first key."""

import torch

FORMULA = """
    q[B, N, D]; k, v[B, P + N, D]
    index i < N
    index j < P + N
    p[b,i,j] = softmax[j, j <= i + P](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,d] = sum[j](p[b,i,j] * v[b,j,d])
"""
EDIT = ("j <= i + p",)
LINE = "keep = "


def decode(q, k, v):
    scores = torch.bmm(q, k.mT) / q.shape[-1] ** 0.5
    keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~keep, float("-inf")).softmax(-1) @ v
