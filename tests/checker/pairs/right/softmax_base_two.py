"""Softmax in powers of two: the logarithm of e goes into the scale."""

import math

import torch

FORMULA = """
    q[N, D]; k, v[M, D]
    p[i,j] = softmax[j](sum[d](q[i,d] * k[j,d]) / sqrt(D))
    z[i,d] = sum[j](p[i,j] * v[j,d])
"""


def attention(q, k, v):
    scores = (q @ k.T) * (math.log2(math.e) / math.sqrt(q.shape[-1]))
    weights = torch.exp2(scores - scores.amax(dim=-1, keepdim=True))
    return (weights / weights.sum(dim=-1, keepdim=True)) @ v
