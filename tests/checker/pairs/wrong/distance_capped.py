"""The table of slopes times distance stops growing at 20, which no short test shows."""

import torch

FORMULA = """
    q, k[B, H, N, D]; m[H]
    index i, j < N
    s[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D) - m[h] * (i - j)
    p[b,h,i,j] = softmax[j, j <= i](s[b,h,i,j])
"""
SHOWN_AT = {"N": 29, "B": 1, "D": 3, "H": 2}
EDIT = ("i - j|pos[:, none] - pos", "20|clip|clamp|min")
LINE = "distance = "


def alibi(q, k, m):
    pos = torch.arange(q.shape[-2])
    distance = (pos[:, None] - pos).clamp(max=20)
    scores = q @ k.mT / q.shape[-1] ** 0.5 - m[:, None, None] * distance
    scores = scores.masked_fill(distance < 0, float("-inf"))
    return scores.softmax(-1)
