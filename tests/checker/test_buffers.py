"""Buffers of a module have the type of its inputs while it is judged, and keep its state."""

import pytest
import torch
from torch import nn

from derive import check
from derive.checker.runs import convert_buffers, find_dtype

FORMULA = """
x[B, C, T]; g, c[C]
y[b,k,t] = x[b,k,t] / sqrt(1 + 1/2) * g[k] + c[k]
"""
BIND = "input=x, weight=g, bias=c"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_norm_runs_in_every_type(dtype):
    verdict = check(nn.BatchNorm1d(5, eps=0.5, dtype=dtype).eval(), FORMULA, bind=BIND)
    assert verdict.same is True, str(verdict)
    assert "not-in-float32" not in [finding.code for finding in verdict.findings]
    assert check(nn.BatchNorm1d(5, eps=0.25, dtype=dtype).eval(), FORMULA, bind=BIND).same is False


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
    assert "something else at each call" in str(verdict)


def test_buffers_are_what_they_were():
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
