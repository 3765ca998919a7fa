"""Functions that a formula spells out are torch's, in every way to write them."""

from __future__ import annotations

import pytest
import torch

from derive import build

SPELLED = [
    ("elu", "where(x[i] > 0, x[i] + 1, exp(x[i]))"),
    ("elu", "where(x[i] >= 0, x[i], exp(x[i]) - 1) * w[i]"),
    ("elu", "where(x[i] < 0, exp(x[i]), 1 + x[i])"),
    ("silu", "x[i] / (1 + exp(-x[i]))"),
    ("silu", "w[i] * x[i] * (1 + tanh(x[i]/2))"),
    ("silu", "-x[i] * exp(x[i]) / (1 + exp(x[i]))"),
    ("gelu", "(erf(x[i] / sqrt(2)) + 1) * w[i] * x[i]"),
    ("gelu", "x[i] / 2 * (1 + tanh(sqrt(2/pi) * (x[i] + 0.044715 * x[i]**3)))"),
    ("softplus", "w[i] + 2 * log(1 + exp(x[i] + w[i]))"),
    ("softplus", "-log(1 / (1 + exp(-x[i])))"),
    ("sigmoid", "exp(x[i]) / (1 + exp(x[i]))"),
    ("tanh", "(exp(x[i]) - exp(-x[i])) / (exp(x[i]) + exp(-x[i]))"),
    ("mish", "x[i] * tanh(log(1 + exp(x[i])))"),
]
OTHERS = [
    "where(x[i] > 0, x[i] + 2, exp(x[i]))",
    "where(x[i] > 1, x[i] + 1, exp(x[i]))",
    "x[i] / (2 + exp(-x[i]))",
    "x[i] / 2 * (1 + erf(x[i] * 0.70711))",
    "x[i] / (1 + exp(-w[i]))",
    "log(2 + exp(x[i]))",
    "exp(x[i]) - 1",
]
LINES = "x, w[N]\ny[i] = "


@pytest.mark.parametrize(("name", "text"), SPELLED)
def test_what_is_spelt_out_is_one_call(name, text):
    built = build(LINES + text)
    assert f"{name}(" in built.source
    assert built.judge(1).agrees
    huge = torch.tensor([-1e4, -90.0, 0.0, 90.0, 1e4])
    assert built.function(huge, torch.ones(5)).isfinite().all()


@pytest.mark.parametrize("text", OTHERS)
def test_what_is_like_it_is_left(text):
    built = build(LINES + text)
    names = ("elu", "silu", "gelu", "softplus", "expm1")
    assert not any(f"{name}(" in built.source.partition("_check_shapes")[2] for name in names)
    assert built.judge(1).agrees
