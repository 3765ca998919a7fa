"""The scale is applied to the weights, after the softmax."""

import torch

FORMULA = """
    q[B, N, D]; k, v[B, M, D]
    p[b,i,j] = softmax[j](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,d] = sum[j](p[b,i,j] * v[b,j,d])
"""
EDIT = ("scale the argument of softmax", "by 1/sqrt(d)|by q.shape[-1] ** -0.5")
LINE = "p = "


def attention(q, k, v):
    scores = torch.bmm(q, k.mT)
    p = torch.softmax(scores, dim=-1) * q.shape[-1] ** -0.5
    return torch.bmm(p, v)
