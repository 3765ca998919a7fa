"""Products of many small tensors: irreducible parts and how they couple."""

from derive.frontend.from_text import parse

spherical_tensor_product = parse(
    """
    x[B, U, I]; y[B, V, J]; C[I, J, K]; W[U, V, O]
    z[b,o,k] = sum[u, v, i, j](W[u,v,o] * C[i,j,k] * x[b,u,i] * y[b,v,j])
    """,
    title="Tensor product of spherical features through Clebsch-Gordan coefficients, weighted",
    source="Thomas et al. 2018, Tensor field networks, section 4.1; Geiger, Smidt 2022, e3nn",
    typical=dict(B=512, U=32, V=16, O=32, I=3, J=3, K=5),
)

mps_overlap = parse(
    """
    A, B[L, D, P, D]; left_A, left_B, right_A, right_B[D]
    E[-1,a,b] = left_A[a] * left_B[b]
    E[l,a,b] = sum[c, d, p](E[l - 1,c,d] * A[l,c,p,a] * B[l,d,p,b])
    overlap = sum[a, b](E[L - 1,a,b] * right_A[a] * right_B[b])
    """,
    title="Overlap of two matrix product states, contracted site by site",
    source="Schollwöck 2011, The density-matrix renormalization group, section 4.2.1",
    typical=dict(L=64, D=32, P=2),
)
