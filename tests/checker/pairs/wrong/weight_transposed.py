"""The output weight is square and goes in transposed, as a Linear layer would have it."""

import torch.nn.functional as F

FORMULA = """
    z[B, S, E]; W_O[E, E]; x[B, S, E]
    y[b,s,m] = x[b,s,m] + sum[e](z[b,s,e] * W_O[e,m])
"""
EDIT = ("transpose w_o",)
LINE = "F.linear"


def project_out(z, W_O, x):
    return x + F.linear(z, W_O)
