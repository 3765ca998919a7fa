"""Distances, losses and graphs as people write them: cdist, cross_entropy, a dense matrix."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def squared_distances(*, x: Tensor, y: Tensor) -> Tensor:
    """All differences, squared and summed, which keeps the digits of near points."""
    return (x[:, None] - y).pow(2).sum(-1)


def gaussian_kernel(*, x: Tensor, y: Tensor, sigma: float) -> Tensor:
    """The accepted answer's way to a kernel matrix: all differences, then exp."""
    return torch.exp(-(x[:, None] - y).pow(2).sum(-1) / (2 * sigma**2))


def cosine_matrix(*, x: Tensor, y: Tensor) -> Tensor:
    """The accepted answer's way: normalise both, then one matmul."""
    return functional.normalize(x, dim=1) @ functional.normalize(y, dim=1).T


def mahalanobis(*, x: Tensor, mu: Tensor, P: Tensor) -> Tensor:
    """The accepted answer's way: one einsum over the differences."""
    delta = x - mu
    return torch.einsum("nj,jk,nk->n", delta, P, delta)


def infonce(*, q: Tensor, k: Tensor, tau: float) -> Tensor:
    """MoCo's and CLIP's way: cross entropy against the diagonal."""
    logits = q @ k.T / tau
    return functional.cross_entropy(logits, torch.arange(len(q), device=q.device))


def mean_squared_error(*, x: Tensor, y: Tensor) -> Tensor:
    """The textbooks' way: the differences, squared, their mean."""
    return ((x - y) ** 2).mean()


def kl_of_logits(*, p: Tensor, q: Tensor) -> Tensor:
    """The way of distillation scripts."""
    student, teacher = functional.log_softmax(q, dim=-1), functional.softmax(p, dim=-1)
    return functional.kl_div(student, teacher, reduction="batchmean")


def graph_convolution(*, A: Tensor, X: Tensor, W: Tensor) -> Tensor:
    """The tutorials' way with a dense adjacency, its normalisation by broadcasting."""
    looped = A + torch.eye(len(A), dtype=A.dtype, device=A.device)
    scale = looped.sum(dim=1).pow(-0.5)
    normal = scale.unsqueeze(1) * looped * scale.unsqueeze(0)
    return functional.relu(normal @ (X @ W))


def graph_attention(
    *, h: Tensor, W: Tensor, a_1: Tensor, a_2: Tensor, A: Tensor, slope: float
) -> Tensor:
    """The way of pyGAT, with zeros where a node has no neighbours."""
    own = h @ W
    scores = functional.leaky_relu((own @ a_1).unsqueeze(1) + (own @ a_2).unsqueeze(0), slope)
    weights = functional.softmax(scores.masked_fill(~A, -9e15), dim=1).masked_fill(~A, 0.0)
    return functional.elu(weights @ own)


def dirichlet_energy(*, A: Tensor, X: Tensor) -> Tensor:
    """As the sum over pairs is written, which keeps the digits of near neighbours."""
    return (A[..., None] * (X[:, None] - X).pow(2)).sum() / 2
