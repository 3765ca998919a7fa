"""One index in the second einsum: the values are summed over the queries, not the keys."""

import torch

FORMULA = """
    q, k, v[B, H, N, D]
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
    z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h,j,d])
"""
EDIT = ("exchange i and j",)
LINE = "return torch.einsum"


def heads_attention(q, k, v):
    s = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
    w = s.softmax(-1)
    return torch.einsum("bhij,bhid->bhjd", w, v)
