"""Normalisation: activations shifted and scaled by their own statistics."""

from derive.frontend.from_text import parse

layer_norm = parse(
    """
    x[B, S, D]; gamma, beta[D]
    scalar eps = 1e-5
    mu[b,s] = mean[d](x[b,s,d])
    s2[b,s] = var[d](x[b,s,d])
    y[b,s,d] = (x[b,s,d] - mu[b,s]) / sqrt(s2[b,s] + eps) * gamma[d] + beta[d]
    """,
    title="Layer normalisation",
    source="Ba, Kiros, Hinton 2016, eq. 4",
    typical=dict(B=8, S=512, D=512),
)

rms_norm = parse(
    """
    x[B, S, D]; g[D]
    scalar eps = 1e-6
    ms[b,s] = mean[d](x[b,s,d]**2)
    y[b,s,d] = x[b,s,d] / sqrt(ms[b,s] + eps) * g[d]
    """,
    title="Root mean square layer normalisation",
    source="Zhang, Sennrich 2019, eq. 4",
    typical=dict(B=8, S=512, D=512),
)

batched_covariance = parse(
    """
    x[B, N, D]
    mu[b,d] = mean[n](x[b,n,d])
    C[b,d,e] = sum[n]((x[b,n,d] - mu[b,d]) * (x[b,n,e] - mu[b,e])) / (N - 1)
    """,
    title="Sample covariance of each set of a batch",
    source="torch.cov",
    typical=dict(B=16, N=1024, D=64),
)
