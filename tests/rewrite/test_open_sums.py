"""Wide sums with a name are put where they are contracted, and nowhere else."""

from pathlib import Path

import pytest
from texts import Expressions

from derive import parse
from derive.frontend.from_sympy import to_system
from derive.rewrite.opening import open_wide_sums

ROWS = Expressions(Path(__file__).with_name("open_sums_rows.txt"), globals())

INPUTS = "q, k[B, S, D]; a[S, S, D]"
WIDE = "keys[b,i,j,d] = k[b,j,d] + a[i,j,d]"
READ = "s[b,i,j] = sum[d](q[b,i,d] * keys[b,i,j,d]) / sqrt(D)"


def open_text(*lines):
    """The equations of a system after its wide sums were opened."""
    system = to_system(parse("\n".join(lines)))
    return open_wide_sums(system.equations, system.results)


def test_a_wide_sum_goes_into_its_contraction():
    (equation,) = open_text(INPUTS, WIDE, READ)
    assert equation.target.tensor.name == "s"


@pytest.mark.parametrize("lines", ROWS["what stays"])
def test_what_is_kept(lines):
    before = to_system(parse("\n".join(lines))).equations
    assert open_text(*lines) == before
