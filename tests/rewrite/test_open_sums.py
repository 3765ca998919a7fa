"""Wide sums with a name are put where they are contracted, and nowhere else."""

import pytest

from derive import parse
from derive.frontend.from_sympy import to_system
from derive.rewrite.opening import open_wide_sums

INPUTS = "q, k[B, S, D]; a[S, S, D]"
WIDE = "keys[b,i,j,d] = k[b,j,d] + a[i,j,d]"
READ = "s[b,i,j] = sum[d](q[b,i,d] * keys[b,i,j,d]) / sqrt(D)"
KEPT = (
    (INPUTS, WIDE, READ, "return s, keys"),
    (INPUTS, WIDE, READ, "t[b,i,j] = sum[d](k[b,i,d] * keys[b,i,j,d])", "return s, t"),
    (INPUTS, "keys[b,i,j,d] = k[b,j,d] - a[i,j,d]", READ),
    (INPUTS, WIDE, "s[b,i,j] = sum[d](exp(keys[b,i,j,d]))"),
    (
        "q, k[B, S, D]",
        "keys[b,j,d] = k[b,j,d] + q[b,j,d]",
        "s[b,j] = sum[d](q[b,j,d] * keys[b,j,d])",
    ),
)


def open_text(*lines):
    """The equations of a system after its wide sums were opened."""
    system = to_system(parse("\n".join(lines)))
    return open_wide_sums(system.equations, system.results)


def test_a_wide_sum_goes_into_its_contraction():
    (equation,) = open_text(INPUTS, WIDE, READ)
    assert equation.target.tensor.name == "s"


@pytest.mark.parametrize("lines", KEPT)
def test_what_is_kept(lines):
    before = to_system(parse("\n".join(lines))).equations
    assert open_text(*lines) == before
