"""Recurrences: a state carried from place to place, and its outputs."""

from derive.frontend.from_text import parse

lstm = parse(
    """
    x[B, T, D]; W_i, W_f, W_g, W_o[E, D]; U_i, U_f, U_g, U_o[E, E]; b_i, b_f, b_g, b_o[E]
    h[n,-1,e] = 0
    c[n,-1,e] = 0
    i[n,t,e] = sigmoid(sum[d](W_i[e,d] * x[n,t,d]) + sum[k](U_i[e,k] * h[n,t - 1,k]) + b_i[e])
    f[n,t,e] = sigmoid(sum[d](W_f[e,d] * x[n,t,d]) + sum[k](U_f[e,k] * h[n,t - 1,k]) + b_f[e])
    g[n,t,e] = tanh(sum[d](W_g[e,d] * x[n,t,d]) + sum[k](U_g[e,k] * h[n,t - 1,k]) + b_g[e])
    c[n,t,e] = f[n,t,e] * c[n,t - 1,e] + i[n,t,e] * g[n,t,e]
    o[n,t,e] = sigmoid(sum[d](W_o[e,d] * x[n,t,d]) + sum[k](U_o[e,k] * h[n,t - 1,k]) + b_o[e])
    h[n,t,e] = o[n,t,e] * tanh(c[n,t,e])
    """,
    title="Long short-term memory, from zeros",
    source="Hochreiter, Schmidhuber 1997; with the forget gate of Gers et al. 2000",
    typical=dict(B=32, T=128, D=256, E=256),
)

gru = parse(
    """
    x[B, T, D]; W_r, W_z, W_n[E, D]; U_r, U_z, U_n[E, E]; b_r, b_z, b_n, c_n[E]; h0[B, E]
    h[b,-1,e] = h0[b,e]
    r[b,t,e] = sigmoid(sum[d](W_r[e,d] * x[b,t,d]) + sum[k](U_r[e,k] * h[b,t - 1,k]) + b_r[e])
    z[b,t,e] = sigmoid(sum[d](W_z[e,d] * x[b,t,d]) + sum[k](U_z[e,k] * h[b,t - 1,k]) + b_z[e])
    n[b,t,e] = tanh(sum[d](W_n[e,d] * x[b,t,d]) + b_n[e]
        + r[b,t,e] * (sum[k](U_n[e,k] * h[b,t - 1,k]) + c_n[e]))
    h[b,t,e] = (1 - z[b,t,e]) * n[b,t,e] + z[b,t,e] * h[b,t - 1,e]
    """,
    title="Gated recurrent unit, its reset gate behind the product",
    source="Cho et al. 2014; as torch.nn.GRU",
    typical=dict(B=32, T=128, D=256, E=256),
)

s4d = parse(
    """
    u[B, T, D]; a[D, N] > 0; w, p, q[D, N]; skip[D]
    index t < T
    K[d,t] = 2 * sum[n](exp(-a[d,n] * t) * (p[d,n] * cos(w[d,n] * t) - q[d,n] * sin(w[d,n] * t)))
    y[b,t,d] = sum[s, s <= t](K[d,t - s] * u[b,s,d]) + skip[d] * u[b,t,d]
    """,
    title="Diagonal state space model as a convolution: poles -a + iw, residues p + iq",
    source="Gu, Goel, Gupta, Re 2022, S4D, eq. 3 and 6, discretised",
    typical=dict(B=8, T=1024, D=256, N=32),
)

selective_scan = parse(
    """
    x[B, L, D]; delta[B, L, D] > 0; A[D, N] < 0; B_in, C[B, L, N]; skip[D]
    h[b,-1,d,n] = 0
    h[b,l,d,n] = exp(delta[b,l,d] * A[d,n]) * h[b,l - 1,d,n] + delta[b,l,d] * B_in[b,l,n] * x[b,l,d]
    y[b,l,d] = sum[n](C[b,l,n] * h[b,l,d,n]) + skip[d] * x[b,l,d]
    """,
    title="Selective state space model",
    source="Gu, Dao 2023, Mamba, eq. 2 and 4, B by Euler's rule",
    typical=dict(B=4, L=1024, D=512, N=16),
)

rwkv = parse(
    """
    k, v[B, T, C]; w[C] > 0; u[C]
    m[b,-1,c] = -oo
    n[b,-1,c] = 0
    d[b,-1,c] = 0
    m[b,t,c] = max(m[b,t - 1,c] - w[c], k[b,t,c])
    e[b,t,c] = exp(m[b,t - 1,c] - w[c] - m[b,t,c])
    f[b,t,c] = exp(k[b,t,c] - m[b,t,c])
    n[b,t,c] = e[b,t,c] * n[b,t - 1,c] + f[b,t,c] * v[b,t,c]
    d[b,t,c] = e[b,t,c] * d[b,t - 1,c] + f[b,t,c]
    l[b,t,c] = max(m[b,t - 1,c], u[c] + k[b,t,c])
    g[b,t,c] = exp(m[b,t - 1,c] - l[b,t,c])
    h[b,t,c] = exp(u[c] + k[b,t,c] - l[b,t,c])
    y[b,t,c] = ((g[b,t,c] * n[b,t - 1,c] + h[b,t,c] * v[b,t,c])
        / (g[b,t,c] * d[b,t - 1,c] + h[b,t,c]))
    """,
    title="Time mixing: averages of the values so far, the newest apart, with a running maximum",
    source="Peng et al. 2023, RWKV, eq. 16, in the stable form of its appendix",
    typical=dict(B=8, T=512, C=512),
)

delta_net = parse(
    """
    q, k[B, H, T, D]; v[B, H, T, E]; beta[B, H, T]
    S[b,h,-1,d,e] = 0
    u[b,h,t,e] = beta[b,h,t] * (v[b,h,t,e] - sum[d](S[b,h,t - 1,d,e] * k[b,h,t,d]))
    S[b,h,t,d,e] = S[b,h,t - 1,d,e] + k[b,h,t,d] * u[b,h,t,e]
    o[b,h,t,e] = sum[d](S[b,h,t,d,e] * q[b,h,t,d])
    """,
    title="The delta rule: each key has its old value taken off the state and the new one put on",
    source="Schlag, Irie, Schmidhuber 2021, eq. 24; Yang et al. 2024, DeltaNet",
    typical=dict(B=4, H=4, T=512, D=64, E=64),
)

mamba2 = parse(
    """
    x[B, T, G, P]; delta[B, T, G] > 0; A[G] < 0; B_in, C[B, T, N]; skip[G]
    h[b,-1,g,p,n] = 0
    h[b,t,g,p,n] = (exp(delta[b,t,g] * A[g]) * h[b,t - 1,g,p,n]
        + delta[b,t,g] * B_in[b,t,n] * x[b,t,g,p])
    y[b,t,g,p] = sum[n](C[b,t,n] * h[b,t,g,p,n]) + skip[g] * x[b,t,g,p]
    """,
    title="State space model whose decay is one number a head and place",
    source="Dao, Gu 2024, Mamba-2, eq. 1 and section 7, B by Euler's rule",
    typical=dict(B=4, T=1024, G=8, P=64, N=64),
)

gated_linear_attention = parse(
    """
    q, k[B, H, T, D]; v[B, H, T, E]; 0 <= alpha[B, H, T, D] < 1
    S[b,h,-1,d,e] = 0
    S[b,h,t,d,e] = alpha[b,h,t,d] * S[b,h,t - 1,d,e] + k[b,h,t,d] * v[b,h,t,e]
    o[b,h,t,e] = sum[d](q[b,h,t,d] * S[b,h,t,d,e])
    """,
    title="Linear attention whose state fades row by row",
    source="Yang et al. 2024, Gated Linear Attention, eq. 3",
    typical=dict(B=4, H=4, T=1024, D=64, E=64),
)
