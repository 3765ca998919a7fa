"""Relative keys picked out of the table by a product with a one-hot tensor."""

import torch
import torch.nn.functional as F

FORMULA = """
    q[B, H, S, D]; R[2*S - 1, D]
    index i, j < S
    s[b,h,i,j] = sum[d](q[b,h,i,d] * R[j - i + S - 1,d])
"""


def relative_scores(q, R):
    n = q.shape[2]
    offsets = torch.arange(n) - torch.arange(n).unsqueeze(1) + n - 1
    picks = F.one_hot(offsets, 2 * n - 1).to(q.dtype)
    return torch.einsum("bhid,ijr,rd->bhij", q, picks, R)
