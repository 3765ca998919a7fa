"""The penalty counts keys from the left, not distances: the difference is the same for a row."""

import torch

FORMULA = """
    q, k[B, H, N, D]; m[H]
    index i, j < N
    p[b,h,i,j] = softmax[j, j <= i](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D) - m[h] * (i - j))
"""


def alibi_map(q, k, m):
    n = k.shape[2]
    place = torch.arange(n, dtype=q.dtype, device=q.device)
    scores = torch.matmul(q, k.transpose(2, 3)) / q.shape[3] ** 0.5
    scores = scores + m.view(-1, 1, 1) * place
    hidden = torch.ones(n, n).triu(1) > 0
    return scores.masked_fill(hidden, float("-inf")).softmax(dim=3)
