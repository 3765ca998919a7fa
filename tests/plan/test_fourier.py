"""Fourier sums, convolutions and correlations are transforms where these pay, and nothing else is.

Each formula is built at sizes where a transform pays, and judged against the loops at small ones.
"""

import pytest
import torch

import derive
from derive.judge.samples import choose_sizes, draw_inputs
from derive.plan import ops

SIZES = dict(B=64, N=512, M=96, T=1024, C=4, K=100)
WAVE = "x[B, N]\nindex k < {}\ny[b,k] = {}"
TRANSFORMS = {
    "forward": WAVE.format("N", "sum[n](x[b,n] * exp(-2*pi*I*k*n/N)) / sqrt(N)"),
    "back": "complex " + WAVE.format("N", "sum[n](x[b,n] * exp(2*pi*I*k*n/N)) / N"),
    "back of real": WAVE.format("N//2 + 1", "sum[n](x[b,n] * exp(2*pi*I*k*n/N))"),
    "power": WAVE.format(
        "N", "sum[n](x[b,n] * cos(2*pi*k*n/N))**2 + sum[n](x[b,n] * sin(2*pi*k*n/N))**2"
    ),
    "hartley": WAVE.format("N", "sum[n](x[b,n] * (cos(2*pi*k*n/N) + sin(2*pi*k*n/N)))"),
    "cosine transform": WAVE.format("N", "sum[n](x[b,n] * cos(pi*k*(2*n + 1)/(2*N)))"),
    "of the fourth kind": WAVE.format("N", "sum[n](x[b,n] * cos(pi/N*(n + 1/2)*(k + 1/2)))"),
    "shifted by half": WAVE.format("N", "sum[n](x[b,n] * exp(-2*pi*I*(k + 1/2)*n/N))"),
    "two indices": "x[B, N, M]\nindex k < N\nindex l < M\n"
    "y[b,k,l] = re(sum[n, m](x[b,n,m] * exp(-2*pi*I*(k*n/N + l*m/M))))",
    "sine of two": "x[C, N, M]\nindex k < N\nindex l < M\n"
    "y[c,k,l] = sum[n, m](x[c,n,m] * sin(2*pi*(k*n/N - l*m/M)))",
    "circular": "a, b[B, N]\nindex k < N\ny[c,k] = sum[i](a[c,i] * b[c,(k + i) % N])",
    "convolved": "a, b[B, N]\nindex k < N\ny[c,k] = sum[i](a[c,i] * b[c,(k - i + 3) % N])",
    "turned": "a, b[B, N]\nindex k < N\ny[c,k] = sum[i](a[c,i] * b[c,(i - k) % N])",
    "blocks": "w[C, C, N]; x[B, C, N]\nindex k < N\n"
    "y[b,p,k] = sum[q, j](w[p,q,(k - j) % N] * x[b,q,j])",
    "on a torus": "a, b[B, N, M]\nindex k < N\nindex l < M\n"
    "y[c,k,l] = sum[i, j](a[c,i,j] * b[c,(k - i) % N,(l - j) % M])",
    "causal": "h[C, T]; x[B, C, T]\nindex t < T\ny[b,c,t] = sum[s, s <= t](h[c,t - s] * x[b,c,s])",
    "anticausal": "h, x[B, T]\nindex t < T\ny[b,t] = sum[s, s >= t](h[b,s - t] * x[b,s])",
    "lags": "x[B, T]; size K\nindex k < K\nm[b] = mean[t](x[b,t])\n"
    "y[b,k] = sum[t]((x[b,t] - m[b]) * (x[b,t + k] - m[b]) * [t + k < T]) / T",
    "both ways": "x, z[B, T]\nindex k < 2*T - 1\n"
    "y[b,k] = sum[t](x[b,t] * z[b,t + k - T + 1] * [0 <= t + k - T + 1 < T])",
    "inside": "x[B, C, T]; w[C, C, K]\nindex t < T - K + 1\n"
    "y[b,o,t] = sum[c, k](w[o,c,k] * x[b,c,t + k])",
    "around": "x[B, T]; w[99]\nindex t < T\n"
    "y[b,t] = sum[k](w[k] * x[b,t + k - 49] * [0 <= t + k - 49 < T])",
    "masked": "x, h[B, T]; bool m[B, T]\nindex t < T\n"
    "y[b,t] = sum[s, s <= t](x[b,s] * h[b,t - s] * [m[b,s]])",
    "table": "a[2*N - 1]; x[B, N]\nindex i < N\ny[b,i] = sum[j](a[i - j + N - 1] * x[b,j])",
}
OTHERS = {
    "another period": "size M\n" + WAVE.format("N", "sum[n](x[b,n] * exp(-2*pi*I*k*n/M))"),
    "half a period": WAVE.format("N", "sum[n](x[b,n] * exp(-4*pi*I*k*n/N))"),
    "no unit": WAVE.format("N", "sum[n](x[b,n] * exp(-2*pi*k*n/N))"),
    "no pi": WAVE.format("N", "sum[n](x[b,n] * exp(-2*I*k*n/N))"),
    "a square": WAVE.format("N", "sum[n](x[b,n] * exp(-2*pi*I*k*n**2/N))"),
    "a triangle": WAVE.format("N", "sum[n, n <= k](x[b,n] * exp(-2*pi*I*k*n/N))"),
    "weights": "w[N, N]\n" + WAVE.format("N", "sum[n](x[b,n] * w[k,n] * exp(-2*pi*I*k*n/N))"),
    "more frequencies": "w[K]\n" + WAVE.format("K", "w[k] * sum[n](x[b,n] * cos(2*pi*k*n/N))"),
    "few": "x[B, 8]\nindex k < 8\ny[b,k] = sum[n](x[b,n] * exp(-2*pi*I*k*n/8))",
    "may be infinite": WAVE.format("N", "sum[n](log(x[b,n]**2) * cos(2*pi*k*n/N))"),
    "a stride": "a, b[B, N]\nindex k < N\ny[c,k] = sum[i](a[c,i] * b[c,(k + 2*i) % N])",
    "of both": "x, h[B, T]; w[T, T]\nindex t < T\n"
    "y[b,t] = sum[s, s <= t](w[t,s] * x[b,s] * h[b,t - s])",
    "a logarithm": "a, b[B, N]\nindex k < N\ny[c,k] = log(1 + sum[i](a[c,i] * b[c,(k + i) % N]))",
    "a quotient": "a, b[B, N]\nindex k < N\nd[c,k] = sum[i](a[c,i] * b[c,(k + i) % N])\n"
    "y[c,k] = a[c,k] / d[c,k]",
}


def build(text, **how):
    found = derive.parse(text)
    names = {size for size in SIZES if f"{size}" in derive.show(found)}
    sizes = {size: number for size, number in SIZES.items() if size in names}
    return derive.build(found, sizes=sizes, **how)


def is_transformed(built):
    parts = (op for step in built.plan.steps for op in ops.walk_ops(step.op))
    return any(isinstance(op, ops.Fourier) for op in parts)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_sums_of_waves_and_of_offsets_are_transforms(name):
    built = build(TRANSFORMS[name])
    assert is_transformed(built)
    assert built.judge(count=2).agrees


@pytest.mark.parametrize("name", OTHERS)
def test_what_looks_like_it_is_none(name):
    assert not is_transformed(build(OTHERS[name]))


@pytest.mark.parametrize("name", ["circular", "lags"])
def test_all_digits_are_kept_where_that_is_asked_for(name):
    assert not is_transformed(build(TRANSFORMS[name], exact=True))
    assert is_transformed(build(TRANSFORMS["power"], exact=True))


@pytest.mark.sampled(2, 1)
@pytest.mark.parametrize("name", ["power", "cosine transform", "circular", "causal", "inside"])
def test_every_way_to_call_it(name):
    """With gradients, in half precision, with other strides, compiled, and of nothing."""
    built = build(TRANSFORMS[name])
    sizes = choose_sizes(built.system, count=1)[0]
    given = draw_inputs(built.system, sizes, 1)
    expected = built.function(**given)
    values = tuple(value.requires_grad_() for value in given.values())
    assert torch.autograd.gradcheck(built.function, values)
    for dtype in (torch.bfloat16, torch.float16):
        half = built.function(*(value.detach().to(dtype) for value in values))
        assert half.dtype is dtype
        torch.testing.assert_close(half.double(), expected, rtol=0.05, atol=0.2)
    turned = (value.transpose(0, -1).contiguous().transpose(0, -1) for value in values)
    torch.testing.assert_close(built.function(*turned), expected)
    compiled = torch.compile(built.function, backend="aot_eager", fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(*values), expected)
    empty = draw_inputs(built.system, {**sizes, "B": 0}, 1)
    assert built.function(**empty).shape == (0, *expected.shape[1:])
