"""Two honest ways to compute the same agree over fields, values and gradients; mistakes do not."""

import math
import re

import pytest
import torch
import torch.nn.functional as fn
from texts import read_blocks

from derive.checker.runs import RunOptions, prepare
from derive.judge.compare import use_tower
from derive.judge.fields import draw_field, find_differences
from derive.judge.fields.tensor import pause

SEEDS = range(2)
INF = float("inf")
SDPA = fn.scaled_dot_product_attention
PLACES = torch.tensor([0, 2, 2, 1, 0])


SOME = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 1, 1]], dtype=torch.bool)


def attend(q, k, v, scale=None, mask=None):
    """By hand, with a mask that is added."""
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return torch.softmax(scores if mask is None else scores + mask, -1) @ v


def add_up_online(q, k, v, rescale=True):
    """Key after key, with the largest score so far."""
    total = torch.zeros_like(v[..., :1, :]).expand_as(v).clone()
    below, top = torch.zeros_like(q[..., :1]), torch.full_like(q[..., :1], -INF)
    for place in range(k.shape[-2]):
        score = (q * k[..., place : place + 1, :]).sum(-1, keepdim=True) / math.sqrt(q.shape[-1])
        now = torch.maximum(top, score)
        shrink, weight = (top - now).exp() if rescale else 1.0, (score - now).exp()
        total = total * shrink + weight * v[..., place : place + 1, :]
        below, top = below * shrink + weight, now
    return total / below


def attend_blocks(q, k, v, weigh=True):
    """Two blocks of keys, joined by their sums of exponentials."""
    scores = q @ k.transpose(-1, -2)
    parts = [(scores[..., :2], v[..., :2, :]), (scores[..., 2:], v[..., 2:, :])]
    logs = [each.logsumexp(-1, keepdim=True) for each, _ in parts]
    total = torch.logaddexp(*logs)
    shares = [(each - total).exp() if weigh else 0.5 for each in logs]
    return sum(
        share * (torch.softmax(s, -1) @ w) for share, (s, w) in zip(shares, parts, strict=True)
    )


def run_module(x, w, b, out, over):
    """Torch's module."""
    with pause():
        module = torch.nn.MultiheadAttention(6, 2, batch_first=True).double()
    names = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
    given = dict(zip(names, (w, b, out, over), strict=True))
    return torch.func.functional_call(module, given, (x, x, x))[0]


def run_module_by_hand(x, w, b, out, over):
    """The module by matrix products."""
    split = ((x @ w.T + b).unflatten(-1, (3, 2, 3))).permute(2, 0, 3, 1, 4)
    return attend(*split).transpose(1, 2).flatten(2) @ out.T + over


def turn_halves(x, sign=1.0):
    """Rotary positions by halves."""
    angles = torch.arange(4.0)[:, None] * torch.tensor([1.0, 0.1])
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    one, two = x.chunk(2, -1)
    return x * cos + torch.cat([-sign * two, one], -1) * sin


def turn_pairs(x):
    """Rotary positions entry by entry, into a new tensor."""
    out = torch.empty_like(x)
    for place in range(4):
        for at, speed in enumerate((1.0, 0.1)):
            angle = torch.tensor(place * speed)
            one, two = x[..., place, at], x[..., place, at + 2]
            out[..., place, at] = one * angle.cos() - two * angle.sin()
            out[..., place, at + 2] = two * angle.cos() + one * angle.sin()
    return out


def write_rows(x, at):
    """A matrix filled row by row, and a view of it that is written to."""
    out = x.new_zeros(x.shape)
    for row in range(x.shape[0]):
        out[row] = x[row] * 2
    out.T[1] += x[:, at]
    return out


def read_cases():
    """The shapes and the three functions of each case in fields.txt, by its name."""
    found = {}
    parts = read_blocks(__file__, "fields.txt").values()
    for name, (tensors, *ways) in ((name, way) for part in parts for name, way in part.items()):
        names, shapes = zip(*(each.split() for each in tensors.split(", ")), strict=True)
        assert len(ways) == 3, f"{name} has two ways and a mistake, not {len(ways)} lines"
        functions = [eval(f"lambda {', '.join(names)}: {way}", globals()) for way in ways]
        found[name] = (" ".join(shapes), *functions)
    return found


CASES = read_cases()


def read_shapes(text):
    """`23 4(12)+`: the shapes (2, 3) and (4, 12), the second of positive numbers."""
    for word in text.split():
        extents = re.findall(r"\((\d+)\)|(\d)", word)
        yield tuple(int(one or other) for one, other in extents), word.endswith("+")


def differ(shapes, one, other, seed):
    """Whether the values or the gradients differ, over a tower as deep as necessary."""
    return use_tower(seed, lambda tower, *_: differ_over(tower, shapes, one, other))


def differ_over(tower, shapes, one, other):
    """Whether the values or the gradients differ over one tower."""
    results = [evaluate_with_gradients(tower, shapes, function) for function in (one, other)]
    return any(bool(find_differences(*pair).any()) for pair in zip(*results, strict=True))


def evaluate_with_gradients(tower, shapes, function):
    """The value, and the gradients by every tensor."""
    with prepare(RunOptions()):
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


@pytest.mark.parametrize("name", CASES)
def test_two_ways_are_the_same_and_a_mistake_is_seen(name):
    shapes, one, other, wrong = CASES[name]
    assert not any(differ(shapes, one, other, seed) for seed in SEEDS)
    assert any(differ(shapes, one, wrong, seed) for seed in SEEDS)
