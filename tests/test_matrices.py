"""Functions of matrices: what they mean, what is built of them, and what is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch

from derive import DeriveError, build, check, evaluate_loops, gradient, parse, show
from derive.frontend.from_sympy import from_sympy
from derive.judge.samples import choose_sizes, draw_inputs

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Use:
    """A formula, the same by torch, and what its code has to hold."""

    text: str
    reference: Callable[..., Any]
    prints: str
    without: str = "linalg.inv("
    has_gradient: bool = True


def _gaussian(x: Any, mu: Any, S: Any) -> Any:
    away = x - mu
    half = torch.einsum("ni,ij,nj->n", away, S.inverse(), away)
    return -(half + S.logdet() + S.shape[0] * math.log(2 * math.pi)) / 2


def _kalman(P: Any, H: Any, R: Any, x: Any, z: Any) -> Any:
    gain = P @ H.T @ (H @ P @ H.T + R).inverse()
    return x + gain @ (z - H @ x), P - gain @ H @ P


USES = {
    "solve": Use(
        "A[B, N, N]; b[B, N]\ny[n,j] = solve[i, j](A[n,i,j], b[n,i])",
        torch.linalg.solve,
        "torch.linalg.solve(A, b)",
    ),
    "solve, numbered by the other": Use(
        "A[N, N]; b[N, M]\ny[i,m] = solve[i, j](A[i,j], b[j,m])",
        torch.linalg.solve,
        "torch.linalg.solve(A, b)",
    ),
    "many right sides": Use(
        "A[B, N, N]; b[P, N, B, M]\ny[p,m,n,i] = sum[j](inverse[i, j](A[n,i,j]) * b[p,j,n,m])",
        lambda A, b: torch.einsum("nij,pjnm->pmni", A.inverse(), b),
        "torch.linalg.solve(",
    ),
    "one right side of many matrices": Use(
        "A[B, N, N]; b[N]\ny[n,j] = sum[i](inverse[i, j](A[n,i,j]) * b[i])",
        lambda A, b: torch.einsum("nij,i->nj", A.inverse(), b),
        "torch.linalg.solve(",
    ),
    "transposed": Use(
        "A[N, B, N]\ny[j,i,b] = inverse[i, j](A[i,b,j])",
        lambda A: A.transpose(0, 1).inverse().permute(2, 1, 0),
        "torch.linalg.inv(",
        without="solve",
    ),
    "inverse asked for itself": Use(
        "A[N, N]; b[N]\nY[i,j] = inverse[i, j](A[i,j])\ny[i] = sum[j](Y[i,j] * b[j])\nreturn Y, y",
        lambda A, b: (A.inverse(), A.inverse() @ b),
        "torch.linalg.inv(A)",
        without="solve",
    ),
    "det": Use(
        "A[B, N, N]\ny[b] = det[i, j](A[b,j,i]) + b",
        lambda A: A.det() + torch.arange(A.shape[0]),
        "torch.linalg.det(",
    ),
    "trace of a product": Use(
        "A, C[N, N]\ny = sum[i, j](inverse[i, j](A[i,j]) * C[j,i])",
        lambda A, C: (A.inverse() @ C).trace(),
        "torch.linalg.inv(",
        without="solve",
    ),
    "Gaussian process": Use(
        "K[N, N]; Ks[M, N]; Kss[M]; y[N]; scalar s = 0.5\n"
        "m[a] = sum[i, j](Ks[a,i] * inverse[i, j](K[i,j] + s*delta(i, j)) * y[j])\n"
        "v[a] = Kss[a] - sum[i, j](Ks[a,i] * inverse[i, j](K[i,j] + s*delta(i, j)) * Ks[a,j])\n"
        "return m, v",
        lambda K, Ks, Kss, y, s: (
            Ks @ (K + s * torch.eye(len(K)).double()).inverse() @ y,
            Kss - (Ks @ (K + s * torch.eye(len(K)).double()).inverse() * Ks).sum(1),
        ),
        "torch.linalg.solve(",
    ),
    "Mahalanobis": Use(
        "x[N, D]; mu[D]; S[D, D]\n"
        "d[n] = sum[i, j]((x[n,i] - mu[i]) * inverse[i, j](S[i,j]) * (x[n,j] - mu[j]))",
        lambda x, mu, S: torch.einsum("ni,ij,nj->n", x - mu, S.inverse(), x - mu),
        "torch.linalg.solve(",
    ),
    "ridge regression": Use(
        "X[N, D]; y[N]; scalar l = 0.1\n"
        "w[d] = solve[d, e](sum[n](X[n,d] * X[n,e]) + l*delta(d, e), sum[n](X[n,e] * y[n]))",
        lambda X, y, l: (X.T @ X + l * torch.eye(X.shape[1]).double()).inverse() @ X.T @ y,
        "torch.linalg.solve(",
    ),
    "least squares": Use(
        "X[N, D]; y[N]\nw[d] = solve[d, e](sum[n](X[n,d] * X[n,e]), sum[n](X[n,e] * y[n]))",
        lambda X, y: torch.linalg.lstsq(X, y[:, None]).solution[:, 0],
        "torch.linalg.solve(",
    ),
    "log-density": Use(
        "x[N, D]; mu[D]; S[D, D]\n"
        "p[n] = -sum[i, j]((x[n,i] - mu[i]) * inverse[i, j](S[i,j]) * (x[n,j] - mu[j])) / 2 "
        "- logdet[i, j](S[i,j]) / 2 - D*log(2*pi) / 2",
        _gaussian,
        "torch.logdet(S)",
    ),
    "Kalman update": Use(
        "P[N, N]; H[M, N]; R[M, M]; x[N]; z[M]\n"
        "S[a,b] = sum[i, j](H[a,i] * P[i,j] * H[b,j]) + R[a,b]\n"
        "K[i,b] = sum[a, j](P[i,j] * H[a,j] * inverse[a, b](S[a,b]))\n"
        "X[i] = x[i] + sum[b](K[i,b] * (z[b] - sum[j](H[b,j] * x[j])))\n"
        "Q[i,k] = P[i,k] - sum[b, j](K[i,b] * H[b,j] * P[j,k])\n"
        "return X, Q",
        _kalman,
        "left=False)",
    ),
    "cholesky": Use(
        "A[B, N, N]\ny[b,i,j] = cholesky[i, j](A[b,i,j])",
        torch.linalg.cholesky,
        "torch.linalg.cholesky(A)",
        has_gradient=False,
    ),
    "whitening": Use(
        "S[D, D]; x[N, D]\nL[i,j] = cholesky[i, j](S[i,j])\ny[n,i] = solve[i, j](L[i,j], x[n,j])",
        lambda S, x: x @ torch.linalg.cholesky(S).inverse().T,
        "torch.linalg.solve(",
        has_gradient=False,
    ),
}


def _draw(formula: Any, number: int) -> dict[str, Any]:
    system = from_sympy(formula)
    sizes = choose_sizes(system, 2)[number]
    return draw_inputs(system, sizes, seed=number + 3)


def _close(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7, check_dtype=False)


@pytest.mark.parametrize("name", USES)
def test_uses(name: str) -> None:
    """By the loops, by the code, by torch: one value, and one text."""
    use = USES[name]
    formula = parse(use.text, "formula")
    assert show(parse(show(formula))) == show(formula)
    built = build(formula)
    assert use.prints in built.source
    assert use.without not in built.source
    for number in (0, 1):
        inputs = _draw(formula, number)
        wanted = use.reference(*inputs.values())
        _close(evaluate_loops(formula, inputs), wanted)
        _close(built.function(**inputs), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", USES)
def test_files_are_judged(name: str) -> None:
    """What is built is the formula to the judges too."""
    formula = parse(USES[name].text, "formula")
    assert check(build(formula).source, formula).same


@pytest.mark.parametrize("size", [0, 1])
def test_small_matrices(size: int) -> None:
    """Of no entry the determinant is 1; of one all is a quotient."""
    A = torch.full((2, size, size), 4.0, dtype=torch.float64)
    texts = {"det[i, j](A[b,i,j])": 4.0**size, "sum[i, j](inverse[i, j](A[b,i,j]))": size / 4}
    texts["sum[i, j](cholesky[i, j](A[b,i,j]))"] = 2.0 * size
    for text, wanted in texts.items():
        formula = parse(f"A[B, N, N]\ny[b] = {text}", "formula")
        for found in (evaluate_loops(formula, {"A": A}), build(formula).function(A)):
            _close(found, torch.full((2,), wanted, dtype=torch.float64))


@pytest.mark.parametrize("name", [name for name, use in USES.items() if use.has_gradient])
def test_gradients(name: str) -> None:
    """What is derived on paper is what torch finds."""
    formula = parse(USES[name].text, "formula")
    backward = gradient(formula)
    inputs = _draw(formula, 0)
    tensors = {k: v.requires_grad_() for k, v in inputs.items() if isinstance(v, torch.Tensor)}
    found = USES[name].reference(*inputs.values())
    results = found if isinstance(found, tuple) else (found,)
    generator = torch.Generator().manual_seed(1)
    seeds = [torch.randn(r.shape, generator=generator, dtype=r.dtype) for r in results]
    given = [e.name for e in from_sympy(backward).inputs if e.name not in inputs]
    seeds = seeds if given else [torch.ones_like(results[0])]
    wanted = torch.autograd.grad(results, list(tensors.values()), seeds)
    arguments = {k: v.detach() if hasattr(v, "detach") else v for k, v in inputs.items()}
    arguments |= dict(zip(given, seeds, strict=False))
    made = evaluate_loops(backward, arguments)
    for one, other in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
        _close(one, other)


REFUSED = {
    "reduction-form": "y[i,k] = inverse[i](A[i,k])",
    "matrix-not-square": "y[i,m] = inverse[i, m](b[i,m])",
    "matrix-condition": "y[i,j] = inverse[i, j, i <= j](A[i,j])",
    "index-absent": "y[i,j] = inverse[i, j](A[i,i]) * A[i,j]",
    "solve-right-side": "y[i,j] = solve[i, j](A[i,j], A[j,i])",
    "argument-count": "y[i] = solve[i, j](A[i,j])",
    "index-bound-again": "y[i] = det[i, j](A[i,j])",
}


@pytest.mark.parametrize("code", REFUSED)
def test_refusals(code: str) -> None:
    """What is no function of one square matrix is refused, and said where."""
    with pytest.raises(DeriveError) as caught:
        build(parse(f"A[N, N]; b[N, M]\n{REFUSED[code]}"))
    assert caught.value.diagnostic.code == code
    assert caught.value.diagnostic.help


DIFFERENT = [
    ("inverse[i, j](A[i,j])", "inverse[i, j](A[j,i])"),
    ("cholesky[i, j](A[i,j])", "cholesky[j, i](A[i,j])"),
    ("sum[k](inverse[i, k](A[i,k]) * A[k,j])", "sum[k](inverse[i, k](A[i,k]) * A[j,k])"),
    ("A[i,j] * det[k, l](A[k,l])", "A[i,j] * det[k, l](2*A[k,l])"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_others_are_told_apart(one: str, other: str) -> None:
    """Code of another formula is no code of this one."""
    formula, another = (parse(f"A[N, N]\ny[i,j] = {each}", "formula") for each in (one, other))
    verdict = check(build(another).source, formula)
    assert verdict.same is False
