"""A causal depthwise filter: each tap adds a shifted copy, in place."""

import torch

FORMULA = """
    x[B, T, C]; w[K, C]
    index t < T
    y[b,t,c] = sum[k, k <= t](x[b,t - k,c] * w[k,c])
"""


def causal_depthwise(x, w):
    y = torch.zeros_like(x)
    for k in range(min(w.shape[0], x.shape[1])):
        y[:, k:] += x[:, : x.shape[1] - k] * w[k]
    return y
