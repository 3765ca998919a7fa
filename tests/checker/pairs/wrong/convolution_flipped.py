"""A true convolution where the formula, like every layer, has a correlation."""

FORMULA = """
    x[B, T]; w[K]
    index t < T - K + 1
    y[b,t] = sum[k](x[b,t + k] * w[k])
"""
EDIT = ("w[k], not w[k - 1 - k]",)
LINE = "windows @"


def filter_signal(x, w):
    windows = x.unfold(1, w.shape[0], 1)
    return windows @ w.flip(0)
