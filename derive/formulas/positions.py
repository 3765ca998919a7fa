"""Attention that knows positions: learned for a distance, biases of the scores, rotations."""

from derive.frontend.from_text import parse

clipped_relative_attention = parse(
    """
    q, k, v[B, H, N, D]; w_K, w_V[2*C + 1, D]
    e[b,h,i,j] = sum[d](q[b,h,i,d] * (k[b,h,j,d] + w_K[clip(j - i, -C, C) + C,d])) / sqrt(D)
    a[b,h,i,j] = softmax[j](e[b,h,i,j])
    z[b,h,i,d] = sum[j](a[b,h,i,j] * (v[b,h,j,d] + w_V[clip(j - i, -C, C) + C,d]))
    """,
    title="Attention with a vector for each distance up to C, on keys and values",
    source="Shaw, Uszkoreit, Vaswani 2018, section 3.2, eq. 3-4",
    typical=dict(B=8, H=8, N=512, D=64, C=16),
)

bucketed_bias_attention = parse(
    """
    q[B, H, N, D]; k, v[B, H, M, D]; int bucket[N, M] < R; bias[R, H]
    s[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d]) + bias[bucket[i,j],h]
    z[b,h,i,d] = sum[j](softmax[j](s[b,h,i,j]) * v[b,h,j,d])
    """,
    title="Attention of T5: one bias a head for each bucket of distances, scores not scaled",
    source="Raffel et al. 2020, T5, section 2.1",
    typical=dict(B=8, H=8, N=512, M=512, D=64, R=32),
)

alibi_attention = parse(
    """
    q, k, v[B, H, N, D]; slope[H]
    s[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D) - slope[h] * (i - j)
    z[b,h,i,d] = sum[j](softmax[j, j <= i](s[b,h,i,j]) * v[b,h,j,d])
    """,
    title="Causal attention with a linear bias: each head has a slope on the distance",
    source="Press, Smith, Lewis 2022, ALiBi, section 3",
    typical=dict(B=8, H=8, N=512, D=64),
)

disentangled_attention = parse(
    """
    Q_c, K_c, V_c[B, H, N, D]; Q_r, K_r[H, 2*R, D]
    content[b,h,i,j] = sum[d](Q_c[b,h,i,d] * K_c[b,h,j,d])
    to_position[b,h,i,j] = sum[d](Q_c[b,h,i,d] * K_r[h,clip(i - j + R, 0, 2*R - 1),d])
    from_position[b,h,i,j] = sum[d](K_c[b,h,j,d] * Q_r[h,clip(j - i + R, 0, 2*R - 1),d])
    A[b,h,i,j] = content[b,h,i,j] + to_position[b,h,i,j] + from_position[b,h,i,j]
    z[b,h,i,d] = sum[j](softmax[j](A[b,h,i,j] / sqrt(3*D)) * V_c[b,h,j,d])
    """,
    title="Disentangled attention of DeBERTa: content to content, to position, from position",
    source="He et al. 2021, DeBERTa, eq. 3-4",
    typical=dict(B=8, H=12, N=512, D=64, R=512),
)

rotary_attention = parse(
    """
    Q, K[B, H, N, 2*P]; V[B, H, N, E]
    index p < P
    theta[i,p] = i * 10000**(-p / P)
    q[b,h,i,2*p] = Q[b,h,i,2*p] * cos(theta[i,p]) - Q[b,h,i,2*p + 1] * sin(theta[i,p])
    q[b,h,i,2*p + 1] = Q[b,h,i,2*p + 1] * cos(theta[i,p]) + Q[b,h,i,2*p] * sin(theta[i,p])
    k[b,h,j,2*p] = K[b,h,j,2*p] * cos(theta[j,p]) - K[b,h,j,2*p + 1] * sin(theta[j,p])
    k[b,h,j,2*p + 1] = K[b,h,j,2*p + 1] * cos(theta[j,p]) + K[b,h,j,2*p] * sin(theta[j,p])
    a[b,h,i,j] = softmax[j, j <= i](sum[c](q[b,h,i,c] * k[b,h,j,c]) / sqrt(2*P))
    z[b,h,i,e] = sum[j](a[b,h,i,j] * V[b,h,j,e])
    """,
    title="Causal attention with rotary positions, neighbouring features turned in pairs",
    source="Su et al. 2021, RoFormer, eq. 15-16 and 34",
    typical=dict(B=8, H=8, N=512, P=32, E=64),
)

rotary_half_attention = parse(
    """
    Q, K[B, H, N, 2*P]; V[B, H, N, E]
    index p < P
    theta[i,p] = i * 10000**(-p / P)
    q[b,h,i,p] = Q[b,h,i,p] * cos(theta[i,p]) - Q[b,h,i,p + P] * sin(theta[i,p])
    q[b,h,i,p + P] = Q[b,h,i,p + P] * cos(theta[i,p]) + Q[b,h,i,p] * sin(theta[i,p])
    k[b,h,j,p] = K[b,h,j,p] * cos(theta[j,p]) - K[b,h,j,p + P] * sin(theta[j,p])
    k[b,h,j,p + P] = K[b,h,j,p + P] * cos(theta[j,p]) + K[b,h,j,p] * sin(theta[j,p])
    a[b,h,i,j] = softmax[j, j <= i](sum[c](q[b,h,i,c] * k[b,h,j,c]) / sqrt(2*P))
    z[b,h,i,e] = sum[j](a[b,h,i,j] * V[b,h,j,e])
    """,
    title="Causal attention with rotary positions, the first half of the features with the second",
    source="Su et al. 2021, RoFormer, eq. 15-16, in the order of GPT-NeoX and LLaMA",
    typical=dict(B=8, H=8, N=512, P=32, E=64),
)
