"""Second moments are returned as a covariance: nothing was centred."""

import torch

FORMULA = "batched_covariance"
EDIT = ("add the term", "mu")
LINE = "return torch.bmm"


def covariance(x):
    n = x.shape[1]
    return torch.bmm(x.transpose(1, 2), x) / (n - 1)
