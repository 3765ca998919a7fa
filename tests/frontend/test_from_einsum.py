"""Einsum strings as formulas: their text, their meaning against torch.einsum, their mistakes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from texts import read_parts

from derive.errors import DeriveError
from derive.frontend.from_einsum import from_einsum, to_notation
from derive.frontend.from_sympy import show
from derive.judge.loops import evaluate_loops

TABLES = {
    title: dict(entry.split("\n", 1) for entry in entries)
    for title, entries in read_parts(Path(__file__).with_name("einsum.txt")).items()
}
TEXTS = TABLES["texts"]


@pytest.mark.parametrize("equation", TEXTS)
def test_the_text_of_an_einsum(equation):
    assert to_notation(equation) == TEXTS[equation]
    assert show(from_einsum(equation)) == TEXTS[equation]


def test_many_operands_and_indices_have_names_left():
    every = ",".join(["abcdefghijklm", "nopqrstuvwxyz", "ABCDEFGHIJKLM", "NOPQRSTUVWXYZ"])
    declaration, equation = to_notation(every + "->").splitlines()
    assert declaration.startswith("T1[N_a, N_b,")
    assert equation.startswith("result = sum[a, b,")
    from_einsum(every + "->a")
    assert to_notation(",".join("i" * 30)).startswith("T1, T2, T3")


def test_the_formula_has_a_name_and_its_einsum_as_title():
    formula = from_einsum("ij, jk -> ik", "product")
    assert (formula.name, formula.title) == ("product", 'einsum "ij,jk->ik"')
    assert from_einsum("ij").name == "contraction"


MISTAKES = {
    **TABLES["mistakes"],
    "  ": """\
einsum-form: the einsum string is empty
  help: write it like "ij,jk->ik", or "->" for a number""",
    "i\0j": """\
einsum-character: \\x00 is neither a letter nor a comma nor ->
    i j
     ^
  help: the letters are a to z and A to Z""",
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


@st.composite
def equations(draw):
    """An explicit einsum of up to three operands over few indices, diagonals and sums included."""
    operands = draw(st.lists(st.text("ijkB", max_size=3), min_size=1, max_size=3))
    indices = sorted(set("".join(operands)))
    output = draw(
        st.permutations(indices).flatmap(lambda p: st.sampled_from([p[:n] for n in range(4)]))
    )
    return ",".join(operands) + "->" + "".join(output)


@given(equations())
def test_the_meaning_is_torch_einsum(equation):
    lengths = {"i": 2, "j": 3, "k": 1, "B": 4}
    generator = torch.Generator().manual_seed(0)
    operands = [
        torch.randn([lengths[c] for c in operand], dtype=torch.float64, generator=generator)
        for operand in equation.partition("->")[0].split(",")
    ]
    formula = from_einsum(equation)
    names = [str(argument) for argument in formula.declarations.arguments]
    got = evaluate_loops(formula, dict(zip(names, operands, strict=True)))
    torch.testing.assert_close(got, torch.einsum(equation, *operands))
