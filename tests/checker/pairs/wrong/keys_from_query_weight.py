"""A line was copied and half edited: the keys are made with the weight of the queries."""

import torch

FORMULA = """
    x[S, E]; W_Q, W_K, W_V[E, D]
    q[i,d] = sum[e](x[i,e] * W_Q[e,d])
    k[j,d] = sum[e](x[j,e] * W_K[e,d])
    v[j,d] = sum[e](x[j,e] * W_V[e,d])
    p[i,j] = softmax[j](sum[d](q[i,d] * k[j,d]) / sqrt(D))
    z[i,d] = sum[j](p[i,j] * v[j,d])
"""
EDIT = ("use w_k, not w_q",)
LINE = "k = torch.matmul"


def self_attention(x, W_Q, W_K, W_V):
    q = torch.matmul(x, W_Q)
    k = torch.matmul(x, W_Q)
    v = torch.matmul(x, W_V)
    p = torch.softmax(q @ k.T / k.shape[1] ** 0.5, dim=-1)
    return p @ v
