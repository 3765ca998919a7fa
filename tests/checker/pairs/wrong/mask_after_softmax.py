"""The weights are masked when they are normalised already, so the rows no longer sum to one."""

import torch

FORMULA = """
    q, k, v[B, S, D]; bool mask[B, S, S]
    p[b,i,j] = softmax[j, mask[b,i,j]](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,d] = sum[j](p[b,i,j] * v[b,j,d])
"""
EDIT = ("mask before softmax",)
LINE = "weights.masked_fill"


def attention(q, k, v, mask):
    logits = torch.baddbmm(torch.zeros(1).to(q), q, k.mT, alpha=q.shape[-1] ** -0.5)
    weights = torch.softmax(logits, dim=-1)
    weights = weights.masked_fill(~mask, 0.0)
    return torch.bmm(weights, v)
