"""Even and odd places are written into an empty tensor separately."""

import torch

FORMULA = """
    x[S, 2*D]; c, s[S, D]
    index m < 2*D
    r[t,m] = where(m % 2 == 0, -x[t,2*(m // 2) + 1], x[t,2*(m // 2)])
    y[t,m] = x[t,m] * c[t,m // 2] + r[t,m] * s[t,m // 2]
"""


def rotate(x, c, s):
    out = torch.empty_like(x)
    out[:, ::2] = x[:, ::2] * c - x[:, 1::2] * s
    out[:, 1::2] = x[:, ::2] * s + x[:, 1::2] * c
    return out
