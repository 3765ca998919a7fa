"""Towers of prime fields: their laws, exact functions and numbers, and a total order."""

import itertools
import math
import operator
from ast import literal_eval
from fractions import Fraction  # noqa: F401 - the laws name it
from functools import partial

import pytest
import torch
import torch.nn.functional as fn  # noqa: F401 - the laws name it
from texts import read_parts

from derive.judge.fields import (
    DEEPEST,
    FieldTensor,
    NotModelledError,
    TooDeepError,
    draw_field,
    draw_tower,
    exact,
    find_differences,
    show_value,
    to_field,
)
from derive.judge.fields.tower import TOP, find_character, is_prime  # noqa: F401

SEEDS = range(2)  # towers of either parity
INF, NAN = float("inf"), float("nan")
NUMBERS = (-INF, -3.0, -1.0, 0.0, 1.0, 2.0, INF, NAN)
PARTS = read_parts(__file__, "field_laws.txt")
INFINITE, OWN, REFUSED = (
    PARTS.pop(title)[0].splitlines() for title in ("of infinities", "of its own", "refused")
)
LAWS = PARTS
each_seed = pytest.mark.parametrize("seed", SEEDS)
each_depth = pytest.mark.parametrize("depth", range(1, DEEPEST + 1))


def draw_tensor(shape=(3, 5), seed=0, depth=1, **named):
    """A tower and a random tensor over it."""
    tower = draw_tower(seed, depth)
    return tower, draw_field(tower, shape, seed, **named)


def is_same(one, other):
    """Are two tensors of one shape equal everywhere?"""
    assert one.shape == other.shape
    return not bool(find_differences(one, other).any())


def list_numbers(tensor):
    """The elements as Python's numbers."""
    return tensor.reshape(-1).tolist()


def show_elements(tensor):
    """The text of every element."""
    return [show_value(tensor, place) for place in itertools.product(*map(range, tensor.shape))]


@each_seed
@each_depth
def test_towers_are_what_they_say(seed, depth):
    tower = draw_tower(seed, depth)
    assert tower.depth == depth == tower.levels - 1 == len(tower.primes) - 1
    assert max(tower.primes) < TOP
    assert all(map(is_prime, tower.primes))
    for prime, below in itertools.pairwise(tower.primes):
        assert (prime - 1) % below == 0
    for base, prime, order in zip(tower.bases, tower.primes, tower.primes[1:], strict=False):
        assert base != 1
        assert pow(base, order, prime) == 1
    for prime in tower.primes:
        assert prime % 4 == 3
        assert all(pow(root, (prime - 1) // 2, prime) == 1 for root in tower.squares)


def test_towers_differ():
    assert len({draw_tower(seed).primes for seed in range(9)}) == 9
    assert [draw_tower(seed).key % 2 for seed in range(4)] == [0, 1, 0, 1]


def test_primes_are_recognised():
    small = [each for each in range(2000) if is_prime(each)]
    assert small == [n for n in range(2, 2000) if all(n % k for k in range(2, n))]
    assert not is_prime(3_215_031_751 // 2 * 2)
    assert not is_prime(46_337 * 46_339)


@each_seed
@pytest.mark.parametrize("act", [operator.add, operator.sub, operator.mul, torch.maximum])
def test_small_numbers_and_infinities_are_those_of_floats(act, seed):
    tower = draw_tower(seed)
    pairs = torch.tensor(list(itertools.product(NUMBERS, NUMBERS)), dtype=torch.float64)
    found = act(*(to_field(tower, each) for each in pairs.unbind(-1)))
    assert is_same(found, to_field(tower, act(*pairs.unbind(-1))))


@each_seed
@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons_are_those_of_floats(name, seed):
    tower = draw_tower(seed)
    pairs = torch.tensor(list(itertools.product(NUMBERS, NUMBERS)), dtype=torch.float64).unbind(-1)
    found = getattr(torch, name)(*(to_field(tower, each) for each in pairs))
    assert torch.equal(found, getattr(torch, name)(*pairs))


def find_slope(act, x, weight):
    """The gradient of a weighed sum of a function's values."""
    leaf = x.detach().clone().requires_grad_()
    (act(leaf) * weight).sum().backward()
    return leaf.grad


def open_scope(tower, usage, first=""):
    """The names available to a law; its first line may draw tensors, `x, y of (3, 4)`."""
    names, _, shape = first.partition(" of ")
    drawn = {
        name: draw_field(tower, literal_eval(shape), number)
        for number, name in enumerate(names.split(", ") if shape else ())
    }
    given = {
        "tower": tower,
        "usage": usage,
        "field": partial(to_field, tower),
        "numbers": lambda *each: to_field(tower, torch.tensor(each, dtype=torch.float64)),
        "slope": find_slope,
        "MASK": torch.tensor([True, False, True, False]),
        "LABEL": torch.tensor([1, 4, 0]),
    }
    return globals() | given | drawn


def is_alike(one, other):
    """Are two ordinary values equal?"""
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


HOLDS = {" == ": is_same, " != ": lambda *pair: not is_same(*pair), " is ": is_alike}


@each_seed
@pytest.mark.parametrize("title", LAWS)
def test_laws_of_towers(title, seed):
    tower, laws = draw_tower(seed), LAWS[title][0].splitlines()
    with exact(tower) as usage:
        scope = open_scope(tower, usage, laws[0])
        for law in laws[" of (" in laws[0] :]:
            sign = next((sign for sign in HOLDS if sign in law), "")
            sides = [eval(side, scope) for side in (law.split(sign) if sign else [law])]
            assert HOLDS[sign](*sides) if sign else sides[0], law


@pytest.mark.parametrize("text", INFINITE)
def test_functions_of_infinities_are_those_of_floats(text):
    tower = draw_tower(0)
    for row in itertools.product((-INF, 0.0, INF, NAN), repeat=3):
        given = torch.tensor(row, dtype=torch.float64)
        found, wanted = (eval(text, globals() | {"x": x}) for x in (to_field(tower, given), given))
        if not isinstance(found, FieldTensor):
            assert torch.equal(found, wanted)
        elif all(
            math.isinf(each) or each in {0, 1} or each != each for each in list_numbers(wanted)
        ):
            assert is_same(found, to_field(tower, wanted)), (row, show_elements(found), wanted)


@each_seed
def test_a_result_has_memory_of_its_own(seed):
    tower, x = draw_tensor((), seed)
    before = x.clone()
    with exact(tower):
        for text in OWN:
            found = eval(text)
            found += 1
            assert is_same(x, before), text
        x.detach().add_(1)
        assert is_same(x, before + 1)


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_meaning_is_refused(text):
    tower, x = draw_tensor((2, 2))
    with exact(tower), pytest.raises(NotModelledError):
        eval(text, globals() | {"x": x})


@each_seed
@each_depth
def test_exponentials_turn_sums_into_products(seed, depth):
    tower, x = draw_tensor((20,), seed, depth)
    y = draw_field(tower, (20,), seed + 50)
    for _ in range(depth):
        assert is_same((x + y).exp(), x.exp() * y.exp())
        assert is_same((-x).exp(), 1 / x.exp())
        assert is_same((3 * x).exp(), x.exp() ** 3)
        assert not is_same((2 * x).exp(), x.exp() ** 3)
        x, y = x.exp(), y.exp()
    with pytest.raises(TooDeepError):
        x.exp()


@each_seed
@pytest.mark.parametrize("make", ["zeros", "empty", "new_zeros", "zeros_like", "ordinary factor"])
def test_views_are_written_to(make, seed):
    tower, x = draw_tensor((4, 6), seed)
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


def test_a_tensor_is_turned_in_place():
    tower, x = draw_tensor((2, 3))
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
    _, x = draw_tensor((3, 1))
    with pytest.raises(RuntimeError, match="memory"):
        x.expand(3, 4).add_(1)


def test_there_are_no_numbers_to_be_had():
    _, x = draw_tensor()
    for take in (FieldTensor.tolist, FieldTensor.numpy):
        with pytest.raises(RuntimeError):
            take(x)
