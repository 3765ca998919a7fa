"""Electronic structure: Fock matrices, perturbation energies, coupled-cluster terms."""

from derive.frontend.from_text import parse

fock_matrix = parse(
    """
    h, D[N, N]; eri[N, N, N, N]
    F[m,n] = h[m,n] + sum[r, s](D[r,s] * (eri[m,n,r,s] - eri[m,r,n,s] / 2))
    """,
    title="Closed-shell Fock matrix from the density and the two-electron integrals (mn|rs)",
    source="Szabo, Ostlund 1989, eq. 3.154",
    typical=dict(N=48),
)

mp2_energy = parse(
    """
    v[O, V, O, V]; e_o[O] < 0; e_v[V] > 0
    E = sum[i, a, j, b](v[i,a,j,b] * (2 * v[i,a,j,b] - v[i,b,j,a])
        / (e_o[i] + e_o[j] - e_v[a] - e_v[b]))
    """,
    title="Closed-shell second-order Moller-Plesset energy from integrals (ia|jb)",
    source="Szabo, Ostlund 1989, section 6.5",
    typical=dict(O=16, V=64),
)

ccd_quadratic = parse(
    """
    t[O, O, V, V]; v[O, O, V, V]; w[V, V, V, V]
    r[i,j,a,b] = (v[i,j,a,b] + sum[c, d](w[a,b,c,d] * t[i,j,c,d]) / 2
        + sum[k, l, c, d](v[k,l,c,d] * t[i,j,c,d] * t[k,l,a,b]) / 4
        - sum[k, l, c, d](v[k,l,c,d] * t[i,k,a,b] * t[j,l,c,d]) / 2)
    """,
    title="Terms of the coupled-cluster doubles residual, linear and quadratic in the amplitudes",
    source="Shavitt, Bartlett 2009, Many-Body Methods in Chemistry and Physics, chapter 9",
    typical=dict(O=12, V=32),
)
