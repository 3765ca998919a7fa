"""Norms, convolutions and losses as torch has them."""

from __future__ import annotations

import torch
from torch import nn

from real import Real

DOUBLE = torch.float64

layer_norm = Real(
    "LayerNorm over the last index",
    lambda: nn.LayerNorm(5, eps=0.125, dtype=DOUBLE),
    """
    x[B, S, D]; g, c[D]
    m[b,s] = mean[d](x[b,s,d])
    y[b,s,d] = (x[b,s,d] - m[b,s]) / sqrt(mean[e]((x[b,s,e] - m[b,s])**2) + 1/8) * g[d] + c[d]
    """,
    "input=x, weight=g, bias=c",
    dict(B=2, S=3, D=5),
    (
        ("+ 1/8", ""),
        ("mean[e](", "D/(D - 1) * mean[e]("),
        ("* g[d] + c[d]", "* (g[d] + c[d])"),
    ),
)

layer_norm_two = Real(
    "LayerNorm over the last two indices",
    lambda: nn.LayerNorm((3, 5), eps=1e-3, dtype=DOUBLE),
    """
    x[B, S, D]; g, c[S, D]
    y[b,s,d] = (x[b,s,d] - mean[t,e](x[b,t,e])) / sqrt(var[t,e](x[b,t,e]) + 1e-3) * g[s,d] + c[s,d]
    """,
    "input=x, weight=g, bias=c",
    dict(B=2, S=3, D=5),
    (("mean[t,e](x[b,t,e])", "mean[e](x[b,s,e])"), ("+ 1e-3) *", ") *")),
    free="B",
)

group_norm = Real(
    "GroupNorm",
    lambda: nn.GroupNorm(3, 6, dtype=DOUBLE),
    """
    x[B, G*P, T]; g, c[G*P]
    size G = 3
    index k < G
    index p < P
    m[b,k] = mean[p,t](x[b,k*P + p,t])
    s[b,k] = var[p,t](x[b,k*P + p,t])
    y[b,q,t] = (x[b,q,t] - m[b,q // P]) / sqrt(s[b,q // P] + 1e-5) * g[q] + c[q]
    """,
    "input=x, weight=g, bias=c",
    dict(B=4, G=3, P=2, T=5),
    (
        ("m[b,q // P]", "m[b,q % G]"),
        ("s[b,k] = var[p,t](x[b,k*P + p,t])", "s[b,k] = var[p,t](x[b,p*G + k,t])"),
    ),
    free="B T",
)

rms_norm = Real(
    "RMSNorm",
    lambda: nn.RMSNorm(5, eps=1e-6, dtype=DOUBLE),
    "x[B, S, D]; g[D]; y[b,s,d] = x[b,s,d] / sqrt(mean[e](x[b,s,e]**2) + 1e-6) * g[d]",
    "x=x, weight=g",
    dict(B=2, S=3, D=5),
    (
        ("mean[e]", "sum[e]"),
        ("x[b,s,e]**2", "x[b,s,e]"),
        ("sqrt(mean[e](x[b,s,e]**2) + 1e-6)", "(mean[e](x[b,s,e]**2) + 1e-6)"),
    ),
)

batch_norm = Real(
    "BatchNorm1d that is not trained",
    lambda: nn.BatchNorm1d(5, eps=0.5, dtype=DOUBLE).eval(),
    """
    x[B, C, T]; g, c[C]
    y[b,k,t] = x[b,k,t] / sqrt(1 + 1/2) * g[k] + c[k]
    """,
    "input=x, weight=g, bias=c",
    dict(B=2, C=5, T=3),
    (("sqrt(1 + 1/2)", "(1 + 1/2)"), ("* g[k]", "* c[k]")),
    free="B T",
)

bilinear = Real(
    "Bilinear",
    lambda: nn.Bilinear(3, 4, 5, dtype=DOUBLE),
    "x[N, I]; y[N, J]; A[O, I, J]; c[O]; z[n,o] = sum[i,j](x[n,i] * A[o,i,j] * y[n,j]) + c[o]",
    "input1=x, input2=y, weight=A, bias=c",
    dict(N=2, I=3, J=4, O=5),
    (("sum[i,j]", "mean[i,j]"), ("+ c[o]", "- c[o]")),
    free="N",
)

cosine = Real(
    "CosineSimilarity",
    lambda: nn.CosineSimilarity(dim=2, eps=1e-6),
    """
    x, y[B, N, D]
    a[b,n] = max(sqrt(sum[d](x[b,n,d]**2)), 1e-6)
    c[b,n] = max(sqrt(sum[d](y[b,n,d]**2)), 1e-6)
    z[b,n] = sum[d](x[b,n,d] * y[b,n,d]) / (a[b,n] * c[b,n])
    """,
    "x1=x, x2=y",
    dict(B=2, N=3, D=5),
    (("(a[b,n] * c[b,n])", "(a[b,n] * a[b,n])"), ("sum[d](x[b,n,d] *", "mean[d](x[b,n,d] *")),
    free="B N D",
)

CONVOLUTION = """
    x[N, C, L]; W[O, C, K]; w[O]
    index k < K
    index t < {length}
    y[n,o,t] = sum[c,k](x[n,c,{place}] * W[o,c,k] * [0 <= {place} < L]) + w[o]
"""

convolution = Real(
    "Conv1d",
    lambda: nn.Conv1d(2, 4, 3, dtype=DOUBLE),
    """
    x[N, C, L]; W[O, C, K]; w[O]
    index t < L - K + 1
    y[n,o,t] = sum[c,k](x[n,c,t + k] * W[o,c,k]) + w[o]
    """,
    "input=x, weight=W, bias=w",
    dict(N=5, C=2, O=4, K=3, L=9),
    (("x[n,c,t + k]", "x[n,c,t + K - 1 - k]"), ("+ w[o]", "+ 2*w[o]")),
    free="N L",
)

convolution_strided = Real(
    "Conv1d with stride, padding and dilation",
    lambda: nn.Conv1d(2, 4, 3, stride=2, padding=3, dilation=2, dtype=DOUBLE),
    CONVOLUTION.format(length="(L + 6 - 2*(K - 1) - 1)//2 + 1", place="2*t + 2*k - 3"),
    "input=x, weight=W, bias=w",
    dict(N=5, C=2, O=4, K=3, L=9),
    (
        ("= sum[c,k](x", "= mean[c,k](x"),
        ("W[o,c,k] * [0 <= 2*t + 2*k - 3 < L]", "W[o,c,K - 1 - k] * [0 <= 2*t + 2*k - 3 < L]"),
    ),
    free="N L",
)

convolution_grouped = Real(
    "Conv1d in groups",
    lambda: nn.Conv1d(6, 15, 4, groups=3, bias=False, dtype=DOUBLE),
    """
    x[N, G*C, L]; W[G*O, C, K]
    size G = 3
    index o < G*O
    index t < L - K + 1
    y[n,o,t] = sum[c,k](x[n,o // O * C + c,t + k] * W[o,c,k])
    """,
    "input=x, weight=W",
    dict(N=7, G=3, C=2, O=5, K=4, L=8),
    (("o // O * C + c", "c*G + o // O"), ("x[n,o // O * C + c,t + k]", "x[n,o % G * C + c,t + k]")),
    free="N L",
)

cross_entropy = Real(
    "CrossEntropyLoss with smoothed labels",
    lambda: nn.CrossEntropyLoss(label_smoothing=0.125),
    """
    x[N, C]; int t[N] < C
    l[n,c] = log_softmax[c](x[n,c])
    L = mean[n](-(7/8) * l[n,t[n]] - 1/8 * mean[c](l[n,c]))
    """,
    "input=x, target=t",
    dict(N=4, C=5),
    (("1/8 * mean[c]", "1/8 * sum[c]"), ("log_softmax[c]", "log_softmax[n]")),
    free="N C",
)

REALS = (
    layer_norm,
    layer_norm_two,
    group_norm,
    rms_norm,
    batch_norm,
    bilinear,
    cosine,
    convolution,
    convolution_strided,
    convolution_grouped,
    cross_entropy,
)
