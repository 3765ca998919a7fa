"""Graphs: the normalised adjacency as a product of matrices, attention node by node."""

import torch
from torch import Tensor
from torch.nn import functional


def graph_convolution(A: Tensor, X: Tensor, W: Tensor) -> Tensor:
    looped = A + torch.eye(len(A), dtype=A.dtype)
    scale = torch.diag(looped.sum(dim=1) ** -0.5)
    return functional.relu(scale @ looped @ scale @ X @ W)


def graph_attention(
    *, h: Tensor, W: Tensor, a_1: Tensor, a_2: Tensor, A: Tensor, slope: float
) -> Tensor:
    rows = []
    for own, neighbours in zip(h @ W, A, strict=True):
        others = (h @ W)[neighbours]
        pairs = torch.cat([own.expand_as(others), others], dim=-1)
        scores = functional.leaky_relu(pairs @ torch.cat([a_1, a_2]), negative_slope=slope)
        rows.append(functional.elu(torch.softmax(scores, dim=0) @ others))
    return torch.stack(rows)


def dirichlet_energy(A: Tensor, X: Tensor) -> Tensor:
    steps = X[:, None] - X
    return 0.5 * torch.einsum("ij,ijf,ijf->", A, steps, steps)
