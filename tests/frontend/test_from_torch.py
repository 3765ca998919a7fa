"""Code as equations: proved equal to its formula for all sizes, readable, refused where unsure.

lifted.txt lists formulas, the code that computes each, and the lifted equations of some code.
"""

import builtins
import math

import pytest
import torch
from lifting import draw_sizes, find_gap, lift_example
from texts import read_sections
from torch.nn import functional

from derive import DeriveError, from_torch
from derive.frontend.from_sympy import to_system
from derive.frontend.from_text import parse
from derive.ir.text import to_lines
from derive.prove import prove


def read_codes():
    """Return (formula, code, fixed size, lifted equations) by the name of the code."""
    formula, name, found = "", "", {}
    for section in read_sections(__file__, "lifted.txt"):
        match section.title:
            case "formula":
                formula = section.text
            case "lifted":
                found[name] = (*found[name][:3], section.text)
            case name:
                found[name] = (formula, section.text, section.entries.get("fixed"), None)
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


# Code that is hard to lift: right at every size and value, for a fixed size, or refused.

SIZES = {"B": 3, "S": 7}


def lift_at(function, declared="x[B, S]"):
    """Lift a function that runs at the sizes B=3 and S=7."""
    return lift_example(function, to_system(parse(f"{declared}\nnothing = 0")), SIZES)


UNTRACED = {
    "gcd": lambda x: x * math.gcd(x.shape[1], 4),
    "log to a base": lambda x: x * math.log(x.shape[1], 2),
    "bits": lambda x: x * x.shape[1].bit_length(),
    "text": lambda x: x * len(f"{x.shape[1]}"),
    "text and back": lambda x: x * int(str(x.shape[1])),
    "a table": lambda x: x * {4: 2, 5: 3}.get(x.shape[1], 1),
}


@pytest.mark.parametrize("name", UNTRACED)
def test_an_untraced_size_becomes_a_number(name):
    assert dict(lift_at(UNTRACED[name]).fixed) == {"S": 7}


READ_OUT = {
    "rounded": lambda x, a: x * round(a),
    "floor": lambda x, a: x * math.floor(a),
    "whole": lambda x, a: x * a.is_integer(),
    "a table": lambda x, a: x * {1.5: 2}.get(a, 1),
}


@pytest.mark.parametrize("name", READ_OUT)
def test_a_scalar_that_is_read_out_is_refused(name):
    with pytest.raises(DeriveError, match="another way for other values of a"):
        from_torch(READ_OUT[name], "x[B, S]; scalar a")


def test_functions_of_math_accept_scalars():
    declared = "x[B, S]; scalar a"
    lifted = lift_at(lambda x, a: x * math.tanh(a) + math.sin(a), declared)
    assert not lifted.fixed


class Scale(torch.nn.Module):
    def amount(self, x):
        return 1.0 / math.sqrt(x.shape[-1])


class Scaled(Scale):
    half = property(lambda self: 0.5)

    def forward(self, x):
        return x * self.amount(x) * self.half / len(x)


scaled = torch.nn.Sequential(Scaled())


def scale_twice(x):
    import math as found

    return scaled(x) * found.log(x.shape[0])


def test_modules_keep_sizes_and_lifting_changes_no_code():
    homes = (globals(), vars(math), vars(builtins), vars(Scale), vars(Scaled), vars(scaled[0]))
    before = [dict(home) for home in homes]
    codes = [function.__code__ for function in (scale_twice, Scale.amount, Scaled.forward)]
    assert not lift_at(scale_twice).fixed
    assert [dict(home) for home in homes] == before
    assert [f.__code__ for f in (scale_twice, Scale.amount, Scaled.forward)] == codes
