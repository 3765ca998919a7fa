"""The pair bias is added before the division, so it shrinks with the width."""

import torch

FORMULA = """
    q, k, v[B, H, S, D]; bias[H, S, S]
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D) + bias[h,i,j])
    z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h,j,d])
"""
EDIT = ("scale bias", "by 1")
LINE = "weights = "


def biased_attention(q, k, v, bias):
    scores = q @ k.transpose(-2, -1)
    weights = torch.softmax((scores + bias) / q.size(-1) ** 0.5, dim=-1)
    return weights @ v
