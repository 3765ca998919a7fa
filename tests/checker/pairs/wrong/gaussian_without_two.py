"""exp(-d2 / sigma^2): the factor 2 of the Gaussian is missing."""

FORMULA = "gaussian_kernel"
EDIT = ("scale", "1/2")
LINE = "return"


def rbf_kernel(x, y, sigma=1.0):
    d2 = (x[:, None, :] - y[None, :, :]).square().sum(-1)
    return (-d2 / sigma**2).exp()
