"""A module of four Linear layers with biases, heads split by unflatten."""

import torch
import torch.nn as nn

FORMULA = """
    x[B, S, E]; W_q, W_k, W_v[E, H*D]; b_q, b_k, b_v[H*D]; W_o[H*D, E]; b_o[E]
    size H
    index h < H
    index d < D
    q[b,h,i,d] = sum[e](x[b,i,e] * W_q[e,h*D + d]) + b_q[h*D + d]
    k[b,h,j,d] = sum[e](x[b,j,e] * W_k[e,h*D + d]) + b_k[h*D + d]
    v[b,h,j,d] = sum[e](x[b,j,e] * W_v[e,h*D + d]) + b_v[h*D + d]
    p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
    y[b,i,m] = sum[h, d](sum[j](p[b,h,i,j] * v[b,h,j,d]) * W_o[h*D + d,m]) + b_o[m]
"""
BIND = {
    "d_model": "E",
    "n_heads": "H",
    "d_head": "D",
    "q_proj.weight": "W_q.T",
    "q_proj.bias": "b_q",
    "k_proj.weight": "W_k.T",
    "k_proj.bias": "b_k",
    "v_proj.weight": "W_v.T",
    "v_proj.bias": "b_v",
    "o_proj.weight": "W_o.T",
    "o_proj.bias": "b_o",
}


class SelfAttention(nn.Module):
    def __init__(self, d_model, n_heads, d_head):
        super().__init__()
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, n_heads * d_head)
        self.k_proj = nn.Linear(d_model, n_heads * d_head)
        self.v_proj = nn.Linear(d_model, n_heads * d_head)
        self.o_proj = nn.Linear(n_heads * d_head, d_model)

    def forward(self, x):
        q, k, v = (
            proj(x).unflatten(-1, (self.n_heads, -1)).movedim(2, 1)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        attn = torch.einsum("bhid,bhjd->bhij", q, k).div(q.shape[-1] ** 0.5).softmax(-1)
        out = torch.einsum("bhij,bhjd->bihd", attn, v)
        return self.o_proj(out.reshape(*x.shape[:-1], -1))
