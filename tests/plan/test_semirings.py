"""Reductions distribute over what joins their parts: the path of a contraction, in any semiring."""

from __future__ import annotations

from math import log2
from pathlib import Path

import pytest
import torch
from texts import Expressions

from derive import build

ROWS = Expressions(Path(__file__).with_name("semirings_rows.txt"), globals())

CHAIN = "P[B, I]; Q[I, J]; R[J, K]; u[K]; s[b] = "
NET = "P[I, J]; Q[J, K]; R[K, I]; s[i] = "
# A formula, and the degree of its operations where all extents grow together.
PARTED = ROWS["parted"]
# What must stay one reduction, and why.
WHOLE = ROWS["whole"]


def count_degree(text: str) -> float:
    """The slope of the operations over the extents."""
    sizes = [{name: number for name in "BIJK" if name in text} for number in (1024, 2048)]
    flops = [(plan := build(text, sizes=each).plan).at_sizes(plan.flops) for each in sizes]
    return log2(flops[1] / flops[0])


@pytest.mark.parametrize(("text", "degree"), PARTED)
def test_one_index_at_a_time(text, degree):
    assert count_degree(text) == pytest.approx(degree, abs=0.02)
    build(text).judge(2)


@pytest.mark.parametrize("text", WHOLE)
def test_what_does_not_distribute_is_reduced_at_once(text):
    build(text).judge(2)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_slopes_and_huge_numbers(scale):
    text = CHAIN + "logsumexp[i, j, k](P[b,i] + Q[i,j] + R[j,k] + u[k])"
    given = [scale * torch.randn(3, 4), *(scale * torch.randn(4, 4) for _ in "QR")]
    given = [each.double().requires_grad_() for each in (*given, scale * torch.randn(4))]
    P, Q, R, u = given
    whole = (P[:, :, None, None] + Q[:, :, None] + R + u).logsumexp((1, 2, 3))
    found = build(text).function(*given)
    assert torch.allclose(found, whole)
    grads = [torch.autograd.grad(each.sum(), given) for each in (found, whole)]
    assert all(map(torch.allclose, *grads))
