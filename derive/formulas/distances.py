"""Distances, similarities and kernels between all pairs of two sets of vectors."""

from derive.frontend.from_text import parse

squared_distances = parse(
    """
    x[N, D]; y[M, D]
    d2[i,j] = sum[d]((x[i,d] - y[j,d])**2)
    """,
    title="Squared Euclidean distances of all pairs",
    source="torch.cdist",
    typical=dict(N=1024, M=1024, D=64),
)

gaussian_kernel = parse(
    """
    x[N, D]; y[M, D]
    scalar sigma = 1
    k[i,j] = exp(-sum[d]((x[i,d] - y[j,d])**2) / (2 * sigma**2))
    """,
    title="Gaussian kernel matrix",
    source="Rasmussen, Williams 2006, Gaussian Processes for Machine Learning, eq. 4.9",
    typical=dict(N=1024, M=1024, D=64),
)

cosine_matrix = parse(
    """
    x[N, D]; y[M, D]
    c[i,j] = sum[d](x[i,d] * y[j,d]) / (sqrt(sum[d](x[i,d]**2)) * sqrt(sum[d](y[j,d]**2)))
    """,
    title="Cosine similarities of all pairs",
    source="torch.nn.functional.cosine_similarity",
    typical=dict(N=1024, M=1024, D=128),
)

mahalanobis = parse(
    """
    x[N, D]; mu[D]; P[D, D]
    d2[n] = sum[d, e]((x[n,d] - mu[d]) * P[d,e] * (x[n,e] - mu[e]))
    """,
    title="Squared Mahalanobis distances, given the precision matrix",
    source="Mahalanobis 1936",
    typical=dict(N=4096, D=128),
)

edit_distance = parse(
    """
    int x[B, N] < V; int y[B, M] < V; w[V, V]; scalar gap = 1
    D[b,-1,-1] = 0
    D[b,-1,j] = gap * (j + 1)
    D[b,i,-1] = gap * (i + 1)
    D[b,i,j] = min(D[b,i - 1,j - 1] + w[x[b,i],y[b,j]], D[b,i - 1,j] + gap, D[b,i,j - 1] + gap)
    cost[b] = D[b,N - 1,M - 1]
    """,
    title="Edit distance: the least cost of changing a word into another one, letter by letter",
    source="Levenshtein 1966; Wagner, Fischer 1974, The String-to-String Correction Problem",
    typical=dict(B=64, N=128, M=128, V=32),
)
