"""eps is added to the root, not under it."""

FORMULA = "layer_norm"
EDIT = ("eps inside the root",)
LINE = "return gamma"


def norm(x, gamma, beta, eps=1e-5):
    mean = x.mean(dim=-1, keepdim=True)
    std = x.std(dim=-1, keepdim=True, unbiased=False)
    return gamma * (x - mean) / (std + eps) + beta
