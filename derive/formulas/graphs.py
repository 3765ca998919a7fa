"""Graphs with a dense adjacency matrix."""

from derive.frontend.from_text import parse

graph_convolution = parse(
    """
    A[N, N] >= 0; X[N, F]; W[F, G]
    index i, j < N
    hat[i,j] = A[i,j] + delta(i, j)
    degree[i] = sum[j](hat[i,j])
    Y[i,g] = relu(sum[j, f](hat[i,j] / sqrt(degree[i]) / sqrt(degree[j]) * X[j,f] * W[f,g]))
    """,
    title="Graph convolution with self-loops and symmetric normalisation",
    source="Kipf, Welling 2017, eq. 2",
    typical=dict(N=2048, F=256, G=64),
)

graph_attention = parse(
    """
    h[N, F]; W[F, G]; a_1, a_2[G]; bool A[N, N]
    scalar slope = 0.2
    g[i,k] = sum[f](h[i,f] * W[f,k])
    e[i,j] = leaky_relu(sum[k](a_1[k] * g[i,k]) + sum[k](a_2[k] * g[j,k]), slope)
    alpha[i,j] = softmax[j, A[i,j]](e[i,j])
    z[i,k] = elu(sum[j](alpha[i,j] * g[j,k]))
    """,
    title="Graph attention, one head, over the neighbours of each node",
    source="Velickovic et al. 2018, eq. 1-4",
    typical=dict(N=2048, F=256, G=64),
    empty_row="zeros",
)

dirichlet_energy = parse(
    """
    A[N, N]; X[N, F]
    energy = sum[i, j, f](A[i,j] * (X[i,f] - X[j,f])**2) / 2
    """,
    title="Dirichlet energy of the features of a graph",
    source="Zhou, Schölkopf 2005, Regularization on Discrete Spaces, eq. 5",
    typical=dict(N=1024, F=64),
)
