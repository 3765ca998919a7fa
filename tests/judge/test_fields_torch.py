"""Tensors over towers as torch code meets them: memory, gradients, and what is refused."""

import math

import pytest
import torch
import torch.nn.functional as fn

from derive.judge.fields import (
    FieldTensor,
    NotModelledError,
    draw_field,
    draw_tower,
    exact,
    find_differences,
)

INF = float("inf")
each_seed = pytest.mark.parametrize("seed", range(4))


def draw(shape=(3, 5), seed=0):
    """A tower and a random tensor over it."""
    tower = draw_tower(seed)
    return tower, draw_field(tower, shape, seed)


def is_same(one, other):
    """Are two tensors of one shape equal everywhere?"""
    assert one.shape == other.shape
    return not bool(find_differences(one, other).any())


@each_seed
@pytest.mark.parametrize("make", ["zeros", "empty", "new_zeros", "zeros_like", "ordinary factor"])
def test_views_are_written_to(make, seed):
    tower, x = draw((4, 6), seed)
    with exact(tower):
        out = {
            "zeros": lambda: torch.zeros(4, 6),
            "empty": lambda: torch.empty(4, 6),
            "new_zeros": lambda: x.new_zeros(4, 6),
            "zeros_like": lambda: torch.zeros_like(x),
            "ordinary factor": lambda: torch.ones(4, 6) * 0,
        }[make]()
        out[:, ::2] = x[:, ::2]
        out.T[1::2] = x.T[1::2]
        assert is_same(out, x)
        out[1:3] += x[1:3]
        out.view(2, 2, 6).transpose(0, 2)[0].mul_(3)
        out[torch.tensor([0, 3]), 5] = x[0, :2]
        out[:, torch.tensor([2])] = 7
        out[out[:, 0] != out[:, 0]] = 0
    wanted = torch.cat([x[:1], 2 * x[1:3], x[3:]])
    wanted = torch.cat([3 * wanted[:, :1], wanted[:, 1:2], 0 * x[:, :1] + 7, wanted[:, 3:]], 1)
    last = torch.stack([x[0, 0], 2 * x[1, 5], 2 * x[2, 5], x[0, 1]])
    assert is_same(out, torch.cat([wanted[:, :5], last[:, None]], 1))


@each_seed
def test_a_result_has_memory_of_its_own(seed):
    tower, x = draw((), seed)
    before = x.clone()
    acts = (
        torch.sum,
        torch.amax,
        torch.cumsum,
        torch.clone,
        lambda x: x**1,
        lambda x: x * 1,
        lambda x: x + 0,
        lambda x: x / 1,
        lambda x: x.pow(1.0),
        lambda x: x.max(0).values,
        lambda x: torch.where(torch.tensor(True), x, x),
        lambda x: x.new_zeros(()).copy_(x),
        lambda x: torch.clamp(x, -INF),
    )
    with exact(tower):
        for act in acts:
            found = act(x, 0) if act is torch.cumsum else act(x)
            found += 1
            assert is_same(x, before)
        x.detach().add_(1)
        assert is_same(x, before + 1)


def test_a_tensor_is_turned_in_place():
    tower, x = draw((2, 3))
    y = draw_field(tower, (3, 4), 1)
    with exact(tower):
        out = torch.zeros(2, 3)
        other = out.view(6).unsqueeze_(0)
        out.t_()
        out[0] = x[:, 0]
        out.transpose_(0, 1).unsqueeze_(1)
        assert out.shape == (2, 1, 3)
        assert is_same(out[:, 0, 0], x[:, 0])
        assert is_same(other[0, ::3], x[:, 0])
        assert is_same(x[0] @ y, (x @ y)[0])
        assert is_same(x[0] @ y[:, 0], (x @ y)[0, 0])


def test_what_lies_in_one_place_is_not_written_to_twice():
    _, x = draw((3, 1))
    with pytest.raises(RuntimeError, match="memory"):
        x.expand(3, 4).add_(1)


@each_seed
def test_gradients_are_those_by_hand(seed):
    tower, x = draw((3, 5), seed)
    weight = draw_field(tower, (3, 5), seed + 50)
    label = torch.tensor([1, 4, 0])
    cases = {
        "exp": (lambda x: x.exp(), lambda x: x.exp()),
        "log": (lambda x: x.log(), lambda x: 1 / x),
        "sqrt": (lambda x: x.sqrt(), lambda x: 1 / (2 * x.sqrt())),
        "cube": (lambda x: x**3, lambda x: 3 * x * x),
        "tanh": (torch.tanh, lambda x: 1 - torch.tanh(x) ** 2),
        "abs": (torch.abs, torch.sign),
        "relu": (torch.relu, lambda x: (x > 0).double()),
        "gelu": (
            fn.gelu,
            lambda x: (
                (1 + torch.erf(x / math.sqrt(2))) / 2
                + x * (-x * x / 2).exp() / math.sqrt(2 * math.pi)
            ),
        ),
        "softplus": (fn.softplus, torch.sigmoid),
    }
    for act, derivative in cases.values():
        leaf = x.detach().clone().requires_grad_()
        (act(leaf) * weight).sum().backward()
        assert is_same(leaf.grad, derivative(x) * weight)
    leaf = x.detach().clone().requires_grad_()
    fn.cross_entropy(leaf, label).backward()
    assert is_same(leaf.grad, (x.softmax(-1) - fn.one_hot(label, 5)) / 3)


@each_seed
def test_gradients_go_through_writes(seed):
    tower, x = draw((4, 3), seed)
    leaf = x.clone().requires_grad_()
    weight = draw_field(tower, (4, 3), seed + 50)
    with exact(tower):
        out = torch.zeros(4, 3)
        for row in range(4):
            out[row] = leaf[row] * row
        out[1:3, 0] *= leaf[0, 1]
        (out * weight).sum().backward()
    grad = weight * torch.arange(4.0)[:, None]
    rows = torch.arange(1.0, 3.0)
    grad[1:3, 0] *= x[0, 1]
    grad[0, 1] += (x[1:3, 0] * rows * weight[1:3, 0]).sum()
    assert is_same(leaf.grad, grad)


def test_there_are_no_numbers_to_be_had():
    _, x = draw()
    for take in (FieldTensor.tolist, FieldTensor.numpy):
        with pytest.raises(RuntimeError):
            take(x)


@pytest.mark.parametrize(
    "act",
    [
        lambda x: x[0, 0].item(),
        lambda x: float(x[0, 0]),
        lambda x: int(x[0, 0]),
        lambda x: x.long(),
        lambda x: x.to(torch.int32),
        lambda x: x.to(torch.complex128),
        lambda x: torch.view_as_complex(x.reshape(-1, 2)),
        torch.fft.fft,
        torch.linalg.svd,
        torch.randn_like,
        torch.rand_like,
        torch.bernoulli,
        lambda x: fn.dropout(x, 0.5),
        lambda x: x.normal_(),
        lambda x: fn.softplus(x, threshold=1),
        lambda x: x.exp().log().argmax(),
        lambda x: torch.zeros(2, 2, dtype=torch.long).add_(x),
        lambda x: torch.tensor([1.0, 2.0]).double().mul_(x[0]),
        lambda x: fn.avg_pool1d(x, 2, padding=1),
        lambda x: fn.avg_pool2d(x[None, None], 2, divisor_override=3),
        lambda x: torch.linalg.vector_norm(x, 3),
        torch.histc,
        lambda x: x.scatter_reduce(0, torch.zeros(1, 2, dtype=torch.long), x, "prod"),
        lambda x: x.scatter(0, torch.zeros(1, 2, dtype=torch.long), x, reduce="add"),
    ],
)
def test_what_has_no_meaning_is_refused(act):
    tower, x = draw((2, 2))
    with exact(tower), pytest.raises(NotModelledError):
        act(x)
