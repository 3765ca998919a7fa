"""Distances are clipped to C - 1, so the outermost embeddings are never used."""

import torch

FORMULA = """
    q[S, D]; R[2*C + 1, D]
    index i, j < S
    s[i,j] = sum[d](q[i,d] * R[clip(j - i, -C, C) + C,d])
"""
EDIT = ("clip",)
LINE = "offset = offset.clamp"
SIZES = {"S": 7, "C": 3}


def clipped_scores(q, R):
    reach = R.shape[0] // 2
    n = q.shape[0]
    offset = torch.arange(n)[None] - torch.arange(n)[:, None]
    offset = offset.clamp(1 - reach, reach - 1)
    return torch.einsum("id,ijd->ij", q, R[offset + reach])
