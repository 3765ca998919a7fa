"""The notation: a formula as a text, and as SymPy objects.

    x[N, D]; scalar eps = 1e-5
    m[n] = mean[d](x[n,d])
    y[n,d] = (x[n,d] - m[n]) / sqrt(mean[c]((x[n,c] - m[n])**2) + eps)

Every expression is a number for each value of its free indices. A formula is therefore a loop nest.

Three rules hold everywhere. Summation is never implied. A tensor of size 1 is never broadcast. An
index has one extent in the whole formula.

Declarations
    X[B, S]; W_Q, W_K[D, H*E]    real tensors and their extents
    complex psi[N]               complex tensor, for I, conj, re, im, abs, arg and exp
    int t[B] < V                 integers from 0 to V - 1; `t` can be a position
    bool m[B, S]                 truth values
    scale[]                      a tensor without indices
    scalar eps = 1e-5            a number with a default; `scalar s > 0` has a bound
    x[N] > 0; 0 <= u[N] < 1      bounds of the entries; rules may rely on them
    size H                       a size that no shape determines; a keyword argument
    index h < H                  an extent that no plain read determines, as in y[h] = x[2*h + 1]

Equations
    y[b,h*D + d] = ..            a result with merged indices
    y[2*p] = ..; y[2*p + 1] = .. parts of one tensor; together they fill each place once
    L = ..                       a number
    phi(x) = where(x > 0, x, 0)  a function of your own, inlined
    return z, alpha              the results; the last equation, if there is no such line
    empty rows are zeros         a softmax over no entries is zeros instead of nan
    # ..                         a comment; an open bracket continues a line

Reductions bind their indices
    sum[i, j](..)                also prod max min mean var std norm logsumexp argmax argmin
    sum[j, j <= i](..)           a condition leaves entries out
    inverse[i, j](A[i,j])        also cholesky det logdet
    x[j] = solve[i, j](A[i,j], b[i])    the x with sum[j](A[i,j] * x[j]) = b[i]

Functions along an index keep it
    softmax[j](..)               also log_softmax and cumsum
    softmax[j, m[b,j]](..)       over the entries where the condition holds

Conditions, joined by and, or, not
    [j <= i]                     1 where it holds, else 0; the rest of its product is not read there
    where(c, a, b)               a choice; the other side is not read
    delta(i, j), oo              1 where i equals j; infinity

Positions are integer expressions
    A[i,i], x[0], x[i + k], x[2*i + k], x[i // 2], x[i % 2], W[h*D + d,m]
    A[clip(j - i, -C, C) + C]    clipped
    w[t[n],d], x[argmax_of[n]]   gathered: by an integer tensor, an argmax, floor(..), a count
Every read is proved to be in range. Otherwise `build` refuses it and names the missing guard.

Recurrences have their first values on a line before, at constant places
    h[-1] = h0; h[t] = a[t]*h[t - 1] + x[t]
    R[T - 1] = 0; R[t] = r[t] + g*R[t + 1]
    D[-1,j] = 0; D[i,-1] = 0; D[i,j] = min(D[i - 1,j], D[i,j - 1]) + c[i,j]
The places before 0 are not part of the result; those after the end are. Several tensors may depend
on each other. A turn may read the state at places that it moves, as in D[k - 1,i,k].

Finite values. A rule may multiply an excluded entry by 0, so entries that a condition leaves out
must be finite. Scalars in sums must be finite, because a rule may move them out of the sum. A
gradient through an infinite value is nan, as in torch.

The same formula in Python is made of SymPy objects; README.md has an example. `parse` reads the
text, and `show` writes it.
"""
