"""A feed-forward block without the residual path around it."""

import torch

FORMULA = """
    x[B, S, E]; W_1[E, F]; W_2[F, E]
    u[b,s,f] = relu(sum[e](x[b,s,e] * W_1[e,f]))
    y[b,s,m] = x[b,s,m] + sum[f](u[b,s,f] * W_2[f,m])
"""
EDIT = ("add the term x[b,s,m]",)
LINE = "return hidden"


def feed_forward(x, W_1, W_2):
    hidden = torch.relu(x @ W_1)
    return hidden @ W_2
