"""Four ways of somebody who checks what a batched product does: bmm, `@`, one matrix, a loop.

FORMULAS has a formula for each of the functions.
"""

import torch

FORMULAS = {
    "scores_by_bmm": """
        a, b[B, H, N, D]
        s[b_,h,i,j] = sum[d](a[b_,h,i,d] * b[b_,h,j,d])
    """,
    "scores_by_matmul": """
        a, b[B, H, N, D]
        s[b_,h,i,j] = sum[d](a[b_,h,i,d] * b[b_,h,j,d])
    """,
    "project_at_once": "head_projection",
    "project_by_head": "head_projection",
}


def scores_by_bmm(a, b):
    batch, heads, n, d = a.shape
    left = a.view((-1, n, d))
    right = b.view((-1, n, d)).transpose(1, 2)
    return torch.bmm(left, right).view((batch, heads, n, n)).contiguous()


def scores_by_matmul(a, b):
    return a @ b.transpose(-2, -1)


def project_at_once(x, w):
    heads, width, d = w.shape
    batch, n, _ = x.shape
    rows = x.reshape((-1, width))
    columns = w.permute([1, 0, 2]).contiguous().view(width, -1)
    flat = rows @ columns
    return flat.view((batch, n, heads, d)).permute([0, 2, 1, 3]).contiguous()


def project_by_head(x, w):
    heads, _, d = w.shape
    out = torch.empty((x.shape[0], heads, x.shape[1], d), dtype=x.dtype)
    for h in range(heads):
        out[:, h, :, :] = x @ w[h]
    return out
