"""Channels moved into space by view, permute and reshape."""

FORMULA = """
    x[B, C*R*R, N, M]
    size R
    index p < N*R
    index q < M*R
    index c < C
    y[b,c,p,q] = x[b,c*R*R + (p % R)*R + q % R,p // R,q // R]
"""
BIND = {"r": "R"}
SIZES = {"R": 2}


def pixel_shuffle(x, r):
    b, channels, n, m = x.shape
    x = x.view(b, channels // r**2, r, r, n, m)
    x = x.permute(0, 1, 4, 2, 5, 3)
    return x.reshape(b, channels // r**2, n * r, m * r)
