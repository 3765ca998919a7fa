"""The table of relative keys is read by a matrix of positions."""

import torch

FORMULA = """
    q[B, H, S, D]; R[2*S - 1, D]
    index i, j < S
    s[b,h,i,j] = sum[d](q[b,h,i,d] * R[j - i + S - 1,d])
"""


def relative_scores(q, R):
    n = q.shape[2]
    places = torch.arange(n, device=q.device)
    offsets = places[None, :] - places[:, None] + n - 1
    keys = R[offsets]
    return torch.einsum("bhid,ijd->bhij", q, keys)
