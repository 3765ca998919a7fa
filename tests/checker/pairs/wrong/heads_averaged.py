"""The outputs of the heads are averaged where they should be added."""

import torch

FORMULA = """
    z[B, S, H, D]; W_O[H, D, E]
    y[b,i,e] = sum[h, d](z[b,i,h,d] * W_O[h,d,e])
"""
EDIT = ("sum over h, not mean",)
LINE = "return per_head"


def merge_heads(z, W_O):
    per_head = torch.einsum("bihd,hde->bhie", z, W_O)
    return per_head.mean(dim=1)
