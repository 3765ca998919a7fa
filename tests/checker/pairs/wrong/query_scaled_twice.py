"""The query comes scaled into SDPA, which scales once more."""

from torch.nn.functional import scaled_dot_product_attention

FORMULA = """
    q, k, v[B, H, N, D]
    s[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D)
    p[b,h,i,j] = softmax[j](s[b,h,i,j])
    z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h,j,d])
"""
EDIT = ("scale", "1/sqrt(d)")
LINE = "return scaled"


def attend(q, k, v):
    q = q * q.shape[-1] ** -0.5
    return scaled_dot_product_attention(q, k, v)
