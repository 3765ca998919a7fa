"""The formula turns the two halves of a vector; the code turns neighbouring pairs."""

import torch

FORMULA = """
    x[S, 2*D]; c, s[S, D]
    index m < 2*D
    y[t,m] = x[t,m] * c[t,m % D] + where(m < D, -x[t,m + D], x[t,m - D]) * s[t,m % D]
"""
EDIT = ("interleaved",)
LINE = "even, odd = "


def rotate(x, c, s):
    even, odd = x[..., 0::2], x[..., 1::2]
    out = torch.stack((even * c - odd * s, odd * c + even * s), dim=-1)
    return out.flatten(-2)
