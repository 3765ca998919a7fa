"""Channels are dealt out to the groups in turn, where a group is a block of channels."""

FORMULA = """
    x[N, G*C, T]
    size G
    index g < G
    index c < C
    mu[n,g] = mean[c, t](x[n,g*C + c,t])
    s2[n,g] = mean[c, t]((x[n,g*C + c,t] - mu[n,g])**2)
    y[n,g*C + c,t] = (x[n,g*C + c,t] - mu[n,g]) / sqrt(s2[n,g] + 0.00001)
"""
EDIT = ("transpose", "splitting", "merging")
LINE = "z = x.view"
BIND = {"groups": "G"}


def group_norm(x, groups):
    n, channels, length = x.shape
    z = x.view(n, channels // groups, groups, length)
    mu = z.mean(dim=(1, 3), keepdim=True)
    var = z.var(dim=(1, 3), keepdim=True, unbiased=False)
    return ((z - mu) / (var + 1e-5).sqrt()).reshape(x.shape)
