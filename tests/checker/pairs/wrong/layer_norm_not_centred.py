"""The variance is right, and the mean is not subtracted from what it divides."""

import torch

FORMULA = "layer_norm"
EDIT = ("add the term", "mu")
LINE = "normed = "


def layer_norm(x, gamma, beta, eps=1e-5):
    var, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    normed = x * torch.rsqrt(var + eps)
    return normed * gamma + beta
