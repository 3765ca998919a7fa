"""A module with dropout, which a checker has to switch off, and two classes in one file."""

import torch
from torch import nn

FORMULA = """
    x[B, S, E]; W_1[E, F]; b_1[F]; W_2[F, E]; b_2[E]; g[E]
    n[b,s,e] = x[b,s,e] / sqrt(mean[c](x[b,s,c]**2) + 1/1000000) * g[e]
    u[b,s,f] = relu(sum[e](n[b,s,e] * W_1[e,f]) + b_1[f])
    y[b,s,m] = x[b,s,m] + sum[f](u[b,s,f] * W_2[f,m]) + b_2[m]
"""
CODE = "Block"
BIND = {
    "width": "E",
    "inner": "F",
    "norm.gain": "g",
    "up.weight": "W_1.T",
    "up.bias": "b_1",
    "down.weight": "W_2.T",
    "down.bias": "b_2",
}


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.gain * x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


class Block(nn.Module):
    def __init__(self, width, inner, rate=0.1):
        super().__init__()
        self.norm = Norm(width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.drop = nn.Dropout(rate)

    def forward(self, x):
        return x + self.drop(self.down(self.up(self.norm(x)).relu()))
