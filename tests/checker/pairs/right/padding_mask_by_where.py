"""A mask over keys by where on the exponentials, and a division by what is left."""

import torch

FORMULA = """
    q, k, v[B, S, D]; bool keep[B, S]
    p[b,i,j] = softmax[j, keep[b,j]](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,d] = sum[j](p[b,i,j] * v[b,j,d])
"""


def padded_attention(q, k, v, keep):
    e = torch.exp(q @ k.mT / q.shape[-1] ** 0.5)
    e = torch.where(keep[:, None, :], e, torch.zeros_like(e))
    return (e / e.sum(-1, keepdim=True)) @ v
