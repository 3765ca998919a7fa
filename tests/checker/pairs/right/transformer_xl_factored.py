"""The four terms of the relative score as two products, with the biases added to the queries."""

import torch

FORMULA = """
    q, k[B, S, D]; r[S, S, D]; u, w[D]
    s[b,i,j] = (sum[d](q[b,i,d] * k[b,j,d]) + sum[d](q[b,i,d] * r[i,j,d])
        + sum[d](u[d] * k[b,j,d]) + sum[d](w[d] * r[i,j,d]))
    p[b,i,j] = softmax[j](s[b,i,j] / sqrt(D))
"""


def relative_map(q, k, r, u, w):
    content = torch.bmm(q + u, k.transpose(1, 2))
    position = torch.bmm((q + w).transpose(0, 1), r.transpose(1, 2)).transpose(0, 1)
    return torch.softmax((content + position) / q.shape[-1] ** 0.5, dim=-1)
