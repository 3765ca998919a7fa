"""Two self-attention layers with a residual path and RMS norm, layer after layer in a loop."""

import torch

FORMULA = """
    x[S, D]; Q_1, K_1, V_1, Q_2, K_2, V_2[D, D]
    p_1[i,j] = softmax[j](sum[a, b, c](x[i,a] * Q_1[a,b] * x[j,c] * K_1[c,b]) / sqrt(D))
    h[i,e] = x[i,e] + sum[j, d](p_1[i,j] * x[j,d] * V_1[d,e])
    u[i,e] = h[i,e] / sqrt(mean[d](h[i,d]**2) + 1/1000)
    p_2[i,j] = softmax[j](sum[a, b, c](u[i,a] * Q_2[a,b] * u[j,c] * K_2[c,b]) / sqrt(D))
    y[i,e] = h[i,e] + sum[j, d](p_2[i,j] * u[j,d] * V_2[d,e])
"""


def _attend(x, wq, wk, wv):
    scores = (x @ wq) @ (x @ wk).T / x.shape[-1] ** 0.5
    return scores.softmax(-1) @ (x @ wv)


def _norm(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3)


def two_layers(x, Q_1, K_1, V_1, Q_2, K_2, V_2):
    h, normed = x, x
    for weights in ((Q_1, K_1, V_1), (Q_2, K_2, V_2)):
        h = h + _attend(normed, *weights)
        normed = _norm(h)
    return h
