"""The sample variance by a loop over the samples, first for the mean, then for the squares."""

import torch

FORMULA = "x[N, D]; v[d] = var[n](x[n,d], correction=1)"


def sample_variance(x):
    count = x.shape[0]
    mean = torch.zeros_like(x[0])
    for row in x:
        mean = mean + row / count
    total = torch.zeros_like(mean)
    for row in x:
        total = total + (row - mean) ** 2
    return total / (count - 1)
