"""Incoming edges where the outgoing ones were meant: both tensors are read by columns."""

import torch

FORMULA = "triangle_multiplication"
EDIT = ("exchange", "i and k of a", "j and k of b")
LINE = "return g"


def triangle_outgoing(a, b, g):
    return g * torch.einsum("kic,kjc->ijc", a, b)
