"""The formula turns neighbouring pairs; the code was taken from a model that turns halves."""

import torch

FORMULA = """
    x[S, 2*D]; c, s[S, D]
    index m < 2*D
    r[t,m] = where(m % 2 == 0, -x[t,2*(m // 2) + 1], x[t,2*(m // 2)])
    y[t,m] = x[t,m] * c[t,m // 2] + r[t,m] * s[t,m // 2]
"""
EDIT = ("interleaved, not halved",)
LINE = "a, b = x.chunk"


def apply_rotary(x, c, s):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * c - b * s, b * c + a * s), dim=-1)
