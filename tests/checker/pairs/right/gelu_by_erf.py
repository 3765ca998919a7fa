"""gelu written out by the error function."""

import math

import torch

FORMULA = "x[N, D]; W[D, F]; y[n,f] = gelu(sum[d](x[n,d] * W[d,f]))"


def activate(x, W):
    h = x @ W
    return 0.5 * h * (1.0 + torch.erf(h / math.sqrt(2.0)))
