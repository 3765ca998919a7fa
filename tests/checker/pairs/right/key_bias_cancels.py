"""The bias of the keys is left out: it adds the same to a whole row and the softmax forgets it."""

import torch

FORMULA = """
    x[S, E]; W_Q, W_K[E, D]; b_Q, b_K[D]
    q[i,d] = sum[e](x[i,e] * W_Q[e,d]) + b_Q[d]
    k[j,d] = sum[e](x[j,e] * W_K[e,d]) + b_K[d]
    p[i,j] = softmax[j](sum[d](q[i,d] * k[j,d]) / sqrt(D))
"""


def attention_map(x, W_Q, W_K, b_Q, b_K):
    q = torch.addmm(b_Q, x, W_Q)
    k = x @ W_K
    return torch.softmax(q @ k.T * q.shape[-1] ** -0.5, dim=-1)
