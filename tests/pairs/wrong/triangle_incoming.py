"""Incoming edges where the outgoing ones were meant: both tensors are read by columns."""

import torch

FORMULA = "triangle_multiplication"
EDIT = ("exchange",)
LINE = "return g"


def triangle_outgoing(a, b, g):
    return g * torch.einsum("kic,kjc->ijc", a, b)
