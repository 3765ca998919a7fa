"""The nonlinearity sits on the other branch."""

import torch
import torch.nn.functional as F

FORMULA = "swiglu"
EDIT = ("exchange w and v",)
LINE = "hidden = "


def feed_forward(x, W, V, W_2):
    hidden = (x @ W) * F.silu(x @ V)
    return torch.matmul(hidden, W_2)
