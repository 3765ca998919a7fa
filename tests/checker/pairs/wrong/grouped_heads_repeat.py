"""The few key heads are tiled by repeat, so query heads meet the wrong groups."""

import torch

FORMULA = """
    q[B, H*G, N, D]; k, v[B, H, N, D]
    size G
    index h < H*G
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h // G,j,d]) / sqrt(D))
    z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h // G,j,d])
"""
EDIT = ("repeat_interleave, not repeat",)
LINE = "k, v = "
BIND = {"groups": "G"}


def grouped_attention(q, k, v, groups):
    k, v = k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1)
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ v
