"""Decayed states: the prefix sum leaves out the present step."""

import torch
import torch.nn.functional as F

FORMULA = """
    k, v[B, T, D]
    index t < T
    m[b,t,d] = sum[u, u <= t](k[b,u,d] * v[b,u,d])
"""
EDIT = ("shift", "u <= t")
LINE = "return "


def prefix_memory(k, v):
    total = torch.cumsum(k * v, dim=1)
    return F.pad(total, (0, 0, 1, 0))[:, :-1]
