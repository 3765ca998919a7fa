"""Attention over sets: pooling, slots, inducing points."""

from derive.frontend.from_text import parse

gated_attention_pooling = parse(
    """
    h[B, N, D]; V, U[D, L]; w[L]
    features[b,n,l] = tanh(sum[d](h[b,n,d] * V[d,l]))
    gates[b,n,l] = sigmoid(sum[d](h[b,n,d] * U[d,l]))
    a[b,n] = softmax[n](sum[l](w[l] * features[b,n,l] * gates[b,n,l]))
    z[b,d] = sum[n](a[b,n] * h[b,n,d])
    return z, a
    """,
    title="Pooling of a bag of instances by gated attention",
    source="Ilse, Tomczak, Welling 2018, Attention-based Deep MIL, eq. 7 and 9",
    typical=dict(B=16, N=512, D=512, L=128),
)

slot_attention_step = parse(
    """
    slots[B, S, D]; x[B, N, D]; W_q, W_k, W_v[D, D]; scalar eps = 1e-8
    k[b,n,e] = sum[d](x[b,n,d] * W_k[d,e])
    v[b,n,e] = sum[d](x[b,n,d] * W_v[d,e])
    q[b,s,e] = sum[d](slots[b,s,d] * W_q[d,e])
    a[b,n,s] = softmax[s](sum[e](k[b,n,e] * q[b,s,e]) / sqrt(D)) + eps
    updates[b,s,e] = sum[n](a[b,n,s] * v[b,n,e]) / sum[m](a[b,m,s])
    return updates, a
    """,
    title="The attention of a step of slot attention: slots compete for the inputs",
    source="Locatello et al. 2020, Object-Centric Learning with Slot Attention, eq. 1-2",
    typical=dict(B=16, S=8, N=1024, D=64),
)

induced_set_attention = parse(
    """
    X[B, N, H*D]; I[M, H*D]; Q_I, K_X, V_X, Q_X, K_Y, V_Y[H*D, H*D]
    size H
    index h < H
    index d < D
    q[h,m,d] = sum[c](I[m,c] * Q_I[c,h*D + d])
    k[b,h,n,d] = sum[c](X[b,n,c] * K_X[c,h*D + d])
    v[b,h,n,d] = sum[c](X[b,n,c] * V_X[c,h*D + d])
    p[b,h,m,n] = softmax[n](sum[d](q[h,m,d] * k[b,h,n,d]) / sqrt(D))
    Y[b,m,h*D + d] = q[h,m,d] + sum[n](p[b,h,m,n] * v[b,h,n,d])
    r[b,h,n,d] = sum[c](X[b,n,c] * Q_X[c,h*D + d])
    l[b,h,m,d] = sum[c](Y[b,m,c] * K_Y[c,h*D + d])
    u[b,h,m,d] = sum[c](Y[b,m,c] * V_Y[c,h*D + d])
    g[b,h,n,m] = softmax[m](sum[d](r[b,h,n,d] * l[b,h,m,d]) / sqrt(D))
    Z[b,n,h*D + d] = r[b,h,n,d] + sum[m](g[b,h,n,m] * u[b,h,m,d])
    """,
    title="Induced set attention: a few learned points attend to a set, and the set to them",
    source="Lee et al. 2019, Set Transformer, eq. 6-10, without norms and feed-forward layers",
    typical=dict(B=16, N=512, M=32, H=4, D=32),
)
