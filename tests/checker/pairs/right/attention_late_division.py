"""The exponentials go through the values first and are divided by their sum at the end."""

import torch

FORMULA = """
    q, k, v[B, H, N, D]
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
    z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h,j,d])
"""


def attention(q, k, v):
    scale = q.shape[-1] ** -0.5
    scores = torch.einsum("...id,...jd->...ij", q * scale, k)
    scores = scores - scores.max(dim=-1, keepdim=True).values
    weights = scores.exp()
    return torch.einsum("...ij,...jd->...id", weights, v) / weights.sum(-1, keepdim=True)
