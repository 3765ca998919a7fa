"""Blocks of sixteen keys: at small sizes there is only one, and it is right for more."""

import torch

FORMULA = """
    q[B, N, D]; k[B, M, D]; v[B, M, E]
    p[b,i,j] = softmax[j](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,e] = sum[j](p[b,i,j] * v[b,j,e])
"""


def blockwise(q, k, v, block=16):
    parts, logs = [], []
    for kb, vb in zip(k.split(block, dim=1), v.split(block, dim=1), strict=True):
        s = q @ kb.mT * q.shape[-1] ** -0.5
        parts.append(s.softmax(-1) @ vb)
        logs.append(s.logsumexp(-1))
    shares = torch.stack(logs, dim=-1).softmax(-1)
    return torch.einsum("bnp,bpne->bne", shares, torch.stack(parts, dim=1))
