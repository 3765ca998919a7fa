"""Graphs by the lists of their edges, from `src` to `dst`: sums over the edges into each node."""

from derive.frontend.from_text import parse

sparse_graph_convolution = parse(
    """
    X[N, F]; W[F, G]; int src, dst[E] < N
    index n < N
    degree[n] = 1 + sum[e]([dst[e] == n])
    H[n,g] = sum[f](X[n,f] * W[f,g]) / sqrt(degree[n])
    Y[n,g] = relu((H[n,g] + sum[e]([dst[e] == n] * H[src[e],g])) / sqrt(degree[n]))
    """,
    title="Graph convolution with self-loops and symmetric normalisation, over edges",
    source="Kipf, Welling 2017, eq. 2",
    typical=dict(N=4096, E=65536, F=128, G=64),
)

sparse_graph_attention = parse(
    """
    X[N, F]; W[F, H, C]; a_src, a_dst[H, C]; int src, dst[E] < N
    scalar slope = 0.2
    index n < N
    g[n,h,c] = sum[f](X[n,f] * W[f,h,c])
    s[n,h] = sum[c](a_src[h,c] * g[n,h,c])
    t[n,h] = sum[c](a_dst[h,c] * g[n,h,c])
    score[e,h] = leaky_relu(s[src[e],h] + t[dst[e],h], slope)
    total[n,h] = logsumexp[e, dst[e] == n](score[e,h])
    alpha[e,h] = exp(score[e,h] - total[dst[e],h])
    Y[n,h,c] = sum[e]([dst[e] == n] * alpha[e,h] * g[src[e],h,c])
    """,
    title="Graph attention with heads, a softmax over the edges into each node",
    source="Velickovic et al. 2018, eq. 1-5",
    typical=dict(N=4096, E=65536, F=128, H=4, C=16),
)

graph_sage = parse(
    """
    X[N, F]; W_self, W_neighbours[F, G]; bias[G]; int src, dst[E] < N
    index n < N
    degree[n] = sum[e]([dst[e] == n])
    M[n,f] = sum[e]([dst[e] == n] * X[src[e],f]) / max(degree[n], 1)
    Y[n,g] = relu(sum[f](X[n,f] * W_self[f,g]) + sum[f](M[n,f] * W_neighbours[f,g]) + bias[g])
    """,
    title="GraphSAGE with the mean over neighbours",
    source="Hamilton, Ying, Leskovec 2017, algorithm 1",
    typical=dict(N=4096, E=65536, F=64, G=64),
)

egnn_layer = parse(
    """
    h[N, F]; x[N, 3]; W_dst, W_src[F, M]; w_d[M]; w_x[M]; U_h[F, F]; U_m[M, F]
    int src, dst[E] < N
    index n < N
    r[e,k] = x[dst[e],k] - x[src[e],k]
    d[e] = sum[k](r[e,k]**2)
    p[n,c] = sum[f](h[n,f] * W_dst[f,c])
    q[n,c] = sum[f](h[n,f] * W_src[f,c])
    m[e,c] = silu(p[dst[e],c] + q[src[e],c] + d[e] * w_d[c])
    w[e] = sum[c](m[e,c] * w_x[c])
    x_new[n,k] = x[n,k] + sum[e]([dst[e] == n] * r[e,k] * w[e])
    total[n,c] = sum[e]([dst[e] == n] * m[e,c])
    h_new[n,g] = h[n,g] + silu(sum[f](h[n,f] * U_h[f,g]) + sum[c](total[n,c] * U_m[c,g]))
    return h_new, x_new
    """,
    title="E(n)-equivariant layer: messages of distances move features and coordinates",
    source="Satorras, Hoogeboom, Welling 2021, eq. 3-6",
    typical=dict(N=2048, E=32768, F=64, M=64),
)

relational_graph_convolution = parse(
    """
    X[N, F]; W[R, F, G]; W_0[F, G]; c[E] > 0; int src, dst[E] < N; int rel[E] < R
    index n < N
    Z[r,n,g] = sum[f](X[n,f] * W[r,f,g])
    Y[n,g] = relu(sum[f](X[n,f] * W_0[f,g])
        + sum[e]([dst[e] == n] * Z[rel[e],src[e],g] / c[e]))
    """,
    title="Relational graph convolution with a normalisation for each edge",
    source="Schlichtkrull et al. 2018, eq. 2",
    typical=dict(N=2048, E=32768, R=8, F=64, G=64),
)

principal_neighbourhood_aggregation = parse(
    """
    X[N, F]; int src, dst[E] < N
    index n < N; index f < F
    degree[n] = sum[e]([dst[e] == n])
    M[n,f] = sum[e]([dst[e] == n] * X[src[e],f]) / max(degree[n], 1)
    Q[n,f] = sum[e]([dst[e] == n] * X[src[e],f]**2) / max(degree[n], 1)
    largest[n,f] = max[e, dst[e] == n](X[src[e],f])
    Y[n,f] = M[n,f]
    Y[n,F + f] = where(degree[n] > 0, largest[n,f], 0)
    Y[n,2*F + f] = sqrt(relu(Q[n,f] - M[n,f]**2) + 1e-5)
    """,
    title="Mean, largest value and standard deviation over the neighbours of each node",
    source="Corso et al. 2020, Principal Neighbourhood Aggregation, eq. 2-4",
    typical=dict(N=4096, E=65536, F=64),
)

personalized_page_rank = parse(
    """
    p, v[N]; int src, dst[E] < N; scalar alpha = 0.15
    index n < N
    degree[n] = sum[e]([src[e] == n])
    flow[n] = p[n] / max(degree[n], 1)
    y[n] = alpha * v[n] + (1 - alpha) * sum[e]([dst[e] == n] * flow[src[e]])
    """,
    title="Step of personalised page rank",
    source="Page, Brin, Motwani, Winograd 1999, section 6",
    typical=dict(N=65536, E=1048576),
)

segment_mean = parse(
    """
    size G
    x[N, D]; int seg[N] < G
    index g < G
    count[g] = sum[n]([seg[n] == g])
    y[g,d] = sum[n]([seg[n] == g] * x[n,d]) / max(count[g], 1)
    """,
    title="The mean of each segment, zeros where there is none: a readout of many graphs at once",
    source="Fey, Lenssen 2019, PyTorch Geometric, global_mean_pool",
    typical=dict(N=65536, D=64, G=2048),
)
