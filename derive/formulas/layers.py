"""Layers: what stands between activations, linear in their weights or gated."""

from derive.frontend.from_text import parse

linear = parse(
    """
    x[B, I]; W[O, I]; bias[O]
    y[b,o] = sum[i](x[b,i] * W[o,i]) + bias[o]
    """,
    title="Linear layer with the weight stored as (output, input)",
    source="torch.nn.Linear",
    typical=dict(B=512, I=512, O=512),
)

bilinear = parse(
    """
    x[B, I]; y[B, J]; W[O, I, J]; bias[O]
    z[b,o] = sum[i, j](x[b,i] * W[o,i,j] * y[b,j]) + bias[o]
    """,
    title="Bilinear layer",
    source="torch.nn.Bilinear",
    typical=dict(B=512, I=64, J=64, O=64),
)

biaffine = parse(
    """
    h_dep, h_head[B, N, D]; U[R, D, D]; W_dep, W_head[R, D]; bias[R]
    s[b,r,i,j] = (sum[d, e](h_dep[b,i,d] * U[r,d,e] * h_head[b,j,e])
        + sum[d](W_dep[r,d] * h_dep[b,i,d]) + sum[d](W_head[r,d] * h_head[b,j,d]) + bias[r])
    """,
    title="Biaffine scores of every dependent with every head",
    source="Dozat, Manning 2017, Deep Biaffine Attention for Neural Dependency Parsing",
    typical=dict(B=16, N=64, D=256, R=40),
)

swiglu = parse(
    """
    x[B, S, D]; W, V[D, F]; W_2[F, D]
    g[b,s,f] = silu(sum[d](x[b,s,d] * W[d,f])) * sum[d](x[b,s,d] * V[d,f])
    y[b,s,m] = sum[f](g[b,s,f] * W_2[f,m])
    """,
    title="SwiGLU feed-forward layer",
    source="Shazeer 2020, GLU Variants Improve Transformer, eq. 6",
    typical=dict(B=8, S=512, D=512, F=1376),
)

soft_mixture = parse(
    """
    x[B, D]; W_g[D, E]; W_e[E, D, O]
    g[b,e] = softmax[e](sum[d](x[b,d] * W_g[d,e]))
    y[b,o] = sum[e](g[b,e] * sum[d](x[b,d] * W_e[e,d,o]))
    """,
    title="Mixture of linear experts with a soft gate",
    source="Jacobs et al. 1991, Adaptive Mixtures of Local Experts",
    typical=dict(B=256, D=256, E=8, O=256),
)

lora = parse(
    """
    x[N, I]; W_0[O, I]; A[R, I]; B[O, R]
    scalar alpha = 16
    y[n,o] = sum[i](x[n,i] * (W_0[o,i] + alpha / R * sum[r](B[o,r] * A[r,i])))
    """,
    title="Linear layer with a low-rank update",
    source="Hu et al. 2021, LoRA, eq. 3",
    typical=dict(N=512, I=1024, O=1024, R=8),
)

tucker = parse(
    """
    x[B, I]; y[B, J]; G[P, Q, R]; U[I, P]; V[J, Q]; W[O, R]
    z[b,o] = sum[i, j, p, q, r](G[p,q,r] * x[b,i] * U[i,p] * y[b,j] * V[j,q] * W[o,r])
    """,
    title="Bilinear fusion with a Tucker-decomposed weight",
    source="Ben-younes et al. 2017, MUTAN",
    typical=dict(B=128, I=512, J=512, O=512, P=64, Q=64, R=64),
)

cp_bilinear = parse(
    """
    x[B, I]; y[B, J]; U[I, R]; V[J, R]; W[O, R]
    z[b,o] = sum[i, j, r](x[b,i] * U[i,r] * y[b,j] * V[j,r] * W[o,r])
    """,
    title="Bilinear layer with a CP-decomposed weight",
    source="Kim et al. 2017, Hadamard Product for Low-rank Bilinear Pooling, eq. 3",
    typical=dict(B=128, I=512, J=512, O=512, R=256),
)

matrix_chain = parse(
    """
    A[K, L]; B[L, M]; C[M, N]; D[N, P]; E[P, Q]
    Y[k,q] = sum[l, m, n, p](A[k,l] * B[l,m] * C[m,n] * D[n,p] * E[p,q])
    """,
    title="Product of five matrices whose extents differ a thousandfold",
    source="Cormen et al., Introduction to Algorithms, 3rd edition, section 15.2",
    typical=dict(K=1000, L=10, M=1000, N=2, P=1000, Q=500),
)

hypernetwork_linear = parse(
    """
    x[B, I]; c[B, K]; W[K, O, I]; b[K, O]
    y[n,o] = sum[i, k](c[n,k] * W[k,o,i] * x[n,i]) + sum[k](c[n,k] * b[k,o])
    """,
    title="Linear layer whose weight and bias a linear hypernetwork makes for every sample",
    source="Ha, Dai, Le 2016, HyperNetworks, section 3.1",
    typical=dict(B=128, I=256, K=16, O=256),
)
