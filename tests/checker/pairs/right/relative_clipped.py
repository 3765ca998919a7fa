"""Distances beyond the reach share the outermost embedding, looked up through F.embedding."""

import torch
import torch.nn.functional as F

FORMULA = """
    q, k[B, S, D]; R[2*C + 1, D]
    index i, j < S
    s[b,i,j] = sum[d](q[b,i,d] * (k[b,j,d] + R[clip(j - i, -C, C) + C,d])) / sqrt(D)
"""


def shaw_scores(q, k, R):
    reach = (R.shape[0] - 1) // 2
    span = torch.arange(q.shape[1], device=q.device)
    gap = (span.view(1, -1) - span.view(-1, 1)).clamp(min=-reach, max=reach)
    table = F.embedding(gap + reach, R)
    keys = k.unsqueeze(1) + table
    return torch.matmul(q.unsqueeze(2), keys.transpose(2, 3)).squeeze(2) * q.shape[-1] ** -0.5
