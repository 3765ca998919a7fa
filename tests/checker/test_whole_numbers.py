"""What zeros and equal values decide is judged at whole numbers."""

import pytest
import torch

from derive import check, parse

MASKED = "x, m[B, S]; y[b,s] = softmax[s, m[b,s] != 0](x[b,s])"


def mask_by_product(x, m):
    return x.softmax(-1) + 0 * m


def mask_by_fill(x, m):
    return x.masked_fill(m == 0, float("-inf")).softmax(-1)


def keep(x, m):
    return x + 0 * m


def choose(x, m):
    return torch.where(m == 0, 0.0, x)


def step(x):
    return torch.where(x > 0, 1.0, 0.0)


def rectify(x):
    return torch.where(x >= 0, x, 0.0)


@pytest.mark.parametrize(
    ("code", "text", "same"),
    [
        (mask_by_product, MASKED, False),
        (mask_by_fill, MASKED, True),
        (keep, "x, m[B, S]; y[b,s] = where(m[b,s] == 0, 0, x[b,s])", False),
        (choose, "x, m[B, S]; y[b,s] = where(m[b,s] == 0, 0, x[b,s])", True),
        (step, "x[B]; y[b] = where(x[b] >= 0, 1, 0)", False),
        (rectify, "x[B]; y[b] = relu(x[b])", True),
    ],
)
def test_zeros_have_a_say(code, text, same):
    verdict = check(code, parse(text))
    assert verdict.same is same, str(verdict)
