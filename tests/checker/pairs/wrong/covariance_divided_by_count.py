"""The sample covariance divides by N - 1, this one by N."""

import torch

FORMULA = "batched_covariance"
EDIT = ("n - 1",)
LINE = "return torch.einsum"


def covariance(x):
    centred = x - x.mean(1, keepdim=True)
    return torch.einsum("bnd,bne->bde", centred, centred) / x.size(1)
