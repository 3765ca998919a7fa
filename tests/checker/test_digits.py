"""Where float64 differs far out, many digits say which side is right."""

import math

import pytest
import torch
from judged import judge

from derive import parse
from derive.judge.loops import evaluate_loops
from derive.judge.loops.entries import prepare_entry

SLOW = pytest.mark.slow
LOSING = "x[N]; y[i] = -log(1 - sigmoid(x[i]))"
STABLE = "x[N]; y[i] = softplus(x[i])"
CROSS = (
    "x[N]; 0 <= t[N] <= 1\nr[i] = -(t[i]*log(sigmoid(x[i])) + (1 - t[i])*log(1 - sigmoid(x[i])))"
)
ROWS = "x[N, C]; y[i,c] = log(softmax[c](x[i,c]))"
SCALE = "x[N, D]; y[i,d] = x[i,d]/sqrt(sum[k](x[i,k]**2))"


@pytest.mark.parametrize(
    ("text", "body", "finding"),
    [
        (LOSING, "F.softplus(x)", "digits-formula"),
        (STABLE, "-torch.log(1 - torch.sigmoid(x))", "digits-code"),
        (STABLE, "torch.log1p(torch.exp(x))", "out-of-range"),
        (CROSS, "F.binary_cross_entropy_with_logits(x, t, reduction='none')", "digits"),
        (ROWS, "F.log_softmax(x, -1)", "digits-formula"),
        ("x[N]; y[i] = x[i]", "torch.atanh(torch.tanh(x))", "digits-code"),
        (SCALE, "F.normalize(x, dim=-1)", "undefined"),
    ],
)
def test_a_loss_of_digits_is_a_finding(text, body, finding):
    verdict = judge(body, text)
    assert verdict.same is True, str(verdict)
    found = [each for each in verdict.findings if each.code.startswith(finding)]
    assert found
    assert "at " in found[0].facts[0]


@pytest.mark.parametrize(
    ("text", "body"),
    [
        pytest.param(LOSING, "F.softplus(x.clamp(max=20))", marks=SLOW),
        pytest.param(LOSING, "torch.where(x > 20, x + 0.01, F.softplus(x))", marks=SLOW),
        pytest.param(STABLE, "-torch.log((1 - torch.sigmoid(x)).clamp(min=1e-7))", marks=SLOW),
        (ROWS, "torch.log(F.softmax(x, -1) + 1e-12)"),
        ("x[N]; y[i] = x[i]", "torch.atanh(torch.tanh(x).clamp(-0.999, 0.999))"),
        ("x[N]; y[i] = where(x[i] == 0, 1, sin(x[i])/x[i])", "torch.sin(x) / x"),
    ],
)
def test_another_function_far_out_is_different(text, body):
    verdict = judge(body, text)
    assert verdict.same is False, str(verdict)
    assert "the formula says" in verdict.difference
    assert "N=" in verdict.difference


TEXT = """
q[S, D]; k[T, D]; bool m[T]; x[B, H*D]; size H
index h < H
a[i,j] = softmax[j, m[j]](sum[d](q[i,d]*k[j,d])/sqrt(D))
u[h*D + d, b] = gelu(x[b,h*D+d])*0.1 + floor(3*x[b,h*D+d]) + tanh(x[b,h*D+d])
w[i] = logsumexp[d](q[i,d]) + var[d](q[i,d]) + max[d](q[i,d]) + elu(q[i,0])
return a, u, w
"""


def test_entries_with_many_digits_are_those_of_the_loops():
    formula = parse(TEXT)
    sample = torch.Generator().manual_seed(0)
    shapes = {"q": (2, 3), "k": (4, 3), "x": (2, 6)}
    values = {
        name: torch.randn(shape, generator=sample, dtype=torch.float64)
        for name, shape in shapes.items()
    }
    values |= {"H": 2, "m": torch.tensor([True, False, True, True])}
    for name, result in zip("auw", evaluate_loops(formula, values), strict=True):
        entry = prepare_entry(formula, name)
        for place in torch.ones(result.shape).nonzero().tolist():
            assert entry(values, tuple(place)) == pytest.approx(float(result[tuple(place)]))


@pytest.mark.parametrize(
    ("text", "x", "wanted"),
    [
        ("x[N]; y[i] = -log(1 - sigmoid(x[i]))", 60.0, 60.0),
        ("x[N]; y[i] = -log(1 - sigmoid(x[i]))", 3000.0, 3000.0),
        ("x[N]; y[i] = -log(1 - sigmoid(x[i]))", 1e6, None),
        ("x[N]; y[i] = (1 + x[i]) - 1", 1e-30, 1e-30),
        ("x[N]; y[i] = where(x[i] > 0.1, 1, 0)", 0.1, 0.0),
        ("x[N]; y[i] = 1/x[i]", 0.0, math.inf),
        ("x[N]; y[i] = log(x[i])", 0.0, -math.inf),
        ("x[N]; y[i] = sqrt(x[i])**2", 2.0, 2.0),
    ],
)
def test_as_many_digits_as_it_takes(text, x, wanted):
    entry = prepare_entry(parse(text), "y")
    assert entry({"x": torch.tensor([x], dtype=torch.float64)}, (0,)) == wanted


def test_what_has_no_value_is_nan():
    entry = prepare_entry(parse("x[N]; y[i] = sqrt(x[i]) + log(x[i])"), "y")
    assert math.isnan(entry({"x": torch.tensor([-1.0], dtype=torch.float64)}, (0,)))
