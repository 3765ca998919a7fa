"""Multi-head attention as a module: one packed Linear, SDPA, and the heads flattened back."""

import torch.nn as nn
import torch.nn.functional as F

FORMULA = "token_attention"
BIND = {
    "embed_dim": "E",
    "num_heads": "H",
    "head_dim": "D",
    "qkv.weight": "cat((W_q.T, W_k.T, W_v.T))",
    "proj.weight": "W_o.T",
}


class MultiHead(nn.Module):
    def __init__(self, embed_dim, num_heads, head_dim):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.qkv = nn.Linear(embed_dim, 3 * num_heads * head_dim, bias=False)
        self.proj = nn.Linear(num_heads * head_dim, embed_dim, bias=False)

    def forward(self, x):
        B, S, _ = x.shape
        qkv = self.qkv(x).reshape(B, S, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).flatten(start_dim=2))
