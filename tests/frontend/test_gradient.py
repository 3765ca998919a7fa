"""Gradients in the notation: what torch.autograd finds, element by element, over any upstream."""

import pytest
import torch

from derive import build, gradient, parse, show
from derive.errors import DeriveError
from derive.formulas import find_families, find_formula
from derive.frontend.system import to_system
from derive.ir.nodes import Tensor
from derive.judge.evaluate import evaluate_system
from derive.judge.samples import choose_sizes, draw_inputs

CASES = {
    "a product": "A[M,K]; B[K,N]; C[i,j] = sum[k](A[i,k] * B[k,j])",
    "a diagonal": "A, B[N,N]; t = sum[i](A[i,i]) * sum[i,j](B[i,j] * A[j,i])",
    "a quotient under a root": "x[N,D]; y[n,d] = x[n,d] / sqrt(1 + sum[c](x[n,c]**2))",
    "a power of both": "x[N] > 0; y[N]; z[i,j] = (1 + x[i]) ** y[j]",
    "moments": "x[N,D]; y[n] = var[d](x[n,d]) + mean[d](x[n,d]**3)",
    "a part of a mean": "x[N,D]; bool m[D]; y[n] = mean[d, m[d]](x[n,d]**2)",
    "logits": "x, t[N,C]; L = -mean[n](sum[c](t[n,c] * log_softmax[c](x[n,c])))",
    "a softmax under a mask": "s[N,N]; v[N,D]; z[i,d] = sum[j](softmax[j, j<=i](s[i,j]) * v[j,d])",
    "a mixture": "x[N,K]; mu[K]; y[n] = logsumexp[k](-(x[n,k] - mu[k])**2)",
    "the largest, with ties": "x[N,M]; y[n] = max[m](floor(2 * x[n,m]) * x[n,m])",
    "the larger": "x[N]; w[M]; y[i,j] = max(x[i], w[j], 0.1)",
    "a product over": "x[N,K]; y[n] = prod[k](x[n,k])",
    "a running sum": "x[N,D]; y[n,d] = cumsum[n](x[n,d]**2)",
    "merged indices": "x[N,D]; W[D,H*C]; size H; index h < H; index c < C; "
    "q[h,n,c] = sum[d](x[n,d] * W[d,h*C+c]); o[n,h*C+c] = tanh(q[h,n,c])",
    "merged and not": "x[H*C]; index h < H; index c < C; size H; y[h,c] = x[h*C+c]**2; "
    "z[n] = x[n]**3; return y, z",
    "a window": "x[B,C,L]; w[O,C,K]; index l < L-K+1; y[b,o,l] = sum[c,k](x[b,c,l+k] * w[o,c,k])",
    "a strided window": "x[L]; w[3]; index l < (L-3)//2+1; y[l] = sum[k](x[2*l+k] * w[k])",
    "from behind": "x[N]; index n < N; y[n] = x[N-1-n]**3",
    "cyclic": "x[N]; index n < N; y[n] = x[(n+1)%N]**2",
    "a gather": "w[V,D]; int t[N] < V; y[n,d] = w[t[n],d]**2",
    "a guard": "x[N]; y[i,j] = where(j < i, x[i] * x[j], 0)",
    "a choice": "x[N]; w[N]; y[n] = gelu(x[n]) * where(x[n] > 0, x[n]**2, softplus(w[n]))",
    "an angle": "x, y[N]; z[n] = atan2(y[n], 1 + x[n]**2)",
    "an intermediate result": "x[N]; y[n] = x[n]**2; z[n] = y[n] * sin(x[n]); return y, z",
    "a number beside others": "x[N]; y[n] = x[n]**3; s = sum[n](y[n] * x[n]); return s, y",
    "fixed places": "x[N,D]; y[n] = x[n,0] * x[0,0]",
    "a row more often than it has places": "x[N]; y[i,j] = x[i] + sum[k, j < 2](x[j] * x[k])",
}


def compare(formula):
    """Every gradient against autograd through the loops' tensors, at two sets of sizes."""
    system, made = to_system(formula), to_system(gradient(formula))
    names = [e.name for e in system.inputs if isinstance(e, Tensor) and e.kind == "real"]
    for seed, sizes in enumerate(choose_sizes(system, 2)):
        values = draw_inputs(system, sizes, seed)
        real = {n: v.requires_grad_() if n in names else v for n, v in values.items()}
        found = evaluate_system(system, real, sizes)
        results = [found[tensor.name] for tensor in system.results]
        torch.manual_seed(seed)
        upstream = [torch.randn_like(r) for r in results]
        if len(results) == 1 and not results[0].shape:
            upstream = [torch.ones_like(results[0])]
        wanted = torch.autograd.grad(results, [real[n] for n in names], upstream)
        given = {n: v.detach() if n in names else v for n, v in real.items()}
        new = [entry.name for entry in made.inputs if entry.name not in given]
        given |= dict(zip(new, upstream, strict=False))
        found = evaluate_system(made, given, sizes)
        for tensor, right in zip(made.results, wanted, strict=True):
            torch.testing.assert_close(
                found[tensor.name], right, rtol=1e-10, atol=1e-10, equal_nan=True
            )


@pytest.mark.parametrize("text", CASES.values(), ids=CASES.keys())
def test_the_gradients_are_what_autograd_finds(text):
    compare(parse(text))


@pytest.mark.parametrize("name", find_families())
def test_the_gradients_of_the_library(name):
    compare(find_formula(name))


@pytest.mark.parametrize("case", ["a product", "moments", "a softmax under a mask", "a window"])
def test_gradients_have_gradients(case):
    compare(gradient(parse(CASES[case])))


def test_a_person_reads_the_gradient():
    made = gradient(find_formula("relative_attention"), ["A_K", "W_Q"])
    assert (
        show(made).splitlines()[-6:]
        == """\
dalpha[b,i,j,h] = sum[e](dz[b,i,h,e] * (v[b,j,h,e] + A_V[i,j,h,e]))
dalpha_in[b,i,j,h] = alpha[b,i,j,h] * (dalpha[b,i,j,h] - sum[l](dalpha[b,i,l,h] * alpha[b,i,l,h]))
dq[b,i,h,e] = sum[j](dalpha_in[b,i,j,h] / sqrt(D) * (k[b,j,h,e] + A_K[i,j,h,e]))
dA_K[i,j,h,e] = sum[b](dalpha_in[b,i,j,h] / sqrt(D) * q[b,i,h,e])
dW_Q[h,d,e] = sum[b, i](dq[b,i,h,e] * X[b,i,h,d])
return dA_K, dW_Q""".splitlines()
    )


def test_a_gradient_is_built_like_any_formula():
    forward = parse(CASES["a softmax under a mask"])
    backward = build(gradient(forward, "s")).function
    s, v, dz = torch.randn(4, 4, requires_grad=True), torch.randn(4, 3), torch.randn(4, 3)
    build(forward).function(s, v).backward(dz)
    torch.testing.assert_close(backward(s.detach(), v, dz), s.grad)


@pytest.mark.parametrize(
    ("text", "wrt", "code"),
    [
        ("x[N]; y[n] = x[n]", "z", "gradient-unknown"),
        ("x[N]; int t[N]; y[n] = x[n] * t[n]", "t", "gradient-unknown"),
        ("x[N]; w[N]; y[n] = x[n]", "w", "gradient-none"),
        ("x[N,M]; y[n] = argmax[m](x[n,m])", "x", "gradient-none"),
        ("x[N]; y[n] = x[n] % 2", "x", "gradient-none"),
    ],
)
def test_what_has_no_gradient_is_refused(text, wrt, code):
    with pytest.raises(DeriveError, match=code):
        gradient(parse(text), wrt)
