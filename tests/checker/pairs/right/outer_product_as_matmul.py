"""The outer product mean as one large matrix product over the sequences."""

FORMULA = "outer_product_mean"


def outer_product_mean(a, b, W):
    s, n, c = a.shape
    e = b.shape[2]
    outer = a.reshape(s, n * c).T @ b.reshape(s, n * e) / s
    outer = outer.view(n, c, n, e).transpose(1, 2).reshape(n * n, c * e)
    return (outer @ W.view(c * e, -1)).view(n, n, -1)
