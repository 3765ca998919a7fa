"""Batch and heads are merged by view so that torch.bmm can be used."""

import torch

FORMULA = """
    q, k[B, H, N, D]; v[B, H, N, E]
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
    z[b,i,h,e] = sum[j](p[b,h,i,j] * v[b,h,j,e])
"""


def attention(q, k, v):
    B, H, N, D = q.shape
    q, k, v = (t.reshape(B * H, N, -1) for t in (q, k, v))
    w = torch.softmax(torch.bmm(q, k.permute(0, 2, 1)).mul_(D**-0.5), dim=2)
    return torch.bmm(w, v).view(B, H, N, -1).transpose(1, 2)
