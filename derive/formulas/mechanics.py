"""Continuum mechanics: tensors under a change of axes."""

from derive.frontend.from_text import parse

rotated_stiffness = parse(
    """
    C[N, 3, 3, 3, 3]; Q[N, 3, 3]
    R[n,i,j,k,l] = sum[p, q, r, s](Q[n,i,p] * Q[n,j,q] * Q[n,k,r] * Q[n,l,s] * C[n,p,q,r,s])
    """,
    title="Stiffness tensors in rotated axes",
    source="Nye 1957, Physical Properties of Crystals, chapter 8",
    typical=dict(N=4096),
)

fem_stiffness = parse(
    """
    K[E, M, M]; int node[E, M] < N; size N
    index i, j < N
    S[i,j] = sum[e, k, l]([node[e,k] == i] * [node[e,l] == j] * K[e,k,l])
    """,
    title="The stiffness matrix of a mesh, assembled from those of its elements",
    source="Hughes 2000, The Finite Element Method, section 2.8",
    typical=dict(E=4096, M=4, N=1024),
)
