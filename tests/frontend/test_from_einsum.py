"""Einsum strings: their text, their mistakes, and built files that compute torch.einsum.

The strings are in support/einsum_strings.txt; hypothesis draws others of up to five operands.
"""

import re
from itertools import count, pairwise

import pytest
import torch
from house import ROOT
from hypothesis import example, given
from hypothesis import strategies as st
from texts import read_rows

from derive.compiler import build
from derive.errors import DeriveError
from derive.frontend.from_einsum import from_einsum, to_notation
from derive.frontend.from_sympy import show

STRINGS = [string for (string,) in read_rows(ROOT / "tests/support/einsum_strings.txt")]
INDICES = "abcdeX"  # one capital; the table has strings with both cases of a letter

TEXTS = {
    "ij,jk": "A[I, J]; B[J, K]\nZ[i,k] = sum[j](A[i,j] * B[j,k])",
    "ii": "A[I, I]\nZ = sum[i](A[i,i])",
    "ba": "C[B, A]\nZ[a,b] = C[b,a]",
    ",->": "scalar A, B\nZ = A * B",
    ",ij->ji": "scalar A; B[I, J]\nZ[j,i] = A * B[i,j]",
    " i j , j\t-> i ": "A[I, J]; B[J]\nZ[i] = sum[j](A[i,j] * B[j])",
    "aA,Ab": "C[N_a, N_A]; D[N_A, B]\nZ[a,b] = sum[A](C[a,A] * D[A,b])",
    "zij->": "A[Z, I, J]\nY = sum[z, i, j](A[z,i,j])",
}


@pytest.mark.parametrize("equation", TEXTS)
def test_the_text_of_an_einsum(equation):
    assert to_notation(equation) == TEXTS[equation]
    assert show(from_einsum(equation)) == TEXTS[equation]


MISTAKES = {
    "i...j,jk->ik": """\
einsum-ellipsis: an ellipsis leaves open how many indices there are
    i...j,jk->ik
     ^^^
  help: give each of them a letter, iaj,jk->ik""",
    "ij->ijj": """\
einsum-output: j is in the output twice
    ij->ijj
          ^
  help: an output has each letter once; build a diagonal with delta(i, j) in text""",
    "ij , jk->  l": """\
einsum-output: l is in the output and in no operand
    ij , jk->  l
               ^
  the operands have i, j, k
  help: give l to an operand, or take it out of the output""",
    "ij->j->k": """\
einsum-form: there is more than one ->
    ij->j->k
         ^^
  help: write the operands, one ->, and the output""",
    "ij->i,j": """\
einsum-output: the output is one group of letters
    ij->i,j
         ^
  help: take the comma out""",
    "αβ,β": """\
einsum-character: α is neither a letter nor a comma nor ->
    αβ,β
    ^
  help: the letters are a to z and A to Z""",
    "  ": """\
einsum-form: the einsum string is empty
  help: write it like "ij,jk->ik", or "->" for a number""",
}


@pytest.mark.parametrize("equation", MISTAKES)
def test_mistakes(equation):
    with pytest.raises(DeriveError) as caught:
        from_einsum(equation)
    assert str(caught.value) == MISTAKES[equation]


def test_more_than_52_indices_include_other_letters():
    chain = "abcdefghijklmnopqrstuvwxyzé7\u03a2"
    string = ",".join(map("".join, pairwise(chain)))
    text = to_notation(f"{string}->{chain[-1]}a")
    assert "; T26[Z, I27]; T27[I27, I28]; T28[I28, I29]" in text
    assert "[i29,a] = sum[b, c, " in text
    with pytest.raises(DeriveError, match="7 is neither a letter"):
        from_einsum("ab,b7->a7")


def test_only_text_is_read():
    with pytest.raises(DeriveError, match="text-wanted"):
        from_einsum(["ij", "jk"])  # type: ignore[arg-type]


@given(st.text(st.sampled_from("ijkAB,->. \n=1"), max_size=12))
def test_any_string_is_read_or_refused(equation):
    try:
        from_einsum(equation)
    except DeriveError as error:
        assert str(error)


def make_operands(string, extents):
    """Random operands in float64, the same for the same string and extents."""
    generator = torch.Generator().manual_seed(len(string))
    shapes = [[extents[i] for i in operand] for operand in string.partition("->")[0].split(",")]
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def check_equal(built, string, extents):
    operands = make_operands(string, extents)
    value = built.function(*operands)
    assert value.dtype == torch.float64
    # assert_close compares shapes too, and names the element that differs
    torch.testing.assert_close(
        value,
        torch.einsum(string, *operands),
        rtol=1e-11,
        atol=1e-11,
        msg=lambda m: f"{m}\n{built.source}",
    )


@pytest.mark.parametrize("string", STRINGS)
def test_strings_of_the_table_compute_torch_einsum(string):
    built = build(from_einsum(string))
    contractions = re.findall(r'torch\.einsum\(\s*"([^"]*)"', built.source)
    assert [c for c in contractions if c.count(",") > 1] == [], "more than pairs are contracted"
    extents = dict(zip(sorted(set(re.findall(r"\w", string))), count(2), strict=False))
    check_equal(built, string, extents)
    # a size of 1 must not broadcast, and an empty sum is zero
    for special in (1, 0):
        check_equal(built, string, dict.fromkeys(extents, special))
        for index in extents:
            check_equal(built, string, {**extents, index: special})


@st.composite
def einsum_strings(draw, most=5):
    """Strings of one to five operands; indices may repeat anywhere, the output is any selection."""
    operand = st.lists(st.sampled_from(INDICES), max_size=3).map("".join)
    operands = draw(st.lists(operand, min_size=1, max_size=most))
    indices = sorted(set("".join(operands)))
    output = draw(st.permutations(indices)) if indices else []
    kept = draw(st.integers(0, len(output)))
    return f"{','.join(operands)}->{''.join(output[:kept])}"


@given(einsum_strings(), st.lists(st.sampled_from([2, 3, 1, 4, 0]), min_size=6, max_size=6))
@example("ab,bc,cd,de,eX->aX", [2, 3, 4, 1, 5, 6])
@example("aaa,a,aa->a", [3, 1, 1, 1, 1, 1])
def test_random_strings_compute_torch_einsum(string, extents):
    check_equal(build(from_einsum(string)), string, dict(zip(INDICES, extents, strict=True)))


@pytest.mark.parametrize(
    ("string", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (4, 5)]),
        ("ij,jk->ik", [(2, 1), (3, 5)]),  # torch.einsum broadcasts this one without a word
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (1, 3, 4, 5)]),
        ("ii->i", [(2, 3)]),
        ("i,j->ij", [(2, 1), (3,)]),
    ],
)
def test_shapes_that_disagree_are_refused(string, shapes):
    function = build(from_einsum(string)).function
    with pytest.raises(ValueError, match=r"must be|has \d places?, got"):
        function(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))
