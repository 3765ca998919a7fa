"""is_causal aligns its triangle with the first key, also when there are more keys than queries."""

from torch.nn.functional import scaled_dot_product_attention

FORMULA = """
    q[B, H, N, D]; k, v[B, H, P + N, D]
    index i < N
    index j < P + N
    p[b,h,i,j] = softmax[j, j <= i + P](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
    z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h,j,d])
"""
EDIT = ("j <= i + p",)
LINE = "return scaled"


def decode(q, k, v):
    return scaled_dot_product_attention(q, k, v, is_causal=True)
