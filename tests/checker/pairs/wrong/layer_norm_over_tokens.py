"""The mean and the variance are taken along the sequence."""

import torch

FORMULA = "layer_norm"
EDIT = ("mean", "var", "over d, not s")
LINE = "mu = "


def layer_norm(x, gamma, beta, eps=1e-5):
    mu = x.mean(dim=1, keepdim=True)
    s2 = ((x - mu) ** 2).mean(dim=1, keepdim=True)
    return (x - mu) * torch.rsqrt(s2 + eps) * gamma + beta
