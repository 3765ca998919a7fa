"""Attention over a few queries at a time, written into a tensor that was made beforehand."""

import torch

FORMULA = """
    q[B, N, D]; k[B, M, D]; v[B, M, E]
    p[b,i,j] = softmax[j](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,e] = sum[j](p[b,i,j] * v[b,j,e])
"""


def attention_in_chunks(q, k, v, chunk=3):
    b, n, d = q.shape
    out = torch.empty(b, n, v.shape[-1], dtype=q.dtype)
    for lo in range(0, n, chunk):
        hi = min(lo + chunk, n)
        s = torch.baddbmm(q.new_zeros(b, hi - lo, k.shape[1]), q[:, lo:hi], k.transpose(1, 2))
        out[:, lo:hi] = torch.bmm((s / d**0.5).softmax(-1), v)
    return out
