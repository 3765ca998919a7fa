"""The file built for an explicit einsum string computes the value of torch.einsum.

The table is einsum_strings.txt; hypothesis draws other strings of up to five operands.
"""

import re
from itertools import count
from pathlib import Path

import pytest
import torch
from house import ROOT
from hypothesis import example, given
from hypothesis import strategies as st
from texts import read_literals, read_rows

from derive.compiler import build
from derive.frontend.from_einsum import from_einsum

ROWS = read_literals(Path(__file__).with_name("einsum_strings_rows.txt"))

STRINGS = [string for (string,) in read_rows(ROOT / "tests/support/einsum_strings.txt")]
INDICES = "abcdeX"  # one capital; the table has strings with both cases of a letter


def split_terms(string):
    """Return the indices of each operand, and of the output."""
    left, output = string.split("->")
    return left.split(","), output


def find_indices(string):
    return list(dict.fromkeys("".join(split_terms(string)[0])))


def make_operands(string, extents):
    """Random operands in float64, the same for the same string and extents."""
    generator = torch.Generator().manual_seed(len(string))
    shapes = [[extents[index] for index in operand] for operand in split_terms(string)[0]]
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def check_equal(built, string, extents):
    operands = make_operands(string, extents)
    expected = torch.einsum(string, *operands)
    value = built.function(*operands)
    assert value.dtype == torch.float64
    # assert_close compares shapes too, and names the element that differs
    torch.testing.assert_close(
        value, expected, rtol=1e-11, atol=1e-11, msg=lambda m: f"{m}\n{built.source}"
    )


def test_table_is_large_and_distinct():
    assert len(STRINGS) >= 200
    assert len(set(STRINGS)) == len(STRINGS)
    assert all(re.fullmatch(r"[A-Za-z,]*->[A-Za-z]*", string) for string in STRINGS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("string", STRINGS)
def test_strings_of_the_table_compute_torch_einsum(string):
    built = build(from_einsum(string))
    contractions = re.findall(r'torch\.einsum\(\s*"([^"]*)"', built.source)
    assert [c for c in contractions if c.count(",") > 1] == [], "more than pairs are contracted"
    indices = find_indices(string)
    check_equal(built, string, dict(zip(indices, count(2), strict=False)))
    # a size of 1 must not broadcast, and an empty sum is zero
    for special in (1, 0):
        check_equal(built, string, dict.fromkeys(indices, special))
        for index in indices:
            check_equal(
                built, string, {**dict(zip(indices, count(2), strict=False)), index: special}
            )


@st.composite
def einsum_strings(draw):
    """Strings of one to five operands; indices may repeat anywhere, the output is any selection."""
    operand = st.lists(st.sampled_from(INDICES), max_size=3).map("".join)
    operands = draw(st.lists(operand, min_size=1, max_size=5))
    indices = sorted(set("".join(operands)))
    output = draw(st.permutations(indices)) if indices else []
    kept = draw(st.integers(0, len(output)))
    return f"{','.join(operands)}->{''.join(output[:kept])}"


extent_lists = st.lists(
    st.sampled_from([2, 3, 1, 4, 0]), min_size=len(INDICES), max_size=len(INDICES)
)


def check_random(string, extents):
    chosen = dict(zip(INDICES, extents, strict=True))
    check_equal(build(from_einsum(string)), string, chosen)


@given(einsum_strings(), extent_lists)
@example("ab,bc,cd,de,eX->aX", [2, 3, 4, 1, 5, 6])
@example("aaa,a,aa->a", [3, 1, 1, 1, 1, 1])
@example("a,b,c,d,e->edcba", [2, 3, 1, 4, 2, 1])
def test_random(string, extents):
    check_random(string, extents)


@pytest.mark.parametrize(("string", "shapes"), ROWS["shapes that disagree are refused"])
def test_shapes_that_disagree_are_refused(string, shapes):
    function = build(from_einsum(string)).function
    with pytest.raises(ValueError, match=r"must be|has \d places?, got"):
        function(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))
