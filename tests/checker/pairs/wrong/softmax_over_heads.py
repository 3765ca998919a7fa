"""The scores were moved to [b, i, j, h] and the softmax stayed on the last axis, the heads."""

import torch

FORMULA = """
    q, k, v[B, N, H, D]
    s[b,i,j,h] = sum[d](q[b,i,h,d] * k[b,j,h,d]) / sqrt(D)
    p[b,i,j,h] = softmax[j](s[b,i,j,h])
    z[b,i,h,d] = sum[j](p[b,i,j,h] * v[b,j,h,d])
"""
EDIT = ("softmax over j, not h",)
LINE = "attn = torch.softmax"


def attention(q, k, v):
    head_dim = q.shape[-1]
    logits = torch.einsum("bihd,bjhd->bijh", q, k) / head_dim**0.5
    attn = torch.softmax(logits, dim=-1)
    return torch.einsum("bijh,bjhd->bihd", attn, v)
