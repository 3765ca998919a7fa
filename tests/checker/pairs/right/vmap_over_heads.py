"""One head is written down and vmap makes it all heads of all batches."""

import torch

FORMULA = """
    q, k, v[B, H, N, D]
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
    z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h,j,d])
"""


def _one_head(q, k, v):
    return torch.softmax(q @ k.T / q.shape[-1] ** 0.5, dim=-1) @ v


def all_heads(q, k, v):
    return torch.vmap(torch.vmap(_one_head))(q, k, v)
