"""After the attention the heads are merged by view alone, so rows of different tokens mix."""

import torch
import torch.nn as nn

FORMULA = "token_attention"
EDIT = ("transpose heads before merging",)
LINE = "merged = out"
BIND = {
    "dim": "E",
    "heads": "H",
    "head_dim": "D",
    "to_q.weight": "W_q.T",
    "to_k.weight": "W_k.T",
    "to_v.weight": "W_v.T",
    "to_out.weight": "W_o.T",
}


class Attention(nn.Module):
    def __init__(self, dim, heads, head_dim):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, heads * head_dim, bias=False)
        self.to_k = nn.Linear(dim, heads * head_dim, bias=False)
        self.to_v = nn.Linear(dim, heads * head_dim, bias=False)
        self.to_out = nn.Linear(heads * head_dim, dim, bias=False)

    def split(self, t):
        b, n, _ = t.shape
        return t.view(b, n, self.heads, -1).transpose(1, 2)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.split(self.to_q(x)), self.split(self.to_k(x)), self.split(self.to_v(x))
        attn = torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, dim=-1)
        out = attn @ v
        merged = out.contiguous().view(b, n, -1)
        return self.to_out(merged)
