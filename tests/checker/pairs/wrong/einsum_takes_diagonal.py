"""A channel mixing whose string repeats the index of the weight: only its diagonal is read."""

import torch

FORMULA = "x[B, C, T]; W[C, C]; y[b,o,t] = sum[c](W[o,c] * x[b,c,t])"
EDIT = ("repeated letter",)
LINE = "torch.einsum"


def mix_channels(x, W):
    return torch.einsum("cc,bct->bct", W, x)
