"""The packed weight holds q, k, v; the chunks are unpacked as q, v, k."""

import torch
import torch.nn.functional as F

FORMULA = """
    x[B, S, E]; W[E, 3*D]
    index d < D
    Q[b,i,d] = sum[e](x[b,i,e] * W[e,d])
    K[b,j,d] = sum[e](x[b,j,e] * W[e,d + D])
    V[b,j,d] = sum[e](x[b,j,e] * W[e,d + 2*D])
    p[b,i,j] = softmax[j](sum[d](Q[b,i,d] * K[b,j,d]) / sqrt(D))
    z[b,i,d] = sum[j](p[b,i,j] * V[b,j,d])
"""
EDIT = ("exchange k and v",)
LINE = "q, v, k = "


def packed_attention(x, W):
    q, v, k = (x @ W).chunk(3, dim=-1)
    attn = F.softmax(q @ k.transpose(1, 2) * q.shape[-1] ** -0.5, dim=-1)
    return torch.bmm(attn, v)
