"""A linear layer by hand that takes a bias and does not add it."""

FORMULA = "linear"
EDIT = ("add the term", "bias")
LINE = "return"


def linear(x, W, bias):
    return x @ W.T
