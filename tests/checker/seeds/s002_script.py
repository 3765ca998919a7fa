"""A notebook, its cells below each other: the keys are made with the weight of the queries.

A weight for the output is drawn too, and nothing reads it.
"""

import math

import torch
import torch.nn.functional as F

FORMULA = """
    tokens[B, S, E]; w_query, w_key, w_value[E, H*D]
    size H
    index h < H
    index d < D
    q[b,h,i,d] = sum[e](tokens[b,i,e] * w_query[e,h*D + d])
    k[b,h,j,d] = sum[e](tokens[b,j,e] * w_key[e,h*D + d])
    v[b,h,j,d] = sum[e](tokens[b,j,e] * w_value[e,h*D + d])
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
    z[b,i,h*D + d] = sum[j](p[b,h,i,j] * v[b,h,j,d])
"""
LINE = "keys = tokens @"

# one sentence of five tokens
tokens = torch.randn(1, 5, 12)

model_width = 12
heads = 3
head_width = model_width // heads

# projections
w_query = torch.randn(model_width, model_width)
w_key = torch.randn(model_width, model_width)
w_value = torch.randn(model_width, model_width)
w_output = torch.randn(model_width, model_width)

queries = tokens @ w_query
keys = tokens @ w_query
values = tokens @ w_value
queries.shape, keys.shape, values.shape


def to_heads(t):
    return t.view(1, 5, heads, head_width).transpose(1, 2)


q_heads = to_heads(queries)
k_heads = to_heads(keys)
v_heads = to_heads(values)

logits = q_heads @ k_heads.transpose(-2, -1)
logits = logits / math.sqrt(head_width)
weights = F.softmax(logits, dim=-1)
per_head = weights @ v_heads

joined = per_head.transpose(1, 2).reshape(1, 5, model_width)
print("per head", per_head.shape)
print("joined", joined.shape)
