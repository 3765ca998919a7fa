"""Neighbouring pairs as complex numbers, turned by a product."""

import torch

FORMULA = """
    x[S, 2*D]; c, s[S, D]
    index m < 2*D
    r[t,m] = where(m % 2 == 0, -x[t,2*(m // 2) + 1], x[t,2*(m // 2)])
    y[t,m] = x[t,m] * c[t,m // 2] + r[t,m] * s[t,m // 2]
"""


def rotate(x, c, s):
    z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * torch.complex(c, s)).flatten(-2)
