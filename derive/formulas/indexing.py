"""Arrays rearranged and gathered: positions that are computed, not only named."""

from derive.frontend.from_text import parse

GOLUB = "Golub, Van Loan 2013, Matrix Computations"
OPPENHEIM = "Oppenheim, Schafer 2010, Discrete-Time Signal Processing"

batched_diagonal = parse(
    """
    A[B, N, K]; C[B, K, N]
    d[b,i] = sum[k](A[b,i,k] * C[b,k,i])
    """,
    title="The diagonals of the products of pairs of matrices",
    source=f"{GOLUB}, section 1.1",
    typical=dict(B=64, N=256, K=256),
)

toeplitz_matrix = parse(
    """
    c[2*N - 1]
    index i, j < N
    T[i,j] = c[i - j + N - 1]
    """,
    title="Toeplitz matrix, constant along its diagonals",
    source=f"{GOLUB}, section 4.7",
    typical=dict(N=2048),
)

circulant_product = parse(
    """
    c, x[B, N]
    index i < N
    y[b,i] = sum[j](c[b,(i - j) % N] * x[b,j])
    """,
    title="Products of circulant matrices, given by their first columns, with vectors",
    source=f"{GOLUB}, section 4.8",
    typical=dict(B=256, N=1024),
)

kronecker_product = parse(
    """
    A[M, N]; B[P, Q]
    C[m*P + p,n*Q + q] = A[m,n] * B[p,q]
    """,
    title="Kronecker product of two matrices",
    source=f"{GOLUB}, section 1.3.6",
    typical=dict(M=48, N=48, P=48, Q=48),
)

space_to_depth = parse(
    """
    x[B, C, H*R, W*R]; size R
    index h < H; index w < W; index p, q < R
    y[b,c*R**2 + p*R + q,h,w] = x[b,c,h*R + p,w*R + q]
    """,
    title="Blocks of pixels to channels, the inverse of a pixel shuffle",
    source="Shi et al. 2016, Real-time super-resolution, eq. 4",
    typical=dict(B=16, C=16, H=64, W=64, R=2),
)

embedding_bag = parse(
    """
    E[V, D]; int word[B, S] < V; w[B, S]
    y[b,d] = sum[s](w[b,s] * E[word[b,s],d])
    """,
    title="The weighted sum of the embeddings of each bag of words",
    source="Joulin et al. 2017, Bag of tricks for efficient text classification, section 2",
    typical=dict(V=8192, D=128, B=1024, S=64),
)

linear_interpolation = parse(
    """
    c[K]; int cell[N] < K; t[N]
    y[n] = (1 - t[n]) * c[cell[n]] + t[n] * c[min(cell[n] + 1, K - 1)]
    """,
    title="Linear interpolation in a table, from the cell of each point and the fraction within it",
    source="Press et al. 2007, Numerical Recipes, section 3.1",
    typical=dict(N=262144, K=4096),
)

linear_upsampling = parse(
    """
    x[B, N]; size R
    index r < R
    y[b,n*R + r] = x[b,n] + r / R * (x[b,min(n + 1, N - 1)] - x[b,n])
    """,
    title="Sequences made longer by a whole factor, linear between the samples",
    source=f"{OPPENHEIM}, section 4.6.2",
    typical=dict(B=64, N=4096, R=4),
)

histogram = parse(
    """
    0 <= x[N] < 1; w[N]; size M
    index m < M
    y[m] = sum[n](w[n] * [floor(x[n]*M) == m])
    """,
    title="The weight that lies in each of the equal parts of the unit interval",
    source="Scott 1992, Multivariate Density Estimation, section 3.1; torch.histogram",
    typical=dict(N=1048576, M=256),
)

overlap_add = parse(
    """
    x[B, T, K]; w[K]; size Z
    index s < Z*(T - 1) + K
    y[b,s] = sum[t, k](w[k] * x[b,t,k] * [s == Z*t + k])
    """,
    title="Frames, each under a window, added up a hop apart",
    source="Allen, Rabiner 1977, eq. 4; Griffin, Lim 1984",
    typical=dict(B=16, T=256, K=512, Z=128),
)

uniform_interpolation = parse(
    """
    c[K]; 0 <= x[N] < 1
    cell[n] = floor(x[n] * (K - 1))
    t[n] = x[n] * (K - 1) - cell[n]
    left[n] = sum[k](c[k] * [cell[n] == k])
    right[n] = sum[k](c[k] * [cell[n] + 1 == k])
    y[n] = (1 - t[n]) * left[n] + t[n] * right[n]
    """,
    title="Linear interpolation of samples that lie evenly over the unit interval",
    source="Press et al. 2007, Numerical Recipes, section 3.1",
    typical=dict(N=262144, K=4096),
)

shifted_windows = parse(
    """
    x[H*M, W*M, C]; size M = 7, S = 3  # window, shift
    index h < H; index w < W; index p, q < M
    y[h*W + w,p*M + q,c] = x[(h*M + p + S) % (H*M),(w*M + q + S) % (W*M),c]
    """,
    title="An image that is shifted around its edges, cut into windows",
    source="Liu et al. 2021, Swin Transformer, section 3.2",
    typical=dict(H=16, W=16, M=7, C=96, S=3),
)
