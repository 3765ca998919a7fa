"""Convolutions: windows that run over the places of a signal or an image."""

from derive.frontend.from_text import parse

conv1d = parse(
    """
    x[B, C, T]; W[O, C, K]; bias[O]
    size S = 2, P = 1, D = 1  # stride, padding, dilation
    index t < (T + 2*P - D*(K - 1) - 1)//S + 1
    y[b,o,t] = (sum[c, k](W[o,c,k] * x[b,c,S*t + D*k - P] * [0 <= S*t + D*k - P < T])
        + bias[o])
    """,
    title="Convolution of signals with stride, padding and dilation",
    source="torch.nn.Conv1d",
    typical=dict(B=8, C=80, T=1500, O=256, K=3, S=2, P=1, D=1),
)

conv2d = parse(
    """
    x[B, C, H, W]; F[O, C, K, K]; bias[O]
    size S = 2, P = 1  # stride, padding
    index k, l < K
    index i < (H + 2*P - K)//S + 1
    index j < (W + 2*P - K)//S + 1
    y[b,o,i,j] = (sum[c, k, l](F[o,c,k,l] * x[b,c,S*i + k - P,S*j + l - P]
        * [0 <= S*i + k - P < H] * [0 <= S*j + l - P < W]) + bias[o])
    """,
    title="Convolution of images with stride and padding",
    source="torch.nn.Conv2d",
    typical=dict(B=8, C=64, H=56, W=56, O=128, K=3, S=2, P=1),
)

grouped_conv2d = parse(
    """
    x[B, G*C, H, W]; F[G*O, C, K, K]
    size P = 1
    index g < G
    index c < C
    index o < O
    index k, l < K
    index i < H + 2*P - K + 1
    index j < W + 2*P - K + 1
    y[b,g*O + o,i,j] = sum[c, k, l](F[g*O + o,c,k,l] * x[b,g*C + c,i + k - P,j + l - P]
        * [0 <= i + k - P < H] * [0 <= j + l - P < W])
    """,
    title="Convolution within groups of channels",
    source="Xie et al. 2017, ResNeXt, section 3",
    typical=dict(B=8, G=32, C=4, O=4, H=56, W=56, K=3, P=1),
)

depthwise_conv2d = parse(
    """
    x[B, C, H, W]; F[C, K, K]
    size P = 1
    index i < H + 2*P - K + 1
    index j < W + 2*P - K + 1
    y[b,c,i,j] = sum[k, l](F[c,k,l] * x[b,c,i + k - P,j + l - P]
        * [0 <= i + k - P < H] * [0 <= j + l - P < W])
    """,
    title="Convolution of each channel by itself",
    source="Howard et al. 2017, MobileNets, eq. 3",
    typical=dict(B=8, C=128, H=56, W=56, K=3, P=1),
)

conv_transpose1d = parse(
    """
    x[B, C, T]; W[C, O, K]
    size S = 2
    index s < S*(T - 1) + K
    y[b,o,s] = sum[c, t](x[b,c,t] * W[c,o,s - S*t] * [0 <= s - S*t < K])
    """,
    title="Transposed convolution: every entry puts the kernel down, a stride apart",
    source="torch.nn.ConvTranspose1d",
    typical=dict(B=4, C=256, T=400, O=128, K=16, S=8),
)

patch_embedding = parse(
    """
    x[B, C, H*P, W*P]; E[D, C, P, P]; bias[D]
    index h < H
    index w < W
    z[b,h*W + w,d] = sum[c, p, q](E[d,c,p,q] * x[b,c,P*h + p,P*w + q]) + bias[d]
    """,
    title="Embedding of the patches of an image",
    source="Dosovitskiy et al. 2021, ViT, eq. 1",
    typical=dict(B=8, C=3, H=14, W=14, P=16, D=768),
)

pixel_shuffle = parse(
    """
    x[B, C*R*R, H, W]; size R = 2
    index c < C
    index p, q < R
    y[b,c,R*i + p,R*j + q] = x[b,c*R*R + p*R + q,i,j]
    """,
    title="Channels laid out as the pixels of an image of a higher resolution",
    source="Shi et al. 2016, eq. 4",
    typical=dict(B=8, C=3, R=4, H=64, W=64),
)

max_pool2d = parse(
    """
    x[B, C, H, W]
    size P = 1, S = 2  # padding, by which the window is wider on both sides, and stride
    index k, l < 2*P + 1
    index i < (H - 1)//S + 1
    index j < (W - 1)//S + 1
    y[b,c,i,j] = max[k, l, 0 <= S*i + k - P < H and 0 <= S*j + l - P < W](
        x[b,c,S*i + k - P,S*j + l - P])
    """,
    title="The largest entry around each place of an image, a stride apart",
    source="Krizhevsky et al. 2012, section 3.4; He et al. 2016, ResNet, table 1",
    typical=dict(B=8, C=64, H=112, W=112, P=1, S=2),
)

avg_pool2d = parse(
    """
    x[B, C, H, W]
    size K = 2, S = 2  # window, stride
    index k, l < K
    index i < (H - K)//S + 1
    index j < (W - K)//S + 1
    y[b,c,i,j] = mean[k, l](x[b,c,S*i + k,S*j + l])
    """,
    title="The mean of each window of an image",
    source="torch.nn.AvgPool2d",
    typical=dict(B=8, C=64, H=112, W=112, K=2, S=2),
)

causal_conv1d = parse(
    """
    x[B, C, T]; w[C, K]; bias[C]
    index t < T
    y[b,c,t] = silu(sum[k](w[c,k] * x[b,c,t + k - K + 1] * [t + k - K + 1 >= 0]) + bias[c])
    """,
    title="Convolution of each channel with what came before, activated",
    source="Gu, Dao 2023, Mamba, section 3.4; Dao-AILab causal_conv1d",
    typical=dict(B=8, C=512, T=2048, K=4),
)

autocorrelation = parse(
    """
    x[B, T]
    index k < T
    m[b] = mean[t](x[b,t])
    v[b] = var[t](x[b,t])
    r[b,k] = sum[t, t + k < T]((x[b,t] - m[b]) * (x[b,t + k] - m[b])) / (T * v[b])
    """,
    title="Autocorrelation of signals at every lag",
    source="Box, Jenkins 1970, Time Series Analysis, eq. 2.1.11-12",
    typical=dict(B=64, T=4096),
)
