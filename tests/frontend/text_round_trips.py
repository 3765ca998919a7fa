"""Texts in canonical form: `show(parse(text)) == text` for each of them."""

from __future__ import annotations

ROUND_TRIPS: tuple[str, ...] = (
    """\
X[B, S, H, D]; W_Q, W_K, W_V[H, D, D]; A_K, A_V[S, S, H, D]
q[b,i,h,e] = sum[d](X[b,i,h,d] * W_Q[h,d,e])
k[b,j,h,e] = sum[d](X[b,j,h,d] * W_K[h,d,e])
v[b,j,h,e] = sum[d](X[b,j,h,d] * W_V[h,d,e])
alpha[b,i,j,h] = softmax[j](sum[e](q[b,i,h,e] * (k[b,j,h,e] + A_K[i,j,h,e])) / sqrt(D))
z[b,i,h,e] = sum[j](alpha[b,i,j,h] * (v[b,j,h,e] + A_V[i,j,h,e]))""",
    "A[N, K]; B[K, M]\nC[i,j] = sum[k](A[i,k] * B[k,j])",
    "A[N, N]\nt = sum[i](A[i,i])",
    "x[N]\ny[i] = x[i]",
    "x, y[N]\nz[i,j] = x[i] * y[j]",
    "x[N]; w[K]\nindex t < N - K + 1\ny[t] = sum[k](x[t + k] * w[k])",
    "x[N]; w[K]\nindex t < (N - K)//2 + 1\ny[t] = sum[k](x[2*t + k] * w[k])",
    "a[B, H, D]; W[H*D, M]\ny[b,m] = sum[h, d](a[b,h,d] * W[h*D + d,m])",
    "a[B, H, D]\ny[b,h*D + d] = a[b,h,d]\nz[b,m] = y[b,m]**2",
    "int tok[B, S] < V; E[V, D]\ne[b,s,d] = E[tok[b,s],d]",
    "int src, dst[M] < N; x[N]\nindex n < N\ny[n] = sum[m](x[src[m]] * [dst[m] == n])",
    "bool m[B, S]; x[B, S]\ny[b] = mean[s, m[b,s]](x[b,s])",
    "bool m[B, S, S]; q, k[B, S, D]\n"
    "a[b,i,j] = softmax[j, m[b,i,j]](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))",
    "x[N]; scalar eps = 1e-5, tau\ny[i] = x[i] / sqrt(mean[j](x[j]**2) + eps) * tau",
    "x[N]\nsize W = 3\nindex w < W\ny[w] = x[w]",
    "x[N]\nsize W\nindex w < W\ny[w] = x[w]",
    "x[N] > 0\ny[i] = log(x[i])",
    "x[N] >= 0; 0 <= u[N] < 1; v[N] < 1\ny[i] = sqrt(x[i]) + u[i] - v[i]",
    "x[N]\nindex i < N\ny[i] = sum[j, j <= i](x[j])",
    "x, w[N]\ny[i] = sum[j, j < i](x[j]) * w[i]",
    "x[N]\nindex i < N\ny[i] = prod[j, i < j](x[j])",
    "x[N, N]\ny = sum[i, j, i != j](x[i,j])",
    "x[N]\ny[i] = cumsum[i](x[i])",
    "x[N, C]\nl[n,c] = -log_softmax[c](x[n,c])\nloss = mean[n, c](l[n,c])\nreturn loss, l",
    "x[N, C]\ny[n] = argmax[c](x[n,c])",
    "x[N, C]\na[n] = max[c](x[n,c])\nb[n] = min[c](x[n,c])\nreturn a, b",
    "x[N, C]\nv[n] = var[c](x[n,c])\nw[n] = var[c](x[n,c], correction=1)\nreturn v, w",
    "x[N, C]\ny[n] = logsumexp[c](x[n,c])",
    "x[N]\ny[i] = where(x[i] > 0, x[i], exp(x[i]) - 1)",
    "x[N, N]\ny[i,j] = softmax[j](where(j <= i, x[i,j], -oo))",
    "x[T]\nindex t < T\nindex k < 3\ny[t] = sum[k](x[t - k] * [0 <= t - k < T])",
    "x[T]\nindex t < T\ny[t] = x[t - 1] * [t >= 1]",
    "bool m[N, N]; x[N]\ny[i] = sum[j](x[j] * [m[i,j] and not (i == j)])",
    "int seg[N] < G; x[N]\nsize G\nindex g < G\ny[g] = sum[n](x[n] * [seg[n] == g])",
    "x[N]\ny[i] = x[i] * [x[i] > 0]",
    "x[N]\nindex i < 2*N\ny[i] = x[i//2]",
    "x[N]\nindex i < 2*N\ny[i] = x[i%N]",
    "R[2*C + 1, D]\nsize S\nindex i, j < S\ny[i,j,d] = R[clip(j - i, -C, C) + C,d]",
    "x[N, D]\ny[d] = x[0,d]",
    "x[N]\ny[i] = 2 * x[i] - 3 / 4",
    "x[N]\ny[i] = 0.5 * x[i] * (1 + tanh(sqrt(2 / pi) * (x[i] + 0.044715 * x[i]**3)))",
    "x, y, z[N]\nw[i] = x[i] - (y[i] - z[i]) - y[i] * (x[i] * z[i])",
    "x, y, z[N]\nw[i] = x[i] / y[i] / z[i] - x[i] / (y[i] * z[i])",
    "x[N]\ny[i] = -x[i] + 1 / x[i] - 2 * x[i]**2 - (-x[i])**3 + 2**x[i]",
    "x[N]\ny[i] = max(x[i], 0) + min(1, x[i], 2) + abs(x[i]) + sign(x[i]) + floor(x[i])",
    "x[N]\ny[i] = sigmoid(x[i]) + relu(x[i]) + leaky_relu(x[i], 0.2) + elu(x[i]) + gelu(x[i])",
    "x[N]\ny[i] = silu(x[i]) + softplus(x[i]) + erf(x[i]) + sin(x[i]) * cos(x[i])",
    "x[N]; slope[H]\nb[h,i,j] = slope[h] * (j - i) + 0 * x[i] * x[j]",
    "x[N]\ny[i] = x[i] * N / (i + 1)",
    "x[N]\ny[i] = where(i == 0 or i == N - 1, 0, x[i])",
    "x[N]\nindex i < N\ny[i] = sum[j](x[j] * [i == j])",
    "A[N, N]\ny = sum[i](A[i,i] * sum[j](A[i,j] * A[j,i]))",
    "scalar a, b\nc = a * b + 1",
    "S, N, E, I, O, Q, beta, gamma[K]\ny[k] = S[k] + N[k] * E[k] / I[k] - O[k] * Q[k] + beta[k]"
    " * gamma[k]",
    "x[N - 1, (M - 2)//3 + 1, 4, K%2 + 1]; y[N, M, K]\nz[a,b,c,d] = x[a,b,c,d]",
    "var[C]; x[N, C]\ny[n,c] = x[n,c] / sqrt(var[c]) + var[k](x[n,k])",
    "x[N]\ny[i] = x[i]**(i + 1) + (x[i] + 1)**2 + (2**x[i])**2 + 2**(-x[i]) + sqrt(x[i] + 1)",
)
