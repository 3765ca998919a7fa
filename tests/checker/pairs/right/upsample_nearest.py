"""Every element twice: repeat_interleave against a divided index, and a residual beside it."""

FORMULA = """
    x[B, C, T]; r[B, C, 2*T]
    index u < 2*T
    y[b,c,u] = x[b,c,u // 2] + r[b,c,u]
"""


def upsample_add(x, r):
    return x.repeat_interleave(2, dim=-1) + r
