"""Continuum mechanics, by Bond's matrices over pairs of axes."""

import torch
from torch import Tensor


def rotated_stiffness(C: Tensor, Q: Tensor) -> Tensor:
    turned = []
    for stiffness, rotation in zip(C, Q, strict=True):
        pairs = torch.kron(rotation, rotation)
        turned.append((pairs @ stiffness.reshape(9, 9) @ pairs.T).reshape(3, 3, 3, 3))
    return torch.stack(turned)
