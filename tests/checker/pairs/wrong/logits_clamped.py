"""The logits are clamped to 20 "for stability"; only large ones show it."""

import torch

FORMULA = """
    q[N, D]; k, v[M, D]
    s[i,j] = sum[d](q[i,d] * k[j,d]) / sqrt(D)
    p[i,j] = softmax[j](s[i,j])
    z[i,d] = sum[j](p[i,j] * v[j,d])
"""
SHOWN_BY = 20.0
EDIT = ("clip|clamp|20",)
LINE = "logits = "


def attention(q, k, v):
    logits = (q @ k.T / q.shape[-1] ** 0.5).clamp(-20, 20)
    return torch.softmax(logits, dim=-1) @ v
