"""Patches of an image by two unfolds."""

FORMULA = """
    x[B, N*P, M*P]
    size P
    index n < N
    index m < M
    index r < P*P
    y[b,n,m,r] = x[b,n*P + r // P,m*P + r % P]
"""
BIND = {"patch": "P"}
SIZES = {"P": 3}


def patches(x, patch):
    return x.unfold(1, patch, patch).unfold(2, patch, patch).flatten(start_dim=3)
