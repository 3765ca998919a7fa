"""Wide sums with a name are put where they are contracted, and nowhere else."""

import pytest
import torch

from derive import build, parse
from derive.frontend.system import to_system
from derive.rewrite.inline import open_wide_sums

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


@pytest.mark.parametrize(
    "lines",
    [
        (INPUTS, WIDE, READ, "return s, keys"),
        (INPUTS, WIDE, READ, "t[b,i,j] = sum[d](k[b,i,d] * keys[b,i,j,d])", "return s, t"),
        (INPUTS, "keys[b,i,j,d] = k[b,j,d] - a[i,j,d]", READ),
        (INPUTS, WIDE, "s[b,i,j] = sum[d](exp(keys[b,i,j,d]))"),
        (
            "q, k[B, S, D]",
            "keys[b,j,d] = k[b,j,d] + q[b,j,d]",
            "s[b,j] = sum[d](q[b,j,d] * keys[b,j,d])",
        ),
    ],
)
def test_what_is_kept(lines):
    before = to_system(parse("\n".join(lines))).equations
    assert open_text(*lines) == before


def test_the_broadcast_tensor_is_never_built():
    built = build(parse("\n".join([INPUTS, WIDE, READ])), sizes={"B": 2, "S": 64, "D": 16})
    assert "keys = " not in built.source
    assert any(string.startswith("bid,ijd->") for string in built.plan.einsums)
    assert all("ijd," not in string for string in built.plan.einsums)
    q, k, a = torch.randn(2, 5, 4), torch.randn(2, 5, 4), torch.randn(5, 5, 4)
    expected = torch.einsum("bid,bijd->bij", q, k[:, None] + a) / 2
    assert torch.allclose(built.function(q, k, a), expected, atol=1e-5)
