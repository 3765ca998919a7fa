"""Code as equations: proved equal to its formula for all sizes, readable, refused where unsure.

lifted.md lists formulas, the code that computes each, and the lifted equations of some code.
"""

import math
from pathlib import Path

import pytest
import torch
from lifting import draw_sizes, find_gap, lift_example
from texts import read_sections
from torch.nn import functional

from derive.frontend.from_sympy import to_system
from derive.frontend.from_text import parse
from derive.ir.text import to_lines
from derive.prove import prove


def read_codes():
    """Return (formula, code, fixed size, lifted equations) by the name of the code."""
    formula, name, found = "", "", {}
    for section in read_sections(Path(__file__).with_name("lifted.md")):
        match section.kind:
            case "formula":
                formula = section.text
            case "python":
                name = section.title
                found[name] = (formula, section.text, section.entries.get("fixed"), None)
            case "lifted":
                found[name] = (*found[name][:3], section.text)
    return found


CODES = read_codes()
READABLE = [name for name, (*_, lines) in CODES.items() if lines]


def lift_against(function, text):
    """Return the formula's system, and the function lifted at its inputs."""
    formula = to_system(parse(text))
    return formula, lift_example(function, formula, draw_sizes(formula, 1)[0])


def load_code(name):
    """Return the code of a name as a function."""
    names = {"torch": torch, "functional": functional, "math": math}
    exec(compile(CODES[name][1], name, "exec"), names)
    return names[name]


@pytest.mark.parametrize("name", CODES)
def test_code_is_proved_equal_to_its_formula_for_all_sizes(name):
    """Except for a number of heads that a loop iterates over."""
    text, _, fixed, _ = CODES[name]
    formula, lifted = lift_against(load_code(name), text)
    assert list(lifted.fixed) == ([fixed] if fixed else [])
    proof = prove(lifted.system, formula, lifted.fixed)
    assert proof is not None
    if not fixed:
        assert not lifted.notes
        assert proof.every_size
        for number, sizes in enumerate(draw_sizes(formula, 3)):
            assert find_gap(load_code(name), formula, sizes, lifted, number) < 1e-9


@pytest.mark.parametrize("name", READABLE)
def test_the_equations_read_as_a_person_would_write_them(name):
    text, _, _, lines = CODES[name]
    _, lifted = lift_against(load_code(name), text)
    assert [line for line in to_lines(lifted.system) if " = " in line] == lines.splitlines()
