"""Divided by the width itself; the root was forgotten."""

import torch

FORMULA = """
    q[N, D]; k, v[M, D]
    p[i,j] = softmax[j](sum[d](q[i,d] * k[j,d]) / sqrt(D))
    z[i,d] = sum[j](p[i,j] * v[j,d])
"""
EDIT = ("scale the argument of softmax", "by 1/sqrt(d)")
LINE = "attn = "


def attend(q, k, v):
    attn = torch.softmax(torch.mm(q, k.t()) / q.size(1), dim=1)
    return torch.mm(attn, v)
