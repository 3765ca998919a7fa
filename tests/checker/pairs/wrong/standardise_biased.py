"""A sample variance was meant; the squares are averaged over all of them."""

FORMULA = """
    x[N, D]
    mu[d] = mean[n](x[n,d])
    s[d] = var[n](x[n,d], correction=1)
    y[n,d] = (x[n,d] - mu[d]) / sqrt(s[d])
"""
EDIT = ("unbiased variance",)
LINE = "variance = "


def standardise(x):
    centred = x - x.mean(dim=0)
    variance = centred.square().mean(dim=0)
    return centred / variance.sqrt()
