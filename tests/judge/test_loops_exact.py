"""The loops in exact fractions, and exact against float against Python's own reading."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from derive.errors import DeriveError
from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_loops

INF = float("inf")


def test_exact_values() -> None:
    formula = parse(
        "A[N, M]; x[M]; scalar c = 0.1\n"
        "y[i] = c * sum[j](A[i,j] * x[j]) / 3 + mean[j](x[j]) ** (-2)"
        "\nv = var[j](x[j], correction=1)\nreturn y, v"
    )
    third = Fraction(1, 3)
    found = evaluate_loops(formula, {"A": [[third, 2], [0.5, 0]], "x": [1, third]}, exact=True)
    assert found == (
        [Fraction(1, 30) + Fraction(9, 4), Fraction(1, 60) + Fraction(9, 4)],
        Fraction(2, 9),
    )


def test_exact_decimals_and_roots() -> None:
    formula = parse("x[N]\ny[i] = x[i] * 0.3 + 1e-5 + sqrt(N) + x[i]**(-1/2) + max(x[i], 2.5)")
    found = evaluate_loops(formula, {"x": torch.tensor([4.0, 1.0, 9.0, 0.25])}, exact=True)
    assert found[0] == Fraction(12, 10) + Fraction(1, 100000) + 2 + Fraction(1, 2) + 4
    assert found[3] == Fraction(75, 1000) + Fraction(1, 100000) + 2 + 2 + Fraction(5, 2)


def test_exact_infinities() -> None:
    formula = parse("x[N]\ny = max[i](where(x[i] > 2, x[i], -oo))\nz = 1/sum[i](x[i])\nreturn y, z")
    assert evaluate_loops(formula, {"x": [1, 2, 3, -6]}, exact=True) == (3, INF)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("exp(x[i])", "exp"),
        ("softmax[i](x[i])", "softmax"),
        ("sqrt(x[i])", "sqrt"),
        ("pi * x[i]", "pi"),
        ("x[i]**(1/3)", "the power 1/3"),
        ("gelu(x[i])", "gelu"),
    ],
)
def test_not_rational(text: str, name: str) -> None:
    with pytest.raises(DeriveError) as caught:
        evaluate_loops(parse(f"x[N]\ny[i] = {text}"), {"x": [2, 3]}, exact=True)
    assert caught.value.diagnostic.code == "not-rational"
    assert caught.value.diagnostic.says == f"{name} has no exact value in fractions"


LEAVES = ["x[i]", "A[i,j]", "c", "2", "0.5", "i", "N", "-1/3", "-x[i]**2", "(-x[j])**2", "2**-2"]
LEAVES += ["(i - 2) // 2", "-i // 2", "(i*j - 4) % 3", "N // 2 % 3", "-(i + 1) % (j + 2)"]
LEAVES += ["A[(i + j) // 2, (i - j) % N]", "abs(i - j)", "clip(i - j, -1, 1)"]


def fresh(text: str) -> str:
    """An index for one more sum around the text."""
    return next(index for index in "klopqrst" if f"[{index}" not in text)


rational = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        inner.map(lambda t: f"({t}) / (x[i]**2 + 1)"),
        inner.map(lambda t: f"({t}) * [i <= j]"),
        inner.map(lambda t: f"where(x[i] > c, {t}, j)"),
        inner.map(lambda t: f"where(not ({t} > 0 and i < j) or x[i] == c, {t}, 1)"),
        inner.map(lambda t: f"where(i != j, 2, {t})"),
        inner.map(lambda t: f"-({t})"),
        inner.map(lambda t: f"c - ({t}) / -2"),
        inner.map(lambda t: f"max({t}, A[i,j])"),
        inner.map(lambda t: "sum[k](A[i,k] + {})".replace("k", fresh(t)).format(t)),
        inner.map(lambda t: "mean[k, k <= i](x[k] * {})".replace("k", fresh(t)).format(t)),
    ),
    max_leaves=6,
)


@given(rational, st.integers(0, 1000))
def test_fractions_agree_with_floats(body: str, seed: int) -> None:
    formula = parse(f"x[N]; A[N, N]; scalar c; index i, j, k, l, o, p, q, r < N\ny[i,j] = {body}")
    random = np.random.default_rng(seed)
    values = {"x": random.integers(-4, 5, 3) / 2, "A": random.integers(-4, 5, (3, 3)) / 4, "c": 0.5}
    exact = np.array(evaluate_loops(formula, values, exact=True), dtype=float)
    np.testing.assert_allclose(evaluate_loops(formula, values), exact, rtol=1e-12, atol=1e-12)


@given(rational, st.integers(0, 1000))
def test_floats_agree_with_python(body: str, seed: int) -> None:
    """The notation's words given to Python itself: the same text, another reader."""
    formula = parse(f"x[N]; A[N, N]; scalar c; index i, j, k, l, o, p, q, r < N\ny[i,j] = {body}")
    random = np.random.default_rng(seed)
    values = {"x": random.normal(size=3), "A": random.normal(size=(3, 3)), "c": 0.5}
    wanted = [[_read(body, values, {"i": a, "j": b, "N": 3}) for b in range(3)] for a in range(3)]
    np.testing.assert_allclose(evaluate_loops(formula, values), wanted, rtol=1e-12, atol=1e-12)


def _read(body: str, values: dict[str, Any], at: dict[str, int]) -> float:
    """Python's reading of a text, its sums and brackets spelt as calls of lambdas."""
    while True:
        start = re.search(r"(sum|mean)\[(\w)(, \w <= i)?\]\(", body)
        if start is None:
            break
        end, depth = start.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(body[end], 0)
            end += 1
        inside = body[start.end() : end - 1]
        name = f"{start[1]}_{'to_i' if start[3] else 'all'}"
        body = f"{body[: start.start()]}{name}(lambda {start[2]}: {inside}){body[end:]}"
    body = body.replace("[i <= j]", "(i <= j)")

    def all_k(g: Any) -> list[float]:
        return [g(k) for k in range(3)]

    scope = {
        **values,
        **at,
        "where": lambda c, a, b: a if c else b,
        "clip": lambda value, low, high: min(max(value, low), high),
        "sum_all": lambda g: sum(all_k(g)),
        "mean_to_i": lambda g: np.mean(all_k(g)[: at["i"] + 1]),
    }
    return float(eval(body, scope))
