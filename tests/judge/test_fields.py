"""Towers of prime fields: their laws, exact functions and numbers, and a total order."""

import itertools
import math
import operator
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as fn

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
from derive.judge.fields.tower import TOP, find_character, is_prime

SEEDS = range(4)
INF, NAN = float("inf"), float("nan")
NUMBERS = (-INF, -3.0, -1.0, 0.0, 1.0, 2.0, INF, NAN)
each_seed = pytest.mark.parametrize("seed", SEEDS)
each_depth = pytest.mark.parametrize("depth", range(1, DEEPEST + 1))


def draw(shape=(3, 5), seed=0, depth=1, **named):
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


def read(tensor):
    """Every element in words."""
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


def test_primes_are_told():
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


@pytest.mark.parametrize("seed", SEEDS[:1])
@pytest.mark.parametrize(
    "act",
    [
        torch.sum,
        torch.prod,
        torch.mean,
        torch.amax,
        torch.argmax,
        lambda x: x.sort().values,
        lambda x: x.topk(2).values,
        torch.abs,
        torch.sign,
        torch.relu,
        torch.isinf,
        torch.isnan,
        torch.isfinite,
        torch.exp,
        torch.sigmoid,
        torch.tanh,
        torch.square,
        lambda x: x / 7,
        lambda x: x / math.sqrt(7),
        lambda x: x * -math.pi,
        lambda x: x**3,
        lambda x: x.cumsum(0),
        lambda x: x.clamp(-2, 1),
        lambda x: torch.softmax(x, 0),
        lambda x: torch.logsumexp(x, 0),
        lambda x: torch.log_softmax(x, 0),
        lambda x: x @ torch.ones(3, dtype=torch.float64),
    ],
)
def test_functions_of_infinities_are_those_of_floats(act, seed):
    tower = draw_tower(seed)
    for row in itertools.product((-INF, 0.0, INF, NAN), repeat=3):
        given = torch.tensor(row, dtype=torch.float64)
        found = act(to_field(tower, given))
        wanted = act(given)
        if not isinstance(found, FieldTensor):
            assert torch.equal(found, wanted)
        elif all(
            math.isinf(each) or each in {0, 1} or each != each for each in list_numbers(wanted)
        ):
            assert is_same(found, to_field(tower, wanted)), (row, read(found), wanted)


@each_seed
def test_roots_and_logarithms_of_what_is_negative_are_no_numbers(seed):
    tower = draw_tower(seed)
    given = to_field(tower, torch.tensor([-4.0, -1.0, -INF, -1e9], dtype=torch.float64))
    assert read(given.sqrt()) == ["nan"] * 4
    assert read(given[:3].log()) == ["nan"] * 3


@each_seed
def test_a_finite_number_stands_for_minus_infinity(seed):
    tower, x = draw((4,), seed)
    mask = torch.tensor([True, False, True, False])
    with exact(tower) as usage:
        hidden = torch.softmax(x.masked_fill(mask, -INF), 0)
        for factor in (1, 0.5, 1 / math.sqrt(17), math.log(3)):
            soft = torch.softmax((x / factor + mask * -1e9) * factor, 0)
            assert is_same(soft, hidden)
        assert usage.soft_mask
        whole = torch.softmax(x - 1e9, 0)
        assert is_same(whole, torch.softmax(x, 0))


@each_seed
def test_what_stands_for_plus_infinity_is_no_row(seed):
    tower, x = draw((4,), seed)
    with exact(tower), pytest.raises(NotModelledError, match="large"):
        torch.softmax(x + torch.tensor([0.0, 1e9, 0.0, 0.0]), 0)


@each_seed
@each_depth
def test_exponentials_turn_sums_into_products(seed, depth):
    tower, x = draw((20,), seed, depth)
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
@each_depth
def test_logarithms_undo_exponentials(seed, depth):
    tower, x = draw((20,), seed, depth)
    y = draw_field(tower, (20,), seed + 50)
    assert is_same(x.log().exp(), x)
    assert is_same(x.exp().log(), x)
    assert is_same((x * y).log(), x.log() + y.log())
    assert is_same((x / y).log().exp(), x / y)
    assert is_same((3 * x.log()).exp(), x**3)
    assert is_same(x.log().sum().exp(), x.prod())
    assert is_same(torch.log(x.exp() + y.exp()), torch.logaddexp(x, y))
    assert is_same(torch.logsumexp(x, 0), x.exp().sum().log())
    assert not is_same(x.log(), (2 * x).log())
    assert not is_same(x.log(), (-x).log())
    assert not is_same((x + y).log(), x.log() + y.log())


@each_seed
def test_a_root_of_a_square_is_positive(seed):
    _, x = draw((40,), seed)
    root = (x * x).sqrt()
    assert is_same(root * root, x * x)
    assert bool((root > 0).all())
    assert not is_same(root, x)
    assert not is_same(root, -x)
    assert is_same((x.exp() ** 2).sqrt(), x.exp())


@each_seed
def test_roots_are_of_products_too(seed):
    tower, x = draw((40,), seed)
    y = draw_field(tower, (40,), seed + 50)
    with exact(tower) as usage:
        assert is_same((x * y).sqrt(), x.sqrt() * y.sqrt())
        assert is_same(x.rsqrt(), 1 / x.sqrt())
        assert is_same(x**0.25, x.sqrt().sqrt())
        assert usage.rooted
    with exact(tower) as usage:
        assert is_same((x.exp() * 2).sqrt(), (x / 2).exp() * math.sqrt(2))
        assert not usage.rooted


def test_the_root_of_a_negative_is_no_root():
    for change in (lambda x: (-x).sqrt(), lambda x: -(-x).sqrt()):
        found = [is_same(x.sqrt(), change(x)) for seed in (0, 1) for _, x in [draw(seed=seed)]]
        assert not all(found)


@each_seed
@pytest.mark.parametrize(
    ("number", "power", "wanted"),
    [
        (1 / 3, 1, Fraction(1, 3)),
        (0.1, 1, Fraction(1, 10)),
        (1e-5, 1, Fraction(1, 100_000)),
        (0.044715, 1, Fraction(44_715, 1_000_000)),
        (math.sqrt(0.5), 2, Fraction(1, 2)),
        (3**-0.25, 4, Fraction(1, 3)),
        (64**-0.5, 1, Fraction(1, 8)),
        (-math.sqrt(2) / 3, 2, Fraction(2, 9)),
    ],
)
def test_numbers_are_what_they_stand_for(number, power, wanted, seed):
    tower = draw_tower(seed)
    with exact(tower) as usage:
        assert is_same(to_field(tower, number) ** power, to_field(tower, wanted))
    assert not usage.opaque


@each_seed
def test_numbers_fit_together(seed):
    tower = draw_tower(seed)
    with exact(tower) as usage:
        root = to_field(tower, math.sqrt(2 / math.pi))
        assert is_same(root * root * math.pi, to_field(tower, 2))
        assert is_same(root / math.sqrt(2), to_field(tower, 1 / math.sqrt(math.pi)))
        two, six = (to_field(tower, math.log(each)) for each in (2, 6))
        assert is_same(two + math.log(3), six)
        assert is_same(two.exp(), to_field(tower, 2))
        assert is_same(two, torch.full((), 2.0).log())
        assert is_same(two / math.log(2), to_field(tower, 1))
        assert is_same(to_field(tower, math.log2(math.e)) * math.log(2), to_field(tower, 1))
    assert not usage.opaque


def test_an_unknown_number_is_the_same_twice_and_noted():
    tower = draw_tower(0)
    with exact(tower) as usage:
        one, other = (to_field(tower, each) for each in (1.2345678901234, 1.2345678901234))
        assert is_same(one, other)
        assert is_same(-one, to_field(tower, -1.2345678901234))
        assert not is_same(one, to_field(tower, 1.2345678801234))
    assert list(usage.opaque) == ["the number 1.23457", "the number -1.23457"]


@each_seed
def test_the_order_is_total_and_one(seed):
    tower, x = draw((4, 9), seed)
    y = draw_field(tower, (4, 9), seed + 50)
    assert torch.equal(x < y, ~(x >= y))
    assert torch.equal(x < y, y > x)
    assert torch.equal(x < y, -y < -x)
    assert is_same(torch.maximum(x, y), torch.where(x > y, x, y))
    assert is_same(torch.maximum(x, y) + torch.minimum(x, y), x + y)
    values, places = x.sort(-1)
    assert is_same(values, x.gather(-1, places))
    assert bool((values[:, 1:] > values[:, :-1]).all())
    top = x.topk(3, -1)
    assert is_same(top.values, values.flip(-1)[:, :3])
    assert torch.equal(top.indices, places.flip(-1)[:, :3])
    assert is_same(x.max(-1).values, top.values[:, 0])
    assert is_same(x.amax(), values[:, -1].max())
    assert is_same(x.amin(-1), values[:, 0])
    assert torch.equal(x.argmax(-1), top.indices[:, 0])
    assert bool((values[:, :1] < INF).all() & (values[:, :1] > -INF).all())


@each_seed
def test_the_order_has_every_size_and_both_signs(seed):
    tower, x = draw((400,), seed)
    with exact(tower) as usage:
        for bound in (-20, -1, 0, 1, 20):
            assert 20 < int((x > bound).sum()) < 380
        assert usage.ordered
    assert bool((x.exp() > 0).all())
    assert bool((x * x > 0).all())
    assert torch.equal(x * 6 > 0, x > 0)
    assert is_same(x.abs(), x * x.sign())
    assert torch.equal(find_character(x.parts.residues[0], tower.primes[0]) > 0, x > 0)


@each_seed
def test_an_order_of_small_numbers_rests_on_nothing(seed):
    tower = draw_tower(seed)
    with exact(tower) as usage:
        assert torch.equal(torch.ones(3).cumsum(0) < 3, torch.tensor([True, True, False]))
        assert int(torch.ones(3, 2).sum()) == 6
    assert not usage.ordered


@each_seed
def test_powers_of_numbers_are_exact(seed):
    tower, x = draw((5,), seed)
    counts = to_field(tower, torch.tensor([-3.0, 0.0, 1.0, 4.0, 10.0], dtype=torch.float64))
    wanted = torch.tensor([0.125, 1.0, 2.0, 16.0, 1024.0], dtype=torch.float64)
    assert is_same(torch.exp2(counts), to_field(tower, wanted))
    assert is_same(2.0**counts, to_field(tower, wanted))
    assert is_same(2.0 ** (x + x), (2.0**x) ** 2)


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
