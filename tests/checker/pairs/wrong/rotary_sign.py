"""The rotation goes the wrong way round: both signs of the sine are flipped."""

import torch

FORMULA = """
    x[S, 2*D]; c, s[S, D]
    index m < 2*D
    y[t,m] = x[t,m] * c[t,m % D] + where(m < D, -x[t,m + D], x[t,m - D]) * s[t,m % D]
"""
EDIT = ("sign|by -1", "s[t,m%d]")
LINE = "turned = torch.cat"


def rotate(x, c, s):
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((second, -first), dim=-1)
    return x * torch.cat((c, c), dim=-1) + turned * torch.cat((s, s), dim=-1)
