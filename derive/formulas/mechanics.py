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
