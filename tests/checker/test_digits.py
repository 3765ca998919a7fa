"""An evaluation with many digits decides which of two float64 values is right."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from judged import judge
from texts import Expressions

from derive import DeriveError, check, from_torch, parse
from derive.judge.loops import evaluate_loops
from derive.judge.loops.entries import prepare_entry

ROWS = Expressions(Path(__file__).with_name("digits_rows.txt"), globals())

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


@pytest.mark.parametrize(("text", "x", "wanted"), ROWS["an entry has as many digits as needed"])
def test_an_entry_has_as_many_digits_as_needed(text, x, wanted):
    entry = prepare_entry(parse(text), "y")
    assert entry({"x": torch.tensor([x], dtype=torch.float64)}, (0,)) == wanted


def test_an_entry_without_a_value_is_nan():
    entry = prepare_entry(parse("x[N]; y[i] = sqrt(x[i]) + log(x[i])"), "y")
    assert math.isnan(entry({"x": torch.tensor([-1.0], dtype=torch.float64)}, (0,)))


# Precision is part of the code.

DOUBLE = "x[N]; y[n] = 2*x[n]"


def round_by_numpy(x):
    return torch.from_numpy(x.detach().numpy().astype(np.float16).astype(np.float64)) * 2


@pytest.mark.slow
def test_code_that_rounds_in_numpy_is_different():
    assert check(round_by_numpy, parse(DOUBLE)).same is False


def count_in_int8(x):
    return 2 * x[torch.arange(x.shape[0], dtype=torch.int8).long()]


def mask_in_uint8(x):
    return 2 * x * torch.ones(x.shape[0], dtype=torch.uint8)


def test_narrow_integers_as_positions_are_refused():
    assert from_torch(mask_in_uint8, "x[N]").name == "mask_in_uint8"
    with pytest.raises(DeriveError, match="lift-narrow"):
        from_torch(count_in_int8, "x[N]")


def test_a_detached_result_has_a_wrong_gradient():
    text = "x[N, D]; w[D, K]; y[n,k] = exp(sum[d](x[n,d] * w[d,k]))"
    assert judge("torch.exp(x @ w)", text, backward=True).same is True
    assert judge("torch.exp(x.detach() @ w)", text, backward=True).same is False
