"""The scale is that of the whole width, though every head has but a part of it."""

import torch
import torch.nn as nn
import torch.nn.functional as F

FORMULA = "token_attention"
EDIT = ("scale the argument of softmax", "by 1/sqrt(d)")
LINE = "self.scale = dim"
BIND = {
    "dim": "E",
    "heads": "H",
    "dim_head": "D",
    "to_qkv.weight": "cat((W_q.T, W_k.T, W_v.T))",
    "to_out.weight": "W_o.T",
}


class SelfAttention(nn.Module):
    def __init__(self, dim, heads, dim_head):
        super().__init__()
        self.heads = heads
        self.scale = dim**-0.5
        self.to_qkv = nn.Linear(dim, 3 * heads * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias=False)

    def forward(self, x):
        q, k, v = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        dots = torch.einsum("bhid,bhjd->bhij", q, k) * self.scale
        out = F.softmax(dots, dim=-1) @ v
        return self.to_out(out.transpose(1, 2).flatten(2))
