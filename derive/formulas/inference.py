"""Hidden states inferred from what is observed, along time."""

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
