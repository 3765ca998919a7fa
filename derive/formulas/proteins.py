"""Pair representations: the triangle updates of protein structure networks."""

from derive.frontend.from_text import parse

JUMPER = "Jumper et al. 2021, AlphaFold, supplement"

triangle_multiplication = parse(
    """
    a, b, g[N, N, C]
    z[i,j,c] = g[i,j,c] * sum[k](a[i,k,c] * b[j,k,c])
    """,
    title="Triangle multiplication over outgoing edges, gated",
    source=f"{JUMPER}, algorithm 11",
    typical=dict(N=256, C=128),
)

triangle_attention = parse(
    """
    q, k, v[N, N, H, C]; bias[N, N, H]; gate[N, N, H, C]
    alpha[i,j,n,h] = softmax[n](sum[c](q[i,j,h,c] * k[i,n,h,c]) / sqrt(C) + bias[j,n,h])
    o[i,j,h,c] = gate[i,j,h,c] * sum[n](alpha[i,j,n,h] * v[i,n,h,c])
    """,
    title="Triangle attention around the starting node, with pair bias",
    source=f"{JUMPER}, algorithm 13",
    typical=dict(N=128, H=4, C=32),
)

pair_bias_attention = parse(
    """
    q, k, v, gate[S, N, H, C]; bias[H, N, N]; bool mask[S, N]
    alpha[s,h,i,j] = softmax[j, mask[s,j]](sum[c](q[s,i,h,c] * k[s,j,h,c]) / sqrt(C) + bias[h,i,j])
    o[s,i,h,c] = gate[s,i,h,c] * sum[j](alpha[s,h,i,j] * v[s,j,h,c])
    """,
    title="Row-wise attention with pair bias, gated, and a padding mask",
    source=f"{JUMPER}, algorithm 7",
    typical=dict(S=64, N=256, H=8, C=32),
    empty_row="zeros",
)

outer_product_mean = parse(
    """
    a[S, N, C]; b[S, N, E]; W[C, E, Z]
    out[i,j,z] = sum[c, e](mean[s](a[s,i,c] * b[s,j,e]) * W[c,e,z])
    """,
    title="Outer product mean, from sequences to pairs",
    source=f"{JUMPER}, algorithm 10",
    typical=dict(S=128, N=128, C=32, E=32, Z=128),
)
