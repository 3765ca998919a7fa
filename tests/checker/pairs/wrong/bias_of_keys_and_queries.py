"""The pair bias is added transposed: bias[h, j, i]."""

import torch

FORMULA = """
    q, k, v[B, H, S, D]; bias[H, S, S]
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D) + bias[h,i,j])
    z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h,j,d])
"""
EDIT = ("exchange i and j of bias",)
LINE = "s = s + "


def biased_attention(q, k, v, bias):
    s = torch.matmul(q, k.mT) * q.shape[-1] ** -0.5
    s = s + bias.transpose(1, 2)
    return torch.matmul(s.softmax(-1), v)
