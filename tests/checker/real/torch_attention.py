"""Attention as torch has it: nn.MultiheadAttention, the functional form, a transformer's layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from real import Real

# The three projections lie in one weight, below each other; a head has D neighbouring rows.
PACKED = """
    X[B, S, H*D]; W[3*H*D, H*D]; w[3*H*D]; W_O[H*D, H*D]; w_O[H*D]
    size H
    index h < H
    index d < D
    q[b,h,i,d] = sum[m](X[b,i,m] * W[h*D + d,m]) + w[h*D + d]
    k[b,h,j,d] = sum[m](X[b,j,m] * W[H*D + h*D + d,m]) + w[H*D + h*D + d]
    v[b,h,j,d] = sum[m](X[b,j,m] * W[2*H*D + h*D + d,m]) + w[2*H*D + h*D + d]
"""
MERGE = """
    z[b,i,h*D + d] = sum[j](alpha[b,h,i,j] * v[b,h,j,d])
    y[b,i,n] = sum[m](z[b,i,m] * W_O[n,m]) + w_O[n]
"""
PARAMETERS = (
    "in_proj_weight=W, in_proj_bias=w, out_proj.weight=W_O, out_proj.bias=w_O, "
    "query=X, key=X, value=X, "
)
SCORES = "sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D)"
SIZES = dict(B=2, S=5, H=3, D=4)


def make_attention(**options: Any) -> nn.Module:
    return nn.MultiheadAttention(
        12, 3, dtype=torch.float64, **{"batch_first": True, **options}
    ).eval()


class CausalAttention(nn.Module):
    """The attention with torch's own causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_attention()

    def forward(self, x: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=torch.float64)
        return self.inner(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]


averaged = Real(
    "MultiheadAttention, weights averaged over the heads",
    make_attention,
    f"""{PACKED}
    alpha[b,h,i,j] = softmax[j]({SCORES})
    {MERGE}
    a[b,i,j] = mean[h](alpha[b,h,i,j])
    return y, a
    """,
    PARAMETERS + "need_weights=True",
    SIZES,
    (
        ("mean[h]", "sum[h]"),
        ("softmax[j](sum", "softmax[i](sum"),
        ("W[H*D + h*D + d,m]", "W[2*H*D + h*D + d,m]"),
        ("z[b,i,h*D + d]", "z[b,i,d*H + h]"),
    ),
)

padded = Real(
    "MultiheadAttention, a key padding mask, weights of each head",
    make_attention,
    f"""{PACKED}
    bool mask[B, S]
    alpha[b,h,i,j] = softmax[j, mask[b,j]]({SCORES})
    {MERGE}
    return y, alpha
    """,
    PARAMETERS + "key_padding_mask=~mask, average_attn_weights=False",
    SIZES,
    (("mask[b,j]", "not mask[b,j]"), ("mask[b,j]", "mask[b,i]"), ("/ sqrt(D)", "/ sqrt(H*D)")),
)

without_weights = Real(
    "MultiheadAttention, a truth mask, no weights wanted",
    make_attention,
    f"""{PACKED}
    bool mask[S, S]
    alpha[b,h,i,j] = softmax[j, mask[i,j]]({SCORES})
    {MERGE}
    return y
    """,
    PARAMETERS + "attn_mask=~mask, need_weights=False",
    SIZES,
    (("mask[i,j]", "mask[j,i]"), ("/ sqrt(D)", "/ D"), ("W_O[n,m]", "W_O[m,n]")),
    "zeros",
)

causal_attention = Real(
    "MultiheadAttention, told to be causal",
    CausalAttention,
    f"""{PACKED}
    alpha[b,h,i,j] = softmax[j, j <= i]({SCORES})
    {MERGE}
    return y
    """,
    "inner.in_proj_weight=W, inner.in_proj_bias=w, "
    "inner.out_proj.weight=W_O, inner.out_proj.bias=w_O, x=X",
    SIZES,
    (("j <= i", "j < i"), ("j <= i", "i <= j")),
)

biased = Real(
    "MultiheadAttention, a float mask for each head",
    make_attention,
    f"""{PACKED}
    M[B*H, S, S]
    alpha[b,h,i,j] = softmax[j]({SCORES} + M[b*H + h,i,j])
    {MERGE}
    a[b,i,j] = mean[h](alpha[b,h,i,j])
    return y, a
    """,
    PARAMETERS + "attn_mask=M",
    SIZES,
    (("M[b*H + h,i,j]", "M[h*B + b,i,j]"), ("M[b*H + h,i,j]", "M[b*H + h,j,i]")),
)

# Queries of another sequence, keys and values of other widths, a learned key and value at the end
# and a zero one behind it; sequences first.
across = Real(
    "MultiheadAttention across sequences, with bias_k, bias_v and a zero key",
    lambda: make_attention(
        kdim=7, vdim=6, batch_first=False, bias=True, add_bias_kv=True, add_zero_attn=True
    ),
    """
    X[S, B, H*D]; Y[T, B, K]; Z[T, B, V]
    W_Q[H*D, H*D]; W_K[H*D, K]; W_V[H*D, V]; w[3*H*D]; u_K, u_V[H*D]; W_O[H*D, H*D]; w_O[H*D]
    size H
    index h < H
    index d < D
    index j < T + 2
    q[b,h,i,d] = sum[m](X[i,b,m] * W_Q[h*D + d,m]) + w[h*D + d]
    k[b,h,t,d] = sum[c](Y[t,b,c] * W_K[h*D + d,c]) + w[H*D + h*D + d]
    v[b,h,t,d] = sum[e](Z[t,b,e] * W_V[h*D + d,e]) + w[2*H*D + h*D + d]
    kk[b,h,j,d] = where(j < T, k[b,h,j,d], [j == T] * u_K[h*D + d])
    vv[b,h,j,d] = where(j < T, v[b,h,j,d], [j == T] * u_V[h*D + d])
    alpha[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * kk[b,h,j,d]) / sqrt(D))
    z[b,i,h*D + d] = sum[j](alpha[b,h,i,j] * vv[b,h,j,d])
    y[i,b,n] = sum[m](z[b,i,m] * W_O[n,m]) + w_O[n]
    a[b,i,j] = mean[h](alpha[b,h,i,j])
    return y, a
    """,
    "q_proj_weight=W_Q, k_proj_weight=W_K, v_proj_weight=W_V, in_proj_bias=w, "
    "bias_k=u_K.reshape(1, 1, H*D), bias_v=u_V.reshape(1, 1, H*D), "
    "out_proj.weight=W_O, out_proj.bias=w_O, query=X, key=Y, value=Z",
    dict(S=5, B=2, H=3, D=4, T=8, K=7, V=6),
    (("[j == T] * u_V", "[j == T + 1] * u_V"), ("w[2*H*D", "w[H*D")),
    free="S B T",
)


def attend(query: Any, key: Any, value: Any) -> Any:
    return scaled_dot_product_attention(query, key, value)


def attend_scaled(query: Any, key: Any, value: Any, scale: float) -> Any:
    return scaled_dot_product_attention(query, key, value, scale=scale)


def attend_causal(query: Any, key: Any, value: Any) -> Any:
    return scaled_dot_product_attention(query, key, value, is_causal=True)


def attend_masked(query: Any, key: Any, value: Any, mask: Any) -> Any:
    return scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None])


def attend_biased(query: Any, key: Any, value: Any, bias: Any) -> Any:
    return scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=0.0)


def attend_grouped(query: Any, key: Any, value: Any) -> Any:
    return scaled_dot_product_attention(query, key, value, enable_gqa=True)


TENSORS = "Q[B, H, S, D]; K[B, H, T, D]; V[B, H, T, E]"
PRODUCT = "sum[d](Q[b,h,i,d] * K[b,h,j,d])"
RESULT = "z[b,h,i,e] = sum[j](p[b,h,i,j] * V[b,h,j,e])"
GIVEN = "query=Q, key=K, value=V"
LENGTHS = dict(B=2, H=3, S=4, D=5, T=6, E=7)

plain = Real(
    "scaled_dot_product_attention",
    lambda: attend,
    f"{TENSORS}; p[b,h,i,j] = softmax[j]({PRODUCT} / sqrt(D)); {RESULT}",
    GIVEN,
    LENGTHS,
    (("softmax[j]", "softmax[i]"), ("/ sqrt(D)", "/ sqrt(E)"), ("/ sqrt(D)", "* sqrt(D)")),
    free="B H S D T E",
)

scaled = Real(
    "scaled_dot_product_attention with a scale",
    lambda: attend_scaled,
    f"{TENSORS}; scalar c = 0.75; p[b,h,i,j] = softmax[j]({PRODUCT} * c); {RESULT}",
    GIVEN + ", scale=c",
    LENGTHS,
    (("* c)", "* c / sqrt(D))"), ("* c)", "/ c)")),
    free="B H S D T E",
)

causal = Real(
    "scaled_dot_product_attention, causal, more keys than queries",
    lambda: attend_causal,
    f"{TENSORS}; p[b,h,i,j] = softmax[j, j <= i]({PRODUCT} / sqrt(D)); {RESULT}",
    GIVEN,
    LENGTHS,
    (("j <= i", "j < i"), ("j <= i", "j <= i + T - S"), ("/ sqrt(D)", "/ D")),
    "zeros",
    free="B H S D T E",
)

masked = Real(
    "scaled_dot_product_attention with a truth mask",
    lambda: attend_masked,
    f"{TENSORS}; bool m[B, S, T]; p[b,h,i,j] = softmax[j, m[b,i,j]]({PRODUCT} / sqrt(D)); {RESULT}",
    GIVEN + ", mask=m",
    LENGTHS,
    (("softmax[j, m[b,i,j]]", "softmax[j, not m[b,i,j]]"), ("softmax[j, m[b,i,j]]", "softmax[j]")),
    "zeros",
    free="B H S D T E",
)

with_bias = Real(
    "scaled_dot_product_attention with a float mask",
    lambda: attend_biased,
    f"{TENSORS}; M[S, T]; p[b,h,i,j] = softmax[j]({PRODUCT} / sqrt(D) + M[i,j]); {RESULT}",
    GIVEN + ", bias=M",
    LENGTHS,
    (
        (" / sqrt(D) + M[i,j]", " / sqrt(D) - M[i,j]"),
        (f"{PRODUCT} / sqrt(D) + M[i,j]", f"({PRODUCT} + M[i,j]) / sqrt(D)"),
    ),
    free="B H S D T E",
)

grouped = Real(
    "scaled_dot_product_attention with grouped heads",
    lambda: attend_grouped,
    """
    Q[B, G*R, S, D]; K[B, G, T, D]; V[B, G, T, E]
    p[b,h,i,j] = softmax[j](sum[d](Q[b,h,i,d] * K[b,h // R,j,d]) / sqrt(D))
    z[b,h,i,e] = sum[j](p[b,h,i,j] * V[b,h // R,j,e])
    """,
    GIVEN,
    dict(B=8, G=3, R=2, S=4, D=5, T=6, E=7),
    (("K[b,h // R,j,d]", "K[b,h % G,j,d]"), ("V[b,h // R,j,e]", "V[b,h % G,j,e]")),
    free="B G R S D T E",
)

LAYER = """
    U[N, H*D]; t[N]; R[H*D, N]; r[H*D]; g_1, c_1, g_2, c_2[H*D]
"""
LAYER_PARAMETERS = (
    "self_attn.in_proj_weight=W, self_attn.in_proj_bias=w, "
    "self_attn.out_proj.weight=W_O, self_attn.out_proj.bias=w_O, "
    "linear1.weight=U, linear1.bias=t, linear2.weight=R, linear2.bias=r, "
    "norm1.weight=g_1, norm1.bias=c_1, norm2.weight=g_2, norm2.bias=c_2, src=X"
)


def write_norm(name: str, of: str, weight: str, bias: str) -> str:
    """The lines of a layer normalisation over the last index."""
    return f"""
    {name}[b,i,m] = ({of}[b,i,m] - mean[n]({of}[b,i,n])) / sqrt(var[n]({of}[b,i,n]) + 1e-5) * {
        weight
    }[m] + {bias}[m]"""


PACKED_OF_NORM = (
    PACKED.replace("X[b,i,m] *", "x[b,i,m] *")
    .replace("X[b,j,m] *", "x[b,j,m] *")
    .replace("index d < D", "index d < D" + write_norm("x", "X", "g_1", "c_1"))
)


def make_layer(**options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(
        12, 3, 7, dtype=torch.float64, batch_first=True, **options
    ).eval()


encoder_layer = Real(
    "TransformerEncoderLayer, norm last",
    make_layer,
    f"""{PACKED} {LAYER}
    alpha[b,h,i,j] = softmax[j]({SCORES})
    {MERGE}
    s[b,i,m] = X[b,i,m] + y[b,i,m]
    {write_norm("a", "s", "g_1", "c_1")}
    f[b,i,o] = relu(sum[m](a[b,i,m] * U[o,m]) + t[o])
    u[b,i,m] = a[b,i,m] + sum[o](f[b,i,o] * R[m,o]) + r[m]
    {write_norm("l", "u", "g_2", "c_2")}
    """,
    LAYER_PARAMETERS,
    SIZES | dict(N=7),
    (("X[b,i,m] + y[b,i,m]", "y[b,i,m]"), ("u[b,i,m] = a[b,i,m]", "u[b,i,m] = s[b,i,m]")),
)

encoder_layer_first = Real(
    "TransformerEncoderLayer, norm first, gelu, a padding mask",
    lambda: make_layer(norm_first=True, activation="gelu"),
    f"""{LAYER} bool p[B, S]
    {PACKED_OF_NORM}
    alpha[b,h,i,j] = softmax[j, p[b,j]]({SCORES})
    {MERGE}
    s[b,i,m] = X[b,i,m] + y[b,i,m]
    {write_norm("a", "s", "g_2", "c_2")}
    f[b,i,o] = gelu(sum[m](a[b,i,m] * U[o,m]) + t[o])
    l[b,i,m] = s[b,i,m] + sum[o](f[b,i,o] * R[m,o]) + r[m]
    """,
    LAYER_PARAMETERS + ", src_key_padding_mask=~p",
    SIZES | dict(N=7),
    (("gelu", "relu"), ("l[b,i,m] = s[b,i,m]", "l[b,i,m] = a[b,i,m]"), ("p[b,j]", "p[b,i]")),
    "zeros",
)

REALS = (
    averaged,
    padded,
    without_weights,
    causal_attention,
    biased,
    across,
    plain,
    scaled,
    causal,
    masked,
    with_bias,
    grouped,
    encoder_layer,
    encoder_layer_first,
)
