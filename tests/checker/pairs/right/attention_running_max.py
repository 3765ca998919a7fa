"""Attention block by block over the keys, with a running maximum and a rescaled sum."""

import torch

FORMULA = """
    q[B, N, D]; k[B, M, D]; v[B, M, E]
    p[b,i,j] = softmax[j](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,e] = sum[j](p[b,i,j] * v[b,j,e])
"""


def blockwise_attention(q, k, v, block=2):
    q = q / q.shape[-1] ** 0.5
    top = q.new_full(q.shape[:-1], float("-inf"))
    total = q.new_zeros(q.shape[:-1])
    out = q.new_zeros(*q.shape[:-1], v.shape[-1])
    for start in range(0, k.shape[1], block):
        s = q @ k[:, start : start + block].mT
        new_top = torch.maximum(top, s.amax(dim=-1))
        w = torch.exp(s - new_top[..., None])
        shrink = torch.exp(top - new_top)
        total = total * shrink + w.sum(dim=-1)
        out = out * shrink[..., None] + w @ v[:, start : start + block]
        top = new_top
    return out / total[..., None]
