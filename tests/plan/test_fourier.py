"""Fourier sums, convolutions and correlations are transforms where these pay, and nothing else is.

Each formula is built at sizes where a transform pays, and judged against the loops at small ones.
"""

import pytest
import torch
from texts import read_lists

import derive
from derive.judge.samples import choose_sizes, draw_inputs
from derive.plan import ops

TRANSFORMS, OTHERS, ANGLES = (
    dict(entry.split(": ", 1) for entry in entries)
    for entries in read_lists(__file__, "fourier.txt").values()
)
SIZES = dict(B=64, N=512, M=96, T=1024, C=4, K=100)


def build(text, **how):
    found = derive.parse(text)
    names = {size for size in SIZES if f"{size}" in derive.show(found)}
    sizes = {size: number for size, number in SIZES.items() if size in names}
    return derive.build(found, sizes=sizes, **how)


def is_transformed(built):
    parts = (op for step in built.plan.steps for op in ops.walk_ops(step.op))
    return any(isinstance(op, ops.Fourier) for op in parts)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_sums_of_waves_and_of_offsets_are_transforms(name):
    built = build(TRANSFORMS[name])
    assert is_transformed(built)
    assert built.judge(count=2).agrees


@pytest.mark.parametrize("name", OTHERS)
def test_what_looks_like_it_is_none(name):
    assert not is_transformed(build(OTHERS[name]))


@pytest.mark.parametrize("name", ["circular", "lags"])
def test_all_digits_are_kept_where_that_is_asked_for(name):
    assert not is_transformed(build(TRANSFORMS[name], exact=True))
    assert is_transformed(build(TRANSFORMS["power"], exact=True))


@pytest.mark.sampled(2, 1)
@pytest.mark.parametrize("name", ["power", "cosine transform", "circular", "causal", "inside"])
def test_every_way_to_call_it(name):
    """With gradients, in half precision, with other strides, compiled, and of nothing."""
    built = build(TRANSFORMS[name])
    sizes = choose_sizes(built.system, count=1)[0]
    given = draw_inputs(built.system, sizes, 1)
    expected = built.function(**given)
    values = tuple(value.requires_grad_() for value in given.values())
    assert torch.autograd.gradcheck(built.function, values)
    for dtype in (torch.bfloat16, torch.float16):
        half = built.function(*(value.detach().to(dtype) for value in values))
        assert half.dtype is dtype
        torch.testing.assert_close(half.double(), expected, rtol=0.05, atol=0.2)
    turned = (value.transpose(0, -1).contiguous().transpose(0, -1) for value in values)
    torch.testing.assert_close(built.function(*turned), expected)
    compiled = torch.compile(built.function, backend="aot_eager", fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(*values), expected)
    empty = draw_inputs(built.system, {**sizes, "B": 0}, 1)
    assert built.function(**empty).shape == (0, *expected.shape[1:])


LENGTH, HALF = 1500, {torch.float32: 4e-6, torch.bfloat16: 8e-3}


def check_digits(function, given, sizes):
    """Compare with float64, which keeps the digits below whole turns, and with shorter floats."""
    for dtype, most in HALF.items():
        short = {k: v.to(dtype) if v.is_floating_point() else v for k, v in given.items()}
        wide = {k: v.double() if v.is_floating_point() else v for k, v in short.items()}
        found, expected = (function(**each, **sizes) for each in (short, wide))
        found, expected = (
            each if isinstance(each, tuple) else (each,) for each in (found, expected)
        )
        for one, other in zip(found, expected, strict=True):
            assert (one.to(other.dtype) - other).abs().max() < most * other.abs().max()


@pytest.mark.parametrize("name", ANGLES)
def test_angles_lose_their_turns_before_they_are_floats(name):
    built = derive.build(derive.parse(ANGLES[name]))
    assert not is_transformed(built)
    assert built.judge(count=2).agrees
    torch.manual_seed(0)
    drawn = {
        "x": torch.rand(LENGTH),
        "w": torch.rand(LENGTH - 20),
        "a": torch.randint(2**62, (LENGTH,)),
    }
    given = {entry.name: drawn[entry.name] for entry in built.system.inputs}
    check_digits(built.function, given, {entry.name: 7 for entry in built.system.sizes})


def test_angles_of_gradients_lose_their_turns():
    formula = derive.parse(ANGLES["cosines"])
    built = derive.build(derive.gradient(formula, "x"))
    given = {entry.name: torch.rand(LENGTH) for entry in built.system.inputs}
    check_digits(built.function, given, {})
    function = derive.build(formula, backward=True).function
    for dtype, most in HALF.items():
        short = torch.rand(LENGTH).to(dtype).requires_grad_()
        wide = short.detach().double().requires_grad_()
        function(short).sum().backward()
        function(wide).sum().backward()
        assert (short.grad - wide.grad).abs().max() < most * wide.grad.abs().max()
