"""True means "may look" in the formula, and the code puts -inf exactly there."""

import torch

FORMULA = """
    q[B, N, D]; k[B, M, D]; v[B, M, E]; bool mask[B, N, M]
    p[b,i,j] = softmax[j, mask[b,i,j]](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,e] = sum[j](p[b,i,j] * v[b,j,e])
"""
EDIT = ("invert the mask",)
LINE = "scores.masked_fill"


def attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v
