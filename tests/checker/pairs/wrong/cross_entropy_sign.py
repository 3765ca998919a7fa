"""The log-likelihood is returned as a loss: the minus is missing."""

import torch

FORMULA = """
    x[N, C]; int t[N] < C
    lp[n,c] = log_softmax[c](x[n,c])
    loss = -mean[n](lp[n,t[n]])
"""
EDIT = ("scale loss by -1|sign",)
LINE = "return picked"


def cross_entropy(x, t):
    lp = torch.log_softmax(x, dim=1)
    picked = lp.gather(1, t[:, None])
    return picked.mean()
