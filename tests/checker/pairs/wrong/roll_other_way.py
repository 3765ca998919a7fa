"""A cyclic shift by one in the wrong direction."""

import torch

FORMULA = """
    x[B, N]; w_0, w_1[N]
    y[b,i] = w_0[i] * x[b,i] + w_1[i] * x[b,(i + 1) % N]
"""
EDIT = ("x[b,(i + 1)%n]",)
LINE = "neighbour = "


def ring(x, w_0, w_1):
    neighbour = torch.roll(x, 1, dims=1)
    return w_0 * x + w_1 * neighbour
