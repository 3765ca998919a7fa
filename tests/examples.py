"""Representative formulas with the code that a careful person writes for them, to compare with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import torch

from derive.compiler import build
from derive.frontend.from_text import parse
from derive.ir.polynomial import evaluate_extent


@dataclass(frozen=True)
class Example:
    """A formula's text, its sizes, and its meaning in hand-written torch."""

    name: str
    text: str
    sizes: dict
    reference: Callable
    empty_row: str = "nan"
    divisors: tuple = field(default=())  # sizes that divide, or that shapes are divided by
    free: tuple = field(default=())  # places whose extent no other place tells: (tensor, place)

    def __str__(self):
        return self.name

    def build(self, *, cells=True):
        return _build(self, cells)

    def draw(self, sizes=None, dtype=torch.float64, seed=0):
        """Random inputs in order of declaration, and the keyword sizes."""
        chosen = {**self.sizes, **(sizes or {})}
        system = self.build().system
        generator = torch.Generator().manual_seed(seed)
        tensors = {}
        for tensor in system.inputs:
            shape = [evaluate_extent(extent, chosen) for extent in tensor.shape]
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
            tensors[tensor.name] = values > 0 if tensor.kind == "bool" else values.to(dtype)
        return tensors, {size.name: chosen[size.name] for size in system.sizes}

    def __hash__(self):
        return hash(self.name)


@cache
def _build(example, cells):
    return build(parse(example.text, example.name, empty_row=example.empty_row), cells=cells)


def relative(*, X, W_Q, W_K, W_V, A_K, A_V):
    q = torch.einsum("bihd,hde->bhie", X, W_Q)
    k = torch.einsum("bjhd,hde->bhje", X, W_K)
    v = torch.einsum("bjhd,hde->bhje", X, W_V)
    keys = torch.einsum("bhie,ijhe->bhij", q, A_K)
    alpha = torch.softmax((q @ k.mT + keys) * X.shape[-1] ** -0.5, dim=-1)
    return torch.einsum("bhij,bhje->bihe", alpha, v) + torch.einsum("bhij,ijhe->bihe", alpha, A_V)


def masked(q, k, v, m):
    logits = torch.einsum("bhic,bhjc->bhij", q, k) * q.shape[-1] ** -0.5
    alpha = torch.softmax(logits.masked_fill(~m[:, None], -torch.inf), dim=-1)
    return alpha @ v


def masked_zeros(q, k, v, m):
    logits = torch.einsum("bhic,bhjc->bhij", q, k) * q.shape[-1] ** -0.5
    left_out = ~m[:, None]
    alpha = torch.softmax(logits.masked_fill(left_out, -torch.inf), dim=-1)
    return alpha.masked_fill(left_out, 0) @ v


def causal(q, k, v):
    n = q.shape[-2]
    ones = q.new_ones(n, n, dtype=torch.bool).tril()
    logits = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~ones, -torch.inf)
    return torch.softmax(logits, dim=-1) @ v


def multi_head(*, x, W_q, W_k, W_v, W_o, H):
    B, S, _ = x.shape
    q, k, v = ((x @ W).reshape(B, S, H, W.shape[1] // H).transpose(1, 2) for W in (W_q, W_k, W_v))
    p = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1)
    return (p @ v).transpose(1, 2).reshape(B, S, W_o.shape[0]) @ W_o


def layer_norm(x, g, c):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], g, c, 1e-5)


def logsumexp(x):
    return torch.logsumexp(x, dim=-1)


def distances(x, y):
    return ((x[:, None] - y[None]) ** 2).sum(-1)


ATTENTION = """
q, k[B, H, S, C]; v[B, H, S, E]
bool m[B, S, S]
alpha[b,h,i,j] = softmax[j, m[b,i,j]](sum[c](q[b,h,i,c] * k[b,h,j,c]) / sqrt(C))
z[b,h,i,e] = sum[j](alpha[b,h,i,j] * v[b,h,j,e])
"""

RELATIVE = Example(
    "relative_attention",
    """
    X[B, S, H, D]; W_Q, W_K, W_V[H, D, D]; A_K, A_V[S, S, H, D]
    q[b,i,h,e] = sum[d](X[b,i,h,d] * W_Q[h,d,e])
    k[b,j,h,e] = sum[d](X[b,j,h,d] * W_K[h,d,e])
    v[b,j,h,e] = sum[d](X[b,j,h,d] * W_V[h,d,e])
    alpha[b,i,j,h] = softmax[j](sum[e](q[b,i,h,e] * (k[b,j,h,e] + A_K[i,j,h,e])) / sqrt(D))
    z[b,i,h,e] = sum[j](alpha[b,i,j,h] * (v[b,j,h,e] + A_V[i,j,h,e]))
    """,
    dict(B=2, S=5, H=3, D=4),
    relative,
    divisors=("D",),
    free=(("X", 0),),
)
MASKED = Example(
    "masked_attention",
    ATTENTION,
    dict(B=2, H=3, S=5, C=4, E=6),
    masked,
    divisors=("C",),
    free=(("v", 3),),
)
MASKED_ZEROS = Example(
    "masked_attention_zeros",
    ATTENTION,
    dict(B=2, H=3, S=5, C=4, E=6),
    masked_zeros,
    divisors=("C",),
    empty_row="zeros",
    free=(("v", 3),),
)
CAUSAL = Example(
    "causal_attention",
    """
    q, k, v[B, H, N, D]
    p[b,h,i,j] = softmax[j, j <= i](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
    z[b,h,i,d] = sum[j](p[b,h,i,j] * v[b,h,j,d])
    """,
    dict(B=2, H=3, N=5, D=4),
    causal,
    divisors=("D",),
)
MULTI_HEAD = Example(
    "multi_head",
    """
    x[B, S, E]; W_q, W_k, W_v[E, H*D]; W_o[H*D, F]
    size H
    index h < H
    index d < D
    Q[b,h,i,d] = sum[e](x[b,i,e] * W_q[e,h*D + d])
    K[b,h,j,d] = sum[e](x[b,j,e] * W_k[e,h*D + d])
    V[b,h,j,d] = sum[e](x[b,j,e] * W_v[e,h*D + d])
    p[b,h,i,j] = softmax[j](sum[d](Q[b,h,i,d] * K[b,h,j,d]) / sqrt(D))
    z[b,i,h*D + d] = sum[j](p[b,h,i,j] * V[b,h,j,d])
    y[b,i,f] = sum[h, d](z[b,i,h*D + d] * W_o[h*D + d,f])
    """,
    dict(B=2, S=5, E=7, H=3, D=4, F=6),
    multi_head,
    divisors=("H", "D"),
    free=(("x", 0), ("x", 1), ("W_o", 1)),
)
LAYER_NORM = Example(
    "layer_norm",
    """
    x[B, S, D]; g, c[D]
    mu[b,s] = mean[d](x[b,s,d])
    y[b,s,d] = (x[b,s,d] - mu[b,s]) / sqrt(var[k](x[b,s,k]) + 0.00001) * g[d] + c[d]
    """,
    dict(B=2, S=3, D=5),
    layer_norm,
    free=(("x", 0), ("x", 1)),
)
LOGSUMEXP = Example(
    "log_partition",
    "x[M, N]; y[i] = log(sum[j](exp(x[i,j])))",
    dict(M=3, N=5),
    logsumexp,
    free=(("x", 0), ("x", 1)),
)
DISTANCES = Example(
    "distances",
    "x[M, D]; y[N, D]; s[i,j] = sum[d]((x[i,d] - y[j,d])**2)",
    dict(M=3, N=4, D=5),
    distances,
    free=(("x", 0), ("y", 0)),
)
EXAMPLES = (
    RELATIVE,
    MASKED,
    MASKED_ZEROS,
    CAUSAL,
    MULTI_HEAD,
    LAYER_NORM,
    LOGSUMEXP,
    DISTANCES,
)
