"""|x|^2 + |y|^2 - x.y: the factor 2 of the cross term is missing."""

import torch

FORMULA = """
    x[N, D]; y[M, D]
    d2[i,j] = sum[d](x[i,d]**2) + sum[d](y[j,d]**2) - 2 * sum[d](x[i,d] * y[j,d])
"""
EDIT = ("scale", "-2")
LINE = "return "


def pairwise_squared(x, y):
    x2 = x.pow(2).sum(1)[:, None]
    y2 = y.pow(2).sum(1)[None]
    return x2 + y2 - torch.mm(x, y.t())
