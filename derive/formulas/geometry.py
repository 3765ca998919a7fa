"""Curved spaces: the symbols and tensors of a metric at many points."""

from derive.frontend.from_text import parse

CARROLL = "Carroll 2004, Spacetime and Geometry"

christoffel_symbols = parse(
    """
    g_inv[N, D, D]; dg[N, D, D, D]                    # dg[n,c,a,b]: of g[a,b] along c
    gamma[n,a,b,c] = sum[d](g_inv[n,a,d] * (dg[n,b,c,d] + dg[n,c,d,b] - dg[n,d,b,c])) / 2
    """,
    title="Christoffel symbols from the inverse metric and the metric's derivatives",
    source=f"{CARROLL}, eq. 3.27",
    typical=dict(N=65536, D=4),
)

riemann_tensor = parse(
    """
    gamma[N, D, D, D]; dgamma[N, D, D, D, D]          # dgamma[n,c,a,b,d]: of gamma[a,b,d] along c
    half[n,a,b,c,d] = dgamma[n,c,a,d,b] + sum[e](gamma[n,a,c,e] * gamma[n,e,d,b])
    R[n,a,b,c,d] = half[n,a,b,c,d] - half[n,a,b,d,c]
    """,
    title="Riemann tensor from the Christoffel symbols and their derivatives",
    source=f"{CARROLL}, eq. 3.113",
    typical=dict(N=8192, D=4),
)

geodesic_acceleration = parse(
    """
    gamma[N, D, D, D]; u[N, D]
    a[n,i] = -sum[j, k](gamma[n,i,j,k] * u[n,j] * u[n,k])
    """,
    title="The acceleration of a freely falling particle in coordinates",
    source=f"{CARROLL}, eq. 3.44",
    typical=dict(N=65536, D=4),
)
