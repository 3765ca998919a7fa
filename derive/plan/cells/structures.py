"""Example formulas of the calls that lowering emits directly, for reductions with guards."""

from derive.plan.cells.matching import CellRule
from derive.plan.lower.orders import BELOW, COUNT, MEAN, RANKS
from derive.plan.lower.ranks import FIRST, TIES
from derive.plan.lower.segments import AVERAGE, EXTREMES, LOGSUMEXP, PICK, PLACES, SUMS

CELLS = (
    CellRule(
        call=BELOW,
        computes="t, x[B, N]\nr[b,i] = logsumexp[j, t[b,j] >= t[b,i]](x[b,j])",
        refuses="t, x[B, N]\nr[b,i] = max[j, t[b,j] >= x[b,i] and t[b,j] > t[b,i]](x[b,j])",
    ),
    CellRule(
        call=COUNT,
        computes="x[B, N]; q[B, M]\nr[b,i] = q[b,i] * mean[j]([x[b,j] <= q[b,i]])",
        refuses="x[B, N]; q[B, M]\nr[b,i] = q[b,i] * mean[j]([x[b,j] != q[b,i]])",
    ),
    CellRule(
        call=RANKS,
        computes="x, w[N]\ny[n] = w[n] * sum[m]([x[m] < x[n] or x[m] == x[n] and m < n])",
        refuses="x, w[N]\ny[n] = w[n] * sum[m]([x[m] < x[n] or w[m] == w[n] and m < n])",
    ),
    CellRule(
        call=FIRST,
        computes=(
            "x[B, N]; size K\n"
            "r[b,n] = sum[m]([x[b,m] > x[b,n]])\n"
            "y[b,n] = where(r[b,n] < K, x[b,n], 0)"
        ),
        refuses=(
            "x, w[B, N]\n"
            "r[b,n] = sum[m]([x[b,m] > x[b,n]])\n"
            "y[b,n] = where(r[b,n] < w[b,n], x[b,n], 0)"
        ),
    ),
    CellRule(
        call=TIES,
        computes=(
            "x[B, N]; index r < N\n"
            "i[b,n] = sum[m]([x[b,m] < x[b,n]])\n"
            "u[b,r] = sum[n](x[b,n] * [i[b,n] == r])"
        ),
        refuses=(
            "x[B, N]; index r < N\n"
            "i[b,n] = sum[m]([x[b,m] <= x[b,n]])\n"
            "u[b,r] = sum[n](x[b,n] * [i[b,n] == r])"
        ),
    ),
    CellRule(
        call=MEAN,
        computes="t, h[N]; x[N, D]\nm[i,d] = sum[j](softmax[j, t[j] >= t[i]](h[j]) * x[j,d])",
        refuses="t, h[N]; x[N, D]\nm[i,j] = softmax[j, t[j] >= t[i]](h[j])",
    ),
    CellRule(
        call=AVERAGE,
        computes=(
            "s[E, H]; h[E, H, D]; int dst[E] < V; size V; index n < V\n"
            "y[n,k,d] = sum[e](softmax[e, dst[e] == n](s[e,k]) * h[e,k,d])"
        ),
        refuses=(
            "s[E, H]; h[E, H, D]; int dst[E] < V; size V; index n < V\n"
            "y[n,k,d] = sum[e](softmax[e, dst[e] <= n](s[e,k]) * h[e,k,d])"
        ),
    ),
    CellRule(
        call=PICK,
        computes="c[K, D]; 0 <= x[N] < 1\ny[n,d] = sum[k](c[k,d] * [floor(x[n] * K) == k])",
        refuses="c[K, D]; 0 <= x[N] < 1\ny[n,d] = sum[k](c[k,d] * [floor(x[n] * K) <= k])",
    ),
    CellRule(
        call=PLACES,
        computes=(
            "A[E, K, K]; int node[E, K] < N; index i, j < N; size N\n"
            "S[i,j] = sum[e, k, m](A[e,k,m] * [node[e,k] == i] * [node[e,m] == j])"
        ),
        refuses=(
            "A[E, K, K]; int node[E, K] < N; index i, j < N; size N\n"
            "S[i,j] = sum[e, k, m](A[e,k,m] * [node[e,k] <= i] * [node[e,m] <= j])"
        ),
    ),
    CellRule(
        call=SUMS,
        computes=(
            "size G\nx[N, D]; int seg[N] < G; index g < G\ns[g,d] = sum[n, seg[n] == g](x[n,d])"
        ),
        refuses=("size G\nx[N, D]; int seg[N]; index g < G\ns[g,d] = sum[n, seg[n] == g](x[n,d])"),
    ),
    CellRule(
        call=EXTREMES,
        computes=(
            "size G\nx[N, D]; int seg[N] < G; index g < G\ns[g,d] = max[n, seg[n] == g](x[n,d])"
        ),
        refuses=("size G\nx[N, D]; int seg[N]; index g < G\ns[g,d] = max[n, seg[n] == g](x[n,d])"),
    ),
    CellRule(
        call=LOGSUMEXP,
        computes=(
            "size G\nx[N, D]; int seg[N] < G; index g < G\n"
            "s[g,d] = logsumexp[n, seg[n] == g](x[n,d])"
        ),
        refuses=(
            "size G\nx[N, D]; int seg[N] < G; index g < G\n"
            "s[g,d] = logsumexp[n, seg[n] <= g](x[n,d])"
        ),
    ),
)
