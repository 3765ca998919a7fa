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

ccsd_singles = parse(
    """
    f_oo[O, O]; f_ov[O, V]; f_vv[V, V]; t1[O, V]; t2[O, O, V, V]
    v_ooov[O, O, O, V]; v_oovv[O, O, V, V]; v_ovov[O, V, O, V]; v_ovvv[O, V, V, V]
    tau[i,j,a,b] = t2[i,j,a,b] + (t1[i,a] * t1[j,b] - t1[i,b] * t1[j,a]) / 2
    F_vv[a,e] = (f_vv[a,e] - sum[m](f_ov[m,e] * t1[m,a]) / 2
        + sum[m, f](t1[m,f] * v_ovvv[m,a,f,e])
        - sum[m, n, f](tau[m,n,a,f] * v_oovv[m,n,e,f]) / 2)
    F_oo[m,i] = (f_oo[m,i] + sum[e](t1[i,e] * f_ov[m,e]) / 2
        + sum[n, e](t1[n,e] * v_ooov[m,n,i,e])
        + sum[n, e, f](tau[i,n,e,f] * v_oovv[m,n,e,f]) / 2)
    F_ov[m,e] = f_ov[m,e] + sum[n, f](t1[n,f] * v_oovv[m,n,e,f])
    r[i,a] = (f_ov[i,a] + sum[e](t1[i,e] * F_vv[a,e]) - sum[m](t1[m,a] * F_oo[m,i])
        + sum[m, e](t2[i,m,a,e] * F_ov[m,e]) - sum[n, f](t1[n,f] * v_ovov[n,a,i,f])
        - sum[m, e, f](t2[i,m,e,f] * v_ovvv[m,a,e,f]) / 2
        + sum[m, n, e](t2[m,n,a,e] * v_ooov[n,m,i,e]) / 2)
    return r
    """,
    title="Singles residual of coupled cluster with singles and doubles over spin orbitals",
    source="Stanton, Gauss, Watts, Bartlett 1991, eq. 1, 3-5, 9",
    typical=dict(O=12, V=36),
)

ao_to_mo = parse(
    """
    g[N, N, N, N]; C[N, M]
    h[p,q,r,s] = sum[a, b, c, d](g[a,b,c,d] * C[a,p] * C[b,q] * C[c,r] * C[d,s])
    """,
    title="Two-electron integrals from atomic to molecular orbitals",
    source="Szabo, Ostlund 1989, section 3.6.1; Yoshimine 1973",
    typical=dict(N=28, M=24),
)

density_fitted_coulomb = parse(
    """
    B[P, N, N]; D[N, N]
    J[m,n] = sum[p, r, s](B[p,m,n] * B[p,r,s] * D[r,s])
    """,
    title="Coulomb matrix from three-index integrals, the resolution of the identity",
    source="Weigend 2002, A fully direct RI-HF algorithm",
    typical=dict(P=256, N=192),
)

density_fitted_exchange = parse(
    """
    B[P, N, N]; C[N, O]
    K[m,n] = sum[p, i, r, s](B[p,m,r] * C[r,i] * B[p,n,s] * C[s,i])
    """,
    title="Exchange matrix from three-index integrals and occupied orbitals",
    source="Weigend 2002, A fully direct RI-HF algorithm",
    typical=dict(P=192, N=96, O=24),
)
