"""Swin's attention within windows, with a table of biases for relative positions in two ways."""

from __future__ import annotations

from typing import Any

from real import Real


def make_attention() -> Any:
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinAttention

    config = SwinConfig(attn_implementation="eager")
    return SwinAttention(config, 12, 3, window_size=2).double().eval()


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
PARAMETERS = (
    "q_proj.weight=W_Q, q_proj.bias=b_Q, k_proj.weight=W_K, k_proj.bias=b_K, v_proj.weight=W_V, "
    "v_proj.bias=b_V, o_proj.weight=W_O, o_proj.bias=b_O, "
    "relative_position_bias.relative_position_bias_table=T, hidden_states=X"
)

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

REALS = (attention, attention_shifted)
