"""In the loop over the heads the output is overwritten: `=` where `+=` was meant."""

import torch

FORMULA = """
    z[B, H, S, D]; W_O[H, D, E]
    y[b,i,e] = sum[h, d](z[b,h,i,d] * W_O[h,d,e])
"""
EDIT = ("sum over h",)
LINE = "out = z[:, h]"


def project_heads(z, W_O):
    out = torch.zeros(z.shape[0], z.shape[2], W_O.shape[2], dtype=z.dtype)
    for h in range(z.shape[1]):
        out = z[:, h] @ W_O[h]
    return out
