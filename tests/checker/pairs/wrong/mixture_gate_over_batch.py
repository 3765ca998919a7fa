"""The experts' gates are normalised over the batch."""

import torch

FORMULA = "soft_mixture"
EDIT = ("softmax over e, not b",)
LINE = "gate = "


def mixture(x, W_g, W_e):
    gate = (x @ W_g).softmax(dim=0)
    experts = torch.einsum("bd,edo->beo", x, W_e)
    return torch.einsum("be,beo->bo", gate, experts)
