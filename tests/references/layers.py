"""Layers, by torch's own functions where it has them."""

import torch
from torch import Tensor
from torch.nn import functional


def linear(x: Tensor, W: Tensor, bias: Tensor) -> Tensor:
    return functional.linear(x, W, bias)


def bilinear(x: Tensor, y: Tensor, W: Tensor, bias: Tensor) -> Tensor:
    return functional.bilinear(x, y, W, bias)


def biaffine(
    *, h_dep: Tensor, h_head: Tensor, U: Tensor, W_dep: Tensor, W_head: Tensor, bias: Tensor
) -> Tensor:
    """A bilinear and a linear layer of every pair, the linear one of both vectors side by side."""
    words = h_dep.shape[1]
    dep = h_dep.unsqueeze(2).expand(-1, -1, words, -1).contiguous()
    head = h_head.unsqueeze(1).expand(-1, words, -1, -1).contiguous()
    weight = torch.cat([W_head, W_dep], dim=1)
    affine = functional.linear(torch.cat([head, dep], dim=-1), weight, bias)
    return (functional.bilinear(dep, head, U) + affine).permute(0, 3, 1, 2)


def swiglu(x: Tensor, W: Tensor, V: Tensor, W_2: Tensor) -> Tensor:
    return (functional.silu(x @ W) * (x @ V)) @ W_2


def soft_mixture(x: Tensor, W_g: Tensor, W_e: Tensor) -> Tensor:
    gates = functional.softmax(x @ W_g, dim=-1)
    return sum(gates[:, [e]] * (x @ expert) for e, expert in enumerate(W_e))


def lora(x: Tensor, W_0: Tensor, A: Tensor, B: Tensor, alpha: float) -> Tensor:
    update = functional.linear(functional.linear(x, A), B)
    return functional.linear(x, W_0) + alpha / len(A) * update


def tucker(*, x: Tensor, y: Tensor, G: Tensor, U: Tensor, V: Tensor, W: Tensor) -> Tensor:
    """Both vectors to the core's sizes, the core as a bilinear layer, and out."""
    return functional.linear(functional.bilinear(x @ U, y @ V, G.permute(2, 0, 1)), W)


def cp_bilinear(x: Tensor, y: Tensor, U: Tensor, V: Tensor, W: Tensor) -> Tensor:
    return functional.linear((x @ U) * (y @ V), W)


def matrix_chain(A: Tensor, B: Tensor, C: Tensor, D: Tensor, E: Tensor) -> Tensor:
    return torch.linalg.multi_dot([A, B, C, D, E])


def hypernetwork_linear(x: Tensor, c: Tensor, W: Tensor, b: Tensor) -> Tensor:
    weights = torch.tensordot(c, W, dims=1)  # [B, O, I]
    return torch.bmm(weights, x[..., None])[..., 0] + c @ b
