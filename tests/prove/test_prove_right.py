"""Formulas written in two ways are proved equal, for all sizes."""

import pytest
from prove_cases import read_cases

from derive.compiler import to_system
from derive.frontend.from_text import parse
from derive.prove import prove

MATMUL = "A[M, K]; B, C[K, N]; x[K]"
QKV = "q[N, D]; k[M, D]; v[M, E]; index n < N; index m, o < M"
HEADS = "X[B, S, H*D]; W[H*D, E]; size D; index h < H; index d < D; size H"
X = "x[N, D]; g, c[D]; scalar eps"

# name: declarations, one way, another way
PAIRS = {
    "renamed letters": (
        MATMUL,
        "z[i,j] = sum[k](A[i,k] * B[k,j])",
        "y[m,n] = sum[l](B[l,n] * A[m,l])",
    ),
    "distribution": (
        MATMUL,
        "z[i,j] = sum[k](A[i,k] * (B[k,j] + C[k,j]))",
        "z[i,j] = sum[k](A[i,k] * B[k,j]) + sum[k](C[k,j] * A[i,k])",
    ),
    "association": (
        "A[M, K]; B[K, L]; C[L, N]",
        "z[i,j] = sum[l](sum[k](A[i,k] * B[k,l]) * C[l,j])",
        "z[i,j] = sum[k](A[i,k] * sum[l](B[k,l] * C[l,j]))",
    ),
    "a product of sums": (
        "a, b[N]",
        "z = sum[i](a[i]) * sum[i](b[i])",
        "z = sum[i, j](a[i] * b[j])",
    ),
    "the square of a sum": (
        "a[N]",
        "z = sum[i](a[i])**2",
        "z = sum[i, j](a[j] * a[i])",
    ),
    "a letter that does not occur": (
        "a[N]; b[M]; index j < M",
        "z = sum[i, j](a[i])",
        "z = M * sum[i](a[i])",
    ),
    "factored distances": (
        "x[N, D]; y[M, D]",
        "z[i,j] = sum[d]((x[i,d] - y[j,d])**2)",
        "z[i,j] = sum[d](x[i,d]**2) + sum[d](y[j,d]**2) - 2*sum[d](x[i,d]*y[j,d])",
    ),
    "folded weights": (
        "x[N, D]; A, B[D, H]",
        "q[n,h] = sum[d](x[n,d] * A[d,h])\nk[m,h] = sum[d](x[m,d] * B[d,h])\n"
        "z[n,m] = sum[h](q[n,h] * k[m,h])",
        "w[d,e] = sum[h](A[d,h] * B[e,h])\nz[n,m] = sum[d, e](x[n,d] * w[d,e] * x[m,e])",
    ),
    "max-subtracted softmax": (
        QKV,
        "z[n,e] = sum[m](softmax[m](sum[d](q[n,d] * k[m,d]) / sqrt(D)) * v[m,e])",
        "s[n,m] = sum[d](q[n,d] / sqrt(D) * k[m,d])\np[n,m] = exp(s[n,m] - max[o](s[n,o]))\n"
        "z[n,e] = sum[m](p[n,m] * v[m,e]) / sum[m](p[n,m])",
    ),
    "softmax is blind to a shift": (
        QKV,
        "p[n,m] = softmax[m](sum[d](q[n,d] * k[m,d]))",
        "p[n,m] = softmax[m](sum[d](q[n,d] * (k[m,d] + 3*q[n,d]) + q[n,d]))",
    ),
    "the bias of keys has no effect": (
        "q[N, D]; k[M, D]; c[D]",
        "p[n,m] = softmax[m](sum[d](q[n,d] * (k[m,d] + c[d])))",
        "p[n,m] = softmax[m](sum[d](q[n,d] * k[m,d]))",
    ),
    "causal by condition or by -oo": (
        "s[N, N]; v[N, E]",
        "z[i,e] = sum[j](softmax[j, j <= i](s[i,j]) * v[j,e])",
        "p[i,j] = softmax[j](where(i < j, -oo, s[i,j]))\nz[i,e] = sum[j](p[i,j] * v[j,e])",
    ),
    "causal by a factor": (
        "s[N, N]; v[N, E]",
        "z[i,e] = sum[j](softmax[j, j <= i](s[i,j]) * v[j,e])",
        "w[i,j] = [j <= i] * exp(s[i,j])\nz[i,e] = sum[j](w[i,j] * v[j,e]) / sum[j](w[i,j])",
    ),
    "a mask as a condition or as -oo": (
        "s[N, M]; v[M, E]; bool m[N, M]",
        "z[i,e] = sum[j](softmax[j, m[i,j]](s[i,j]) * v[j,e])",
        "a[i,j] = where(not m[i,j], -oo, s[i,j])\n"
        "p[i,j] = exp(a[i,j] - max[k](a[i,k]))\nz[i,e] = sum[j](p[i,j] / sum[k](p[i,k]) * v[j,e])",
    ),
    "an added mask of zeros and -oo": (
        "s[N, M]; bool m[M]",
        "p[i,j] = softmax[j](where(m[j], s[i,j], -oo))",
        "b[j] = where(m[j], 0, -oo)\np[i,j] = softmax[j](s[i,j] + b[j])",
    ),
    "two masks": (
        "s[N, N]; bool m[N]",
        "p[i,j] = softmax[j, j <= i and m[j]](s[i,j])",
        "a[i,j] = where(m[j], s[i,j], -oo)\np[i,j] = softmax[j](where(j > i, -oo, a[i,j]))",
    ),
    "merged heads into a projection": (
        "p[B, H, S, T]; v[B, T, H, D]; W[H*D, E]",
        "z[b,i,e] = sum[h, d, j](p[b,h,i,j] * v[b,j,h,d] * W[h*D + d, e])",
        "index x < H*D\nc[b,i,x] = sum[j](p[b, x // D, i, j] * v[b, j, x // D, x % D])\n"
        "z[b,i,e] = sum[x](c[b,i,x] * W[x,e])",
    ),
    "heads split from a projection": (
        HEADS,
        "z[b,i,e] = sum[h, d](X[b, i, h*D + d] * W[h*D + d, e])",
        "index x < H*D\nz[b,i,e] = sum[x](X[b,i,x] * W[x,e])",
    ),
    "heads written to merged places": (
        "p[H, S, T]; v[H, T, D]",
        "z[i, h*D + d] = sum[j](p[h,i,j] * v[h,j,d])",
        "index x < H*D\nz[i,x] = sum[j](p[x // D, i, j] * v[x // D, j, x % D])",
    ),
    "a relative shift": (
        "q[S, D]; R[2*S - 1, D]; index i, j < S",
        "z[i,j] = sum[d](q[i,d] * R[j - i + S - 1, d])",
        "index t < 2*S - 1\nu[i,t] = sum[d](q[i,d] * R[t,d])\nz[i,j] = u[i, j - i + S - 1]",
    ),
    "mean as a sum": (
        X,
        "z[n] = mean[d](x[n,d] * g[d])",
        "z[n] = sum[d](x[n,d] * g[d]) / D",
    ),
    "two forms of a variance": (
        X,
        "z[n] = var[d](x[n,d])",
        "u[n] = mean[d](x[n,d])\nz[n] = mean[d](x[n,d]**2) - u[n]**2",
    ),
    "a variance by its own mean": (
        X,
        "z[n] = var[d](x[n,d], correction=1)",
        "u[n] = mean[d](x[n,d])\nz[n] = sum[d]((x[n,d] - u[n])**2) / (D - 1)",
    ),
    "layer norm": (
        X,
        "z[n,d] = (x[n,d] - mean[e](x[n,e])) / sqrt(var[e](x[n,e]) + eps) * g[d] + c[d]",
        "u[n] = sum[d](x[n,d]) / D\ny[n,d] = x[n,d] - u[n]\n"
        "r[n] = (mean[d](y[n,d]**2) + eps)**(-1/2)\nz[n,d] = c[d] + g[d] * (y[n,d] * r[n])",
    ),
    "rms norm": (
        X,
        "z[n,d] = x[n,d] / sqrt(mean[e](x[n,e]**2) + eps) * g[d]",
        "z[n,d] = g[d] * x[n,d] * (sum[e](x[n,e] * x[n,e]) / D + eps)**(-1/2)",
    ),
    "logsumexp": (
        "s[N, M]",
        "z[i] = logsumexp[j](s[i,j])",
        "u[i] = max[j](s[i,j])\nz[i] = u[i] + log(sum[j](exp(s[i,j] - u[i])))",
    ),
    "log of a softmax": (
        "s[N, M]",
        "z[i,j] = log_softmax[j](s[i,j])",
        "z[i,j] = log(softmax[j](s[i,j]))",
    ),
    "log_softmax by logsumexp": (
        "s[N, M]",
        "z[i,j] = log_softmax[j](s[i,j])",
        "z[i,j] = s[i,j] - logsumexp[k](s[i,k])",
    ),
    "exp of a log_softmax": (
        "s[N, M]",
        "z[i,j] = exp(log_softmax[j](s[i,j]))",
        "z[i,j] = softmax[j](s[i,j])",
    ),
    "log of a mean of exps": (
        "s[N, M]",
        "z[i] = log(mean[j](exp(s[i,j])))",
        "z[i] = logsumexp[j](s[i,j]) - log(M)",
    ),
    "rotary halves": (
        "x[S, D, 2]; cs, sn[S, D]",
        "index r < 2\nz[s,d,r] = x[s,d,r] * cs[s,d] + where(r == 0, -x[s,d,1], x[s,d,0]) * sn[s,d]",
        "index r < 2\ny[s,d,r] = where(r < 1, -x[s, d, 1 - r], x[s, d, 1 - r])\n"
        "z[s,d,r] = sn[s,d] * y[s,d,r] + cs[s,d] * x[s,d,r]",
    ),
    "grouped keys": (
        "q[B, H*G, S, D]; k[B, H, T, D]; size G; index g < G; index h < H",
        "index x < H*G\ns[b,x,i,j] = sum[d](q[b,x,i,d] * k[b, x // G, j, d])",
        "index x < H*G\nr[b,h,g,i,j] = sum[d](q[b, h*G + g, i, d] * k[b,h,j,d])\n"
        "s[b,x,i,j] = r[b, x // G, x % G, i, j]",
    ),
    "pairs below the diagonal": (
        "x[N]",
        "z = sum[i, j, i < j](x[i] * x[j])",
        "z = (sum[i](x[i])**2 - sum[i](x[i]**2)) / 2",
    ),
    "all but the diagonal": (
        "A[N, N]; x[N]",
        "z[i] = sum[j, j != i](A[i,j] * x[j])",
        "z[i] = sum[j](A[i,j] * x[j]) - A[i,i] * x[i]",
    ),
    "a delta is sifted": (
        "A[N, N]; x[N]; index i < N",
        "z[i] = sum[j, k](delta(i, j) * A[j,k] * x[k])",
        "z[i] = sum[k](A[i,k] * x[k])",
    ),
    "a one-hot lookup": (
        "E[V, D]; int tok[S] < V",
        "z[s,d] = E[tok[s], d]",
        "z[s,d] = sum[v]([v == tok[s]] * E[v,d])",
    ),
    "a shifted range": (
        "x[N]; index j < N",
        "z = sum[j, j >= 1](x[j] * x[j - 1])",
        "index k < N - 1\nz = sum[k](x[k + 1] * x[k])",
    ),
    "a cumulative sum": (
        "x[N]; index i, j < N",
        "z[i] = cumsum[i](x[i])",
        "z[i] = sum[j, j <= i](x[j])",
    ),
    "sigmoid two ways": (
        "x[N]",
        "z[i] = sigmoid(x[i]) * x[i]",
        "z[i] = x[i] * exp(x[i]) / (1 + exp(x[i])) + silu(x[i]) - x[i] / (exp(-x[i]) + 1)",
    ),
    "tanh by sigmoid": ("x[N]", "z[i] = tanh(x[i])", "z[i] = 2*sigmoid(2*x[i]) - 1"),
    "tanh by exps": (
        "x[N]",
        "z[i] = tanh(x[i])",
        "z[i] = (exp(x[i]) - exp(-x[i])) / (exp(x[i]) + exp(-x[i]))",
    ),
    "softplus": ("x[N]", "z[i] = softplus(x[i])", "z[i] = x[i] + log(1 + exp(-x[i]))"),
    "relu three ways": (
        "x[N]",
        "z[i] = relu(x[i]) + relu(x[i])",
        "z[i] = max(x[i], 0) + where(x[i] > 0, x[i], 0)",
    ),
    "elu plus one": (
        "x[N]",
        "z[i] = elu(x[i]) + 1",
        "z[i] = where(x[i] > 0, x[i] + 1, exp(x[i]))",
    ),
    "min and max": (
        "x, y[N]",
        "z[i] = max(x[i], y[i]) + min(y[i], x[i])",
        "z[i] = x[i] + y[i]",
    ),
    "a max of what is shifted and scaled": (
        "s[N, M]; t[N]",
        "z[i] = max[j](s[i,j] / sqrt(M) + t[i])",
        "z[i] = t[i] + max[j](s[i,j]) / sqrt(M)",
    ),
    "linear attention": (
        "q[N, D]; k[M, D]; v[M, E]",
        "z[i,e] = sum[j](sum[d](q[i,d] * k[j,d]) * v[j,e])",
        "w[d,e] = sum[j](k[j,d] * v[j,e])\nz[i,e] = sum[d](q[i,d] * w[d,e])",
    ),
    "linear attention over its normaliser": (
        "q[N, D]; k[M, D]; v[M, E]",
        "z[i,e] = sum[j, d](q[i,d] * k[j,d] * v[j,e]) / sum[j, d](q[i,d] * k[j,d])",
        "w[d,e] = sum[j](k[j,d] * v[j,e])\nu[d] = sum[j](k[j,d])\n"
        "z[i,e] = sum[d](q[i,d] * w[d,e]) / sum[d](q[i,d] * u[d])",
    ),
    "cosines": (
        "x[N, D]; y[M, D]",
        "z[i,j] = sum[d](x[i,d]*y[j,d]) / (sqrt(sum[d](x[i,d]**2)) * sqrt(sum[d](y[j,d]**2)))",
        "a[i,d] = x[i,d] / sqrt(sum[e](x[i,e]**2))\nc[j,d] = y[j,d] / sqrt(sum[e](y[j,e]**2))\n"
        "z[i,j] = sum[d](a[i,d] * c[j,d])",
    ),
    "a gaussian kernel": (
        "x[N, D]; y[M, D]; scalar w",
        "z[i,j] = exp(-sum[d]((x[i,d] - y[j,d])**2) / (2 * w**2))",
        "z[i,j] = exp(sum[d](x[i,d]*y[j,d]) / w**2) * exp(-sum[d](x[i,d]**2) / (2*w**2))"
        " / exp(sum[d](y[j,d]**2) / (2*w**2))",
    ),
    "a cross entropy": (
        "s[N, C]; int t[N] < C",
        "p[n,c] = log_softmax[c](s[n,c])\nz = -mean[n](p[n, t[n]])",
        "z = mean[n](logsumexp[c](s[n,c]) - s[n, t[n]])",
    ),
    "a divergence": (
        "p, q[B, C]",
        "a[b,c] = log_softmax[c](p[b,c])\ne[b,c] = log_softmax[c](q[b,c])\n"
        "z = sum[b, c](exp(a[b,c]) * (a[b,c] - e[b,c])) / B",
        "z = mean[b](sum[c](softmax[c](p[b,c]) * (p[b,c] - q[b,c])"
        " - softmax[c](p[b,c]) * (logsumexp[f](p[b,f]) - logsumexp[f](q[b,f]))))",
    ),
    "a causal triangle of linear attention": (
        "q, k[N, D]; v[N, E]; index i, j < N",
        "z[i,e] = sum[j, j <= i](sum[d](q[i,d] * k[j,d]) * v[j,e])",
        "w[i,d,e] = cumsum[i](k[i,d] * v[i,e])\nz[i,e] = sum[d](q[i,d] * w[i,d,e])",
    ),
    "windows from both sides": (
        "x[N]; index i, j < N; size W; index w < W",
        "z[i] = sum[j, abs(i - j) <= W](x[j])",
        "z[i] = sum[j, j <= i + W and i - W <= j](x[j])",
    ),
    "a band by a max": (
        "s[N, N]; index i, j < N",
        "z[i,j] = where(i - j >= 0, s[i,j], 0) - where(i - j >= 2, s[i,j], 0)",
        "z[i,j] = [0 <= i - j <= 1] * s[i,j]",
    ),
    "mean over two letters at once": (
        "x[B, C, M, N]",
        "z[b,c] = mean[m, n](x[b,c,m,n])",
        "z[b,c] = mean[m](mean[n](x[b,c,m,n]))",
    ),
    "covariance": (
        "x[B, N, D]",
        "u[b,d] = mean[n](x[b,n,d])\n"
        "z[b,d,e] = sum[n]((x[b,n,d] - u[b,d]) * (x[b,n,e] - u[b,e])) / (N - 1)",
        "u[b,d] = mean[n](x[b,n,d])\n"
        "z[b,d,e] = (sum[n](x[b,n,d] * x[b,n,e]) - N * u[b,d] * u[b,e]) / (N - 1)",
    ),
    "half a mask and half its contrary": (
        "x, y[N]; bool m[N]",
        "z[i] = where(m[i], x[i], y[i])",
        "z[i] = [m[i]] * x[i] + [not m[i]] * y[i]",
    ),
    "where inside a function": (
        "x, y[N]; bool m[N]",
        "z[i] = exp(where(m[i], x[i], y[i])) + sin(where(m[i], x[i], 0))",
        "z[i] = where(m[i], exp(x[i]) + sin(x[i]), exp(y[i]))",
    ),
    "even and odd places": (
        "x[2*N]; index n < N; index t < 2*N",
        "z = sum[t]([t % 2 == 0] * x[t])",
        "z = sum[n](x[2*n])",
    ),
    **read_cases("right"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_it_is_proved(name):
    declared, one, other = PAIRS[name]
    systems = [to_system(parse(f"{declared}\n{text}")) for text in (one, other)]
    for code, formula in (systems, systems[::-1]):
        proof = prove(code, formula)
        assert proof is not None
        assert proof.every_size
