"""The stock that random formulas draw from, and edits of their texts."""

import re

INDICES = {"i": "M", "p": "M", "j": "N", "q": "N", "d": "D", "e": "D", "h": "H"}

TENSORS = {
    "x": ("M",),
    "y": ("N",),
    "w": ("D",),
    "A": ("M", "N"),
    "B": ("N", "D"),
    "C": ("D", "M"),
    "Q": ("M", "M"),
    "T": ("M", "N", "D"),
    "R": ("H*D", "N"),
    "G": ("H", "M"),
}
DECLARED = {
    "m": ("bool m[M, N]", ("M", "N")),
    "r": ("bool r[N]", ("N",)),
    "t": ("int t[N] < 3", ("N",)),
    "g": ("int g[N] < M", ("N",)),
    "b": ("b[M, D] > 0", ("M", "D")),
}
SCALARS = {"alpha": "scalar alpha", "eps": "scalar eps = 1/4"}

FUNCTIONS = {
    "phi": "phi(u) = where(u > 0, u + 1, exp(-u**2))",
    "psi": "psi(u) = u * sigmoid(2 * u) + 1",
}

NUMBERS = ("2", "1", "3", "1/2", "0.25", "(-1)", "2/3")
BOUNDED = ("tanh", "sin", "sigmoid", "cos", "erf")
SMOOTH = (
    *("tanh", "relu", "abs", "sin", "sigmoid", "silu"),
    *("gelu", "softplus", "leaky_relu", "elu", "cos", "erf"),
)
REDUCTIONS = (
    *("sum", "mean", "max", "min", "var", "logsumexp"),
    *("prod", "softmax", "log_softmax", "cumsum", "argmax"),
)
MATRICES = ("det", "logdet", "inverse", "solve")
RELATIONS = ("<=", "<", "==", "!=", ">=", ">")


def binds(text, indices):
    """Whether a reduction in the text may bind one of the indices."""
    brackets = re.findall(rf"\b(?:{'|'.join((*REDUCTIONS, *MATRICES))})\[(\w+(?:, \w+)*)", text)
    return any(index in names.split(", ") for names in brackets for index in indices)


def rename(text, one, other):
    return re.sub(rf"\b{one}\b", other, text)


def mention_indices(body, indices):
    """Add the indices that a body lacks, so that a reduction over them is well formed."""
    absent = [index for index in indices if not re.search(rf"\b{index}\b", body)]
    return f"({body} + sin({' + '.join(absent)}))" if absent else body


def keep_first_entry(condition, indices):
    """Extend a condition by the first entry, so that no row is empty."""
    first = " and ".join(f"{index} == 0" for index in indices)
    return f"({condition}) or ({first})"
