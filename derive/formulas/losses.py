"""Losses: one number for a batch."""

from derive.frontend.from_text import parse

infonce = parse(
    """
    q[N, D]; k[N, D]
    scalar tau = 0.07
    logit[i,j] = sum[d](q[i,d] * k[j,d]) / tau
    loss = mean[i](logsumexp[j](logit[i,j]) - logit[i,i])
    """,
    title="InfoNCE with the other pairs of the batch as negatives",
    source="van den Oord, Li, Vinyals 2018, eq. 4",
    typical=dict(N=512, D=128),
)

kl_of_logits = parse(
    """
    p, q[B, C]
    logp[b,c] = log_softmax[c](p[b,c])
    logq[b,c] = log_softmax[c](q[b,c])
    loss = sum[b, c](exp(logp[b,c]) * (logp[b,c] - logq[b,c])) / B
    """,
    title="Kullback-Leibler divergence of two categorical distributions given by logits",
    source="Kullback, Leibler 1951; Hinton, Vinyals, Dean 2015",
    typical=dict(B=256, C=1000),
)

mean_squared_error = parse(
    """
    x, y[B, C]
    loss = mean[b, c]((x[b,c] - y[b,c])**2)
    """,
    title="Mean of the squared differences of predictions and targets",
    source="Gauss 1809",
    typical=dict(B=256, C=1000),
)
