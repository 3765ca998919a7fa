"""The sample covariance from the second moments and the outer product of the means."""

import torch

FORMULA = "batched_covariance"


def covariance(x):
    n = x.size(1)
    total = x.sum(1)
    moments = torch.einsum("bnd,bne->bde", x, x)
    return (moments - total[:, :, None] * total[:, None, :] / n) / (n - 1)
