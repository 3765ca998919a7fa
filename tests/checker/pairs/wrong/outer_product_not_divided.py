"""The outer products are summed over the sequences and never divided by their number."""

import torch

FORMULA = """
    a[S, N, C]; b[S, N, E]; W[C, E, Z]
    o[i,j,c,e] = mean[s](a[s,i,c] * b[s,j,e])
    out[i,j,z] = sum[c, e](o[i,j,c,e] * W[c,e,z])
"""
EDIT = ("mean over s, not sum",)
LINE = "outer = "


def outer_product_mean(a, b, W):
    outer = torch.einsum("sic,sje->ijce", a, b)
    return torch.tensordot(outer, W, dims=2)
