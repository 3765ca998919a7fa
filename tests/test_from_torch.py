"""Code as equations: proved equal to its formula for all sizes, readable, refused where unsure."""

import pytest
from lift_code import ATTENTION, LOOPS, SAME
from lifting import draw_sizes, find_gap, lift_example

from derive.frontend.from_text import parse
from derive.frontend.system import to_system
from derive.rewrite.prove import prove

PAIRS = [(function, text) for text, functions in SAME.items() for function in functions]


def lift_against(function, text):
    """The formula's system, and the function lifted at its inputs."""
    formula = to_system(parse(text))
    return formula, lift_example(function, formula, draw_sizes(formula, 1)[0])


@pytest.mark.parametrize(("function", "text"), PAIRS)
def test_code_is_proved_equal_to_its_formula_for_all_sizes(function, text):
    formula, lifted = lift_against(function, text)
    assert lifted.every_size
    assert not lifted.notes
    proof = prove(lifted.system, formula, lifted.fixed)
    assert proof is not None
    assert proof.every_size
    for number, sizes in enumerate(draw_sizes(formula, 3)):
        assert find_gap(function, formula, sizes, lifted, number) < 1e-9


@pytest.mark.parametrize("function", LOOPS)
def test_a_loop_over_heads_holds_for_its_number_of_heads(function):
    formula, lifted = lift_against(function, ATTENTION)
    assert list(lifted.fixed) == ["H"]
    assert not lifted.every_size
    assert prove(lifted.system, formula, lifted.fixed) is not None
