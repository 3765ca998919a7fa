"""A causal filter that was padded on the wrong side."""

import torch.nn.functional as F

FORMULA = """
    x[B, T]; w[K]
    index t < T
    y[b,t] = sum[k, k <= t](x[b,t - k] * w[k])
"""
EDIT = ("x[b,t - k], not x[b,t + k]",)
LINE = "padded = "


def causal_filter(x, w):
    size = w.shape[0]
    padded = F.pad(x, (0, size - 1))
    return F.conv1d(padded[:, None], w.view(1, 1, -1))[:, 0]
