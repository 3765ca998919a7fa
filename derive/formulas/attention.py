"""Attention: the formulas of four people who asked.

`relative_attention` is written with SymPy objects, the others in the text notation; the two are the
same language.
"""

from sympy import Eq, Sum, sqrt

from derive.frontend.from_text import parse
from derive.notation.formula import Formula
from derive.notation.words import indices, sizes, softmax, tensors

VASWANI = "Vaswani et al. 2017, Attention Is All You Need"

B, S, H, D = sizes("B S H D")
b, h = indices("b", B), indices("h", H)
i, j = indices("i j", S)
d, e = indices("d e", D)
X = tensors("X", B, S, H, D)
W_Q, W_K, W_V = tensors("W_Q W_K W_V", H, D, D)
A_K, A_V = tensors("A_K A_V", S, S, H, D)
q, k, v, alpha, z = tensors("q k v alpha z")  # no sizes: defined below, inferred

relative_attention = Formula(
    Eq(q[b, i, h, e], Sum(X[b, i, h, d] * W_Q[h, d, e], d)),
    Eq(k[b, j, h, e], Sum(X[b, j, h, d] * W_K[h, d, e], d)),
    Eq(v[b, j, h, e], Sum(X[b, j, h, d] * W_V[h, d, e], d)),
    Eq(
        alpha[b, i, j, h],
        softmax(Sum(q[b, i, h, e] * (k[b, j, h, e] + A_K[i, j, h, e]), e) / sqrt(D), j),
    ),
    Eq(z[b, i, h, e], Sum(alpha[b, i, j, h] * (v[b, j, h, e] + A_V[i, j, h, e]), j)),
    title="Self-attention with relative position representations",
    source="Shaw, Uszkoreit, Vaswani 2018, eq. 3-4",
    typical=dict(B=8, S=512, H=8, D=64),
)

self_attention = parse(
    """
    X[N, D]; W_Q, W_K[D, C]; W_V[D, E]
    Q[n,c] = sum[d](X[n,d] * W_Q[d,c])
    K[m,c] = sum[d](X[m,d] * W_K[d,c])
    V[m,e] = sum[d](X[m,d] * W_V[d,e])
    p[n,m] = softmax[m](sum[c](Q[n,c] * K[m,c]) / sqrt(C))
    z[n,e] = sum[m](p[n,m] * V[m,e])
    return z, p
    """,
    title="Scaled dot-product self-attention over one sequence",
    source=f"{VASWANI}, eq. 1",
    typical=dict(N=512, D=512, C=64, E=64),
)

masked_attention = parse(
    """
    query[B, H, N, C]; key[B, H, M, C]; value[B, H, M, E]
    bool mask[B, N, M]
    p[b,h,n,m] = softmax[m, mask[b,n,m]](sum[c](query[b,h,n,c] * key[b,h,m,c]) / sqrt(C))
    z[b,h,n,e] = sum[m](p[b,h,n,m] * value[b,h,m,e])
    return z, p
    """,
    title="Scaled dot-product attention with one mask for all heads; empty rows are zeros",
    source=f"{VASWANI}, eq. 1 and section 3.2.3",
    typical=dict(B=8, H=8, N=512, M=512, C=64, E=64),
    empty_row="zeros",
)

multi_head_attention = parse(
    """
    query[B, N, D]; key, value[B, M, D]
    W_q, W_k[D, H*C]; W_v[D, H*E]; W_O[H*E, D]
    size H
    index h < H
    index c < C
    index e < E
    Q[b,h,n,c] = sum[d](query[b,n,d] * W_q[d,h*C + c])
    K[b,h,m,c] = sum[d](key[b,m,d] * W_k[d,h*C + c])
    V[b,h,m,e] = sum[d](value[b,m,d] * W_v[d,h*E + e])
    p[b,h,n,m] = softmax[m](sum[c](Q[b,h,n,c] * K[b,h,m,c]) / sqrt(C))
    heads[b,n,h*E + e] = sum[m](p[b,h,n,m] * V[b,h,m,e])
    output[b,n,d] = sum[h, e](heads[b,n,h*E + e] * W_O[h*E + e,d])
    return output, p
    """,
    title="Multi-head attention, Concat(h_1, ..., h_H) W_O, heads split from merged columns",
    source=f"{VASWANI}, section 3.2.2",
    typical=dict(B=8, N=512, M=512, D=512, H=8, C=64, E=64),
)

masked_multi_head_attention = parse(
    """
    query[B, N, D]; key, value[B, M, D]; bool mask[B, N, M]
    W_q, W_k[D, H*C]; W_v[D, H*E]; W_O[H*E, D]
    size H
    index h < H
    index c < C
    index e < E
    Q[b,h,n,c] = sum[d](query[b,n,d] * W_q[d,h*C + c])
    K[b,h,m,c] = sum[d](key[b,m,d] * W_k[d,h*C + c])
    V[b,h,m,e] = sum[d](value[b,m,d] * W_v[d,h*E + e])
    p[b,h,n,m] = softmax[m, mask[b,n,m]](sum[c](Q[b,h,n,c] * K[b,h,m,c]) / sqrt(C))
    heads[b,n,h*E + e] = sum[m](p[b,h,n,m] * V[b,h,m,e])
    output[b,n,d] = sum[h, e](heads[b,n,h*E + e] * W_O[h*E + e,d])
    return output, p
    """,
    title="Multi-head attention with one mask for all heads; empty rows are zeros",
    source=f"{VASWANI}, sections 3.2.2 and 3.2.3",
    typical=dict(B=8, N=512, M=512, D=512, H=8, C=64, E=64),
    empty_row="zeros",
)

token_attention = parse(
    """
    x[B, S, E]; W_q, W_k, W_v[E, H*D]; W_o[H*D, E]
    size H
    index h < H
    index d < D
    Q[b,h,i,d] = sum[e](x[b,i,e] * W_q[e,h*D + d])
    K[b,h,j,d] = sum[e](x[b,j,e] * W_k[e,h*D + d])
    V[b,h,j,d] = sum[e](x[b,j,e] * W_v[e,h*D + d])
    p[b,h,i,j] = softmax[j](sum[d](Q[b,h,i,d] * K[b,h,j,d]) / sqrt(D))
    z[b,i,h*D + d] = sum[j](p[b,h,i,j] * V[b,h,j,d])
    y[b,i,e] = sum[h, d](z[b,i,h*D + d] * W_o[h*D + d,e])
    """,
    title="Multi-head self-attention of one token matrix, from projections to output",
    source=f"{VASWANI}, section 3.2.2",
    typical=dict(B=8, S=512, E=512, H=8, D=64),
)

causal_attention = parse(
    """
    Q, K, V[B, H, N, D]
    p[b,h,i,j] = softmax[j, j <= i](sum[d](Q[b,h,i,d] * K[b,h,j,d]) / sqrt(D))
    z[b,h,i,d] = sum[j](p[b,h,i,j] * V[b,h,j,d])
    """,
    title="Causal attention: each position attends to itself and to those before it",
    source=f"{VASWANI}, section 3.2.3",
    typical=dict(B=8, H=8, N=512, D=64),
)

head_projection = parse(
    """
    x[B, S, T]; w[N, T, D]
    Q[b,n,i,d] = sum[t](x[b,i,t] * w[n,t,d])
    """,
    title="A projection for each head, one weight matrix a head",
    source=f"{VASWANI}, section 3.2.2",
    typical=dict(B=8, S=512, T=512, N=8, D=64),
)

head_projection_merged = parse(
    """
    x[B, S, T]; w[T, N*D]
    size N
    index n < N
    index d < D
    Q[b,n,i,d] = sum[t](x[b,i,t] * w[t,n*D + d])
    """,
    title="A projection for each head, all heads in the columns of one matrix",
    source=f"{VASWANI}, section 3.2.2",
    typical=dict(B=8, S=512, T=512, N=8, D=64),
)
