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

batch_norm = parse(
    """
    x[B, C, H, W]; gamma, beta[C]
    scalar eps = 1e-5
    mu[c] = mean[b, h, w](x[b,c,h,w])
    s2[c] = var[b, h, w](x[b,c,h,w])
    y[b,c,h,w] = (x[b,c,h,w] - mu[c]) / sqrt(s2[c] + eps) * gamma[c] + beta[c]
    """,
    title="Batch normalisation with the statistics of the batch, as in training",
    source="Ioffe, Szegedy 2015, algorithm 1",
    typical=dict(B=16, C=64, H=56, W=56),
)

batch_norm_inference = parse(
    """
    x[B, C, H, W]; mu[C]; s2[C] > 0; gamma, beta[C]
    scalar eps = 1e-5
    y[b,c,h,w] = (x[b,c,h,w] - mu[c]) / sqrt(s2[c] + eps) * gamma[c] + beta[c]
    """,
    title="Batch normalisation with statistics that were kept, as in evaluation",
    source="Ioffe, Szegedy 2015, algorithm 2",
    typical=dict(B=16, C=64, H=56, W=56),
)

group_norm = parse(
    """
    x[B, G*K, H, W]; gamma, beta[G*K]
    scalar eps = 1e-5
    size G = 8
    index g < G
    index k < K
    mu[b,g] = mean[k, h, w](x[b,g*K + k,h,w])
    s2[b,g] = var[k, h, w](x[b,g*K + k,h,w])
    y[b,g*K + k,h,w] = ((x[b,g*K + k,h,w] - mu[b,g]) / sqrt(s2[b,g] + eps) * gamma[g*K + k]
        + beta[g*K + k])
    """,
    title="Group normalisation: channels that lie side by side share their statistics",
    source="Wu, He 2018, eq. 1, 2, 6 and 7",
    typical=dict(B=8, G=8, K=8, H=56, W=56),
)

adaptive_instance_norm = parse(
    """
    x[B, C, N]; s[B, C, M]
    scalar eps = 1e-5
    y[b,c,n] = (sqrt(var[m](s[b,c,m]) + eps) * (x[b,c,n] - mean[i](x[b,c,i]))
        / sqrt(var[i](x[b,c,i]) + eps) + mean[m](s[b,c,m]))
    """,
    title="Content with the means and deviations of a style, channel by channel",
    source="Huang, Belongie 2017, eq. 8",
    typical=dict(B=8, C=64, N=4096, M=4096),
)

global_response_norm = parse(
    """
    x[B, N, C]; gamma, beta[C]
    scalar eps = 1e-6
    g[b,c] = sqrt(sum[n](x[b,n,c]**2))
    y[b,n,c] = gamma[c] * x[b,n,c] * g[b,c] / (mean[k](g[b,k]) + eps) + beta[c] + x[b,n,c]
    """,
    title="Global response normalisation: each channel by its norm, relative to the mean of all",
    source="Woo et al. 2023, ConvNeXt V2, algorithm 1",
    typical=dict(B=8, N=1024, C=256),
)

instance_norm = parse(
    """
    x[B, C, H, W]; gamma, beta[C]
    scalar eps = 1e-5
    mu[b,c] = mean[h, w](x[b,c,h,w])
    s2[b,c] = var[h, w](x[b,c,h,w])
    y[b,c,h,w] = (x[b,c,h,w] - mu[b,c]) / sqrt(s2[b,c] + eps) * gamma[c] + beta[c]
    """,
    title="Instance normalisation: each channel of each image by its own statistics",
    source="Ulyanov, Vedaldi, Lempitsky 2016, eq. 4",
    typical=dict(B=8, C=64, H=56, W=56),
)
