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

gated_linear_unit = parse(
    """
    x[B, S, D]; W, V[D, F]; b, c[F]
    h[n,s,f] = ((sum[d](x[n,s,d] * W[d,f]) + b[f])
        * sigmoid(sum[d](x[n,s,d] * V[d,f]) + c[f]))
    """,
    title="Gated linear unit",
    source="Dauphin et al. 2017, eq. 1",
    typical=dict(B=8, S=512, D=512, F=512),
)

geglu = parse(
    """
    x[B, S, D]; W, V[D, F]; W_2[F, D]
    g[b,s,f] = gelu(sum[d](x[b,s,d] * W[d,f])) * sum[d](x[b,s,d] * V[d,f])
    y[b,s,m] = sum[f](g[b,s,f] * W_2[f,m])
    """,
    title="GEGLU feed-forward layer",
    source="Shazeer 2020, GLU Variants Improve Transformer, eq. 6",
    typical=dict(B=8, S=512, D=512, F=1376),
)

highway = parse(
    """
    x[B, D]; W_H, W_T[D, D]; b_H, b_T[D]
    H[b,d] = relu(sum[e](W_H[d,e] * x[b,e]) + b_H[d])
    T[b,d] = sigmoid(sum[e](W_T[d,e] * x[b,e]) + b_T[d])
    y[b,d] = H[b,d] * T[b,d] + x[b,d] * (1 - T[b,d])
    """,
    title="Highway layer",
    source="Srivastava, Greff, Schmidhuber 2015, eq. 3",
    typical=dict(B=512, D=512),
)

squeeze_and_excitation = parse(
    """
    x[B, C, H, W]; W_1[R, C]; W_2[C, R]
    z[b,c] = mean[h, w](x[b,c,h,w])
    a[b,r] = relu(sum[c](W_1[r,c] * z[b,c]))
    s[b,c] = sigmoid(sum[r](W_2[c,r] * a[b,r]))
    y[b,c,h,w] = s[b,c] * x[b,c,h,w]
    """,
    title="Squeeze and excitation: channels scaled by a gate from their means",
    source="Hu, Shen, Sun 2018, eq. 2-4",
    typical=dict(B=16, C=256, H=56, W=56, R=16),
)

film = parse(
    """
    x[B, C, H, W]; z[B, K]; W_g, W_b[C, K]; b_g, b_b[C]
    gamma[b,c] = sum[k](W_g[c,k] * z[b,k]) + b_g[c]
    beta[b,c] = sum[k](W_b[c,k] * z[b,k]) + b_b[c]
    y[b,c,h,w] = gamma[b,c] * x[b,c,h,w] + beta[b,c]
    """,
    title="Feature-wise linear modulation by a condition",
    source="Perez et al. 2018, FiLM, eq. 1 and 2",
    typical=dict(B=16, C=128, H=28, W=28, K=256),
)

dora = parse(
    """
    x[N, I]; W_0[O, I]; A[R, I]; B[O, R]; m[O]
    V[o,i] = W_0[o,i] + sum[r](B[o,r] * A[r,i])
    y[n,o] = m[o] * sum[i](x[n,i] * V[o,i] / sqrt(sum[j](V[o,j]**2)))
    """,
    title="Linear layer with a low-rank update of the directions of its rows",
    source="Liu et al. 2024, DoRA, eq. 5",
    typical=dict(N=512, I=1024, O=1024, R=8),
)

spatial_gating_unit = parse(
    """
    u, v[B, N, D]; W[N, N]; c[N]
    y[b,n,d] = u[b,n,d] * (sum[m](W[n,m] * v[b,m,d]) + c[n])
    """,
    title="Spatial gating unit: a gate that mixes the places",
    source="Liu et al. 2021, Pay Attention to MLPs, eq. 2 and 4",
    typical=dict(B=8, N=256, D=768),
)

token_mixing = parse(
    """
    x[B, N, D]; W_1[S, N]; W_2[N, S]
    h[b,s,d] = gelu(sum[n](W_1[s,n] * x[b,n,d]))
    y[b,n,d] = x[b,n,d] + sum[s](W_2[n,s] * h[b,s,d])
    """,
    title="Token mixing: a small network over the places, and the residual",
    source="Tolstikhin et al. 2021, MLP-Mixer, eq. 1",
    typical=dict(B=8, N=196, S=256, D=512),
)

capsule_routing = parse(
    """
    u[B, I, J, D]; b[B, I, J]
    c[n,i,j] = softmax[j](b[n,i,j])
    s[n,j,d] = sum[i](c[n,i,j] * u[n,i,j,d])
    l[n,j] = sum[d](s[n,j,d]**2)
    v[n,j,d] = s[n,j,d] * sqrt(l[n,j]) / (1 + l[n,j])
    a[n,i,j] = b[n,i,j] + sum[d](u[n,i,j,d] * v[n,j,d])
    return v, a
    """,
    title="Routing by agreement between capsules, one round",
    source="Sabour, Frosst, Hinton 2017, eq. 1-3 and procedure 1",
    typical=dict(B=32, I=1152, J=10, D=16),
)

kan_layer = parse(
    """
    x[B, I]; c[O, I, G]; w[O, I]
    scalar low = -1, step = 0.25
    spline(z) = (relu(2 - abs(z))**3 - 4 * relu(1 - abs(z))**3) / 6
    y[b,o] = sum[i](w[o,i] * silu(x[b,i])
        + sum[g](c[o,i,g] * spline((x[b,i] - low) / step - g)))
    """,
    title="Kolmogorov-Arnold layer: a cubic B-spline on every edge beside a silu",
    source="Liu et al. 2024, KAN, eq. 2.10-2.12",
    typical=dict(B=256, I=64, O=64, G=8),
)

top_k_gating = parse(
    """
    x[N, D]; W[D, E]; size K = 2
    s[n,e] = sum[d](x[n,d] * W[d,e])
    rank[n,e] = sum[f]([s[n,f] > s[n,e]])
    g[n,e] = softmax[e, rank[n,e] < K](s[n,e])
    """,
    title="Gates of a mixture of experts: a softmax over the K largest scores, zeros elsewhere",
    source="Shazeer et al. 2017, Sparsely-gated mixture of experts, eq. 3 and 5",
    typical=dict(N=8192, D=256, E=16, K=2),
)
