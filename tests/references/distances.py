"""Distances, by torch.cdist without its shortcut through products, and matrices."""

import torch
from torch import Tensor
from torch.nn import functional


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist") ** 2


def gaussian_kernel(x: Tensor, y: Tensor, sigma: float) -> Tensor:
    return torch.exp(-0.5 * squared_distances(x / sigma, y / sigma))


def cosine_matrix(x: Tensor, y: Tensor) -> Tensor:
    return functional.cosine_similarity(x.unsqueeze(1), y.unsqueeze(0), dim=-1)


def mahalanobis(x: Tensor, mu: Tensor, P: Tensor) -> Tensor:
    away = x - mu
    return torch.diagonal(away @ P @ away.T)
