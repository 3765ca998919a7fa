"""Structures of sums in many spellings: the operations that a plan uses, and must not use."""

from __future__ import annotations

import re

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from derive import build, evaluate_loops, parse
from derive.frontend.from_sympy import to_system
from derive.ir.walk import find_size_names
from derive.judge.samples import choose_sizes, draw_inputs
from derive.plan import ops

GUARDS = {
    "how many others have one label": (
        "x[N]; int t[N] < 9; y[i] = x[i]/sum[j, j != i]([t[j] == t[i]])",
        1,
    ),
    "outside of a sum that lacks it": (
        "s[N,N]; p[i,j] = [j <= i] * exp(s[i,j]) / (1 + sum[k](exp(s[i,k])))",
        2,
    ),
    "told by data": (
        "bool m[N,N]; s[N,N]; p[i,j] = where(m[i,j], exp(s[i,j]) / (1 + sum[k](exp(s[i,k]))), 0)",
        2,
    ),
    "of the rest of a row": (
        "x[N,N]; p[i,j] = [i != j] * exp(x[i,j]) / sum[a, a != i](exp(x[i,a]))",
        2,
    ),
    "ordered pairs beside a third": (
        "x[N]; E = sum[i,j,k, j < k and j != i and k != i]"
        "(exp(-(x[i] - x[j])**2) * exp(-(x[i] - x[k])**2))",
        2,
    ),
}
READERS = {
    "two sums of one product": "n[D,W]; t[D,K] > 0; p[K,W] > 0; "
    "q[d,w,k] = t[d,k]*p[k,w]/sum[l](t[d,l]*p[l,w]); "
    "a[d,k] = sum[w](n[d,w]*q[d,w,k]); c[k,w] = sum[d](n[d,w]*q[d,w,k]); return a, c",
    "a divisor with a name": "n[D,W]; t[D,K] > 0; p[K,W] > 0; z[d,w] = sum[l](t[d,l]*p[l,w]); "
    "q[d,w,k] = t[d,k]*p[k,w]/z[d,w]; a[d,k] = sum[w](n[d,w]*q[d,w,k]); "
    "c[k,w] = sum[d](n[d,w]*q[d,w,k]); return a, c",
}
MESSAGES = {
    "of neighbours": "m[n,f] = sum[e, d[e] == n](h[s[e],f]); y[n,g] = relu(sum[f](m[n,f]*W[f,g]))",
    "beside its own": "m[n,f] = sum[e, d[e] == n](h[s[e],f]) + h[n,f]; "
    "y[n,g] = relu(sum[f](m[n,f]*W[f,g]))",
    "over the roots of degrees": "c[n] = 1 + sum[e]([d[e] == n]); "
    "m[n,f] = sum[e, d[e] == n](h[s[e],f]/sqrt(c[s[e]]*c[n])) + h[n,f]/c[n]; "
    "y[n,g] = relu(sum[f](m[n,f]*W[f,g]))",
}
WAVES = {
    "there and back": (
        "x[B,N]; w[N]; index k, t < N; X[b,k] = sum[n](x[b,n]*exp(-2*pi*I*k*n/N)); "
        "r[b,t] = sum[k](X[b,k]*w[k]*exp(2*pi*I*k*t/N))",
        2,
    ),
    "to more places than there are": (
        "x[B,N]; size M; index k < M; X[b,k] = sum[n](x[b,n]*exp(-2*pi*I*k*n/N))",
        1,
    ),
    "of more places than it has": (
        "complex x[B,K]; size N; index t < N; X[b,t] = sum[k](x[b,k]*exp(2*pi*I*k*t/N))",
        1,
    ),
}
HEADS = "Q, K, V[B,S,D]; size W; s[b,i,j] = sum[d](Q[b,i,d]*K[b,j,d]); "
BANDS = {
    "so far back": "p[b,i,j] = softmax[j, j <= i and i - j < W](s[b,i,j]/sqrt(D)); "
    "o[b,i,e] = sum[j](p[b,i,j]*V[b,j,e])",
    "a mask that is added": "h[i,j] = where(abs(i - j) <= W, 0, -oo); "
    "p[b,i,j] = softmax[j](s[b,i,j] - abs(i - j)/3 + h[i,j]); o[b,i,e] = sum[j](p[b,i,j]*V[b,j,e])",
    "a quotient of sums": "w[b,i,j] = exp(s[b,i,j])*[i - W <= j]*[j <= i]; "
    "o[b,i,e] = sum[j](w[b,i,j]*V[b,j,e])/sum[j](w[b,i,j])",
    "no exponentials": "o[b,i,e] = sum[j, abs(i - j) < W](relu(s[b,i,j])*V[b,j,e])",
    "over the other index": "p[b,i,j] = softmax[i, i <= j + W and j <= i](s[b,i,j]); "
    "o[b,j,e] = sum[i](p[b,i,j]*V[b,i,e])",
    "another guard": "bool m[B,S]; o[b,i,e] = sum[j](V[b,j,e]*softmax[j, i - W <= j and j <= i + W "
    "and m[b,j]](s[b,i,j]))",
}
# Of all sizes at which a plan for large ones is called: values by the loops, gradients finite.
NEIGHBOURS = {
    "up to half a place": "x[N]; index i, j < N; y[i] = sum[j, j <= i/2](x[j])",
    "how many are up to half a place": "x[N]; index i, j < N; "
    "y[i] = x[i]*sum[j, j <= i/2](1) + mean[j, j >= i/3](x[j])",
    "the first half of all": "x[N]; y = sum[j, j < N/2](x[j]) + mean[j, j >= N/2](x[j]**2)",
    "rows that are not of some other": "x[N,D]; y[d] = sum[i, i % 3 >= 1](x[i,d])",
    "rows around a place": "x[N]; y = sum[j, abs(j - 3) <= 1](x[j]) + mean[j, j == N - 1](x[j])",
    "distances of other labels": "x[N,D]; int t[N] < 9; r[i,j] = sqrt(sum[a]((x[i,a] - x[j,a])**2"
    ")); y[i] = sum[j, t[i] != t[j]](1/(1 + r[i,j]) + 1/r[i,j])",
    "what is before, from half of all on": "x[N]; index i < N; "
    "y[i] = where(i >= N/2, x[i - 1], 0) + where(i <= N/2 - 1, x[i + 1]**2, 0)",
    "labels of a batch that comes last": "x[N,B]; a[S,B]; int c[S,B] < N; "
    "y[n,b] = x[n,b] + sum[s, c[s,b] == n](a[s,b])",
    "a few coordinates of batches": "x[B,N,3]; y[B,D,3]; f[D]; "
    "z[b,i] = sum[j](f[j]/(1 + sum[a]((x[b,i,a] - y[b,j,a])**2)))",
    "one coordinate": "x[N,1]; f[N]; z[i] = sum[j](f[j]*exp(-sum[a]((x[i,a] - x[j,a])**2)))",
    "a divisor that its name guards": "x[N,3]; w[N]; r[i,j] = sqrt(sum[a]((x[i,a] - x[j,a])**2)); "
    "q[i,j] = r[i,j]/3; y[i] = sum[j, i < j](w[j]/q[i,j]**2) + sum[j, j != i](w[j]/r[i,j])",
    "a divisor that its name guards elsewhere": "x[N,3]; r[i,j] = sqrt(sum[a]((x[i,a] - x[j,a])"
    "**2)); y[i] = sum[j, i < j](1/r[i,j]) + sum[j, j < i](x[j,0]*r[i,j])",
    "distances in a triangle with its diagonal": "x[N,3]; w[N]; r[i,j] = sqrt(sum[a]((x[i,a] - "
    "x[j,a])**2)); y = sum[i,j, i <= j](w[j]*r[i,j]*exp(-r[i,j]))",
    "distances that data leave out": "x[N,3]; bool m[N,N]; r[i,j] = sqrt(sum[a]((x[i,a] - x[j,a])"
    "**2)); y[i] = sum[j, m[i,j] and i != j](exp(-r[i,j])/r[i,j])",
    "a mixture of products": "a[N,D]; x, s[N,D,M]; w[i,d] = softmax[d](a[i,d]); "
    "u[i,d,m] = exp(s[i,d,m]); y[i] = log(sum[d](w[i,d]*prod[m](exp(-x[i,d,m]**2)/(3*u[i,d,m]))))",
    "products of what does not change": "x[N]; size W; index j < W; index i < N; "
    "y[i] = prod[j](x[i]) + prod[j, j < i](x[i]) + log(prod[j](1/2))*x[i]",
    "a logarithm of what is 0 where i is j": "x[N]; "
    "y[i] = sum[j, j != i]((x[i] - x[j])**2*log((x[i] - x[j])**2))",
    "the largest of such": "x[N]; y[i] = max[j, j != i](log((x[i] - x[j])**4))",
    "a divisor with a bound, of rows": "q, k[S,D]; x[S] > 1/2; size W; "
    "y[i] = max[j, abs(i - j) <= W](sum[d](q[i,d]*k[j,d])/x[i])",
    "a divisor with a bound, of columns": "q, k[S,D]; x[S] > 1/2; size W; "
    "y[i] = sum[j, abs(i - j) <= W](x[j]*softmax[j, abs(i - j) <= W](sum[d](q[i,d]*k[j,d])/x[j]))",
    "a logarithm with a bound": "q, k[S,D]; x[S] > 1/2; size W; "
    "y[i] = sum[j, abs(i - j) <= W](exp(sum[d](q[i,d]*k[j,d]))*log(x[j]))",
    "half a width": "q, k, v[S,D]; size W; y[i,e] = sum[j](v[j,e]*"
    "softmax[j, i - W/2 <= j and j <= i + W/2](sum[d](q[i,d]*k[j,d])))",
    "half a width, rounded": "size W; x[N,N]; "
    "y[i] = sum[j, i - W//2 <= j and j <= i + W//2](x[i,j])",
    "the place of the least beside": "x[S]; index i < S; y[i] = argmin[j, abs(i - j) <= 2](x[j])",
    "pairs of each label": "x[N]; int t[N] < 9; index k < 9; "
    "y[k] = sum[i,j, t[i] == t[j] and t[i] == k](x[i]*x[j])",
    "labels that meet in a band": "int a, b[S] < 9; size W; "
    "y[i] = sum[j, abs(i - j) <= W]([a[i] == b[j]])",
    "a number that is rounded down, below 0": "x[N]; y[i] = -(N//2)*x[i]",
    "a rest below 0": "x[N]; y[i] = max(x[i], -(N % 3))",
    "a contrast of labels": "s[N,N]; int t[N] < 9; y[i] = sum[j, j != i and t[j] == t[i]]("
    "log(exp(s[i,j])/sum[k, k != i](exp(s[i,k]))))/sum[j, j != i]([t[j] == t[i]])",
    "a contrast beside its own": "s[N,N]; y = mean[i](log(exp(3*s[i,i])/(exp(3*s[i,i])"
    " + sum[j, j != i](exp(3*s[i,j])))))",
    "how often each label is there": "p[N,E]; int a[N] < E; f[e] = mean[n]([a[n] == e]); "
    "y = E*sum[e](f[e]*mean[n](p[n,e]))",
    "a turn over the size of a number": "x[B,N]; scalar a = 1; R[b,-1] = 0; "
    "R[b,t] = x[b,t] - sqrt(a**2)*log(exp(-R[b,t - 1]/sqrt(a**2)) + exp(-x[b,t]/sqrt(a**2)))",
    "weights that a label chooses": "x[N,E]; int t[N] < E; "
    "y[n] = sum[e](where(e == t[n], 2, 1)*x[n,e])/sum[e](where(e == t[n], 2, 1))",
    "distances with a width each": "x[N,D]; c[S,D]; w[S] > 0; "
    "y[n,s] = softmax[s](-w[s]*sum[d]((x[n,d] - c[s,d])**2))",
    "the nearest by weighted distances": "x[N,D]; c[S,D]; w[S] > 0; "
    "y[n] = argmin[s](w[s]*sum[d]((x[n,d] - c[s,d])**2))",
    "the best of some places back": "q, v[N,8]; index k < 9; index t < N; "
    "y[t] = max[k, t - k >= 0](sum[d](q[t,d]*v[t - k,d]))",
    "the entry of the least": "x[N,S]; w[S]; "
    "y[n] = sum[l](x[n,l]) + sum[j, j == argmin[l](x[n,l]**2)](w[j])",
    "logarithms of rows of nothing": "x[N,D]; bool m[N,D]; empty rows are zeros; "
    "y[n,d] = exp(log(softmax[d, m[n,d]](x[n,d])))",
    "the root of a square": "p[N]; x[S]; "
    "y[n] = sum[l](where(abs(p[n] - l) < 2, 3*sqrt((p[n] - l)**2), 0)*x[l])",
}
LABELS = {
    "a squared distance": "p[n,k] = softmax[k](x[n,k]); y = sum[n,k]((p[n,k] - [k == t[n]])**2)",
    "of another function": "y[n] = sum[k](where(t[n] == k, abs(x[n,k]), tanh(x[n,k])))",
}
# As people write them, with the most operations for each entry of the largest tensor.
PLAIN = {
    "discounted sums": (
        "r[N]; scalar g = 0.9; index t < N; y[t] = sum[s, s >= t](g**(s - t)*r[s])",
        10,
    ),
    "a moving average of powers": (
        "x[N]; scalar a = 0.1; y[t] = x[t] + sum[s, s <= t](a*(1 - a)**(t - s)*x[s])",
        10,
    ),
    "what comes after a width": ("x[N]; size W; index i < N; y[i] = sum[j, j >= i + W](x[j])", 10),
    "up to twice a place": ("x[N]; index i < N//2; y[i] = sum[j, j <= 2*i](x[j])", 10),
    "a hat by a choice": (
        "x[N]; v[M]; y[n] = sum[m](where(abs(x[n] - m) < 1, 1 - abs(x[n] - m), 0)*v[m])",
        40,
    ),
    "a spline of squares": ("x[N]; v[M]; y[n] = sum[m](max(0, 1 - (x[n] - m)**2)*v[m])", 40),
    "survival by data": (
        "t[N]; bool e[N]; y[i] = prod[j, t[j] <= t[i] and e[j]](1 - 1/sum[k]([t[k] >= t[j]]))",
        3000,  # two sorts
    ),
}
NEAREST = {
    "a step of k-means": "a[n] = argmin[k](sum[d]((x[n,d] - c[k,d])**2)); "
    "m[k,d] = sum[n]([a[n] == k]*x[n,d])/max(sum[n]([a[n] == k]), 1); "
    "J = sum[n](min[k](sum[d]((x[n,d] - c[k,d])**2))); return m, J",
    "the likeliest": "a[n] = argmax[k](softmax[k](-sum[d]((x[n,d] - c[k,d])**2)/2)); "
    "z[n,d] = c[a[n],d]",
    "the farthest": "z[n] = max[k](sum[d]((x[n,d] - c[k,d])**2)/2)",
    "distances to the nearest": "z[n] = min[k](sum[d]((x[n,d] - c[k,d])**2))",
}


def _track(given: object) -> object:
    is_real = isinstance(given, torch.Tensor) and given.is_floating_point()
    return given.requires_grad_() if is_real else given  # type: ignore[attr-defined]


@pytest.mark.parametrize(("text", "power"), GUARDS.values(), ids=GUARDS.keys())
def test_a_guard_makes_no_sum_larger(text: str, power: int) -> None:
    built = build(text, sizes={"N": 64})
    assert max(sum(p for _, p in term) for term in built.plan.flops.terms) == power
    assert built.judge().agrees


@pytest.mark.parametrize("text", READERS.values(), ids=READERS.keys())
def test_a_product_that_sums_read_is_never_made(text: str) -> None:
    built = build(text, sizes=dict(D=64, W=128, K=16))
    assert built.plan.peak < 64 * 128 * 16
    assert built.judge().agrees


@pytest.mark.parametrize("text", MESSAGES.values(), ids=MESSAGES.keys())
def test_a_layer_comes_before_the_messages_that_it_makes_small(text: str) -> None:
    shapes = "h[N,F]; W[F,G]; int s, d[E] < N; index n < N; "
    built = build(shapes + text, sizes=dict(N=256, F=512, G=8, E=2048))
    assert built.plan.peak < 512 * 256
    assert built.judge().agrees


@pytest.mark.parametrize(("text", "count"), WAVES.values(), ids=WAVES.keys())
def test_every_wave_is_a_transform(text: str, count: int) -> None:
    sizes = {name: 600 for name in "NKM" if f"{name}]" in text or f"size {name}" in text}
    built = build(text, sizes={"B": 16, **sizes})
    assert built.source.count("_transform(") == count + 1
    assert built.judge().agrees


@pytest.mark.parametrize(("text", "most"), PLAIN.values(), ids=PLAIN.keys())
def test_a_plain_spelling_takes_no_pairs(text: str, most: int) -> None:
    sizes = {
        n: size for n, size in dict(N=4096, M=512, W=8).items() if re.search(rf"\b{n}\b", text)
    }
    built = build(text, sizes=sizes)
    assert built.plan.at_sizes(built.plan.flops) < most * 4096
    assert built.judge().agrees


@pytest.mark.parametrize("text", NEAREST.values(), ids=NEAREST.keys())
def test_the_nearest_is_found_by_one_product(text: str) -> None:
    built = build(f"x[N,D]; c[K,D]; {text}", sizes=dict(N=4096, D=16, K=64))
    assert built.source.count("@") + built.source.count("addmm") == 1
    assert "cdist" not in built.source
    assert built.judge().agrees


@pytest.mark.parametrize("text", LABELS.values(), ids=LABELS.keys())
def test_a_label_is_compared_with_no_class(text: str) -> None:
    built = build(f"x[N,K]; int t[N] < K; {text}", sizes=dict(N=256, K=64))
    parts = [part for step in built.plan.steps for part in ops.walk_ops(step.op)]
    assert not any(ops.is_boolean(part) for part in parts)
    assert built.judge().agrees


@pytest.mark.parametrize("text", BANDS.values(), ids=BANDS.keys())
def test_a_band_takes_as_many_operations_as_it_has_entries(text: str) -> None:
    sizes = dict(B=4, S=2048, D=32, W=64)
    built = build(HEADS + text, sizes=sizes)
    assert built.plan.at_sizes(built.plan.flops) < 4 * 2048 * 512 * 4 * 32
    assert built.judge().agrees


def test_a_band_in_blocks_has_no_nan_gradients_of_its_own() -> None:
    function = build(HEADS + BANDS["so far back"], sizes=dict(B=4, S=2048, D=32, W=64)).function
    for size, width in ((1, 1), (31, 40), (32, 3), (33, 1), (70, 80), (0, 2)):
        given = [torch.randn(2, size, 3, requires_grad=True) for _ in range(3)]
        function(*(1e3 * each for each in given), W=width).sum().backward()
        assert all(each.grad.isfinite().all() for each in given)


@pytest.mark.parametrize("text", NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
def test_what_looks_alike_keeps_its_values_and_gradients(text: str) -> None:
    large = dict(N=512, S=2048, B=16, D=64, W=64)
    sizes = {n: size for n, size in large.items() if re.search(rf"\b{n}\b", text)}
    built = build(text, sizes=sizes)
    assert built.judge().agrees
    formula = parse(text)
    for number, drawn in enumerate(choose_sizes(to_system(formula), count=3)):
        given = draw_inputs(to_system(formula), drawn, number)
        tensors = [x for x in given.values() if torch.is_tensor(x) and x.is_floating_point()]
        total = built.function(**{n: _track(x) for n, x in given.items()})
        if total.requires_grad:
            grads = torch.autograd.grad(total.sum(), [x for x in tensors if x.requires_grad])
            assert all(each.isfinite().all() for each in grads)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("x[N]; size W; index i < N; y[i] = sum[j, j < i + W](x[j])", dict(N=4, W=0)),
        ("x[N]; size W; index i < N; y[i] = sum[j, j < W*(i + 1)](x[j])", dict(N=4, W=0)),
        ("x[N]; w[M]; index i < M; y[i] = w[i]*sum[j, j <= i](x[j])", dict(N=0, M=3)),
        ("x[N]; index i < N + 2; y[i] = sum[j, j <= i](x[j])", dict(N=0)),
    ],
)
def test_a_running_sum_that_a_size_of_0_leaves_empty(text: str, sizes: dict[str, int]) -> None:
    built = build(text, sizes=dict.fromkeys(sizes, 512))
    assert "running_sum" in built.source
    given = draw_inputs(to_system(parse(text)), sizes, 0)
    torch.testing.assert_close(built.function(**given), evaluate_loops(parse(text), given))


@pytest.mark.parametrize(
    "text",
    [
        "x[N]; z[M]; w[M]; y[i] = sum[j](w[j] * (x[i] - z[j])**2)",
        "x[N]; z[M]; u[K]; y[i] = sum[j,k]((x[i] - z[j] + u[k])**2)",
        "x[N,D]; z[M,D]; a[N,M]; y[i,d] = sum[j,e](a[i,j]*(x[i,d] - z[j,d])*(x[i,e] - z[j,e])**2)",
        "x[N,D]; z[M,D]; w[M]; y[i] = sum[j](w[j]*exp(-sum[d]((x[i,d] - z[j,d])**2)))",
        "x[N,D]; z[M,D]; w[M]; y[i] = sum[j](w[j]*exp(-sqrt(sum[d]((x[i,d] - z[j,d])**2))))",
    ],
)
def test_differences_from_nothing_are_zeros(text: str) -> None:
    system = to_system(parse(text))
    names = find_size_names(*(size for tensor in system.inputs for size in tensor.shape))
    built = build(parse(text), sizes={name: 16 if name == "D" else 500 for name in names})
    for name in ("M", "N"):
        sizes = dict.fromkeys(names, 3) | {name: 0}
        given = draw_inputs(system, sizes, 0)
        for tensor in given.values():
            tensor.requires_grad_()
        y = built.function(**given)
        assert y.shape[0] == sizes["N"] and not y.any()
        grads = torch.autograd.grad(y.sum(), [*given.values()], allow_unused=True)
        assert not any(grad is not None and grad.any() for grad in grads)


def test_a_share_of_nothing_is_nan() -> None:
    lines = "x[N,D]; bool m[N,D]; y[n,d] = where(m[n,d], exp(x[n,d]), 0)"
    share = build(f"{lines}/sum[k,l, m[k,l]](exp(x[k,l]))").function
    assert share(torch.randn(2, 3), torch.zeros(2, 3, dtype=torch.bool)).isnan().all()


@pytest.mark.parametrize("weight", ["v[k]", "1/v[k]"])
def test_a_mixture_is_finite_where_its_exponentials_are_not(weight: str) -> None:
    mixture = build(f"v[K] > 0; x[N,K]; f[i,k] = {weight}*exp(-x[i,k]); y[i] = log(sum[k](f[i,k]))")
    v, x = torch.rand(3) + 1, 1e4 + torch.randn(5, 3)
    weights = v if weight == "v[k]" else 1 / v
    torch.testing.assert_close(mixture.function(v, x), (weights.log() - x).logsumexp(-1))


def test_a_product_with_and_without_a_number_is_made_once() -> None:
    lines = "c[Q,A]; u[A,X]; scalar t = 0.3; "
    scaled = "y[q,x] = 3*sum[a](c[q,a]*u[a,x]) + exp(-t*sum[a](u[a,x]*c[q,a])**2)"
    other = "y[q,x] = 3*sum[a](c[q,a]*u[a,x]) + exp(-t*sum[a](u[a,x]**2*c[q,a]))"
    for text, count in ((scaled, 1), (other, 2)):
        built = build(lines + text, sizes=dict(Q=64, A=32, X=4096))
        body = built.source.rpartition("def _check_shapes")[0].rpartition('"""')[2]
        assert body.count(" @ ") + body.count("einsum(") + body.count("mm(") == count
        assert built.judge().agrees


def test_both_halves_of_a_scaled_square_are_one() -> None:
    text = "x[B,F]; v[F,K]; y[b] = sum[i,j, i < j](sum[f](v[i,f]*v[j,f])*x[b,i]*x[b,j])"
    built = build(text, sizes=dict(B=4096, F=64, K=16))
    assert built.source.count("x @ v") == 1
    assert built.judge().agrees


def test_a_merged_place_is_read_as_its_parts() -> None:
    lines = """
        x[B, G*M, N]; w, h[G*M]
        size G
        index g < G
        index m, k < M
        z[b,g*M + m,n] = x[b,g*M + m,n] - mean[k, l](x[b,g*M + k,l])
        v[b,g] = var[k, l](x[b,g*M + k,l])
        u[b,g*M + m,n] = z[b,g*M + m,n] / sqrt(v[b,g] + 1)
        y[b,c,n] = w[c] * u[b,c,n] + h[c]
    """
    built = build(lines, sizes=dict(B=8, G=4, M=8, N=256))
    assert "group_norm(x, G, w, h, 1)" in built.source
    assert built.judge().agrees


def test_a_scalar_may_be_an_argument_of_a_call() -> None:
    built = build("x[B,D]; scalar a = 1.5; y[b,d] = elu(x[b,d], a)")
    assert "torch.nn.functional.elu(x, a)" in built.source
    assert built.judge().agrees


def test_the_gradient_of_a_band_is_as_large_as_the_matrix() -> None:
    text = "s[B,S,S]; size W; m[b,i] = max[j, j <= i and i - j < W](s[b,i,j])"
    built = build(text, sizes=dict(B=4, S=512, W=32))
    assert ".diagonal(" not in built.source.split("def _unfold_rows")[0]
    assert built.judge().agrees
    s = torch.randn(2, 300, 300, requires_grad=True)
    made: list[int] = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            made.extend(t.numel() for t in pytree.tree_leaves(found) if isinstance(t, torch.Tensor))
            return found

    with Sizes():
        built.function(s, W=40).sum().backward()
    assert max(made) <= 2 * 300 * (300 + 40)


@pytest.mark.parametrize("value", ("x[i,d]/h", "x[i,d]*sqrt(h)", "x[i,d]*log(h)/h**2"), ids=str)
def test_a_scalar_is_harmless_where_the_condition_excludes_it(value: str) -> None:
    function = build(f"x[N,D]; scalar h; y[i] = sum[d, h > 0]({value})").function
    x, h = torch.rand(3, 4, requires_grad=True), torch.zeros((), requires_grad=True)
    found = function(x, h=h)
    assert torch.equal(found, torch.zeros(3))
    assert all(torch.equal(g, 0 * g) for g in torch.autograd.grad(found.sum(), (x, h)))
