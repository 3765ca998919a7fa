"""The call hands over key and value in each other's place."""

from torch.nn.functional import scaled_dot_product_attention

FORMULA = """
    query, key, value[B, H, N, D]
    p[b,h,i,j] = softmax[j](sum[d](query[b,h,i,d] * key[b,h,j,d]) / sqrt(D))
    z[b,h,i,d] = sum[j](p[b,h,i,j] * value[b,h,j,d])
"""
EDIT = ("exchange key and value",)
LINE = "scaled_dot_product_attention(query"


def attend(query, key, value):
    return scaled_dot_product_attention(query, value, key)
