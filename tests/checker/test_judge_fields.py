"""The judges: random fields, and an evaluation with many digits where float64 is in doubt."""

import math

import numpy as np
import pytest
import torch
from judged import write_source
from torch import nn

from derive import DeriveError, check, from_torch, parse
from derive.checker.judge import judge_fields
from derive.checker.load import load
from derive.checker.pick import pick_program
from derive.checker.runs import convert_buffers, find_dtype
from derive.frontend.from_sympy import to_system
from derive.judge.loops import evaluate_loops
from derive.judge.loops.entries import prepare_entry


def judge_code(code, formula, bind=None, sizes=None, backward=False):
    """Judge code by random fields alone."""
    system = to_system(formula)
    choice = pick_program(load(code, system.name), system, dict(bind or {}), dict(sizes or {}))
    return judge_fields(choice.program, choice.samples, backward=backward)


def make_step(gradient):
    """Make exp(-x * x) with a backward that is a function of x, y and the gradient of y."""

    class Step(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.exp(-x * x)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return gradient(*ctx.saved_tensors, grad)

    def apply_step(x):
        return Step.apply(x)

    return apply_step


RIGHT = make_step(lambda x, y, grad: -2 * x * y * grad)
HALF = make_step(lambda x, y, grad: -x * y * grad)
NEARLY = make_step(lambda x, y, grad: -2 * x * y * grad * (1 + 1e-11))  # float64 does not see it
DETACHED = make_step(lambda x, y, grad: -2 * x * y)
GAUSSIAN = parse("x[N, D]; y[i,j] = exp(-x[i,j]**2)")


def test_a_right_gradient_is_identical():
    verdict = check(RIGHT, GAUSSIAN, backward=True)
    assert verdict.same is True
    assert verdict.grade in {"identical", "proved"}


@pytest.mark.parametrize("code", [HALF, DETACHED])
def test_a_wrong_gradient_is_different(code):
    verdict = check(code, GAUSSIAN, backward=True)
    assert verdict.same is False, str(verdict)
    assert verdict.grade == "different"


@pytest.mark.parametrize("code", [HALF, DETACHED, NEARLY])
def test_fields_see_a_wrong_gradient(code):
    assert judge_code(code, GAUSSIAN).same is True
    found = judge_code(code, GAUSSIAN, backward=True)
    assert found.same is False
    assert not found.is_chancy
    assert "gradient" in found.difference


def test_a_gradient_too_small_to_see_is_not_quite_right():
    verdict = check(NEARLY, GAUSSIAN, backward=True)
    assert "not-quite" in {finding.code for finding in verdict.findings}


ROWS = "x[N, D]; m[N]; y[i,j] = exp(x[i,j] - m[i]) / sum[k](exp(x[i,k] - m[i]))"


CODES = [
    ("torch.softmax(x - m[:, None], -1)", True),
    ("torch.softmax(x, -1)", True),
    ("e = torch.exp(x - m[:, None])\ne / (e.sum(-1, keepdim=True) + 1e-12)", False),
    ("torch.softmax(x - x.max().item(), -1)", None),
    ("torch.softmax(x if x[0, 0] > 0.3 else x * (1 + 1e-9), -1)", False),
]


@pytest.mark.parametrize(("code", "same"), CODES)
def test_fields_see_small_constants_and_refuse_branches_on_data(code, same):
    found = judge_code(write_source(code, ROWS), parse(ROWS))
    assert found.same is same
    assert same is not None or "not modelled" in found.reason


def test_nothing_is_judged_where_nothing_is_finite():
    empty = parse("x[N, D]; y[i,j] = log(0 - x[i,j]**2 * 0 - 1)")
    found = judge_code(lambda x: torch.log(x * 0 - 1), empty)
    assert found.same is None
    assert "finite" in found.reason


# Buffers of a module have the type of its inputs while it is judged, and keep its state.

FORMULA = """
x[B, C, T]; g, c[C]
y[b,k,t] = x[b,k,t] / sqrt(1 + 1/2) * g[k] + c[k]
"""
BIND = "input=x, weight=g, bias=c"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_norm_runs_in_every_type(dtype):
    verdict = check(nn.BatchNorm1d(5, eps=0.5, dtype=dtype).eval(), FORMULA, bind=BIND)
    assert verdict.same is True, str(verdict)
    assert "not-in-float32" not in [finding.code for finding in verdict.findings]
    if dtype is torch.float64:
        wrong = nn.BatchNorm1d(5, eps=0.25, dtype=dtype).eval()
        assert check(wrong, FORMULA, bind=BIND).same is False


class Counting(nn.Module):
    def __init__(self, in_place):
        super().__init__()
        self.in_place = in_place
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        if self.in_place:
            self.count += 1
        else:
            self.count = self.count + 1
        return x + self.count


@pytest.mark.parametrize("in_place", [False, True])
def test_a_state_in_a_buffer_is_seen(in_place):
    verdict = check(Counting(in_place), "x[N]; y[n] = x[n] + 1")
    assert verdict.same is None
    assert "changes the buffer count" in str(verdict)


def test_buffers_are_restored():
    module = nn.BatchNorm1d(3)
    mean, count = module.running_mean, module.num_batches_tracked
    with convert_buffers(module, torch.float64):
        assert module.running_mean.dtype is module.running_var.dtype is torch.float64
        assert module.num_batches_tracked is count  # whole numbers stay
    assert module.running_mean is mean
    with convert_buffers(module, None):
        assert module.running_mean is mean
    assert find_dtype([3, torch.arange(3), torch.ones(2, dtype=torch.bfloat16)]) is torch.bfloat16
    assert find_dtype([True, torch.arange(3)]) is None


# Entries with as many digits as needed, and rounding that is part of the code.

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
        ("x[N]; y[i] = -log(1 - sigmoid(x[i]))", 1e6, None),
        ("x[N]; y[i] = (1 + x[i]) - 1", 1e-30, 1e-30),
        ("x[N]; y[i] = where(x[i] > 0.1, 1, 0)", 0.1, 0.0),
        ("x[N]; y[i] = 1/x[i]", 0.0, math.inf),
        ("x[N]; y[i] = sqrt(x[i])**2", 2.0, 2.0),
    ],
)
def test_an_entry_has_as_many_digits_as_needed(text, x, wanted):
    entry = prepare_entry(parse(text), "y")
    assert entry({"x": torch.tensor([x], dtype=torch.float64)}, (0,)) == wanted


def test_an_entry_without_a_value_is_nan():
    entry = prepare_entry(parse("x[N]; y[i] = sqrt(x[i]) + log(x[i])"), "y")
    assert math.isnan(entry({"x": torch.tensor([-1.0], dtype=torch.float64)}, (0,)))


def round_by_numpy(x):
    return torch.from_numpy(x.detach().numpy().astype(np.float16).astype(np.float64)) * 2


@pytest.mark.slow
def test_code_that_rounds_in_numpy_is_different():
    assert check(round_by_numpy, "x[N]; y[n] = 2*x[n]").same is False


def count_in_int8(x):
    return 2 * x[torch.arange(x.shape[0], dtype=torch.int8).long()]


def mask_in_uint8(x):
    return 2 * x * torch.ones(x.shape[0], dtype=torch.uint8)


def test_narrow_integers_as_positions_are_refused():
    assert from_torch(mask_in_uint8, "x[N]").name == "mask_in_uint8"
    with pytest.raises(DeriveError, match="lift-narrow"):
        from_torch(count_in_int8, "x[N]")
