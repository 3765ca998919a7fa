"""Lifted operations, writes in place and views have the values of torch, or are refused."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from lifting import Example, draw_sizes, execute_source, find_gap, is_for_every_size, lift_example
from texts import read_text

from derive.errors import DeriveError
from derive.frontend.torch import ops
from derive.frontend.torch.lift import lift
from derive.ir.nodes import Size, Tensor
from derive.ir.polynomial import holds_at
from derive.judge.samples import choose_sizes


def read_lines(name):
    """Return the lines of a table without its comments."""
    table = read_text(__file__, name).splitlines()
    return [line for line in table if line and not line.startswith("#")]


LINES = read_lines("lift_writes.txt")
SIZES = [
    (text, fixed) for text, _, fixed in (e.partition("  # ") for e in read_lines("lift_sizes.txt"))
]
RIGHT = [line for line in LINES if "  # " not in line]
REFUSED = [line.split("  # ") for line in LINES if "  # " in line]
VECTOR = {"x": Tensor("x", (Size("S"),))}


EXAMPLES = [example for row in ops.OPS for example in row.examples]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", [*EXAMPLES, *RIGHT])
def test_a_lifted_example_has_the_values_of_torch(text):
    example = Example(text)
    declared, function = example.find_system(), example.find_function()
    draws = draw_sizes(declared, 4 if text in RIGHT else 3)
    first, *others = (sizes for sizes in draws if 1 not in sizes.values())
    lifted = lift_example(function, declared, first)
    assert not lifted.fixed or text in RIGHT or not is_for_every_size(text)
    for number, sizes in enumerate((first,) if lifted.fixed else (first, *others)):
        assert find_gap(function, declared, sizes, lifted, number) < 1e-9


@pytest.mark.parametrize(("text", "code"), REFUSED)
def test_a_write_that_cannot_be_lifted_is_refused(text, code):
    example = Example(text.strip())
    declared = example.find_system()
    with pytest.raises(DeriveError) as caught:
        lift_example(example.find_function(), declared, draw_sizes(declared, 1)[0])
    assert caught.value.diagnostic.code == code.strip()


def test_a_tensor_from_outside_that_is_written_into_is_no_constant():
    function = execute_source(
        "total = torch.zeros(1)\n"
        "def add_up(x):\n"
        "    total.zero_()\n"
        "    total.add_(x.sum())\n"
        "    return x * total"
    )["add_up"]
    lifted = lift(function, VECTOR, {"S": 3})
    assert not lifted.fixed


@pytest.mark.parametrize("take", [torch.Tensor.item, torch.Tensor.clone])
def test_numbers_that_no_mode_sees_are_caught_by_the_values(take):
    def scale(x):
        with torch._C.DisableTorchFunction():
            unseen = take(x.sum())
        return x * unseen

    with pytest.raises(DeriveError, match="lift-unsure"):
        lift(scale, VECTOR, {"S": 3})


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("text", "fixed"), SIZES)
def test_a_number_computed_from_a_size_is_lifted_or_reported_as_fixed(text, fixed):
    example = Example(text)
    declared, function = example.find_system(), example.find_function()
    lifted = lift_example(function, declared, draw_sizes(declared, 1)[0])
    assert sorted(lifted.fixed) == fixed.split()
    judged = 0
    for number, draw in enumerate(choose_sizes(lifted.system, 8, seed=3)):
        sizes = {**draw, **lifted.fixed}
        if all(holds_at(note, sizes) for note in lifted.notes):
            with suppress(RuntimeError, IndexError):  # the code does not run at all sizes
                assert find_gap(function, declared, sizes, lifted, number) < 1e-9
                judged += 1
    assert judged > 1


def test_no_operation_takes_an_untraced_number_from_a_size():
    """`plain` takes a number and records nothing; `int` records the sizes of the number."""
    rows = Path(ops.__file__).parent.glob("*.py")
    assert not [row.name for row in rows if re.search(r"\bplain\b", row.read_text("utf-8"))]
