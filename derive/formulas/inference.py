"""Hidden states inferred from observations along time."""

from derive.frontend.from_text import parse

kalman_filter_step = parse(
    """
    x[B, D]; P[B, D, D]; z[B, M]; A, Q[D, D]; H[M, D]; R[M, M]
    m[b,i] = sum[j](A[i,j] * x[b,j])
    C[b,i,j] = sum[k, l](A[i,k] * P[b,k,l] * A[j,l]) + Q[i,j]
    S[b,p,q] = sum[i, j](H[p,i] * C[b,i,j] * H[q,j]) + R[p,q]
    K[b,i,p] = sum[j, q](C[b,i,j] * H[q,j] * inverse[q, p](S[b,q,p]))
    x_new[b,i] = m[b,i] + sum[p](K[b,i,p] * (z[b,p] - sum[j](H[p,j] * m[b,j])))
    P_new[b,i,j] = C[b,i,j] - sum[p, k](K[b,i,p] * H[p,k] * C[b,k,j])
    return x_new, P_new
    """,
    title="A step of the Kalman filter, prediction and update, for many tracks",
    source="Kalman 1960; Simon 2006, Optimal State Estimation, section 5.1",
    typical=dict(B=4096, D=6, M=3),
)

forward_algorithm = parse(
    """
    A[K, K]; E[K, V]; p[K]; int o[B, T] < V
    alpha[b,0,j] = p[j] + E[j,o[b,0]]
    alpha[b,t,j] = logsumexp[i](alpha[b,t - 1,i] + A[i,j]) + E[j,o[b,t]]
    likelihood[b] = logsumexp[j](alpha[b,T - 1,j])
    """,
    title="Likelihood of observations under a hidden Markov model, all in logarithms",
    source="Baum et al. 1970; Rabiner 1989, A Tutorial on Hidden Markov Models, eq. 19-21",
    typical=dict(B=32, T=256, K=64, V=128),
)

viterbi = parse(
    """
    A[K, K]; E[K, V]; p[K]; int o[B, T] < V
    m[b,0,j] = p[j] + E[j,o[b,0]]
    m[b,t,j] = max[i](m[b,t - 1,i] + A[i,j]) + E[j,o[b,t]]
    z[b,T - 1] = argmax[i](m[b,T - 1,i])
    z[b,t] = argmax[i](m[b,t,i] + A[i,z[b,t + 1]])
    score[b] = max[j](m[b,T - 1,j])
    return score, z
    """,
    title="The most likely path through a hidden Markov model, and its logarithmic probability",
    source="Viterbi 1967; Rabiner 1989, A Tutorial on Hidden Markov Models, eq. 32-35",
    typical=dict(B=32, T=256, K=64, V=128),
)
