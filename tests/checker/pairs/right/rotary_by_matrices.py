"""Neighbouring pairs turned by two by two matrices that are stacked for every angle."""

import torch

FORMULA = """
    x[S, 2*D]; c, s[S, D]
    index m < 2*D
    r[t,m] = where(m % 2 == 0, -x[t,2*(m // 2) + 1], x[t,2*(m // 2)])
    y[t,m] = x[t,m] * c[t,m // 2] + r[t,m] * s[t,m // 2]
"""


def rotate_pairs(x, c, s):
    rows = torch.stack((torch.stack((c, -s), -1), torch.stack((s, c), -1)), -2)
    pairs = x.unflatten(-1, (-1, 2))
    return torch.einsum("tdxy,tdy->tdx", rows, pairs).flatten(1)
