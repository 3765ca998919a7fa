"""Statistics of every sample by itself where those of the batch are meant."""

FORMULA = """
    x[N, C, T]
    mu[c] = mean[n, t](x[n,c,t])
    s2[c] = mean[n, t]((x[n,c,t] - mu[c])**2)
    y[n,c,t] = (x[n,c,t] - mu[c]) / sqrt(s2[c] + 1/1000)
"""
EDIT = ("index n survives|mean over n",)
LINE = "mu = "


def batch_norm(x):
    mu = x.mean(dim=2, keepdim=True)
    s2 = (x - mu).square().mean(dim=2, keepdim=True)
    return (x - mu) / (s2 + 1e-3).sqrt()
