"""Bodies, fields and lattices, one step or one sum at a time."""

from derive.frontend.from_text import parse

n_body_accelerations = parse(
    """
    x[N, 3]; m[N] > 0; scalar eps = 0.1
    r[i,j] = sum[d]((x[j,d] - x[i,d])**2) + eps**2
    a[i,c] = sum[j, j != i](m[j] * (x[j,c] - x[i,c]) / r[i,j]**1.5)
    """,
    title="Accelerations of bodies under each other's gravity, softened",
    source="Dehnen, Read 2011, N-body simulations of gravitational dynamics, eq. 1",
    typical=dict(N=1024),
)

structure_factor = parse(
    """
    x[N, 3]; q[N]; k[K, 3]
    phase[g,n] = sum[d](k[g,d] * x[n,d])
    S[g] = sum[n](q[n] * cos(phase[g,n]))**2 + sum[n](q[n] * sin(phase[g,n]))**2
    """,
    title="Squared structure factor of charges at the wave vectors of an Ewald sum",
    source="Frenkel, Smit 2002, Understanding Molecular Simulation, section 12.1",
    typical=dict(N=2048, K=256),
)

heat_step = parse(
    """
    u[B, H, W]; scalar r = 0.2
    v[b,i,j] = (u[b,i,j] + r * (u[b,i - 1,j] * [i >= 1] + u[b,i + 1,j] * [i + 1 < H]
        + u[b,i,j - 1] * [j >= 1] + u[b,i,j + 1] * [j + 1 < W] - 4 * u[b,i,j]))
    """,
    title="A step of the heat equation by finite differences, zero outside the grid",
    source="LeVeque 2007, Finite Difference Methods, section 9.7",
    typical=dict(B=16, H=256, W=256),
)

wave_step = parse(
    """
    u, before[B, H, W]; scalar c = 0.5
    v[b,i,j] = (2 * u[b,i,j] - before[b,i,j] + c**2 * (u[b,i - 1,j] * [i >= 1]
        + u[b,i + 1,j] * [i + 1 < H] + u[b,i,j - 1] * [j >= 1] + u[b,i,j + 1] * [j + 1 < W]
        - 4 * u[b,i,j]))
    """,
    title="A leapfrog step of the wave equation, zero outside the grid",
    source="Courant, Friedrichs, Lewy 1928, Partial difference equations of physics",
    typical=dict(B=16, H=256, W=256),
)

lattice_boltzmann_step = parse(
    """
    f[3, 3, X, Y] > 0; w[3] > 0; scalar omega = 1.2
    rho[x,y] = sum[a, b](f[a,b,x,y])
    u[x,y] = sum[a, b]((a - 1) * f[a,b,x,y]) / rho[x,y]
    v[x,y] = sum[a, b]((b - 1) * f[a,b,x,y]) / rho[x,y]
    e[a,b,x,y] = 3 * ((a - 1) * u[x,y] + (b - 1) * v[x,y])
    equilibrium[a,b,x,y] = (w[a] * w[b] * rho[x,y] * (1 + e[a,b,x,y] + e[a,b,x,y]**2 / 2
        - 3 * (u[x,y]**2 + v[x,y]**2) / 2))
    g[a,b,x,y] = f[a,b,x,y] + omega * (equilibrium[a,b,x,y] - f[a,b,x,y])
    h[a,b,x,y] = g[a,b,(x - a + 1) % X,(y - b + 1) % Y]
    """,
    title="Collision and streaming of the lattice Boltzmann method, nine velocities, periodic",
    source="Qian, d'Humieres, Lallemand 1992, Lattice BGK models, eq. 1-5",
    typical=dict(X=256, Y=256),
)

ising_energy = parse(
    """
    s[B, N, M]; scalar J = 1, h = 0.1
    E[b] = (-J * sum[i, j](s[b,i,j] * (s[b,(i + 1) % N,j] + s[b,i,(j + 1) % M]))
        - h * sum[i, j](s[b,i,j]))
    """,
    title="Energy of spin configurations on a periodic square lattice in a field",
    source="Newman, Barkema 1999, Monte Carlo Methods in Statistical Physics, eq. 3.1",
    typical=dict(B=64, N=128, M=128),
)
