"""Relative scores by one product with the table of distances, then pad, reshape and cut."""

import torch.nn.functional as F

FORMULA = """
    q[B, H, S, D]; R[2*S - 1, D]
    index i, j < S
    s[b,h,i,j] = sum[d](q[b,h,i,d] * R[j - i + S - 1,d])
"""


def relative_scores(q, R):
    b, h, n, _ = q.shape
    x = q @ R.transpose(0, 1)
    x = F.pad(x, (0, 1))
    x = x.reshape(b, h, 2 * n * n)
    x = F.pad(x, (0, n - 1)).reshape(b, h, n + 1, 2 * n - 1)
    return x[:, :, :n, n - 1 :]
