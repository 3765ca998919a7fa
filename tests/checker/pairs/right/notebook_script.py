"""A script without any function: attention of one head, its tensors made up at the top."""

import torch

FORMULA = """
    x[B, S, E]; W_q, W_k, W_v[E, D]
    q[b,i,d] = sum[e](x[b,i,e] * W_q[e,d])
    k[b,j,d] = sum[e](x[b,j,e] * W_k[e,d])
    p[b,i,j] = softmax[j](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,d] = sum[j](p[b,i,j] * sum[e](x[b,j,e] * W_v[e,d]))
"""
BIND = {"x": "x", "w_q": "W_q", "w_k": "W_k", "w_v": "W_v"}

x = torch.randn(2, 5, 6)
w_q = torch.randn(6, 3)
w_k = torch.randn(6, 3)
w_v = torch.randn(6, 3)

q, k, v = x @ w_q, x @ w_k, x @ w_v
scores = torch.matmul(q, k.transpose(1, 2)) / k.shape[-1] ** 0.5
weights = scores.softmax(dim=-1)
z = weights @ v
