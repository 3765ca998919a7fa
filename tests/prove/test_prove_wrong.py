"""Formulas with the mistakes that people make are never proved equal to the right ones."""

import pytest
from prove_cases import read_cases
from prove_mutants import find_difference

from derive.compiler import to_system
from derive.frontend.from_text import parse
from derive.prove import prove

ATTENTION = """q[b,h,i,d] = sum[x](Q[b,i,x] * W_q[x,h,d])
k[b,h,j,d] = sum[x](K[b,j,x] * W_k[x,h,d])
v[b,h,j,d] = sum[x](V[b,j,x] * W_v[x,h,d])
a[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
o[b,h,i,d] = sum[j](a[b,h,i,j] * v[b,h,j,d])
z[b,i,y] = sum[h, d](o[b,h,i,d] * W_o[y, h*D + d]) + c[y]"""
DECLARED = "Q, K, V[B, N, E]; W_q, W_k, W_v[E, H, D]; W_o[E, H*D]; c[E]"
CAUSAL = "s[N, N]; v[N, E]; index i, j < N"
HEADS = "p[B, H, S, S]; v[B, S, H, D]; index x < H*D"
X = "x[N, D]; g, c[D]; scalar eps"

# in the attention: what is written, what should be
SLIPS = {
    "another weight": ("W_k[x,h,d]", "W_q[x,h,d]"),
    "values from keys": ("V[b,j,x]", "K[b,j,x]"),
    "keys from queries' input": ("K[b,j,x]", "Q[b,j,x]"),
    "no scale": (" / sqrt(D)", ""),
    "the scale of another size": ("sqrt(D)", "sqrt(H)"),
    "the scale of all heads": ("sqrt(D)", "sqrt(H*D)"),
    "the scale without a root": ("sqrt(D)", "D"),
    "the scale inverted": (" / sqrt(D)", " * sqrt(D)"),
    "scaled twice": ("sqrt(D)", "sqrt(D) / sqrt(D)"),
    "softmax over the heads": ("softmax[j]", "softmax[h]"),
    "softmax over the queries": ("softmax[j]", "softmax[i]"),
    "scores transposed": ("a[b,h,i,j] * v", "a[b,h,j,i] * v"),
    "values at the query's place": ("* v[b,h,j,d]", "* v[b,h,i,d]"),
    "heads merged in another order": ("h*D + d", "d*H + h"),
    "no bias": (" + c[y]", ""),
    "a bias subtracted": (" + c[y]", " - c[y]"),
    "a bias squared": ("+ c[y]", "+ c[y]**2"),
    "keys summed, not products": ("q[b,h,i,d] * k[b,h,j,d]", "q[b,h,i,d] + k[b,h,j,d]"),
    "log_softmax": ("softmax[j]", "log_softmax[j]"),
    "a mean in place of a sum": ("o[b,h,i,d] = sum[j]", "o[b,h,i,d] = mean[j]"),
    "sigmoid in place of softmax": ("softmax[j](", "sigmoid("),
    "exp without its sum": ("softmax[j](", "exp("),
    "a sign": ("a[b,h,i,j] = softmax[j](", "a[b,h,i,j] = softmax[j](-"),
    "a factor too many": ("q[b,h,i,d] * k[b,h,j,d]", "q[b,h,i,d] * k[b,h,j,d] * (q[b,h,i,d] + 1)"),
    "an input twice": ("sum[x](Q[b,i,x] *", "sum[x](Q[b,i,x]**2 *"),
}

# name: declarations, the right one, the wrong one
PAIRS = {
    "indices exchanged": ("A, B[N, N]", "z[i,j] = A[i,j] * B[j,i]", "z[i,j] = A[i,j] * B[i,j]"),
    "a transposed product": (
        "A, B[N, N]",
        "z[i,j] = sum[k](A[i,k] * B[k,j])",
        "z[i,j] = sum[k](A[i,k] * B[j,k])",
    ),
    "the transposed result": (
        "A, B[N, N]",
        "z[i,j] = sum[k](A[i,k] * B[k,j])",
        "z[j,i] = sum[k](A[i,k] * B[k,j])",
    ),
    "a trace in place of a sum": (
        "A[N, N]; index i, j < N",
        "z = sum[i, j](A[i,j])",
        "z = sum[i](A[i,i])",
    ),
    "a letter that is not summed": (
        "x[N]; y[N]",
        "z = sum[i](x[i] * y[i])",
        "z = sum[i](x[i]) * sum[i](y[i])",
    ),
    "a multiplicity lost": (
        "x[N]; index j < M; size M",
        "z = sum[i, j](x[i])",
        "z = sum[i](x[i])",
    ),
    "another multiplicity": (
        "x[N]; y[M]",
        "z = sum[i](x[i]) * M + 0*y[0]",
        "z = sum[i](x[i]) * N + 0*y[0]",
    ),
    "mask by one": (
        CAUSAL,
        "z[i,e] = sum[j](softmax[j, j <= i](s[i,j]) * v[j,e])",
        "z[i,e] = sum[j](softmax[j, j < i + 2](s[i,j]) * v[j,e])",
    ),
    "mask without the diagonal": (
        CAUSAL,
        "z[i,j] = [j <= i] * s[i,j]",
        "z[i,j] = [j < i] * s[i,j]",
    ),
    "mask turned round": (
        CAUSAL,
        "z[i,e] = sum[j](softmax[j, j <= i](s[i,j]) * v[j,e])",
        "z[i,e] = sum[j](softmax[j, j >= i](s[i,j]) * v[j,e])",
    ),
    "mask after the softmax": (
        CAUSAL,
        "p[i,j] = softmax[j, j <= i](s[i,j])",
        "p[i,j] = [j <= i] * softmax[j](s[i,j])",
    ),
    "a mask of zeros": (
        CAUSAL,
        "p[i,j] = softmax[j, j <= i](s[i,j])",
        "p[i,j] = softmax[j]([j <= i] * s[i,j])",
    ),
    "a mask of large numbers": (
        CAUSAL,
        "p[i,j] = softmax[j, j <= i](s[i,j])",
        "p[i,j] = softmax[j](where(j <= i, s[i,j], -10))",
    ),
    "a Boolean mask inverted": (
        "s[N, M]; bool m[N, M]",
        "p[i,j] = softmax[j, m[i,j]](s[i,j])",
        "p[i,j] = softmax[j, not m[i,j]](s[i,j])",
    ),
    "a mask of rows for one of columns": (
        "s[N, N]; bool m[N]",
        "p[i,j] = softmax[j, m[j]](s[i,j])",
        "p[i,j] = softmax[j, m[i]](s[i,j])",
    ),
    "and for or": (
        "s[N, N]; bool m[N]",
        "p[i,j] = softmax[j, m[j] and j <= i](s[i,j])",
        "p[i,j] = softmax[j, m[j] or j <= i](s[i,j])",
    ),
    "an empty row that is zeros": (
        "s[N, M]; bool m[N, M]",
        "p[i,j] = softmax[j, m[i,j]](s[i,j])",
        "p[i,j] = where(m[i,j], softmax[j, m[i,j]](s[i,j]), 0)",
    ),
    "a logsumexp of an empty row": (
        "s[N, M]; bool m[N, M]",
        "z[i] = logsumexp[j](where(m[i,j], s[i,j], -oo))",
        "a[i,j] = where(m[i,j], s[i,j], -oo)\nu[i] = max[j](a[i,j])\n"
        "z[i] = u[i] + log(sum[j](exp(a[i,j] - u[i])))",
    ),
    "heads cut at the wrong place": (
        HEADS,
        "o[b,i,x] = sum[j](p[b, x // D, i, j] * v[b, j, x // D, x % D])",
        "o[b,i,x] = sum[j](p[b, x % H, i, j] * v[b, j, x % H, x // H])",
    ),
    "a view without a transpose": (
        "v[S, H*D]; index h < H; index s < S; index d < D; size D; size H",
        "z[h,s,d] = v[s, h*D + d]",
        "z[h,s,d] = v[(h*S*D + s*D + d) // (H*D), (h*S*D + s*D + d) % (H*D)]",
    ),
    "repeat for repeat_interleave": (
        "k[H, S, D]; size G; index x < H*G",
        "z[x,s,d] = k[x // G, s, d]",
        "z[x,s,d] = k[x % H, s, d]",
    ),
    "interleaved for halved": (
        "x[S, 2*D]; index d < D; index r < 2",
        "z[s,d,r] = x[s, r*D + d]",
        "z[s,d,r] = x[s, 2*d + r]",
    ),
    "a relative place by one": (
        "u[S, 2*S]; index i, j < S",
        "z[i,j] = u[i, j - i + S - 1]",
        "z[i,j] = u[i, j - i + S]",
    ),
    "a relative place turned round": (
        "u[S, 2*S - 1]; index i, j < S",
        "z[i,j] = u[i, j - i + S - 1]",
        "z[i,j] = u[i, i - j + S - 1]",
    ),
    "a clip of another width": (
        "u[S, 9]; index i, j < S",
        "z[i,j] = u[i, clip(j - i, -4, 4) + 4]",
        "z[i,j] = u[i, clip(j - i, -3, 3) + 4]",
    ),
    "the other variance": (X, "z[n] = var[d](x[n,d])", "z[n] = var[d](x[n,d], correction=1)"),
    "a deviation": (X, "z[n] = var[d](x[n,d])", "z[n] = sqrt(var[d](x[n,d]))"),
    "a second moment": (X, "z[n] = var[d](x[n,d])", "z[n] = mean[d](x[n,d]**2)"),
    "eps outside the root": (
        X,
        "z[n,d] = x[n,d] / sqrt(mean[e](x[n,e]**2) + eps)",
        "z[n,d] = x[n,d] / (sqrt(mean[e](x[n,e]**2)) + eps)",
    ),
    "eps left out": (
        X,
        "z[n,d] = x[n,d] / sqrt(mean[e](x[n,e]**2) + eps)",
        "z[n,d] = x[n,d] / sqrt(mean[e](x[n,e]**2))",
    ),
    "the norm over the batch": (
        "x[N, N]; index n, e < N",
        "z[n,e] = x[n,e] - mean[o](x[n,o])",
        "z[n,e] = x[n,e] - mean[o](x[o,e])",
    ),
    "gain and bias exchanged": (
        X,
        "z[n,d] = x[n,d] * g[d] + c[d]",
        "z[n,d] = x[n,d] * c[d] + g[d]",
    ),
    "a sum for a mean": (X, "z[n] = mean[d](x[n,d])", "z[n] = sum[d](x[n,d])"),
    "a mean over another size": (X, "z[n] = sum[d](x[n,d]) / D", "z[n] = sum[d](x[n,d]) / N"),
    "pairs with the diagonal": (
        "x[N]",
        "z = sum[i, j, i <= j](x[i] * x[j])",
        "z = (sum[i](x[i])**2 - sum[i](x[i]**2)) / 2",
    ),
    "half of what is not symmetric": (
        "A[N, N]; index i, j < N",
        "z = sum[i, j, i < j](A[i,j])",
        "z = (sum[i, j](A[i,j]) - sum[i](A[i,i])) / 2",
    ),
    "a cumulative sum that is exclusive": (
        "x[N]; index i, j < N",
        "z[i] = cumsum[i](x[i])",
        "z[i] = sum[j, j < i](x[j])",
    ),
    "a cumulative sum from behind": (
        "x[N]; index i, j < N",
        "z[i] = cumsum[i](x[i])",
        "z[i] = sum[j, j >= i](x[j])",
    ),
    "a window by one": (
        "x[N]; index i, j < N",
        "z[i] = sum[j, abs(i - j) <= 2](x[j])",
        "z[i] = sum[j, abs(i - j) < 2](x[j])",
    ),
    "a shift the other way": (
        "x[N]; index i < N",
        "z[i] = x[(i + 1) % N]",
        "z[i] = x[(i - 1) % N]",
    ),
    "a lookup of another table": (
        "E, F[V, D]; int t[S] < V",
        "z[s,d] = E[t[s], d]",
        "z[s,d] = F[t[s], d]",
    ),
    "the mean of exps": (
        "s[N, M]",
        "z[i] = logsumexp[j](s[i,j])",
        "z[i] = log(mean[j](exp(s[i,j])))",
    ),
    "a log of a product": ("x, y[N]", "z[i] = log(x[i] * y[i])", "z[i] = log(x[i]) + log(y[i])"),
    "a root of a square": ("x[N]", "z[i] = sqrt(x[i]**2)", "z[i] = x[i]"),
    "a square of a root": ("x[N]", "z[i] = sqrt(x[i])**2", "z[i] = x[i]"),
    "an exp of a log": ("x[N]", "z[i] = exp(log(x[i]))", "z[i] = x[i]"),
    "a cancelled log": ("x, y[N]", "z[i] = y[i] + log(x[i]) - log(x[i])", "z[i] = y[i]"),
    "relu for its argument": ("x[N]", "z[i] = relu(x[i])", "z[i] = abs(x[i])"),
    "a leak": ("x[N]", "z[i] = leaky_relu(x[i], 1/10)", "z[i] = leaky_relu(x[i], 1/100)"),
    "gelu by tanh": (
        "x[N]",
        "z[i] = gelu(x[i])",
        "z[i] = x[i]/2 * (1 + tanh(sqrt(2/pi) * (x[i] + x[i]**3 * 44715/1000000)))",
    ),
    "the largest of absolute values": (
        "s[N, M]",
        "z[i] = max[j](s[i,j]**2)",
        "z[i] = max[j](s[i,j])**2",
    ),
    "a max that is negated": ("s[N, M]", "z[i] = max[j](-s[i,j])", "z[i] = -max[j](s[i,j])"),
    "a max under a mask": (
        "s[N, M]; bool m[M]",
        "z[i] = max[j, m[j]](s[i,j])",
        "z[i] = max[j](s[i,j])",
    ),
    "a guard that hides a nan": (
        "x[N]; index i < N",
        "z[i] = where(x[i] > 0, log(x[i]), 0)",
        "z[i] = log(x[i])",
    ),
    "a product that is not guarded": (
        "x, y[N]; bool m[N]",
        "z[i] = log(x[i]) - where(m[i], 0, log(x[i]))",
        "z[i] = where(m[i], log(x[i]), 0)",
    ),
    "softmax over two letters": (
        "s[N, N]; index i, j < N",
        "p[i,j] = exp(s[i,j]) / sum[k, l](exp(s[k,l]))",
        "p[i,j] = softmax[j](s[i,j])",
    ),
}
CASES = {
    **{name: (DECLARED, ATTENTION, ATTENTION.replace(*slip)) for name, slip in SLIPS.items()},
    **PAIRS,
    **read_cases("wrong"),
}
BY_ACCIDENT = read_cases("wrong where inputs meet by accident")


@pytest.mark.parametrize("name", CASES)
def test_it_is_not_proved(name):
    declared, right, wrong = CASES[name]
    systems = [to_system(parse(f"{declared}\n{text}")) for text in (wrong, right)]
    difference = find_difference(*systems)
    assert difference is not None, "the case itself is wrong: both agree"
    for code, formula in (systems, systems[::-1]):
        assert prove(code, formula) is None


@pytest.mark.parametrize("name", BY_ACCIDENT)
def test_what_is_finite_elsewhere_is_not_proved(name):
    declared, right, wrong = BY_ACCIDENT[name]
    systems = [to_system(parse(f"{declared}\n{text}")) for text in (wrong, right)]
    for code, formula in (systems, systems[::-1]):
        assert prove(code, formula) is None
