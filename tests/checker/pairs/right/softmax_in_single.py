"""The softmax is taken in float32 whatever the inputs are, as large models do."""

import torch

FORMULA = """
    q, k, v[B, H, N, D]
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
    z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h,j,d])
"""
SINGLE = True


def eager_attention(q, k, v):
    scores = torch.matmul(q, k.transpose(2, 3)) * q.size(-1) ** -0.5
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(weights, v)
