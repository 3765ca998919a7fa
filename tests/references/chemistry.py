"""Electronic structure: integrals as matrices over pairs of orbitals."""

import torch
from torch import Tensor


def fock_matrix(h: Tensor, D: Tensor, eri: Tensor) -> Tensor:
    pairs = len(h) ** 2
    coulomb = (eri.reshape(pairs, pairs) @ D.reshape(pairs)).reshape(h.shape)
    exchange = (eri.transpose(1, 2).reshape(pairs, pairs) @ D.reshape(pairs)).reshape(h.shape)
    return h + coulomb - 0.5 * exchange


def mp2_energy(v: Tensor, e_o: Tensor, e_v: Tensor) -> Tensor:
    """Pair by pair of occupied orbitals: pairs of opposite spin, then of the same spin."""
    opposite = same = torch.zeros((), dtype=v.dtype)
    for i in range(len(e_o)):
        for j in range(len(e_o)):
            pair = v[i, :, j, :]
            amplitudes = pair / (e_o[i] + e_o[j] - e_v.unsqueeze(1) - e_v.unsqueeze(0))
            opposite = opposite + (amplitudes * pair).sum()
            same = same + (amplitudes * (pair - pair.T)).sum()
    return opposite + same


def ccd_quadratic(t: Tensor, v: Tensor, w: Tensor) -> Tensor:
    occupied, virtual = t.shape[0] ** 2, t.shape[2] ** 2
    t_matrix, v_matrix = t.reshape(occupied, virtual), v.reshape(occupied, virtual)
    ladder = 0.5 * t_matrix @ w.reshape(virtual, virtual).T
    ladder = ladder + 0.25 * t_matrix @ v_matrix.T @ t_matrix
    dressed = t.flatten(1) @ v.flatten(1).T  # [j, k]
    chain = torch.tensordot(t, dressed, dims=([1], [1])).permute(0, 3, 1, 2)
    return v + ladder.reshape(t.shape) - 0.5 * chain
