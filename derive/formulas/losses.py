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

cross_entropy = parse(
    """
    x[B, C]; int t[B] < C
    logp[b,c] = log_softmax[c](x[b,c])
    loss = -mean[b](logp[b,t[b]])
    """,
    title="Cross-entropy of logits with integer labels",
    source="torch.nn.CrossEntropyLoss",
    typical=dict(B=1024, C=1000),
)

label_smoothing_cross_entropy = parse(
    """
    x[B, C]; int t[B] < C; scalar eps = 0.1
    logp[b,c] = log_softmax[c](x[b,c])
    loss = -mean[b]((1 - eps) * logp[b,t[b]] + eps * mean[c](logp[b,c]))
    """,
    title="Cross-entropy with smoothed labels",
    source="Szegedy et al. 2016, Rethinking the Inception Architecture, section 7",
    typical=dict(B=1024, C=1000),
)

ctc_loss = parse(
    """
    x[T, N, C]; int y[N, L] < C; int frames[N] < T + 1; int labels[N] < L + 1
    index s < 2*L + 1
    index k < 3
    index u < 2
    p[t,n,c] = log_softmax[c](x[t,n,c])
    e[t,n,s] = where(s % 2 == 1, p[t,n,y[n,s//2]], p[t,n,0])
    skips[n,s] = [s % 2 == 1 and s >= 3 and y[n,s//2] != y[n,s//2 - 1]]
    a[-1,n,s] = where(s == 0, 0, -oo)
    a[t,n,s] = e[t,n,s] + logsumexp[k, k <= s and k <= 1 + skips[n,s] and a[t - 1,n,s - k] > -oo](
        a[t - 1,n,s - k])
    z[n] = logsumexp[u, u <= 2*labels[n] and a[frames[n] - 1,n,2*labels[n] - u] > -oo](
        a[frames[n] - 1,n,2*labels[n] - u])
    loss[n] = where(z[n] > -oo, -z[n], 0)
    """,
    title="Connectionist temporal classification, blank 0, no loss where the labels do not fit",
    source="Graves et al. 2006, eq. 5-8, in logarithms; torch.nn.CTCLoss(zero_infinity=True)",
    typical=dict(T=128, N=32, C=64, L=24),
)

focal_loss = parse(
    """
    x[B, C]; int t[B] < C; scalar gamma = 2
    logp[b,c] = log_softmax[c](x[b,c])
    loss = -mean[b]((1 - exp(logp[b,t[b]]))**gamma * logp[b,t[b]])
    """,
    title="Focal loss of several classes, in which easy examples count less",
    source="Lin et al. 2017, eq. 4",
    typical=dict(B=2048, C=512),
)

dice_loss = parse(
    """
    x, y[B, C, N]; scalar eps = 1
    p[b,c,n] = softmax[c](x[b,c,n])
    overlap[b,c] = sum[n](p[b,c,n] * y[b,c,n])
    total[b,c] = sum[n](p[b,c,n]**2) + sum[n](y[b,c,n]**2)
    loss = 1 - mean[b, c]((2 * overlap[b,c] + eps) / (total[b,c] + eps))
    """,
    title="Soft Dice loss of segmentations",
    source="Milletari, Navab, Ahmadi 2016, V-Net, section 3",
    typical=dict(B=8, C=8, N=16384),
)

triplet_loss = parse(
    """
    a, p, n[B, D]; scalar margin = 1, eps = 1e-6
    near[b] = norm[d](a[b,d] - p[b,d] + eps)
    far[b] = norm[d](a[b,d] - n[b,d] + eps)
    loss = mean[b](relu(near[b] - far[b] + margin))
    """,
    title="Triplet margin loss",
    source="Balntas et al. 2016; torch.nn.TripletMarginLoss",
    typical=dict(B=4096, D=256),
)

nt_xent = parse(
    """
    x, y[N, D]; scalar tau = 0.5
    a[i,d] = x[i,d] / norm[e](x[i,e])
    b[i,d] = y[i,d] / norm[e](y[i,e])
    s[i,j] = sum[d](a[i,d] * a[j,d]) / tau
    t[i,j] = sum[d](b[i,d] * b[j,d]) / tau
    c[i,j] = sum[d](a[i,d] * b[j,d]) / tau
    u[i] = logaddexp(logsumexp[j, j != i](s[i,j]), logsumexp[j](c[i,j]))
    v[i] = logaddexp(logsumexp[j, j != i](t[i,j]), logsumexp[j](c[j,i]))
    loss = mean[i](u[i] + v[i] - 2 * c[i,i]) / 2
    """,
    title="NT-Xent: two views of each image among all others of the batch",
    source="Chen et al. 2020, SimCLR, eq. 1",
    typical=dict(N=512, D=128),
)

barlow_twins = parse(
    """
    x, y[N, D]; scalar lam = 0.005, eps = 1e-5
    a[n,i] = (x[n,i] - mean[m](x[m,i])) / sqrt(var[m](x[m,i]) + eps)
    b[n,i] = (y[n,i] - mean[m](y[m,i])) / sqrt(var[m](y[m,i]) + eps)
    c[i,j] = mean[n](a[n,i] * b[n,j])
    loss = sum[i]((1 - c[i,i])**2) + lam * sum[i, j, i != j](c[i,j]**2)
    """,
    title="Barlow Twins: the correlation of two views should be the identity",
    source="Zbontar et al. 2021, eq. 1-2",
    typical=dict(N=256, D=512),
)

vicreg = parse(
    """
    x, y[N, D]; scalar lam = 25, mu = 25, nu = 1, eps = 1e-4
    a[n,d] = x[n,d] - mean[m](x[m,d])
    b[n,d] = y[n,d] - mean[m](y[m,d])
    s[i,j] = sum[n](a[n,i] * a[n,j]) / (N - 1)
    t[i,j] = sum[n](b[n,i] * b[n,j]) / (N - 1)
    distance = mean[n, d]((x[n,d] - y[n,d])**2)
    hinge = (mean[d](relu(1 - sqrt(s[d,d] + eps))) + mean[d](relu(1 - sqrt(t[d,d] + eps)))) / 2
    redundancy = (sum[i, j, i != j](s[i,j]**2) + sum[i, j, i != j](t[i,j]**2)) / D
    loss = lam * distance + mu * hinge + nu * redundancy
    """,
    title="VICReg: invariance, variance and covariance of two views",
    source="Bardes, Ponce, LeCun 2022, eq. 1-6",
    typical=dict(N=256, D=512),
)

maximum_mean_discrepancy = parse(
    """
    x[N, D]; y[M, D]; scalar sigma = 1
    k(s) = exp(-s / (2 * sigma**2))
    xx = sum[i, j, i != j](k(sum[d]((x[i,d] - x[j,d])**2))) / (N * (N - 1))
    yy = sum[m, n, m != n](k(sum[d]((y[m,d] - y[n,d])**2))) / (M * (M - 1))
    xy = mean[i, m](k(sum[d]((x[i,d] - y[m,d])**2)))
    discrepancy = xx + yy - 2 * xy
    """,
    title="Unbiased squared maximum mean discrepancy under a Gaussian kernel",
    source="Gretton et al. 2012, eq. 3",
    typical=dict(N=512, M=512, D=64),
)

sinkhorn_step = parse(
    """
    C[N, M]; g[M]; loga[N]; logb[M]; scalar eps = 0.1
    f[i] = eps * (loga[i] - logsumexp[j]((g[j] - C[i,j]) / eps))
    g_new[j] = eps * (logb[j] - logsumexp[i]((f[i] - C[i,j]) / eps))
    return f, g_new
    """,
    title="Sinkhorn's iteration for entropic optimal transport, on logarithms",
    source="Peyré, Cuturi 2019, Computational Optimal Transport, section 4.4",
    typical=dict(N=1024, M=1024),
)

dpo_loss = parse(
    """
    policy, reference[2, B, S, V]; int y[2, B, S] < V; mask[2, B, S]; scalar beta = 0.1
    logp[k,b,s,v] = log_softmax[v](policy[k,b,s,v])
    logr[k,b,s,v] = log_softmax[v](reference[k,b,s,v])
    gain[k,b] = sum[s](mask[k,b,s] * (logp[k,b,s,y[k,b,s]] - logr[k,b,s,y[k,b,s]]))
    loss = -mean[b](logsigmoid(beta * (gain[0,b] - gain[1,b])))
    """,
    title="Direct preference optimisation of chosen answers (0) over rejected ones (1), by logits",
    source="Rafailov et al. 2023, eq. 7",
    typical=dict(B=4, S=64, V=2000),
)

hinge_loss = parse(
    """
    x[N, D]; w[D]; y[N]; scalar bias = 0, lam = 0.01
    score[n] = sum[d](x[n,d] * w[d]) + bias
    loss = mean[n](relu(1 - y[n] * score[n])) + lam * sum[d](w[d]**2)
    """,
    title="Hinge loss of a linear classifier, labels -1 and 1, with a soft margin",
    source="Cortes, Vapnik 1995",
    typical=dict(N=8192, D=512),
)
