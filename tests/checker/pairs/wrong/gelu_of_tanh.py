"""The approximation by tanh where the exact gelu is meant."""

import torch.nn.functional as F

FORMULA = "x[N, D]; W[D, F]; h[n,f] = sum[d](x[n,d] * W[d,f]); y[n,f] = gelu(h[n,f])"
EDIT = ("gelu",)
LINE = "F.gelu"


def activate(x, W):
    h = x @ W
    return F.gelu(h, approximate="tanh")
