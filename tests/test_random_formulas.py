"""Random formulas in the notation: the built function equals the loop nest, element by element."""

from contextlib import contextmanager

import pytest
import torch
from examples import EXAMPLES
from fast_cases import slow_except
from hypothesis import given
from strategies import RandomFormula, formulas, half_as_many

from derive.analysis.extents import find_sizes
from derive.compiler import build
from derive.frontend.from_sympy import from_sympy
from derive.frontend.from_text import parse
from derive.ir.nodes import ScalarInput, Tensor
from derive.ir.polynomial import evaluate_extent
from derive.judge.loops import evaluate_loops

TOLERANCE = 1e-9


def draw_inputs(system, sizes, seed=0):
    """Draw tensors, scalars and keyword sizes by name; some rows of boolean tensors are empty."""
    generator = torch.Generator().manual_seed(seed)
    inputs = {entry.name: sizes[entry.name] for entry in system.sizes}
    for entry in system.inputs:
        if isinstance(entry, ScalarInput):
            inputs[entry.name] = 0.75
            continue
        assert isinstance(entry, Tensor)
        shape = [evaluate_extent(extent, sizes) for extent in entry.shape]
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        match entry.kind:
            case "bool":
                values = values > 0.3
            case "int":
                values = torch.randint(
                    evaluate_extent(entry.below, sizes), shape, generator=generator
                )
            case _ if entry.lower is not None:
                values = values.abs() + 0.1
        inputs[entry.name] = values
    return inputs


def check_close(value, expected, source):
    """Assert equality within 1e-9 of the magnitude; nan equals nan."""
    pairs = (
        zip(value, expected, strict=True) if isinstance(expected, tuple) else [(value, expected)]
    )
    for found, answer in pairs:
        # the loops return plain numbers for scalars; integer types may differ
        one, other = found.double(), torch.as_tensor(answer, dtype=torch.float64)
        finite = other[torch.isfinite(other)]
        scale = 1 + (finite.abs().max().item() if finite.numel() else 0)
        torch.testing.assert_close(
            one,
            other,
            rtol=TOLERANCE,
            atol=TOLERANCE * scale,
            equal_nan=True,
            msg=lambda m: f"{m}\n{source}",
        )


@contextmanager
def in_double():
    """Use float64 as the default dtype, for formulas without real tensors."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def check_formula(drawn: RandomFormula):
    formula = parse(drawn.text, empty_row=drawn.empty_row)
    known = find_sizes(from_sympy(formula))
    built = build(formula, sizes={n: extent for n, extent in drawn.planned if n in known})
    inputs = draw_inputs(built.system, dict(drawn.sizes))
    expected = evaluate_loops(built.formula, inputs)
    with in_double():
        check_close(built.function(**inputs), expected, built.source)


@given(formulas())
def test_random(drawn):
    check_formula(drawn)


@half_as_many
@given(formulas(depth=5, equations=3))
def test_random_deep(drawn):
    check_formula(drawn)


@pytest.mark.parametrize(
    "example",
    slow_except(EXAMPLES, "relative_attention", "masked_attention_zeros", "multi_head"),
    ids=str,
)
def test_float32_errs_no_more_than_hand_written_code(example):
    """Errors against float64 are at most twice those of hand-written code.

    Three units in the last place of the largest element are allowed too.
    """
    function = example.build().function
    wider = {name: 4 * extent for name, extent in example.sizes.items()}
    mine, theirs, units = [], [], []
    for seed in range(5):
        tensors, sizes = example.draw(wider, torch.float32, seed)
        exact = {n: v.double() if v.is_floating_point() else v for n, v in tensors.items()}
        expected = example.reference(**exact, **sizes)
        largest = expected.nan_to_num().abs().max().item()
        units.append(1.5 * largest * torch.finfo(torch.float32).eps)
        for errors, call in ((mine, function), (theirs, example.reference)):
            difference = call(**tensors, **sizes).double() - expected
            errors.append(difference.nan_to_num().abs().max().item())
    assert max(mine) <= 2 * max(*theirs, *units), (mine, theirs)
