"""Rotary embedding with tables repeated over both halves and the half-turned copy."""

import torch

FORMULA = """
    x[S, 2*D]; c, s[S, D]
    index m < 2*D
    y[t,m] = x[t,m] * c[t,m % D] + where(m < D, -x[t,m + D], x[t,m - D]) * s[t,m % D]
"""


def rotate(x, c, s):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * c.repeat(1, 2) + turned * s.repeat(1, 2)
