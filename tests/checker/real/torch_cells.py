"""Two-dimensional and transposed convolutions and the cells of recurrent layers of torch."""

from __future__ import annotations

import torch
from torch import nn

from real import Real

DOUBLE = torch.float64

convolution = Real(
    "Conv2d that keeps height and width",
    lambda: nn.Conv2d(2, 4, (3, 5), padding="same", dtype=DOUBLE),
    """
    x[N, C, R, S]; W[O, C, 3, 5]; w[O]
    index r < R
    index s < S
    index k < 3
    index l < 5
    y[n,o,r,s] = w[o] + sum[c,k,l](
        x[n,c,r + k - 1,s + l - 2] * W[o,c,k,l] * [0 <= r + k - 1 < R] * [0 <= s + l - 2 < S])
    """,
    "input=x, weight=W, bias=w",
    dict(N=3, C=2, O=4, R=6, S=7),
    (("* W[o,c,k,l]", "* W[o,c,2 - k,4 - l]"), ("w[o] + sum[c,k,l]", "w[o] + mean[c,k,l]")),
    free="N R S",
)

# Each entry of x spreads its kernel from place 2*s on.
transposed = Real(
    "ConvTranspose1d with stride",
    lambda: nn.ConvTranspose1d(2, 4, 3, stride=2, bias=False, dtype=DOUBLE),
    """
    x[N, C, L]; W[C, O, 3]
    index k < 3
    index t < 2*(L - 1) + 3
    y[n,o,t] = sum[c,k](
        x[n,c,(t - k) // 2] * W[c,o,k] * [(t - k) % 2 == 0] * [0 <= (t - k) // 2 < L])
    """,
    "input=x, weight=W",
    dict(N=3, C=2, O=4, L=5),
    (("* W[c,o,k]", "* W[c,o,2 - k]"), ("[(t - k) % 2 == 0]", "[(t - k) % 2 == 1]")),
    free="N L",
)

gated = Real(
    "GRUCell",
    lambda: nn.GRUCell(3, 5, dtype=DOUBLE),
    """
    x[B, I]; h[B, D]; W[3*D, I]; U[3*D, D]; w, u[3*D]
    index d < D
    a[b,g] = sum[i](x[b,i] * W[g,i]) + w[g]
    c[b,g] = sum[e](h[b,e] * U[g,e]) + u[g]
    r[b,d] = sigmoid(a[b,d] + c[b,d])
    z[b,d] = sigmoid(a[b,D + d] + c[b,D + d])
    n[b,d] = tanh(a[b,2*D + d] + r[b,d] * c[b,2*D + d])
    y[b,d] = (1 - z[b,d]) * n[b,d] + z[b,d] * h[b,d]
    """,
    "input=x, hx=h, weight_ih=W, weight_hh=U, bias_ih=w, bias_hh=u",
    dict(B=2, I=3, D=5),
    (
        ("r[b,d] * c[b,2*D + d]", "r[b,d] * sum[e](h[b,e] * U[2*D + d,e]) + u[2*D + d]"),
        ("(1 - z[b,d]) * n[b,d] + z[b,d] * h[b,d]", "z[b,d] * n[b,d] + (1 - z[b,d]) * h[b,d]"),
    ),
    free="B",
)

remembering = Real(
    "LSTMCell",
    lambda: nn.LSTMCell(3, 5, dtype=DOUBLE),
    """
    x[B, I]; h, c[B, D]; W[4*D, I]; U[4*D, D]; w, u[4*D]
    index d < D
    a[b,g] = sum[i](x[b,i] * W[g,i]) + w[g] + sum[e](h[b,e] * U[g,e]) + u[g]
    k[b,d] = sigmoid(a[b,d]) * tanh(a[b,2*D + d]) + sigmoid(a[b,D + d]) * c[b,d]
    y[b,d] = sigmoid(a[b,3*D + d]) * tanh(k[b,d])
    return y, k
    """,
    "input=x, hx=(h, c), weight_ih=W, weight_hh=U, bias_ih=w, bias_hh=u",
    dict(B=2, I=3, D=5),
    (
        ("sigmoid(a[b,D + d]) * c[b,d]", "sigmoid(a[b,d]) * c[b,d]"),
        ("sigmoid(a[b,3*D + d]) * tanh(k[b,d])", "sigmoid(a[b,3*D + d]) * k[b,d]"),
    ),
    free="B",
)

REALS = (convolution, transposed, gated, remembering)
