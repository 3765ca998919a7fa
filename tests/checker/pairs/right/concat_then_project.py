"""The heads are concatenated and go through one matrix; the formula adds the heads up."""

import torch

FORMULA = """
    x[B, S, E]; W_Q, W_K, W_V[H, E, D]; W_O[H, D, E]
    q[b,h,i,d] = sum[e](x[b,i,e] * W_Q[h,e,d])
    k[b,h,j,d] = sum[e](x[b,j,e] * W_K[h,e,d])
    v[b,h,j,d] = sum[e](x[b,j,e] * W_V[h,e,d])
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
    y[b,i,m] = sum[h](sum[d](sum[j](p[b,h,i,j] * v[b,h,j,d]) * W_O[h,d,m]))
"""


def multi_head(x, W_Q, W_K, W_V, W_O):
    heads = []
    for wq, wk, wv in zip(W_Q, W_K, W_V, strict=True):
        q, k, v = x @ wq, x @ wk, x @ wv
        p = torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, dim=2)
        heads.append(p @ v)
    return torch.cat(heads, dim=-1) @ W_O.flatten(0, 1)
