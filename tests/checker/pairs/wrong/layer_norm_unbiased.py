"""Tensor.var divides by n - 1 unless it is told otherwise."""

import torch

FORMULA = "layer_norm"
EDIT = ("biased variance (correction=0)",)
LINE = "variance = "


def layer_norm(x, gamma, beta, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gamma + beta
