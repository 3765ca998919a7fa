"""The bias of the values is added to the output twice: inside the head and after the projection."""

import torch

FORMULA = """
    x[S, E]; W_V[E, D]; b_V[D]; p[S, S]
    v[j,d] = sum[e](x[j,e] * W_V[e,d]) + b_V[d]
    z[i,d] = sum[j](p[i,j] * v[j,d])
"""
EDIT = ("drop the term", "b_v")
LINE = "return p @"


def apply_weights(x, W_V, b_V, p):
    v = torch.addmm(b_V, x, W_V)
    return p @ v + b_V
