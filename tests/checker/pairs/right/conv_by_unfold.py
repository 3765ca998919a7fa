"""A convolution layer over time as windows times weights."""

FORMULA = """
    x[B, C, T]; W[O, C, K]; bias[O]
    index t < T - K + 1
    y[b,o,t] = sum[c, k](x[b,c,t + k] * W[o,c,k]) + bias[o]
"""


def conv1d(x, W, bias):
    windows = x.unfold(2, W.shape[2], 1)
    y = windows.permute(0, 2, 1, 3).flatten(2) @ W.flatten(1).T
    return (y + bias).transpose(1, 2)
