"""Layers and norms as people write them: torch.nn's functions, matmul, statistics by keepdim."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def linear(*, x: Tensor, W: Tensor, bias: Tensor) -> Tensor:
    """What torch offers for it."""
    return functional.linear(x, W, bias)


def bilinear(*, x: Tensor, y: Tensor, W: Tensor, bias: Tensor) -> Tensor:
    """What torch offers for it."""
    return functional.bilinear(x, y, W, bias)


def biaffine(
    *, h_dep: Tensor, h_head: Tensor, U: Tensor, W_dep: Tensor, W_head: Tensor, bias: Tensor
) -> Tensor:
    """The way of the parsers: one einsum of three operands, linear terms by broadcasting."""
    scores = torch.einsum("bxi,oij,byj->boxy", h_dep, U, h_head)
    dependents = functional.linear(h_dep, W_dep).transpose(1, 2).unsqueeze(3)
    heads = functional.linear(h_head, W_head).transpose(1, 2).unsqueeze(2)
    return scores + dependents + heads + bias.view(1, -1, 1, 1)


def swiglu(*, x: Tensor, W: Tensor, V: Tensor, W_2: Tensor) -> Tensor:
    """Llama's way."""
    return (functional.silu(x @ W) * (x @ V)) @ W_2


def soft_mixture(*, x: Tensor, W_g: Tensor, W_e: Tensor) -> Tensor:
    """The tutorials' way: all experts stacked, weighted by the gate, summed."""
    gate = torch.softmax(x @ W_g, dim=-1)
    outputs = torch.stack([x @ expert for expert in W_e], dim=1)
    return (gate.unsqueeze(-1) * outputs).sum(dim=1)


def lora(*, x: Tensor, W_0: Tensor, A: Tensor, B: Tensor, alpha: float) -> Tensor:
    """The way of the authors' loralib: the update beside the frozen layer."""
    return functional.linear(x, W_0) + (x @ A.T @ B.T) * (alpha / A.shape[0])


def tucker(*, x: Tensor, y: Tensor, G: Tensor, U: Tensor, V: Tensor, W: Tensor) -> Tensor:
    """TuckER's way: the core by mm and view, then one bmm."""
    one, other = x @ U, y @ V
    core = torch.mm(one, G.view(G.size(0), -1)).view(-1, G.size(1), G.size(2))
    return torch.bmm(other.unsqueeze(1), core).squeeze(1) @ W.T


def cp_bilinear(*, x: Tensor, y: Tensor, U: Tensor, V: Tensor, W: Tensor) -> Tensor:
    """The paper's way: project both, multiply, project."""
    return ((x @ U) * (y @ V)) @ W.T


def matrix_chain(*, A: Tensor, B: Tensor, C: Tensor, D: Tensor, E: Tensor) -> Tensor:
    """As it is written, from left to right."""
    return A @ B @ C @ D @ E


def hypernetwork_linear(*, x: Tensor, c: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """The usual way: make every sample's weight, then bmm."""
    weights = torch.einsum("nk,koi->noi", c, W)
    return torch.bmm(weights, x.unsqueeze(-1)).squeeze(-1) + c @ b


def layer_norm(*, x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """What torch offers for it."""
    return functional.layer_norm(x, gamma.shape, gamma, beta, eps)


def rms_norm(*, x: Tensor, g: Tensor, eps: float) -> Tensor:
    """Llama's way."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * g


def batched_covariance(*, x: Tensor) -> Tensor:
    """The accepted answer's way: centre, then multiply with its transpose."""
    centred = x - x.mean(dim=1, keepdim=True)
    return centred.transpose(1, 2) @ centred / (x.shape[1] - 1)
