"""The gathered log-probabilities are those of the class one further on."""

import torch

FORMULA = """
    x[N, C]; int t[N] < C
    lp[n,c] = log_softmax[c](x[n,c])
    loss = -mean[n](lp[n,t[n]])
"""
EDIT = ("t[n]",)
LINE = "picked = "


def nll(x, t):
    lp = torch.log_softmax(x, dim=-1)
    picked = lp[torch.arange(len(t)), (t + 1) % x.shape[1]]
    return -picked.mean()
