"""The distance is i - j where the table is ordered by j - i."""

import torch

FORMULA = """
    q, k[B, S, D]; R[2*S - 1, D]
    index i, j < S
    s[b,i,j] = sum[d](q[b,i,d] * (k[b,j,d] + R[j - i + S - 1,d]))
    p[b,i,j] = softmax[j](s[b,i,j] / sqrt(D))
"""
EDIT = ("exchange i and j of r|j - i",)
LINE = "distance = "


def relative_map(q, k, R):
    n = q.shape[1]
    pos = torch.arange(n)
    distance = pos[:, None] - pos[None, :]
    table = R[distance + n - 1]
    scores = q @ k.transpose(1, 2) + torch.einsum("bid,ijd->bij", q, table)
    return torch.softmax(scores / q.shape[-1] ** 0.5, dim=-1)
