"""Causal linear attention as a recurrence over a state that grows step by step."""

import torch

FORMULA = """
    q, k[B, T, D]; v[B, T, E]
    s[b,i,j] = sum[d](q[b,i,d] * k[b,j,d])
    z[b,i,e] = sum[j, j <= i](s[b,i,j] * v[b,j,e])
"""


def recurrent(q, k, v):
    state = q.new_zeros(q.shape[0], q.shape[2], v.shape[2])
    steps = []
    for t in range(q.shape[1]):
        state = state + k[:, t, :, None] * v[:, t, None, :]
        steps.append(torch.einsum("bd,bde->be", q[:, t], state))
    return torch.stack(steps, dim=1)
