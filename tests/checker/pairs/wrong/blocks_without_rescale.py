"""The running sum is not rescaled when the maximum grows; it shows from the second block on."""

import torch

FORMULA = """
    q[B, N, D]; k[B, M, D]; v[B, M, E]
    p[b,i,j] = softmax[j](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,e] = sum[j](p[b,i,j] * v[b,j,e])
"""
SHOWN_AT = {"M": 37, "B": 2, "N": 3, "D": 4, "E": 5}
EDIT = ("rescale|exp(top - new_top)",)
LINE = "total = total"


def blockwise(q, k, v, block=16):
    q = q * q.shape[-1] ** -0.5
    top = q.new_full((*q.shape[:-1], 1), float("-inf"))
    total, out = torch.zeros_like(top), 0.0
    for kb, vb in zip(k.split(block, dim=1), v.split(block, dim=1), strict=True):
        s = q @ kb.mT
        new_top = torch.maximum(top, s.amax(-1, keepdim=True))
        w = torch.exp(s - new_top)
        total = total + w.sum(-1, keepdim=True)
        out = out * torch.exp(top - new_top) + w @ vb
        top = new_top
    return out / total
