"""Variants of attention: other scores, other orders, other mixtures of heads."""

from derive.frontend.from_text import parse

linear_attention = parse(
    """
    Q, K[B, H, N, D]; V[B, H, N, E]
    q[b,h,i,d] = elu(Q[b,h,i,d]) + 1
    k[b,h,j,d] = elu(K[b,h,j,d]) + 1
    memory[b,h,d,e] = sum[j](k[b,h,j,d] * V[b,h,j,e])
    z[b,h,i,e] = sum[d](q[b,h,i,d] * memory[b,h,d,e]) / sum[d](q[b,h,i,d] * sum[j](k[b,h,j,d]))
    """,
    title="Linear attention with the feature map elu(x) + 1",
    source="Katharopoulos et al. 2020, Transformers are RNNs, eq. 5-7",
    typical=dict(B=8, H=8, N=2048, D=64, E=64),
)

talking_heads_attention = parse(
    """
    Q[B, N, H, D]; K[B, M, H, D]; V[B, M, G, E]
    P_l[H, L]; P_w[L, G]
    J[b,h,n,m] = sum[d](Q[b,n,h,d] * K[b,m,h,d]) / sqrt(D)
    J_l[b,l,n,m] = sum[h](J[b,h,n,m] * P_l[h,l])
    W[b,l,n,m] = softmax[m](J_l[b,l,n,m])
    U[b,g,n,m] = sum[l](W[b,l,n,m] * P_w[l,g])
    O[b,n,g,e] = sum[m](U[b,g,n,m] * V[b,m,g,e])
    """,
    title="Talking-heads attention: heads are mixed before and after the softmax",
    source="Shazeer et al. 2020, Talking-Heads Attention",
    typical=dict(B=4, N=512, M=512, H=8, L=8, G=8, D=64, E=64),
)

luong_dot_attention = parse(
    """
    s[B, T, D]; h[B, S, D]
    a[b,t,j] = softmax[j](sum[d](s[b,t,d] * h[b,j,d]))
    c[b,t,d] = sum[j](a[b,t,j] * h[b,j,d])
    return c, a
    """,
    title="Luong attention with the dot score",
    source="Luong, Pham, Manning 2015, section 3.1",
    typical=dict(B=32, T=32, S=64, D=512),
)

luong_attention = parse(
    """
    s[B, T, D]; h[B, S, E]; W_a[D, E]
    score[b,t,j] = sum[d, e](s[b,t,d] * W_a[d,e] * h[b,j,e])
    a[b,t,j] = softmax[j](score[b,t,j])
    c[b,t,e] = sum[j](a[b,t,j] * h[b,j,e])
    return c, a
    """,
    title="Luong attention with the general (bilinear) score",
    source="Luong, Pham, Manning 2015, section 3.1",
    typical=dict(B=32, T=32, S=64, D=512, E=512),
)

luong_concat_attention = parse(
    """
    s[B, T, D]; h[B, S, E]; W_s[A, D]; W_h[A, E]; v_a[A]
    score[b,t,j] = sum[a](v_a[a] * tanh(sum[d](W_s[a,d] * s[b,t,d]) + sum[e](W_h[a,e] * h[b,j,e])))
    alpha[b,t,j] = softmax[j](score[b,t,j])
    c[b,t,e] = sum[j](alpha[b,t,j] * h[b,j,e])
    return c, alpha
    """,
    title="Luong attention with the concat score, its weight in two blocks of columns",
    source="Luong, Pham, Manning 2015, section 3.1",
    typical=dict(B=32, T=32, S=64, D=512, E=512, A=512),
)

bahdanau_attention = parse(
    """
    s[B, D]; h[B, T, E]; W_a[D, A]; U_a[E, A]; v_a[A]
    energy[b,j] = sum[a](v_a[a] * tanh(sum[d](s[b,d] * W_a[d,a]) + sum[e](h[b,j,e] * U_a[e,a])))
    alpha[b,j] = softmax[j](energy[b,j])
    c[b,e] = sum[j](alpha[b,j] * h[b,j,e])
    return c, alpha
    """,
    title="Bahdanau attention with the additive score",
    source="Bahdanau, Cho, Bengio 2015, section 3.1 and appendix A.1.2",
    typical=dict(B=32, T=64, D=512, E=1024, A=512),
)

relative_key_attention = parse(
    """
    query[B, H, N, D]; key, value[B, H, M, D]; A_K[N, M, D]
    e[b,h,i,j] = sum[d](query[b,h,i,d] * (key[b,h,j,d] + A_K[i,j,d])) / sqrt(D)
    z[b,h,i,d] = sum[j](softmax[j](e[b,h,i,j]) * value[b,h,j,d])
    """,
    title="Attention with relative positions on the keys alone, shared by the heads",
    source="Shaw, Uszkoreit, Vaswani 2018, eq. 4, without the term on the values",
    typical=dict(B=8, H=8, N=256, M=256, D=64),
)

transformer_xl_attention = parse(
    """
    q, k, v[B, H, S, D]; r[S, S, H, D]; u, w[H, D]
    content[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d]) + sum[d](u[h,d] * k[b,h,j,d])
    position[b,h,i,j] = sum[d](q[b,h,i,d] * r[i,j,h,d]) + sum[d](w[h,d] * r[i,j,h,d])
    p[b,h,i,j] = softmax[j, j <= i]((content[b,h,i,j] + position[b,h,i,j]) / sqrt(D))
    z[b,i,h,d] = sum[j](p[b,h,i,j] * v[b,h,j,d])
    """,
    title="Attention of Transformer-XL: four terms of content and position, causal",
    source="Dai et al. 2019, Transformer-XL, section 3.3 and appendix B",
    typical=dict(B=8, H=8, S=256, D=64),
)

causal_linear_attention = parse(
    """
    Q, K[B, H, N, D]; V[B, H, N, E]
    q[b,h,i,d] = elu(Q[b,h,i,d]) + 1
    k[b,h,j,d] = elu(K[b,h,j,d]) + 1
    n[b,h,i] = sum[j, j <= i](sum[d](q[b,h,i,d] * k[b,h,j,d]))
    z[b,h,i,e] = sum[j, j <= i](sum[d](q[b,h,i,d] * k[b,h,j,d]) * V[b,h,j,e]) / n[b,h,i]
    """,
    title="Causal linear attention with the feature map elu(x) + 1",
    source="Katharopoulos et al. 2020, Transformers are RNNs, eq. 8-9",
    typical=dict(B=4, H=8, N=2048, D=16, E=16),
)

random_feature_attention = parse(
    """
    q, k[B, H, N, D]; v[B, H, N, E]; w[R, D]
    s[b,h,i,r] = sum[d](w[r,d] * q[b,h,i,d]) - sum[d](q[b,h,i,d]**2) / 2
    t[b,h,j,r] = sum[d](w[r,d] * k[b,h,j,d]) - sum[d](k[b,h,j,d]**2) / 2
    a[b,h,i,r] = exp(s[b,h,i,r] - max[m](s[b,h,i,m]))
    c[b,h,j,r] = exp(t[b,h,j,r] - max[l, m](t[b,h,l,m]))
    memory[b,h,r,e] = sum[j](c[b,h,j,r] * v[b,h,j,e])
    z[b,h,i,e] = sum[r](a[b,h,i,r] * memory[b,h,r,e]) / sum[r](a[b,h,i,r] * sum[j](c[b,h,j,r]))
    """,
    title="Attention of the Performer: positive random features of the exponential kernel",
    source="Choromanski et al. 2021, Rethinking Attention with Performers, lemma 1",
    typical=dict(B=8, H=8, N=1024, D=64, E=64, R=128),
)

differential_attention = parse(
    """
    Q_1, Q_2, K_1, K_2[B, H, N, D]; V[B, H, N, E]; lam[H]
    p[b,h,i,j] = softmax[j, j <= i](sum[d](Q_1[b,h,i,d] * K_1[b,h,j,d]) / sqrt(D))
    o[b,h,i,j] = softmax[j, j <= i](sum[d](Q_2[b,h,i,d] * K_2[b,h,j,d]) / sqrt(D))
    z[b,h,i,e] = sum[j]((p[b,h,i,j] - lam[h] * o[b,h,i,j]) * V[b,h,j,e])
    """,
    title="Differential attention: the difference of two attentions over the same values, causal",
    source="Ye et al. 2024, Differential Transformer, eq. 1",
    typical=dict(B=8, H=8, N=512, D=64, E=128),
)

sigmoid_attention = parse(
    """
    q[B, H, N, D]; k[B, H, M, D]; v[B, H, M, E]; scalar bias = -5
    p[b,h,i,j] = sigmoid(sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D) + bias)
    z[b,h,i,e] = sum[j](p[b,h,i,j] * v[b,h,j,e])
    """,
    title="Sigmoid attention: each score passes a sigmoid by itself",
    source="Ramapuram et al. 2024, Theory, Analysis, and Best Practices for Sigmoid Self-Attention",
    typical=dict(B=8, H=8, N=512, M=512, D=64, E=64),
)

sink_attention = parse(
    """
    q, k, v[B, H, N, D]; sink[H]
    s[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D)
    spent[b,h,i] = sigmoid(logsumexp[j, j <= i](s[b,h,i,j]) - sink[h])
    z[b,h,i,d] = spent[b,h,i] * sum[j](softmax[j, j <= i](s[b,h,i,j]) * v[b,h,j,d])
    """,
    title="Causal attention with a learned sink a head: exp(sink) is added to the softmax's total",
    source="Agarwal et al. 2025, gpt-oss-120b and gpt-oss-20b Model Card, section 2.2",
    typical=dict(B=8, H=8, N=512, D=64),
)
