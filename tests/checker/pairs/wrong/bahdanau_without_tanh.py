"""The additive score without its nonlinearity: the query cancels in the softmax."""

import torch

FORMULA = """
    s[B, D]; h[B, T, E]; W_a[D, A]; U_a[E, A]; v_a[A]
    u[b,j,a] = tanh(sum[d](s[b,d] * W_a[d,a]) + sum[e](h[b,j,e] * U_a[e,a]))
    alpha[b,j] = softmax[j](sum[a](v_a[a] * u[b,j,a]))
    c[b,e] = sum[j](alpha[b,j] * h[b,j,e])
"""
EDIT = ("tanh",)
LINE = "u = "


def additive_attention(s, h, W_a, U_a, v_a):
    u = (s @ W_a)[:, None] + h @ U_a
    alpha = torch.softmax(u @ v_a, dim=-1)
    return (alpha[..., None] * h).sum(1)
