"""Quadratic forms: centred rows times the precision, times themselves."""

FORMULA = "mahalanobis"


def squared_mahalanobis(x, mu, P):
    c = x - mu
    return (c @ P * c).sum(1)
