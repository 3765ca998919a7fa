"""The weights of queries and keys are multiplied together before they meet the tokens."""

import torch

FORMULA = """
    x[B, S, E]; W_Q, W_K[H, E, D]
    q[b,h,i,d] = sum[e](x[b,i,e] * W_Q[h,e,d])
    k[b,h,j,d] = sum[e](x[b,j,e] * W_K[h,e,d])
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
"""


def attention_map(x, W_Q, W_K):
    folded = torch.matmul(W_Q, W_K.transpose(1, 2)) * W_Q.shape[-1] ** -0.5
    scores = torch.einsum("bie,hef,bjf->bhij", x, folded, x)
    return scores.softmax(dim=3)
