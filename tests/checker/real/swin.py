"""Swin's attention within windows, with a table of biases for relative positions in two ways."""

from __future__ import annotations

from typing import Any

from real import Real


def make_attention() -> Any:
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinAttention

    config = SwinConfig(attn_implementation="eager")
    return SwinAttention(config, 12, 3, window_size=2).double().eval()


def make_layer() -> Any:
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinLayer

    config = SwinConfig(attn_implementation="eager", window_size=3, mlp_ratio=0.5)
    return SwinLayer(config, 30, (12, 6), 5, shift_size=1).double().eval()


# Position i of a window lies in row i // W and column i % W; the table has a row for each pair of
# differences, shifted to start at 0.
ATTENTION = """
    W_Q, W_K, W_V, W_O[H*D, H*D]; b_Q, b_K, b_V, b_O[H*D]; T[(2*W - 1)*(2*W - 1), H]
    size W
    index h < H
    index d < D
    index i < W*W
    index j < W*W
    q[n,h,i,d] = sum[m](X[n,i,m] * W_Q[h*D + d,m]) + b_Q[h*D + d]
    k[n,h,j,d] = sum[m](X[n,j,m] * W_K[h*D + d,m]) + b_K[h*D + d]
    v[n,h,j,d] = sum[m](X[n,j,m] * W_V[h*D + d,m]) + b_V[h*D + d]
    u[i,j,h] = T[(i // W - j // W + W - 1)*(2*W - 1) + i % W - j % W + W - 1,h]
"""
SCORES = "sum[d](q[n,h,i,d] * k[n,h,j,d]) / sqrt(D) + u[i,j,h]"
MERGE = """
    z[n,i,h*D + d] = sum[j](alpha[n,h,i,j] * v[n,h,j,d])
    y[n,i,o] = sum[m](z[n,i,m] * W_O[o,m]) + b_O[o]
    return y, alpha
"""


def bind_attention(at: str) -> str:
    """The parameters of an attention that lies at this name."""
    projections = [
        f"{at}{name}_proj.weight=W_{name.upper()}, {at}{name}_proj.bias=b_{name.upper()}, "
        for name in "qkvo"
    ]
    return "".join(projections) + f"{at}relative_position_bias.relative_position_bias_table=T, "


PARAMETERS = bind_attention("") + "hidden_states=X"

attention = Real(
    "SwinAttention",
    make_attention,
    f"X[N, W*W, H*D] {ATTENTION} alpha[n,h,i,j] = softmax[j]({SCORES}); {MERGE}",
    PARAMETERS,
    dict(N=5, W=2, H=3, D=4),
    (
        ("(i // W - j // W + W - 1)", "(j // W - i // W + W - 1)"),
        ("i % W - j % W", "j % W - i % W"),
        ("/ sqrt(D)", "* sqrt(D)"),
    ),
    single=True,
    free="N",
)

# The windows of one image follow each other, then those of the next.
attention_shifted = Real(
    "SwinAttention with a mask for each window of an image",
    make_attention,
    f"""X[B*N, W*W, H*D]; M[N, W*W, W*W] {ATTENTION}
    alpha[n,h,i,j] = softmax[j]({SCORES} + M[n % N,i,j])
    {MERGE}""",
    PARAMETERS + ", attention_mask=M",
    dict(B=6, N=5, W=2, H=3, D=4),
    (("M[n % N,i,j]", "M[n // B,i,j]"), ("softmax[j](sum", "softmax[i](sum")),
    single=True,
    free="B N",
)

# A whole layer over an image of P by Q windows: pixels are moved by A up and left, around the edge,
# those that then meet in a window but were apart get -100, and all are moved back.
layer = Real(
    "SwinLayer with shifted windows",
    make_layer,
    """
    X[B, P*W*Q*W, H*D]; g_1, c_1, g_2, c_2[H*D]; U[N, H*D]; w_U[N]; V[H*D, N]; w_V[H*D]
    W_Q, W_K, W_V, W_O[H*D, H*D]; b_Q, b_K, b_V, b_O[H*D]; T[(2*W - 1)*(2*W - 1), H]
    size W
    size P
    size H
    size A = 1
    index r < P*W
    index c < Q*W
    index h < H
    index d < D
    index j < W*W
    index m, n < H*D
    index s < P*W*Q*W
    a[b,s,m] = (X[b,s,m] - mean[n](X[b,s,n])) / sqrt(var[n](X[b,s,n]) + 1e-5) * g_1[m] + c_1[m]
    x[b,r,c,m] = a[b,(r + A) % (P*W) * (Q*W) + (c + A) % (Q*W),m]
    q[b,h,r,c,d] = sum[m](x[b,r,c,m] * W_Q[h*D + d,m]) + b_Q[h*D + d]
    k[b,h,r,c,d] = sum[m](x[b,r,c,m] * W_K[h*D + d,m]) + b_K[h*D + d]
    v[b,h,r,c,d] = sum[m](x[b,r,c,m] * W_V[h*D + d,m]) + b_V[h*D + d]
    u[r,c,j,h] = T[(r % W - j // W + W - 1)*(2*W - 1) + c % W - j % W + W - 1,h]
    e[r] = [r >= P*W - W] + [r >= P*W - A]
    f[c] = [c >= Q*W - W] + [c >= Q*W - A]
    far[r,c,j] = [e[r] != e[r // W * W + j // W] or f[c] != f[c // W * W + j % W]]
    alpha[b,h,r,c,j] = softmax[j](
        sum[d](q[b,h,r,c,d] * k[b,h,r // W * W + j // W,c // W * W + j % W,d]) / sqrt(D)
        + u[r,c,j,h] - 100*far[r,c,j])
    z[b,r,c,h*D + d] = sum[j](alpha[b,h,r,c,j] * v[b,h,r // W * W + j // W,c // W * W + j % W,d])
    y[b,r,c,n] = sum[m](z[b,r,c,m] * W_O[n,m]) + b_O[n]
    t[b,s,n] = X[b,s,n] + y[b,(s // (Q*W) - A) % (P*W),(s % (Q*W) - A) % (Q*W),n]
    l[b,s,m] = (t[b,s,m] - mean[n](t[b,s,n])) / sqrt(var[n](t[b,s,n]) + 1e-5) * g_2[m] + c_2[m]
    p[b,s,o] = gelu(sum[m](l[b,s,m] * U[o,m]) + w_U[o])
    out[b,s,m] = t[b,s,m] + sum[o](p[b,s,o] * V[m,o]) + w_V[m]
    """,
    bind_attention("attention.")
    + "layernorm_before.weight=g_1, layernorm_before.bias=c_1, layernorm_after.weight=g_2, "
    "layernorm_after.bias=c_2, mlp.fc1.weight=U, mlp.fc1.bias=w_U, mlp.fc2.weight=V, "
    "mlp.fc2.bias=w_V, hidden_states=X, input_dimensions=(P*W, Q*W)",
    dict(B=2, P=4, Q=2, W=3, H=5, D=6, A=1, N=15),
    (
        ("(r + A) % (P*W)", "(r - A + P*W) % (P*W)"),
        ("- 100*far[r,c,j]", "+ 100*far[r,c,j]"),
        ("r >= P*W - A", "r >= P*W - A - 1"),
    ),
    free="B",
    single=True,
)

REALS = (attention, attention_shifted, layer)
