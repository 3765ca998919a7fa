"""The mask is the most negative number of the dtype instead of -inf."""

import torch

FORMULA = """
    q, k, v[B, S, D]; bool mask[B, S, S]
    p[b,i,j] = softmax[j, mask[b,i,j]](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,d] = sum[j](p[b,i,j] * v[b,j,d])
"""


def attention(q, k, v, mask):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1) @ v
