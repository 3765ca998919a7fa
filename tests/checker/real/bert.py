"""BERT's attention, its output and a whole layer, from transformers."""

from __future__ import annotations

from typing import Any

import torch

from real import Real


def make_config() -> Any:
    from transformers import BertConfig

    return BertConfig(
        hidden_size=12,
        num_attention_heads=3,
        intermediate_size=7,
        attn_implementation="eager",
    )


def make_attention() -> torch.nn.Module:
    from transformers.models.bert.modeling_bert import BertSelfAttention

    return BertSelfAttention(make_config()).double().eval()


def make_output() -> torch.nn.Module:
    from transformers.models.bert.modeling_bert import BertSelfOutput

    return BertSelfOutput(make_config()).double().eval()


def make_layer() -> torch.nn.Module:
    from transformers.models.bert.modeling_bert import BertLayer

    return BertLayer(make_config()).double().eval()


class MaskedLayer(torch.nn.Module):
    """The layer under the mask that the model makes: the least float at padded keys."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_layer()

    def forward(self, x: Any, keep: Any) -> Any:
        from transformers.masking_utils import create_bidirectional_mask

        mask = create_bidirectional_mask(make_config(), x, keep)
        return self.inner(x, mask)


ATTENTION = """
    X[B, S, H*D]; W_Q, W_K, W_V[H*D, H*D]; b_Q, b_K, b_V[H*D]
    size H
    index h < H
    index d < D
    q[b,h,i,d] = sum[m](X[b,i,m] * W_Q[h*D + d,m]) + b_Q[h*D + d]
    k[b,h,j,d] = sum[m](X[b,j,m] * W_K[h*D + d,m]) + b_K[h*D + d]
    v[b,h,j,d] = sum[m](X[b,j,m] * W_V[h*D + d,m]) + b_V[h*D + d]
"""
SCORES = "sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D)"
MERGE = "z[b,i,h*D + d] = sum[j](alpha[b,h,i,j] * v[b,h,j,d])"
LAYER = """
    W_O[H*D, H*D]; b_O, g_1, c_1[H*D]; U[N, H*D]; t[N]; R[H*D, N]; r, g_2, c_2[H*D]
"""
REST = """
    s[b,i,n] = sum[m](z[b,i,m] * W_O[n,m]) + b_O[n] + X[b,i,n]
    a[b,i,m] = (s[b,i,m] - mean[n](s[b,i,n])) / sqrt(var[n](s[b,i,n]) + 1e-12) * g_1[m] + c_1[m]
    f[b,i,o] = gelu(sum[m](a[b,i,m] * U[o,m]) + t[o])
    u[b,i,m] = sum[o](f[b,i,o] * R[m,o]) + r[m] + a[b,i,m]
    y[b,i,m] = (u[b,i,m] - mean[n](u[b,i,n])) / sqrt(var[n](u[b,i,n]) + 1e-12) * g_2[m] + c_2[m]
"""


def bind_layer(at: str) -> str:
    """The parameters of a layer that lies at this name."""
    return ", ".join(
        f"{at}{name}={source}"
        for name, source in {
            "attention.self.query.weight": "W_Q",
            "attention.self.query.bias": "b_Q",
            "attention.self.key.weight": "W_K",
            "attention.self.key.bias": "b_K",
            "attention.self.value.weight": "W_V",
            "attention.self.value.bias": "b_V",
            "attention.output.dense.weight": "W_O",
            "attention.output.dense.bias": "b_O",
            "attention.output.LayerNorm.weight": "g_1",
            "attention.output.LayerNorm.bias": "c_1",
            "intermediate.dense.weight": "U",
            "intermediate.dense.bias": "t",
            "output.dense.weight": "R",
            "output.dense.bias": "r",
            "output.LayerNorm.weight": "g_2",
            "output.LayerNorm.bias": "c_2",
        }.items()
    )


SIZES = dict(B=2, S=5, H=3, D=4)

attention = Real(
    "BertSelfAttention with an additive mask",
    make_attention,
    f"""{ATTENTION}
    M[B, S]
    alpha[b,h,i,j] = softmax[j]({SCORES} + M[b,j])
    {MERGE}
    return z, alpha
    """,
    "query.weight=W_Q, query.bias=b_Q, key.weight=W_K, key.bias=b_K, value.weight=W_V, "
    "value.bias=b_V, hidden_states=X, attention_mask=M.reshape(B, 1, 1, S)",
    SIZES,
    (
        ("softmax[j](sum", "softmax[i](sum"),
        ("/ sqrt(D)", "/ sqrt(H*D)"),
        ("z[b,i,h*D + d]", "z[b,i,d*H + h]"),
        ("+ M[b,j]", "+ M[b,i]"),
    ),
)

output = Real(
    "BertSelfOutput",
    make_output,
    """
    Z, X[B, S, E]; W[E, E]; w, g, c[E]
    s[b,i,n] = sum[m](Z[b,i,m] * W[n,m]) + w[n] + X[b,i,n]
    y[b,i,m] = (s[b,i,m] - mean[n](s[b,i,n])) / sqrt(var[n](s[b,i,n]) + 1e-12) * g[m] + c[m]
    """,
    "dense.weight=W, dense.bias=w, LayerNorm.weight=g, LayerNorm.bias=c, "
    "hidden_states=Z, input_tensor=X",
    dict(B=2, S=3, E=12),
    (("W[n,m]", "W[m,n]"), ("+ w[n] + X", "+ X"), ("var[n](s[b,i,n])", "mean[n](s[b,i,n]**2)")),
)

layer = Real(
    "BertLayer",
    make_layer,
    f"{ATTENTION} {LAYER} alpha[b,h,i,j] = softmax[j]({SCORES}); {MERGE} {REST}",
    bind_layer("") + ", hidden_states=X",
    SIZES | dict(N=7),
    (("+ X[b,i,n]", "+ z[b,i,n]"), ("gelu", "relu"), ("+ r[m] + a[b,i,m]", "+ r[m] + s[b,i,m]")),
)

layer_masked = Real(
    "BertLayer under the model's mask of padded keys",
    MaskedLayer,
    f"""{ATTENTION} {LAYER} bool keep[B, S]
    alpha[b,h,i,j] = softmax[j, keep[b,j]]({SCORES})
    {MERGE} {REST}""",
    bind_layer("inner.") + ", x=X, keep=keep",
    SIZES | dict(N=7),
    (("keep[b,j]", "keep[b,i]"), ("keep[b,j]", "not keep[b,j]"), ("b_Q[h*D + d]", "b_K[h*D + d]")),
)

REALS = (attention, output, layer, layer_masked)
