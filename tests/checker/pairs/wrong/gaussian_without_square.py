"""The distances stand in the exponent without their square."""

import torch

FORMULA = "gaussian_kernel"
EDIT = ("square",)
LINE = "distance = "


def rbf(x, y, sigma=1.0):
    distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.exp(-distance / (2 * sigma**2))
