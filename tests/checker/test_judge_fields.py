"""The judge over random fields, on gradients written by hand and on what it refuses."""

import pytest
import torch
from judged import write

from derive import check, parse
from derive.checker.judge import judge_fields
from derive.checker.load import load
from derive.checker.pick import pick_program
from derive.frontend.system import to_system


def judge_code(code, formula, bind=None, sizes=None, backward=False):
    """What fields say, and nothing else."""
    system = to_system(formula)
    choice = pick_program(load(code, system.name), system, dict(bind or {}), dict(sizes or {}))
    return judge_fields(choice.program, choice.samples, backward=backward)


def make_step(gradient):
    """exp(-x * x) as a step of autograd, with a gradient of x, y and the gradient of y."""

    class Step(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.exp(-x * x)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return gradient(*ctx.saved_tensors, grad)

    def run(x):
        return Step.apply(x)

    return run


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
def test_small_constants_and_refusals(code, same):
    found = judge_code(write(code, ROWS), parse(ROWS))
    assert found.same is same
    assert same is not None or "not modelled" in found.reason


def test_nothing_is_judged_where_nothing_is_finite():
    empty = parse("x[N, D]; y[i,j] = log(0 - x[i,j]**2 * 0 - 1)")
    found = judge_code(lambda x: torch.log(x * 0 - 1), empty)
    assert found.same is None
    assert "finite" in found.reason
