"""The judge over random fields, on gradients written by hand and on what it refuses."""

import pytest
import torch

from derive import check, parse
from derive.checker.judge import judge_fields
from derive.checker.pick import pick_program
from derive.checker.source.load import load
from derive.frontend.system import to_system


def judge_code(code, formula, bind=None, sizes=None, backward=False):
    """What fields say, and nothing else."""
    system = to_system(formula)
    choice = pick_program(load(code, system.name), system, dict(bind or {}), dict(sizes or {}))
    return judge_fields(choice.program, choice.samples, backward=backward)


class Square(torch.autograd.Function):
    """exp(-x * x) with its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = torch.exp(-x * x)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return -2 * x * y * grad


class Wrong(Square):
    """The same with half of the gradient."""

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return -x * y * grad


class Nearly(Square):
    """The same with a gradient that float64 does not tell from the right one."""

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return -2 * x * y * grad * (1 + 1e-11)


class Detached(Square):
    """The same with a gradient that does not know the gradient of the result."""

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return -2 * x * y


GAUSSIAN = parse("x[N, D]; y[i,j] = exp(-x[i,j]**2)")


def run_right(x):
    return Square.apply(x)


def run_wrong(x):
    return Wrong.apply(x)


def run_nearly(x):
    return Nearly.apply(x)


def run_detached(x):
    return Detached.apply(x)


def test_a_right_gradient_is_identical():
    verdict = check(run_right, GAUSSIAN, backward=True)
    assert verdict.same is True
    assert verdict.grade in {"identical", "proved"}


@pytest.mark.parametrize("code", [run_wrong, run_detached])
def test_a_wrong_gradient_is_different(code):
    verdict = check(code, GAUSSIAN, backward=True)
    assert verdict.same is False, str(verdict)
    assert verdict.grade == "different"


@pytest.mark.parametrize("code", [run_wrong, run_detached, run_nearly])
def test_fields_see_a_wrong_gradient(code):
    assert judge_code(code, GAUSSIAN).same is True
    found = judge_code(code, GAUSSIAN, backward=True)
    assert found.same is False
    assert not found.is_chancy
    assert "gradient" in found.difference


def test_a_gradient_too_small_to_see_is_not_quite_right():
    verdict = check(run_nearly, GAUSSIAN, backward=True)
    assert "not-quite" in {finding.code for finding in verdict.findings}


ROWS = parse("x[N, D]; m[N]; y[i,j] = exp(x[i,j] - m[i]) / sum[k](exp(x[i,k] - m[i]))")


def shift_before(x, m):
    return torch.softmax(x - m[:, None], -1)


def forget_shift(x, m):
    return torch.softmax(x, -1)


def shift_by_an_epsilon(x, m):
    raised = torch.exp(x - m[:, None])
    return raised / (raised.sum(-1, keepdim=True) + 1e-12)


def take_item(x, m):
    return torch.softmax(x - x.max().item(), -1)


def look_at_values(x, m):
    if x[0, 0] > 0.3:
        return torch.softmax(x, -1)
    return torch.softmax(x * (1 + 1e-9), -1)


@pytest.mark.parametrize(
    ("code", "same"),
    [
        (shift_before, True),
        (forget_shift, True),
        (shift_by_an_epsilon, False),
        (take_item, None),
        (look_at_values, False),
    ],
)
def test_small_constants_and_refusals(code, same):
    found = judge_code(code, ROWS)
    assert found.same is same
    assert same is not None or "not modelled" in found.reason


EMPTY = parse("x[N, D]; y[i,j] = log(0 - x[i,j]**2 * 0 - 1)")


def make_nan(x):
    return torch.log(x * 0 - 1)


def test_nothing_is_judged_where_nothing_is_finite():
    found = judge_code(make_nan, EMPTY)
    assert found.same is None
    assert "finite" in found.reason
