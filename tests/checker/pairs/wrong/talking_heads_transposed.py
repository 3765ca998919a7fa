"""The matrix that mixes the heads is square, and is used the wrong way round."""

import torch

FORMULA = """
    J[B, H, N, M]; P[H, H]
    L[b,l,n,m] = sum[h](J[b,h,n,m] * P[h,l])
    W[b,l,n,m] = softmax[m](L[b,l,n,m])
"""
EDIT = ("transpose p",)
LINE = "mixed = "


def mix_heads(J, P):
    mixed = torch.einsum("bhnm,lh->blnm", J, P)
    return torch.softmax(mixed, dim=-1)
