"""Edges of a graph: messages gathered from sources and added up at targets by index_add."""

import torch

FORMULA = """
    x[N, D]; w[E]; int src[E] < N; int dst[E] < N
    index n < N
    y[n,d] = sum[e](w[e] * x[src[e],d] * [dst[e] == n])
"""


def message_passing(x, w, src, dst):
    messages = x.index_select(0, src) * w.unsqueeze(1)
    return torch.zeros_like(x).index_add_(0, dst, messages)
