"""The loop over blocks of queries ends before the last, shorter one, whose rows stay zero."""

import torch

FORMULA = """
    q[B, N, D]; k, v[B, M, D]
    p[b,i,j] = softmax[j](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,d] = sum[j](p[b,i,j] * v[b,j,d])
"""
EDIT = ("block|rows",)
LINE = "for number in range"


def in_blocks(q, k, v, size=2):
    out = torch.zeros_like(q)
    for number in range(q.shape[1] // size):
        rows = slice(number * size, (number + 1) * size)
        s = torch.bmm(q[:, rows], k.mT) / q.shape[-1] ** 0.5
        out[:, rows] = s.softmax(-1) @ v
    return out
