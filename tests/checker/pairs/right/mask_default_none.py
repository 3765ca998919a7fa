"""An optional mask, added as a bias of zeros and -inf when there is one."""

import torch

FORMULA = """
    q[B, N, D]; k[B, M, D]; v[B, M, E]; bool mask[B, N, M]
    p[b,i,j] = softmax[j, mask[b,i,j]](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,e] = sum[j](p[b,i,j] * v[b,j,e])
"""


def attention(q, k, v, mask=None, scale=None):
    scale = scale if scale is not None else q.shape[-1] ** -0.5
    scores = torch.einsum("bid,bjd->bij", q, k) * scale
    if mask is not None:
        bias = torch.zeros_like(scores).masked_fill(mask.logical_not(), float("-inf"))
        scores = scores + bias
    return scores.softmax(-1) @ v
