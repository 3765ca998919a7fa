"""The denominator of linear attention is left out."""

import torch.nn.functional as F

FORMULA = """
    Q, K[B, H, N, D]; V[B, H, N, E]
    q[b,h,i,d] = elu(Q[b,h,i,d]) + 1
    k[b,h,j,d] = elu(K[b,h,j,d]) + 1
    memory[b,h,d,e] = sum[j](k[b,h,j,d] * V[b,h,j,e])
    norm[b,h,i] = sum[d](q[b,h,i,d] * sum[j](k[b,h,j,d]))
    z[b,h,i,e] = sum[d](q[b,h,i,d] * memory[b,h,d,e]) / norm[b,h,i]
"""
EDIT = ("factor", "norm[b,h,i]")
LINE = "return q"


def linear_attention(Q, K, V):
    q, k = F.elu(Q) + 1, F.elu(K) + 1
    memory = k.transpose(-1, -2) @ V
    return q @ memory
