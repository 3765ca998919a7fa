"""The low-rank update is merged into the weight before the layer runs."""

import torch.nn as nn
import torch.nn.functional as F
from torch import empty

FORMULA = "lora"
BIND = {"i": "I", "o": "O", "rank": "R", "weight": "W_0", "down": "A", "up": "B"}


class LoRALinear(nn.Module):
    def __init__(self, i, o, rank):
        super().__init__()
        self.rank = rank
        self.weight = nn.Parameter(empty(o, i))
        self.down = nn.Parameter(empty(rank, i))
        self.up = nn.Parameter(empty(o, rank))

    def forward(self, x, alpha=16.0):
        merged = self.weight + (alpha / self.rank) * (self.up @ self.down)
        return F.linear(x, merged)
