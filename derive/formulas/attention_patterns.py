"""Patterns of attention: which queries meet which keys, and which heads share them."""

from derive.frontend.from_text import parse

sliding_window_attention = parse(
    """
    q, k, v[B, H, N, D]; size W
    s[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D)
    z[b,h,i,d] = sum[j](softmax[j, i - W < j <= i](s[b,h,i,j]) * v[b,h,j,d])
    """,
    title="Causal attention to the last W positions",
    source="Beltagy, Peters, Cohan 2020, Longformer, section 3.1",
    typical=dict(B=8, H=8, N=2048, D=64, W=256),
)

padded_cross_attention = parse(
    """
    query[B, H, N, D]; key, value[B, H, M, D]; int length[B] < M + 1
    s[b,h,i,j] = sum[d](query[b,h,i,d] * key[b,h,j,d]) / sqrt(D)
    z[b,h,i,d] = sum[j](softmax[j, j < length[b]](s[b,h,i,j]) * value[b,h,j,d])
    """,
    title="Attention to padded sequences, each of its own length; a length of 0 gives zeros",
    source="Vaswani et al. 2017, Attention Is All You Need, section 3.2.3",
    typical=dict(B=8, H=8, N=512, M=512, D=64),
    empty_row="zeros",
)

axial_attention = parse(
    """
    Q_h, K_h, V_h, Q_w, K_w, V_w[B, H, W, G, D]
    s[b,g,w,h,r] = sum[d](Q_h[b,h,w,g,d] * K_h[b,r,w,g,d]) / sqrt(D)
    t[b,g,h,w,c] = sum[d](Q_w[b,h,w,g,d] * K_w[b,h,c,g,d]) / sqrt(D)
    y[b,h,w,g,d] = sum[r](softmax[r](s[b,g,w,h,r]) * V_h[b,r,w,g,d])
    z[b,h,w,g,d] = y[b,h,w,g,d] + sum[c](softmax[c](t[b,g,h,w,c]) * V_w[b,h,c,g,d])
    """,
    title="Axial attention of images: along the columns plus along the rows",
    source="Ho et al. 2019, Axial Attention in Multidimensional Transformers",
    typical=dict(B=8, H=32, W=32, G=8, D=32),
)

grouped_query_attention = parse(
    """
    q[B, N, G*R, D]; k, v[B, N, G, D]
    index g < G
    index r < R
    s[b,g,r,i,j] = sum[d](q[b,i,g*R + r,d] * k[b,j,g,d]) / sqrt(D)
    z[b,i,g*R + r,d] = sum[j](softmax[j, j <= i](s[b,g,r,i,j]) * v[b,j,g,d])
    """,
    title="Causal grouped-query attention: R heads of queries share one of keys and values",
    source="Ainslie et al. 2023, GQA, section 2.2",
    typical=dict(B=8, N=512, G=4, R=4, D=64),
)

multi_query_attention = parse(
    """
    X[B, N, M]; P_q[H, M, D]; P_k[M, D]; P_v[M, E]; P_o[H, M, E]
    Q[b,h,i,d] = sum[m](X[b,i,m] * P_q[h,m,d])
    K[b,j,d] = sum[m](X[b,j,m] * P_k[m,d])
    V[b,j,e] = sum[m](X[b,j,m] * P_v[m,e])
    a[b,h,i,j] = softmax[j, j <= i](sum[d](Q[b,h,i,d] * K[b,j,d]))
    O[b,h,i,e] = sum[j](a[b,h,i,j] * V[b,j,e])
    Y[b,i,m] = sum[h, e](O[b,h,i,e] * P_o[h,m,e])
    """,
    title="Causal multi-query attention: all heads share one head of keys and values",
    source="Shazeer 2019, Fast Transformer Decoding, section 2.4.1",
    typical=dict(B=8, N=512, M=512, H=8, D=64, E=64),
)

latent_attention = parse(
    """
    X[B, N, M]; W_Q[M, H, D]; W_QR[M, H, 2*R]
    W_DKV[M, C]; W_UK, W_UV[C, H, D]; W_KR[M, 2*R]; W_O[H, D, M]
    index r < R
    theta[i,r] = i * 10000**(-r / R)
    c[b,j,l] = sum[m](X[b,j,m] * W_DKV[m,l])
    q_C[b,h,i,d] = sum[m](X[b,i,m] * W_Q[m,h,d])
    k_C[b,h,j,d] = sum[l](c[b,j,l] * W_UK[l,h,d])
    v_C[b,h,j,d] = sum[l](c[b,j,l] * W_UV[l,h,d])
    u[b,h,i,t] = sum[m](X[b,i,m] * W_QR[m,h,t])
    w[b,j,t] = sum[m](X[b,j,m] * W_KR[m,t])
    q_R[b,h,i,2*r] = u[b,h,i,2*r] * cos(theta[i,r]) - u[b,h,i,2*r + 1] * sin(theta[i,r])
    q_R[b,h,i,2*r + 1] = u[b,h,i,2*r + 1] * cos(theta[i,r]) + u[b,h,i,2*r] * sin(theta[i,r])
    k_R[b,j,2*r] = w[b,j,2*r] * cos(theta[j,r]) - w[b,j,2*r + 1] * sin(theta[j,r])
    k_R[b,j,2*r + 1] = w[b,j,2*r + 1] * cos(theta[j,r]) + w[b,j,2*r] * sin(theta[j,r])
    s[b,h,i,j] = sum[d](q_C[b,h,i,d] * k_C[b,h,j,d]) + sum[t](q_R[b,h,i,t] * k_R[b,j,t])
    a[b,h,i,j] = softmax[j, j <= i](s[b,h,i,j] / sqrt(D + 2*R))
    o[b,h,i,d] = sum[j](a[b,h,i,j] * v_C[b,h,j,d])
    Y[b,i,m] = sum[h, d](o[b,h,i,d] * W_O[h,d,m])
    """,
    title="Multi-head latent attention: keys and values from one latent, rotary parts beside them",
    source="DeepSeek-AI 2024, DeepSeek-V2, eq. 9-11 and 14-19, queries not compressed",
    typical=dict(B=4, N=512, M=1024, H=8, D=64, R=16, C=128),
)
