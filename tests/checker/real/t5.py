"""T5's attention with learned relative positions, its norm and its feed-forward layer."""

from __future__ import annotations

from typing import Any

import torch

from real import Real


def make_config() -> Any:
    from transformers import T5Config

    return T5Config(
        d_model=5,
        d_kv=4,
        num_heads=3,
        d_ff=7,
        relative_attention_num_buckets=32,
        attn_implementation="eager",
    )


def make_attention() -> Any:
    from transformers.models.t5.modeling_t5 import T5Attention

    return T5Attention(make_config(), has_relative_attention_bias=True).double().eval()


class GivenBuckets(torch.nn.Module):
    """The attention with the bucket of each pair of positions given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_attention()

    def forward(self, x: Any, mask: Any, bucket: Any) -> Any:
        self.inner._relative_position_bucket = lambda *_, **__: bucket
        z, _, alpha = self.inner(x, mask=mask)
        return z, alpha


def make_norm() -> Any:
    from transformers.models.t5.modeling_t5 import T5LayerNorm

    return T5LayerNorm(5).double().eval()


def make_layer() -> Any:
    from transformers.models.t5.modeling_t5 import T5LayerFF

    return T5LayerFF(make_config()).double().eval()


ATTENTION = """
    X[B, S, E]; W_Q, W_K, W_V[H*D, E]; W_O[E, H*D]
    index h < H
    index d < D
    q[b,h,i,d] = sum[m](X[b,i,m] * W_Q[h*D + d,m])
    k[b,h,j,d] = sum[m](X[b,j,m] * W_K[h*D + d,m])
    v[b,h,j,d] = sum[m](X[b,j,m] * W_V[h*D + d,m])
"""
RESULT = """
    z[b,i,h*D + d] = sum[j](alpha[b,h,i,j] * v[b,h,j,d])
    y[b,i,n] = sum[c](z[b,i,c] * W_O[n,c])
"""
SCORES = "sum[d](q[b,h,i,d] * k[b,h,j,d])"
SIZES = dict(B=2, S=7, E=5, H=3, D=4)

given_buckets = Real(
    "T5Attention with buckets given and an additive mask",
    GivenBuckets,
    f"""int bucket[S, S] < N; T[N, H]; M[B, S] {ATTENTION}
    alpha[b,h,i,j] = softmax[j]({SCORES} + T[bucket[i,j],h] + M[b,j])
    {RESULT}
    return y, alpha
    """,
    "inner.q.weight=W_Q, inner.k.weight=W_K, inner.v.weight=W_V, inner.o.weight=W_O, "
    "inner.relative_attention_bias.weight=T, x=X, mask=M.reshape(B, 1, 1, S), bucket=bucket",
    SIZES | dict(N=32),
    (
        ("T[bucket[i,j],h]", "T[bucket[j,i],h]"),
        (f"{SCORES} + T", f"{SCORES} / sqrt(D) + T"),
        ("W_O[n,c]", "W_O[n,(c % H)*D + c // H]"),
    ),
)

# Of 32 buckets 16 stand for keys ahead, 16 for the others, and 8 of each for one distance each.
own_buckets = Real(
    "T5Attention over less than nine positions",
    make_attention,
    f"""T[32, H] {ATTENTION.replace("[B, S, E]", "[B, 7, E]")}
    u[i,j,h] = where(j > i, T[j - i + 16,h], T[i - j,h])
    alpha[b,h,i,j] = softmax[j]({SCORES} + u[i,j,h])
    {RESULT}
    """,
    "q.weight=W_Q, k.weight=W_K, v.weight=W_V, o.weight=W_O, relative_attention_bias.weight=T, "
    "hidden_states=X",
    dict(B=2, E=5, H=3, D=4),
    (
        ("T[j - i + 16,h]", "T[j - i + 15,h]"),
        ("where(j > i, T[j - i + 16,h], T[i - j,h])", "where(j < i, T[i - j + 16,h], T[j - i,h])"),
    ),
)

norm = Real(
    "T5LayerNorm",
    make_norm,
    "x[B, S, E]; g[E]; y[b,s,m] = g[m] * x[b,s,m] / sqrt(mean[n](x[b,s,n]**2) + 1e-6)",
    "weight=g, hidden_states=x",
    dict(B=2, S=3, E=5),
    (("mean[n](x[b,s,n]**2)", "var[n](x[b,s,n])"), ("g[m] * x[b,s,m] /", "x[b,s,m] /")),
    single=True,
)

feed_forward = Real(
    "T5LayerFF",
    make_layer,
    """
    x[B, S, E]; g[E]; U[N, E]; R[E, N]
    a[b,s,m] = g[m] * x[b,s,m] / sqrt(mean[n](x[b,s,n]**2) + 1e-6)
    f[b,s,o] = relu(sum[m](a[b,s,m] * U[o,m]))
    y[b,s,m] = x[b,s,m] + sum[o](f[b,s,o] * R[m,o])
    """,
    "layer_norm.weight=g, DenseReluDense.wi.weight=U, DenseReluDense.wo.weight=R, hidden_states=x",
    dict(B=2, S=3, E=5, N=7),
    (("y[b,s,m] = x[b,s,m]", "y[b,s,m] = a[b,s,m]"), ("relu", "gelu")),
    single=True,
)

REALS = (given_buckets, own_buckets, norm, feed_forward)
