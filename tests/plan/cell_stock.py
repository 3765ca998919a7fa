"""Formulas that are one call of torch, in several spellings, and some that only look like it.

The rows of the cells have one of each.
"""

from derive.plan.cells import CELLS, attention

LAYER = "functional.layer_norm("
RMS = "functional.rms_norm("
LINEAR = "functional.linear("
ADDMM = "torch.addmm("
BADDBMM = "torch.baddbmm("
ENTROPY = "functional.cross_entropy("
CDIST = "torch.cdist("
SEGMENTS = ".index_add("
LEAKY = "functional.leaky_relu("

NORM = "x[B, S, D]; gamma, beta[D]\n"
LINES = "x[N, D]; W[O, D]; bias[O]\n"
SUMS = "A[N, K]; B[K, M]; C[N, M]\n"
BATCHES = "A[B, N, K]; C[B, K, M]; D[B, N, M]\n"
LOSS = "x[N, C]; p[N, C]\n"
PAIRS = "q, k[N, D]; scalar t\ns[i,j] = sum[d](q[i,d] * k[j,d]) / t\n"
POINTS = "x[N, D]; y[M, D]\n"
PARTS = "size G\nx[N, D]; int seg[N] < G; index g < G\n"

MORE = {
    LAYER: (
        NORM + "mu[b,s] = sum[d](x[b,s,d]) / D\n"
        "v[b,s] = sum[d]((x[b,s,d] - mu[b,s])**2) / D\n"
        "y[b,s,d] = beta[d] + (x[b,s,d] - mu[b,s]) * (v[b,s] + 1e-5)**(-1/2) * gamma[d]",
        NORM + "mu[b,s] = mean[d](x[b,s,d])\nv[b,s] = mean[d](x[b,s,d]**2) - mu[b,s]**2\n"
        "y[b,s,d] = gamma[d] * (x[b,s,d] - mu[b,s]) / sqrt(v[b,s] + 1/100000) + beta[d]",
        NORM + "c[b,s,d] = x[b,s,d] - sum[e](x[b,s,e]) / D\n"
        "y[b,s,d] = gamma[d] * c[b,s,d] / sqrt(mean[e](c[b,s,e]**2) + 1e-5) + beta[d]",
        NORM + "r[b,s] = 1 / sqrt(var[e](x[b,s,e]) + 1e-5)\n"
        "y[b,s,d] = gamma[d] * (x[b,s,d] * r[b,s] - mean[e](x[b,s,e]) * r[b,s]) + beta[d]",
        "x[N, D]; scalar eps = 1e-3\n"
        "y[n,d] = -(x[n,d] - mean[e](x[n,e])) / sqrt(var[e](x[n,e]) + eps)",
        "x[N, D]; g[N]\ny[n,d] = 2 * g[n] * (x[n,d] - mean[m](x[m,d])) / sqrt(var[m](x[m,d]) + 1)",
        "x[B, G, P, M]; gamma, beta[G, P]\ny[b,g,p,m] = beta[g,p] + gamma[g,p]"
        " * (x[b,g,p,m] - mean[q,n](x[b,g,q,n])) / sqrt(var[q,n](x[b,g,q,n]) + 1e-5)",
    ),
    RMS: (
        "x[N, D]; g[D]\ny[n,d] = x[n,d] * (sum[e](x[n,e] * x[n,e]) / D + 1e-6)**(-1/2) * g[d]",
        "x[N, D]; g[D]\nr[n] = 1 / sqrt(sum[e](x[n,e]**2) / D + 1e-6)\n"
        "y[n,d] = r[n] * x[n,d] * (1 + g[d])",
        "x[N, D]; scalar eps = 1e-3\ny[n,d] = x[n,d] / sqrt(eps + mean[e](x[n,e]**2))",
    ),
    LINEAR: (
        LINES + "h[n,o] = sum[d](x[n,d] * W[o,d])\ny[n,o] = bias[o] + h[n,o]",
        "x[B, S, D]; W[D, O]; bias[O]\ny[b,s,o] = bias[o] + sum[d](x[b,s,d] * W[d,o])",
        "x[B, S, D]; W[D, O]; bias[O]\ny[o,b,s] = relu(bias[o] + sum[d](x[b,s,d] * W[d,o]))",
    ),
    ADDMM: (
        SUMS + "y[n,m] = 3 * sum[k](A[n,k] * B[k,m]) - 2 * C[n,m]",
        SUMS + "P[m,n] = sum[k](B[k,m] * A[n,k])\ny[m,n] = C[n,m] / 4 - P[m,n]",
        "x[N, D]; W[O, D]; bias[N]\ny[n,o] = bias[n] - sum[d](W[o,d] * x[n,d]) * D",
    ),
    BADDBMM: (
        BATCHES + "y[n,b,m] = sum[k](C[b,k,m] * A[b,n,k]) / 2 - D[b,n,m]",
        "A[N, B, K]; C[K, B, M]; D[N, M]\ny[b,n,m] = 2 * D[n,m] - sum[k](A[n,b,k] * C[k,b,m])",
    ),
    ENTROPY: (
        LOSS + "L = sum[n,c](p[n,c] * log(exp(x[n,c]) / sum[k](exp(x[n,k])))) * (-1)",
        LOSS + "l[n,c] = x[n,c] - logsumexp[k](x[n,k])\nL = mean[n](sum[c](-p[n,c] * l[n,c]))",
        LOSS + "L[n] = -sum[c](log(softmax[c](x[n,c])) * p[n,c])",
        "x[N, C]; int p[N, C]\nL = -mean[n](sum[c](p[n,c] * log_softmax[c](x[n,c])))",
        PAIRS + "L = mean[i](logsumexp[j](s[i,j]) - s[i,i])",
        PAIRS + "L = sum[i](log(sum[j](exp(s[i,j]))) - s[i,i])\nreturn L, s",
        PAIRS + "L[j] = logsumexp[i](s[i,j]) - s[j,j]",
        "x[N, N]\nL[i] = logsumexp[j](x[i,j] - mean[k](x[k,j])) - x[i,i] + mean[k](x[k,i])",
    ),
    CDIST: (
        POINTS + "s[n,m] = exp(-sum[d]((y[m,d] - x[n,d])**2) / 2)",
        POINTS + "s[m,n] = sum[d]((x[n,d] - y[m,d]) * (x[n,d] - y[m,d]))",
        "x[B, N, D]; y[B, M, D]\ns[b,n,m] = sum[d](abs(x[b,n,d] - y[b,m,d])**2)**(1/2)",
        "x[N, D]; index m < N\ns[n,m] = sum[d]((x[n,d] - x[m,d])**2)",
    ),
    SEGMENTS: (
        PARTS + "s[g,d] = sum[n]([g == seg[n]] * x[n,d])",
        PARTS + "s[g,d] = sum[n](where(seg[n] == g, x[n,d], 0))",
        PARTS + "o[g,n] = delta(seg[n], g)\ns[d,g] = sum[n](o[g,n] * x[n,d])",
        PARTS + "s[g,d] = mean[n, seg[n] == g](x[n,d])",
        "size G\nx[B, N, D]; w[N]; int seg[N] < G; index g < G\n"
        "s[b,g,d] = sum[n, seg[n] == g](w[n] * x[b,n,d])",
        "size G\nx[N]; int seg[N] < G; index g < G\ns[g] = sum[n, seg[n] == g](x[n])",
    ),
    LEAKY: (
        "x[N, M]\nz[n,m] = where(x[n,m] > 0, x[n,m], x[n,m] / 5)",
        "x[N, M]; scalar c = 0.1\nz[n,m] = where(x[n,m] >= 0, x[n,m], c * x[n,m])",
    ),
}

ROWS = {
    f"{row.call.removeprefix('torch.nn.')}(": row for row in CELLS if row not in attention.CELLS
}
FOUND = {call: (row.computes, *MORE.get(call, ())) for call, row in ROWS.items()}
SPELLINGS = [(call, text) for call, texts in FOUND.items() for text in texts]

LOOK_ALIKES = {
    LAYER: (
        # eps outside the root, another's mean, the wrong index, a mean square
        "x[B, D]\ny[b,d] = (x[b,d] - mean[c](x[b,c])) / (sqrt(var[c](x[b,c])) + 1e-5)",
        "x, z[B, D]\ny[b,d] = (x[b,d] - mean[c](z[b,c])) / sqrt(var[c](x[b,c]) + 1e-5)",
        "x, z[B, D]\ny[b,d] = (x[b,d] - mean[c](x[b,c])) / sqrt(var[c](z[b,c]) + 1e-5)",
        "x[D, D]\ny[b,d] = (x[b,d] - mean[c](x[c,d])) / sqrt(var[c](x[b,c]) + 1e-5)",
        "x[B, D]\ny[b,d] = (x[b,d] - mean[c](x[b,c])) / sqrt(mean[c](x[b,c]**2) + 1e-5)",
        "x[B, D]\ny[b,d] = (x[b,d] + mean[c](x[b,c])) / sqrt(var[c](x[b,c]) + 1e-5)",
        "x[B, D]\ny[b,d] = (x[b,d] - mean[c](x[b,c])) / (var[c](x[b,c]) + 1e-5)",
        "x[B, D]; e[B]\ny[b,d] = (x[b,d] - mean[c](x[b,c])) / sqrt(var[c](x[b,c]) + e[b])",
        "x[B, D]\ny[b,d] = (x[b,d] - mean[c](x[b,c])) / sqrt(var[c](x[b,c]) + 1/D)",
        "x[B, D]; bool m[D]\ny[b,d] = (x[b,d] - mean[c, m[c]](x[b,c]))"
        " / sqrt(var[c, m[c]](x[b,c]) + 1e-5)",
        "x[B, S, D]\ny[b,s,d] = (x[b,s,d] - mean[e](x[b,s,e])) / sqrt(var[t,e](x[b,t,e]) + 1e-5)",
    ),
    RMS: (
        "x[B, D]\ny[b,d] = x[b,d] / sqrt(sum[c](x[b,c]**2) + 1e-6)",
        "x[B, D]\ny[b,d] = x[b,d] / (sqrt(mean[c](x[b,c]**2)) + 1e-6)",
        "x, z[B, D]\ny[b,d] = z[b,d] / sqrt(mean[c](x[b,c]**2) + 1e-6)",
        "x[B, D]\ny[b,d] = x[b,d]**2 / sqrt(mean[c](x[b,c]**2) + 1e-6)",
        "x[D, D]\ny[b,d] = x[d,b] / sqrt(mean[c](x[b,c]**2) + 1e-6)",
        "x[B, D]\ny[b,d] = x[b,d] / sqrt(mean[a](x[a,d]**2) + 1e-6)",  # not side by side: slower
    ),
    LINEAR: (
        LINES + "h[n,o] = sum[d](W[o,d] * x[n,d])\ny[n,o] = h[n,o] + bias[o]\nreturn h, y",
        LINES + "y[n,o] = sum[d](W[o,d] * x[n,d])",
        "x[N, D]; W[O, D]; scalar c\ny[n,o] = sum[d](W[o,d] * x[n,d]) + c",
        "x[N, D]; w[D]; bias[N]\ny[n] = sum[d](w[d] * x[n,d] * bias[n])",
    ),
    ADDMM: (
        SUMS + "P[n,m] = sum[k](A[n,k] * B[k,m])\ny[n,m] = C[n,m] + P[n,m]\nreturn y, P",
        SUMS + "y[n,m] = C[n,m] + max[k](A[n,k] * B[k,m])",
        "A, B, C[N, M]\ny[n,m] = C[n,m] + A[n,m] * B[n,m]",
    ),
    BADDBMM: (BATCHES + "y[n,m] = sum[b](D[b,n,m]) + sum[b,k](A[b,n,k] * C[b,k,m])",),
    LEAKY: (
        "x[N, M]; c[N]\nz[n,m] = where(x[n,m] > 0, x[n,m], c[n] * x[n,m])",
        "x[N, M]; scalar c\nz[n,m] = where(x[n,m] > 1, x[n,m], c * x[n,m])",
        "x, y[N, M]; scalar c\nz[n,m] = where(x[n,m] > 0, x[n,m], c * y[n,m])",
    ),
    ENTROPY: (
        "x[N, C]; bool p[N, C]\nL = -sum[n](sum[c]([p[n,c]] * log_softmax[c](x[n,c])))",
        "q[N, D]; k[M, L, D]\nz[i] = logsumexp[j,l](sum[d](q[i,d] * k[j,l,d]))",
        PAIRS + "L = mean[i](logsumexp[j](s[i,j]) + s[i,i])",
        PAIRS + "L = mean[i](logsumexp[j](s[i,j])) - sum[i](s[i,i])",
        PAIRS + "L[i] = logsumexp[j](s[i,j]) - 2 * s[i,i]",
        "x[N, N]\nL[i] = logsumexp[j](x[i,j]) - sum[j](x[j,j])",
        "x[N, M]\nL[i] = logsumexp[j](x[i,j]) - x[i,0]",
        LOSS + "L = -mean[n,c](p[n,c] * log_softmax[c](x[n,c]))",
        LOSS + "L = -mean[n](sum[c](p[n,c] * log_softmax[n](x[n,c])))",
        LOSS
        + "l[n,c] = log_softmax[c](x[n,c])\nL = -mean[n](sum[c](p[n,c] * l[n,c]))\nreturn L, l",
        LOSS + "L = -mean[n](sum[c](p[n,c] * log_softmax[c](p[n,c] * x[n,c]) * x[n,c]))",
    ),
    CDIST: (
        POINTS + "s[n,m] = sum[d](abs(x[n,d] - y[m,d]))",
        POINTS + "s[n,m] = sum[d]((x[n,d] - y[m,d])**3)",
        POINTS + "s[n,m] = max[d]((x[n,d] - y[m,d])**2)",
        POINTS + "s[n,m] = sum[d](x[n,d]**2) + sum[d](y[m,d]**2) - 2 * sum[d](x[n,d] * y[m,d])",
        POINTS + "t[n,m,d] = x[n,d] - y[m,d]\ns[n,m] = sum[d](t[n,m,d]**2)\nreturn s, t",
        "x, y[N, D]\ns[n] = sum[d]((x[n,d] - y[n,d])**2)",
        "x[N, D]; y[M, D]; w[D]\ns[n,m] = sum[d](w[d] * (x[n,d] - y[m,d])**2)",
        "x[N, D]; y[M, E]; index e < E\ns[n,m] = sum[d,e]((x[n,d] - y[m,e])**2)",
    ),
    SEGMENTS: (
        "size G, H\nx[N, D]; int seg[N] < H; index g < G\ns[g,d] = sum[n, seg[n] == g](x[n,d])",
        PARTS + "s[g,d] = sum[n, seg[n] <= g](x[n,d])",
        PARTS + "s[g,d] = max[n, seg[n] == g](x[n,d])",
        PARTS + "s[g,d] = sum[n, seg[n] != g](x[n,d])",
        "size G\nx[N, D]; int seg[N, D] < G; index g < G\ns[g] = sum[n, d, seg[n,d] == g](x[n,d])",
    ),
}

IMPOSTORS = [(call, row.refuses) for call, row in ROWS.items()]
IMPOSTORS += [(call, text) for call, texts in LOOK_ALIKES.items() for text in texts]

SOFT = (
    (
        "torch.log_softmax(",
        (
            "x[N, M]\ns[n,m] = log(softmax[m](x[n,m]))",
            "x[N, M]\ns[n,m] = log(exp(x[n,m]) / sum[k](exp(x[n,k])))",
            "x[N, M]\ns[n,m] = x[n,m] - log(sum[k](exp(x[n,k])))",
            "x[N, M]\ns[n,m] = x[n,m] - logsumexp[k](x[n,k])",
        ),
    ),
    (
        ".logsumexp(",
        (
            "x[N, M]\ns[n] = log(sum[m](exp(x[n,m])))",
            "x[N, M]; y[M]\ns[n] = log(sum[m](exp(y[m] + x[n,m])))",
            "x[N, M]\ns[n] = max[k](x[n,k]) + log(sum[m](exp(x[n,m] - max[j](x[n,j]))))",
        ),
    ),
    (
        ".cumsum(",
        (
            "x[N]; index n < N\ns[n] = sum[m, m <= n](x[m])",
            "x[N]; index n < N\ns[n] = sum[m](x[m] * [m <= n])",
            "x[N]; index n < N\ns[n] = sum[m](where(n >= m, x[m], 0))",
            "x[N, D]; index n < N\ns[n,d] = sum[m, m < n + 1](x[m,d])",
        ),
    ),
)
