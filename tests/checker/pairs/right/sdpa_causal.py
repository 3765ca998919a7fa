"""Causal attention left to torch, after the heads were brought to the second place."""

from torch.nn.functional import scaled_dot_product_attention

FORMULA = """
    q, k, v[B, S, H, D]
    p[b,h,i,j] = softmax[j, j <= i](sum[d](q[b,i,h,d] * k[b,j,h,d]) / sqrt(D))
    z[b,i,h,d] = sum[j](p[b,h,i,j] * v[b,j,h,d])
"""


def causal(q, k, v):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
