"""The weight of the general score goes in the wrong way round: keys where queries belong."""

import torch

FORMULA = """
    s[B, T, D]; h[B, S, D]; W_a[D, D]
    score[b,t,j] = sum[d, e](s[b,t,d] * W_a[d,e] * h[b,j,e])
    a[b,t,j] = softmax[j](score[b,t,j])
    c[b,t,e] = sum[j](a[b,t,j] * h[b,j,e])
    return c, a
"""
EDIT = ("transpose w_a|exchange d and e of w_a",)
LINE = "score = "


def general_attention(s, h, W_a):
    score = torch.einsum("btd,bjd->btj", s @ W_a.T, h)
    a = torch.softmax(score, dim=2)
    return a @ h, a
