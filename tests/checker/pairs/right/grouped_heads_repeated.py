"""Key heads repeated by expand and reshape, as many models do it."""

import torch

FORMULA = """
    q[B, H*G, N, D]; k, v[B, H, N, D]
    size G
    index h < H*G
    p[b,h,i,j] = softmax[j, j <= i](sum[d](q[b,h,i,d] * k[b,h // G,j,d]) / sqrt(D))
    z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h // G,j,d])
"""


def _repeat(t, times):
    b, h, n, d = t.shape
    return t[:, :, None].expand(b, h, times, n, d).reshape(b, h * times, n, d)


def causal_grouped_attention(q, k, v):
    times = q.shape[1] // k.shape[1]
    k, v = _repeat(k, times), _repeat(v, times)
    n = q.shape[2]
    bias = torch.zeros(n, n, dtype=q.dtype)
    bias[torch.ones(n, n).triu(1).bool()] = float("-inf")
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5 + bias, dim=-1) @ v
