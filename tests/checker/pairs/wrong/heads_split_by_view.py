"""The heads are split off by one view to [B, H, S, D]; the transpose was forgotten."""

import torch.nn.functional as F

FORMULA = """
    x[B, S, H*D]
    size H
    index h < H
    index d < D
    p[b,h,i,j] = softmax[j](sum[d](x[b,i,h*D + d] * x[b,j,h*D + d]) / sqrt(D))
    z[b,i,h*D + d] = sum[j](p[b,h,i,j] * x[b,j,h*D + d])
"""
EDIT = ("transpose heads after splitting",)
LINE = "heads = x.view"
BIND = {"num_heads": "H"}


def plain_self_attention(x, num_heads):
    batch, length, width = x.shape
    head_dim = width // num_heads
    heads = x.view(batch, num_heads, length, head_dim)
    scores = heads @ heads.transpose(-1, -2) * head_dim**-0.5
    out = F.softmax(scores, dim=-1) @ heads
    return out.transpose(1, 2).reshape(batch, length, width)
