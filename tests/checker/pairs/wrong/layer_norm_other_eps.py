"""eps is that of another framework: 1e-6 where the formula has 1e-5."""

import torch

FORMULA = """
    x[N, D]
    mu[n] = mean[d](x[n,d])
    s2[n] = mean[d]((x[n,d] - mu[n])**2)
    y[n,d] = (x[n,d] - mu[n]) / sqrt(s2[n] + 1/100000)
"""
EDIT = ("1/100000|1e-5|1e-05|0.00001",)
LINE = "return "


def normalise(x):
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    variance = centred.square().mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + 1e-6)
