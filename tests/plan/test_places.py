"""Places read through index arithmetic: the file agrees with the loops, and with torch's own.

places.txt has a formula after each line of title.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from derive import DeriveError, build, evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs

STOCK = Path(__file__).with_name("places.txt").read_text(encoding="utf-8").split("\n\n")
FORMULAS = {title[2:]: text for title, text in (each.split("\n", 1) for each in STOCK)}


@pytest.mark.parametrize("title", FORMULAS)
def test_every_place_is_read_as_the_loops_read_it(title):
    build(FORMULAS[title], name="y").judge(2)


@pytest.mark.parametrize("title", [t for t in FORMULAS if "further" in t])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_shift_may_be_longer_than_the_tensor(title, size):
    built = build(FORMULAS[title], name="y")
    given = draw_inputs(built.system, {"D": size, "M": 2}, 0, torch.float64)
    expected = evaluate_loops(built.formula, given)
    assert torch.allclose(built.function(**given), expected)


@pytest.mark.parametrize("title", [t for t in FORMULAS if "argmax" not in t and "sum A" not in t])
def test_gradients_and_arguments_of_any_strides(title):
    built = build(FORMULAS[title], name="y")
    sizes = choose_sizes(built.system, 1)[0]
    given = draw_inputs(built.system, sizes, 0)
    wanted = built.function(**given)
    turned = {
        name: value.mT.contiguous().mT if torch.is_tensor(value) and value.ndim > 1 else value
        for name, value in given.items()
    }
    assert torch.allclose(built.function(**turned), wanted)
    real = {
        name: value.requires_grad_()
        for name, value in turned.items()
        if torch.is_tensor(value) and value.is_floating_point()
    }
    if sum(value.numel() for value in real.values()) > 400:
        return
    call = lambda *values: built.function(**{**turned, **dict(zip(real, values, strict=True))})  # noqa: E731
    assert torch.autograd.gradcheck(call, tuple(real.values()))


CONVOLUTION = """
size Z = 2; size P = 1; size Q = 2
x[B, C, H, W]; w[O, C, K, M]
index p < (H + 2*P - Q*(K - 1) - 1)//Z + 1; index q < (W + 2*P - Q*(M - 1) - 1)//Z + 1
y[b,o,p,q] = sum[c,k,m](x[b,c,Z*p + Q*k - P,Z*q + Q*m - P] * w[o,c,k,m]
    * [0 <= Z*p + Q*k - P < H] * [0 <= Z*q + Q*m - P < W])
"""


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (3, 2, 2)])
def test_a_convolution_is_one_call(stride, padding, dilation):
    built = build(CONVOLUTION, name="y")
    assert "torch.nn.functional.conv2d(x, w, stride=Z, padding=P, dilation=Q)" in built.source
    x, w = torch.randn(2, 3, 9, 8), torch.randn(4, 3, 3, 2)
    found = built.function(x, w, Z=stride, P=padding, Q=dilation)
    assert torch.allclose(
        found, functional.conv2d(x, w, None, stride, padding, dilation), atol=1e-5
    )
    with pytest.raises(ValueError, match="must have an extent of 1 at least"):
        built.function(x[:, :, :1, :1], w, Z=1, P=0, Q=1)


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("x[N]; index n < N - 3\ny[n] = x[n + 3]", "x[3:]"),
        ("x[2*N]; index n < N\ny[n] = x[2*n + 1]", "x[1::2]"),
        ("x[N]; index n < N\ny[n] = x[N - 1 - n]", "x.flip(0)"),
        ("x[N]; index n < N\ny[n] = x[(n + 1)%N]", "x.roll(-1, 0)"),
        ("x[L]; size K; index t < L - K + 1; index k < K\ny[t,k] = x[t + k]", "x.unfold(0, K, 1)"),
        ("x[N]; index n < N\ny[n] = x[n - 1]*[n >= 1]", "torch.nn.functional.pad(x, (1, -1))"),
        ("x[N, N]; index n < N - 1\ny[n] = x[n,n + 1]", "x[:N - 1, 1:].diagonal()"),
        ("w[V, D]; int t[B, S] < V\ny[b,s,d] = w[t[b,s],d]", "torch.nn.functional.embedding(t, w)"),
        ("x[N, C]; int t[N] < C\ny[n] = x[n,t[n]]", "x[n, t]"),
    ],
)
def test_a_place_is_written_as_a_person_would(text, view):
    assert view in build(text, name="y").source


@pytest.mark.parametrize(
    "text",
    [
        "x[N]; index n < N\ny[n] = x[n + 1]",
        "x[N]; index n < N\ny[n] = x[n - 1]*[n >= 0]",
        "x[L]; size K; size Z; index t < (L - K)//Z + 2; index k < K\ny[t] = sum[k](x[Z*t + k])",
        "w[8]; index n < N\nx[N]\ny[n] = w[n//(N//8)]*x[n]",
    ],
)
def test_a_read_that_may_leave_its_tensor_is_refused(text):
    with pytest.raises(DeriveError, match="may read outside"):
        build(text, name="y")
