"""Averages of every second half, not of neighbours: the view has its factors exchanged."""

FORMULA = """
    x[B, 3*T]
    index t < T
    index r < 3
    y[b,t] = sum[r](x[b,3*t + r]) / 3
"""
EDIT = ("transpose", "splitting")
LINE = "x.view"


def average_pool(x):
    parts = x.view(x.shape[0], 3, -1)
    return parts.mean(dim=1)
