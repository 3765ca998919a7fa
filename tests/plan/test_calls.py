"""Functions that a formula spells out are torch's, in every way to write them."""

import pytest
import torch

from derive import build

SPELLED = [
    ("silu", "x[i] / (1 + exp(-x[i]))"),
    ("silu", "w[i] * x[i] * (1 + tanh(x[i]/2))"),
    ("silu", "-x[i] * exp(x[i]) / (1 + exp(x[i]))"),
    ("gelu", "(erf(x[i] / sqrt(2)) + 1) * w[i] * x[i]"),
    ("gelu", "x[i] / 2 * (1 + tanh(sqrt(2/pi) * (x[i] + 0.044715 * x[i]**3)))"),
    ("softplus", "w[i] + 2 * log(1 + exp(x[i] + w[i]))"),
    ("logsigmoid", "-log(1 / (1 + exp(-x[i])))"),
    ("sigmoid", "1 / (1 + exp(x[i]))"),
    ("sigmoid", "w[i] / (1 + exp((x[i] - w[i])/2))"),
    ("tanh", "(exp(x[i]) - exp(-x[i])) / (exp(x[i]) + exp(-x[i]))"),
    ("mish", "x[i] * tanh(log(1 + exp(x[i])))"),
    ("logsigmoid", "w[i] * log(sigmoid(x[i]))"),
    ("softplus", "w[i] * log(1 - sigmoid(x[i]))"),
    ("log1p", "w[i] * log(x[i]**2 + 1 + 1)"),
    ("log1p", "log(1 + w[i]**2 * x[i]**2) - 1"),
    ("expm1", "w[i] * (exp(-x[i]**2) - 1)"),
]
LINES = "x, w[N]; scalar c = 1.3\ny[i] = "


@pytest.mark.parametrize(("name", "text"), SPELLED)
def test_what_is_spelt_out_is_one_call(name, text):
    built = build(LINES + text)
    assert f"{name}(" in built.source
    assert built.judge(1).agrees
    huge = torch.tensor([-1e4, -90.0, 0.0, 90.0, 1e4])
    assert built.function(huge, torch.ones(5)).isfinite().all()


@pytest.mark.parametrize(
    "text",
    [
        "x[i] / 2 * (1 + erf(x[i] * 0.70711))",
        "x[i] / (1 + exp(-w[i]))",
        "log(2 + exp(x[i]))",
        "log(2 - sigmoid(x[i]))",
        "exp(x[i]) - 2",
        "(exp(-x[i]**2) - 1) * exp(-x[i]**2)",
        "log(1 + x[i]**2) / (1 + x[i]**2)",
    ],
)
def test_what_is_like_it_is_left(text):
    built = build(LINES + text)
    names = ("elu", "silu", "gelu", "softplus", "expm1", "log1p")
    assert not any(f"{name}(" in built.source.partition("_check_shapes")[2] for name in names)
    assert built.judge(1).agrees


@pytest.mark.parametrize(("name", "text"), [row for row in SPELLED if "elu" not in row[0]])
def test_what_is_spelt_out_of_a_sum_is_one_call(name, text):
    built = build(f"X[N, D]; W[D]; w[N]\ny[i] = {text.replace('x[i]', 'sum[d](X[i,d] * W[d])')}")
    assert f"{name}(" in built.source
    assert "X_W_2" not in built.source  # a sum that differs in scale
    assert built.judge(1).agrees


@pytest.mark.parametrize("added", [" + b[i]", " - 1", " * b[i] - c"])
def test_what_is_spelt_out_of_terms_is_one_call(added):
    lines = "X[N, D]; W[D]; b[N]; scalar c\nf(x) = x * (1 + erf(x / sqrt(2))) / 2\n"
    built = build(f"{lines}y[i] = f(sum[d](X[i,d] * W[d]){added})")
    assert "gelu(" in built.source
    assert built.judge(1).agrees


def test_what_is_spelt_out_under_a_mask_is_one_call() -> None:
    built = build("x[N]\ny[i] = sum[j, j != i](1 / (1 + exp(x[i] - x[j])))")
    assert "sigmoid(x - x[:, None])" in built.source
    assert built.judge(1).agrees
