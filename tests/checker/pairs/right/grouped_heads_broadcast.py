"""Grouped queries share a key head by broadcasting over an index of the group."""

import torch

FORMULA = """
    q[B, H*G, N, D]; k, v[B, H, N, D]
    size G
    index h < H*G
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h // G,j,d]) / sqrt(D))
    z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h // G,j,d])
"""


def grouped_attention(q, k, v):
    grouped = q.unflatten(1, (k.shape[1], -1))
    scores = torch.einsum("bhgid,bhjd->bhgij", grouped, k) * q.shape[-1] ** -0.5
    out = torch.einsum("bhgij,bhjd->bhgid", scores.softmax(-1), v)
    return out.flatten(1, 2)
