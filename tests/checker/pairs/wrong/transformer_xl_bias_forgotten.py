"""Of the two learned biases of relative attention only the one of the content is there."""

import torch

FORMULA = """
    q, k[B, S, D]; r[S, S, D]; u, w[D]
    s[b,i,j] = (sum[d](q[b,i,d] * k[b,j,d]) + sum[d](q[b,i,d] * r[i,j,d])
        + sum[d](u[d] * k[b,j,d]) + sum[d](w[d] * r[i,j,d]))
    p[b,i,j] = softmax[j](s[b,i,j] / sqrt(D))
"""
EDIT = ("add the term", "w[d] * r")
LINE = "position = "


def relative_map(q, k, r, u, w):
    content = torch.einsum("bid,bjd->bij", q + u, k)
    position = torch.einsum("bid,ijd->bij", q, r)
    return torch.softmax((content + position) * q.shape[-1] ** -0.5, dim=-1)
