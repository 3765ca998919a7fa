"""GPT-2's attention, whose weights lie as [in, out], and a whole block, from transformers."""

from __future__ import annotations

from typing import Any

import torch

from real import Real


def make_config() -> Any:
    from transformers import GPT2Config

    return GPT2Config(n_embd=12, n_head=3, n_inner=7, attn_implementation="eager")


class CausalAttention(torch.nn.Module):
    """The attention under the causal mask that the model makes: the least float ahead."""

    def __init__(self, block: bool = False) -> None:
        from transformers.models.gpt2 import modeling_gpt2 as gpt2

        super().__init__()
        made = gpt2.GPT2Block(make_config()) if block else gpt2.GPT2Attention(make_config())
        self.inner = made.double().eval()

    def forward(self, x: Any) -> Any:
        from transformers.masking_utils import create_causal_mask

        mask = create_causal_mask(make_config(), x, None, None)
        return self.inner(x, attention_mask=mask)


ATTENTION = """
    W[H*D, 3*H*D]; w[3*H*D]; W_O[H*D, H*D]; w_O[H*D]
    size H
    index h < H
    index d < D
    q[b,h,i,d] = sum[m]({x}[b,i,m] * W[m,h*D + d]) + w[h*D + d]
    k[b,h,j,d] = sum[m]({x}[b,j,m] * W[m,H*D + h*D + d]) + w[H*D + h*D + d]
    v[b,h,j,d] = sum[m]({x}[b,j,m] * W[m,2*H*D + h*D + d]) + w[2*H*D + h*D + d]
    alpha[b,h,i,j] = softmax[j, j <= i](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
    z[b,i,h*D + d] = sum[j](alpha[b,h,i,j] * v[b,h,j,d])
    y[b,i,n] = sum[m](z[b,i,m] * W_O[m,n]) + w_O[n]
"""

attention = Real(
    "GPT2Attention under the model's causal mask",
    CausalAttention,
    f"""X[B, S, H*D] {ATTENTION.format(x="X")}
    return y, alpha
    """,
    "inner.c_attn.weight=W, inner.c_attn.bias=w, inner.c_proj.weight=W_O, inner.c_proj.bias=w_O, "
    "x=X",
    dict(B=2, S=5, H=3, D=4),
    (
        ("j <= i", "j < i"),
        ("W_O[m,n]", "W_O[n,m]"),
        ("W[m,H*D + h*D + d]", "W[m,3*h*D + D + d]"),  # the heads' own thirds instead
        ("/ sqrt(D)", "/ D"),
    ),
)

NORM = """
    {to}[b,i,m] = ({of}[b,i,m] - mean[n]({of}[b,i,n])) / sqrt(var[n]({of}[b,i,n]) + 1e-5) * {g}[m] \
+ {c}[m]
"""

block = Real(
    "GPT2Block under the model's causal mask",
    lambda: CausalAttention(block=True),
    f"""X[B, S, H*D]; g_1, c_1, g_2, c_2[H*D]; U[H*D, N]; t[N]; R[N, H*D]; r[H*D]
    index m < H*D
    index n < H*D
    {NORM.format(to="x", of="X", g="g_1", c="c_1")}
    {ATTENTION.format(x="x")}
    s[b,i,n] = X[b,i,n] + y[b,i,n]
    {NORM.format(to="a", of="s", g="g_2", c="c_2")}
    phi(x) = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715*x**3)))
    f[b,i,o] = phi(sum[m](a[b,i,m] * U[m,o]) + t[o])
    l[b,i,n] = s[b,i,n] + sum[o](f[b,i,o] * R[o,n]) + r[n]
    """,
    "inner.attn.c_attn.weight=W, inner.attn.c_attn.bias=w, inner.attn.c_proj.weight=W_O, "
    "inner.attn.c_proj.bias=w_O, inner.ln_1.weight=g_1, inner.ln_1.bias=c_1, "
    "inner.ln_2.weight=g_2, inner.ln_2.bias=c_2, inner.mlp.c_fc.weight=U, inner.mlp.c_fc.bias=t, "
    "inner.mlp.c_proj.weight=R, inner.mlp.c_proj.bias=r, x=X",
    dict(B=2, S=5, H=3, D=4, N=7),
    (
        ("l[b,i,n] = s[b,i,n]", "l[b,i,n] = X[b,i,n]"),
        ("sqrt(2/pi)", "sqrt(pi/2)"),
        ("j <= i", "i <= j"),
    ),
)

REALS = (attention, block)
