"""Llama's attention with rotary positions and grouped heads, its norm and a whole layer."""

from __future__ import annotations

from typing import Any

import torch

from real import Real


def make_config() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=12,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=8,
        intermediate_size=10,
        attn_implementation="eager",
    )


class CausalAttention(torch.nn.Module):
    """The attention, or a layer of it, under the causal mask that the model makes."""

    def __init__(self, layer: bool = False) -> None:
        from transformers.models.llama import modeling_llama as llama

        super().__init__()
        made = llama.LlamaDecoderLayer if layer else llama.LlamaAttention
        self.inner = made(make_config(), layer_idx=0).double().eval()

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        from transformers.masking_utils import create_causal_mask

        mask = create_causal_mask(make_config(), x, None, None)
        return self.inner(x, position_embeddings=(cos, sin), attention_mask=mask)


def make_attention() -> Any:
    from transformers.models.llama.modeling_llama import LlamaAttention

    return LlamaAttention(make_config(), layer_idx=0).double().eval()


def make_norm() -> Any:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    return LlamaRMSNorm(5, eps=1e-2).double().eval()


def make_mlp() -> Any:
    from transformers.models.llama.modeling_llama import LlamaMLP

    return LlamaMLP(make_config()).double().eval()


# The second half of a head turns against the first.
ROTATED = """
    W_Q[G*R*2*P, E]; W_K, W_V[G*2*P, E]; W_O[E, G*R*2*P]; C, Z[B, S, 2*P]
    size G
    size R
    index h < G*R
    index g < G
    index d < 2*P
    q[b,h,i,d] = sum[m]({x}[b,i,m] * W_Q[h*2*P + d,m])
    k[b,g,j,d] = sum[m]({x}[b,j,m] * W_K[g*2*P + d,m])
    v[b,g,j,d] = sum[m]({x}[b,j,m] * W_V[g*2*P + d,m])
    qr[b,h,i,d] = q[b,h,i,d] * C[b,i,d] + where(d < P, -q[b,h,i,d + P], q[b,h,i,d - P]) * Z[b,i,d]
    kr[b,g,j,d] = k[b,g,j,d] * C[b,j,d] + where(d < P, -k[b,g,j,d + P], k[b,g,j,d - P]) * Z[b,j,d]
"""
SCORES = "sum[d](qr[b,h,i,d] * kr[b,h // R,j,d]) / sqrt(2*P)"
MERGE = """
    z[b,i,h*2*P + d] = sum[j](alpha[b,h,i,j] * v[b,h // R,j,d])
    y[b,i,n] = sum[c](z[b,i,c] * W_O[n,c])
"""
SIZES = dict(B=5, S=7, E=12, G=3, R=2, P=4)


def bind_attention(at: str) -> str:
    """The projections that lie at this name."""
    return (
        f"{at}q_proj.weight=W_Q, {at}k_proj.weight=W_K, {at}v_proj.weight=W_V, "
        f"{at}o_proj.weight=W_O, "
    )


attention = Real(
    "LlamaAttention under the model's causal mask",
    CausalAttention,
    f"""X[B, S, E] {ROTATED.format(x="X")}
    alpha[b,h,i,j] = softmax[j, j <= i]({SCORES})
    {MERGE}
    return y, alpha
    """,
    bind_attention("inner.") + "x=X, cos=C, sin=Z",
    SIZES,
    (
        ("kr[b,h // R,j,d]", "kr[b,h % G,j,d]"),
        ("v[b,h // R,j,d]", "v[b,h % G,j,d]"),
        (
            "where(d < P, -q[b,h,i,d + P], q[b,h,i,d - P])",
            "where(d < P, q[b,h,i,d + P], -q[b,h,i,d - P])",
        ),
        (
            "where(d < P, -q[b,h,i,d + P], q[b,h,i,d - P])",
            "where(d % 2 == 0, -q[b,h,i,(d + 1) % (2*P)], q[b,h,i,(d - 1) % (2*P)])",
        ),
        ("j <= i", "j < i"),
    ),
    single=True,
)

attention_masked = Real(
    "LlamaAttention with an additive mask",
    make_attention,
    f"""X[B, S, E]; M[B, S, S] {ROTATED.format(x="X")}
    alpha[b,h,i,j] = softmax[j]({SCORES} + M[b,i,j])
    {MERGE}
    return y, alpha
    """,
    bind_attention("")
    + "hidden_states=X, position_embeddings=(C, Z), attention_mask=M.reshape(B, 1, S, S)",
    SIZES,
    (("/ sqrt(2*P)", "/ sqrt(P)"), ("+ M[b,i,j]", "+ M[b,j,i]")),
    single=True,
)

norm = Real(
    "LlamaRMSNorm",
    make_norm,
    "x[B, S, E]; g[E]; y[b,s,m] = g[m] * x[b,s,m] / sqrt(mean[n](x[b,s,n]**2) + 1e-2)",
    "weight=g, hidden_states=x",
    dict(B=2, S=3, E=5),
    (("+ 1e-2)", ")"), ("mean[n](x[b,s,n]**2)", "mean[n](x[b,s,n])**2")),
    single=True,
)

mlp = Real(
    "LlamaMLP",
    make_mlp,
    """
    x[B, S, E]; W_G, W_U[N, E]; W_D[E, N]
    a[b,s,o] = silu(sum[m](x[b,s,m] * W_G[o,m])) * sum[m](x[b,s,m] * W_U[o,m])
    y[b,s,m] = sum[o](a[b,s,o] * W_D[m,o])
    """,
    "gate_proj.weight=W_G, up_proj.weight=W_U, down_proj.weight=W_D, x=x",
    dict(B=2, S=3, E=12, N=10),
    (
        ("silu(sum[m](x[b,s,m] * W_G[o,m]))", "silu(sum[m](x[b,s,m] * W_U[o,m]))"),
        ("silu", "sigmoid"),
    ),
)

layer = Real(
    "LlamaDecoderLayer under the model's causal mask",
    lambda: CausalAttention(layer=True),
    f"""X[B, S, E]; g_1, g_2[E]; W_G, W_U[N, E]; W_D[E, N]
    x[b,i,m] = g_1[m] * X[b,i,m] / sqrt(mean[n](X[b,i,n]**2) + 1e-6)
    {ROTATED.format(x="x")}
    alpha[b,h,i,j] = softmax[j, j <= i]({SCORES})
    {MERGE}
    s[b,i,m] = X[b,i,m] + y[b,i,m]
    t[b,i,m] = g_2[m] * s[b,i,m] / sqrt(mean[n](s[b,i,n]**2) + 1e-6)
    a[b,i,o] = silu(sum[m](t[b,i,m] * W_G[o,m])) * sum[m](t[b,i,m] * W_U[o,m])
    l[b,i,m] = s[b,i,m] + sum[o](a[b,i,o] * W_D[m,o])
    """,
    bind_attention("inner.self_attn.")
    + "inner.input_layernorm.weight=g_1, inner.post_attention_layernorm.weight=g_2, "
    "inner.mlp.gate_proj.weight=W_G, inner.mlp.up_proj.weight=W_U, inner.mlp.down_proj.weight=W_D, "
    "x=X, cos=C, sin=Z",
    SIZES | dict(N=10),
    (("l[b,i,m] = s[b,i,m]", "l[b,i,m] = X[b,i,m]"), ("t[b,i,m] = g_2[m]", "t[b,i,m] = g_1[m]")),
    single=True,
)

REALS = (attention, attention_masked, norm, mlp, layer)
