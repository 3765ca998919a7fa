"""The exchange integrals are contracted with the density over the wrong pair."""

import torch

FORMULA = """
    h, D[N, N]; eri[N, N, N, N]
    J[m,n] = sum[r, s](D[r,s] * eri[m,n,r,s])
    K[m,n] = sum[r, s](D[r,s] * eri[m,r,n,s])
    F[m,n] = h[m,n] + J[m,n] - K[m,n] / 2
"""
EDIT = ("exchange n and s of eri",)
LINE = "K = "


def fock(h, D, eri):
    J = torch.einsum("rs,mnrs->mn", D, eri)
    K = torch.einsum("rs,mrsn->mn", D, eri)
    return h + J - 0.5 * K
