"""Two honest ways to compute the same agree over fields, values and gradients; mistakes do not."""

import re

import pytest
import torch
from fields_attention import ATTENTION
from fields_identities import IDENTITIES
from fields_sums import SUMS

from derive.checker.runs import precisely
from derive.judge.fields import (
    DEEPEST,
    TooDeepError,
    UnluckyError,
    draw_field,
    draw_tower,
    exact,
    find_differences,
)

CASES = ATTENTION | IDENTITIES | SUMS
SEEDS = range(6)
each_case = pytest.mark.parametrize("name", CASES)


def read_shapes(text):
    """`23 4(12)+`: the shapes (2, 3) and (4, 12), the second of positive numbers."""
    for word in text.split():
        extents = re.findall(r"\((\d+)\)|(\d)", word)
        yield tuple(int(one or other) for one, other in extents), word.endswith("+")


def differ(shapes, one, other, seed):
    """Do the values differ, or the gradients? Deeper towers where exponentials nest deeper."""
    for depth in range(1, DEEPEST + 1):
        for attempt in range(5):
            try:
                return differ_over(draw_tower(seed + 100 * attempt, depth), shapes, one, other)
            except UnluckyError:
                continue
            except TooDeepError:
                break
    raise AssertionError("no tower is deep enough")


def differ_over(tower, shapes, one, other):
    """The same over one tower."""
    results = [run(tower, shapes, function) for function in (one, other)]
    return any(bool(find_differences(*pair).any()) for pair in zip(*results, strict=True))


def run(tower, shapes, function):
    """The value, and the gradients by every tensor."""
    with precisely(), exact(tower):
        given = [
            draw_field(tower, shape, number, positive=positive).requires_grad_()
            for number, (shape, positive) in enumerate(read_shapes(shapes))
        ]
        found = function(*given)
        weight = draw_field(tower, found.shape, 99)
        gradients = torch.autograd.grad(
            (found * weight).sum(), given, allow_unused=True, materialize_grads=True
        )
    return [found.detach(), *gradients]


def test_there_are_enough_cases():
    assert len(CASES) == sum(map(len, (ATTENTION, IDENTITIES, SUMS))) >= 60


@each_case
def test_two_ways_are_the_same(name):
    shapes, one, other, _ = CASES[name]
    assert not any(differ(shapes, one, other, seed) for seed in SEEDS)


@each_case
def test_a_mistake_is_seen(name):
    shapes, one, _, wrong = CASES[name]
    assert any(differ(shapes, one, wrong, seed) for seed in SEEDS)


@each_case
def test_float64_says_the_same(name):
    """What is called right here is right for numbers, and the mistake is one."""
    shapes, one, other, wrong = CASES[name]
    generator = torch.Generator().manual_seed(1)
    given = []
    for shape, positive in read_shapes(shapes):
        value = torch.randn(shape, generator=generator, dtype=torch.float64)
        given.append(value.abs() + 0.1 if positive else value)
    with precisely():
        found, same, mistaken = (function(*given) for function in (one, other, wrong))
    torch.testing.assert_close(found, same, atol=1e-9, rtol=1e-9)
    assert found.shape != mistaken.shape or not torch.allclose(found, mistaken, equal_nan=True)
