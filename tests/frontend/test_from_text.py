"""The text notation: its SymPy expressions, its refusals, and no other outcome for any text."""

import re
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from sympy import Eq, Idx, Rational
from texts import Expressions, read_parts, read_tables, read_text

from derive.errors import DeriveError
from derive.frontend.from_sympy import show
from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_loops

ROWS = Expressions(__file__, "from_text_rows.txt", globals())

ROUND_TRIPS = read_parts(__file__, "round_trips.txt")["texts"]
TABLES = read_tables(__file__, "texts.txt")
_, *BLOCKS = read_text(__file__, "text_mistakes.txt").strip().split("\n\n")
SPLIT = [block.rpartition("\n----\n") for block in BLOCKS]
MISTAKES = [(text or message.split("\n")[1].strip(), message) for text, _, message in SPLIT]


def value(text: str):
    """The right side of the last equation."""
    return parse(text).equations[-1].rhs


# --- text to text ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ROUND_TRIPS)
def test_canonical_text_is_unchanged(text):
    assert show(parse(text)) == text


@pytest.mark.parametrize(("text", "canonical"), ROWS["other texts become canonical"])
def test_other_texts_become_canonical(text, canonical):
    shown = show(parse(text))
    assert shown == canonical
    assert show(parse(shown)) == shown


# --- text to SymPy --------------------------------------------------------------------------------


def test_numbers_are_exact():
    formula = parse(
        "scalar eps = 1e-5, third = 1/3, neg = -2.50, tau; y = eps * 0.1 + third * neg * tau"
    )
    assert formula.scalars == {
        "eps": Rational(1, 100000),
        "third": Rational(1, 3),
        "neg": Rational(-5, 2),
        "tau": None,
    }
    assert Fraction(1, 10) in [Fraction(a.p, a.q) for a in formula.equations[0].rhs.atoms(Rational)]
    assert value("y = 9**9").args == (9, 9)


def test_the_formula_has_the_declarations_of_the_text():
    formula = parse(
        "scalar tau; x[N, K]; size Z = 2; size W; index z < Z\n"
        "a[z] = tau; y[n] = x[n,0]\nreturn y, a",
        "both",
        title="T",
        source="S",
        typical={"N": 4},
        empty_row="zeros",
    )
    assert [str(a) for a in formula.declarations.arguments] == ["tau", "x"]
    assert [(str(s), d) for s, d in formula.declarations.sizes] == [("Z", 2), ("W", None)]
    assert formula.outputs == ("y", "a")
    described = (formula.name, formula.title, formula.source, formula.empty_row, formula.typical)
    assert described == ("both", "T", "S", "zeros", {"N": 4})
    assert all(isinstance(equation, Eq) for equation in formula.equations)


# --- indices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "extents"), TABLES["extents"])
def test_indices_have_the_extents_of_their_places(text, extents):
    found = {}
    for equation in parse(text).equations:
        for index in equation.atoms(Idx):
            found[str(index.label)] = str(index.upper + 1)
    assert set(extents.split(", ")) <= {f"{index} < {extent}" for index, extent in found.items()}


def test_a_parameter_hides_a_tensor():
    hidden = value("x, w[N]; f(x) = x * 2; y[i] = f(w[i])")
    assert {str(a.base) for a in hidden.atoms(type(value("x[N]; y[i] = x[i]")))} == {"w"}


# --- meaning: the direct loops against torch ------------------------------------------------------


@pytest.mark.parametrize(("text", "function"), TABLES["meanings"])
def test_the_loops_have_the_values_of_torch(text, function):
    torch.manual_seed(0)
    formula = parse(text)
    lengths = {"N": 7, "K": 3, "B": 2, "H": 3, "D": 4, "C": 5, "T": 6}
    tensors = {
        str(base): torch.randn(
            [lengths[str(extent)] for extent in base.shape or ()], dtype=torch.float64
        )
        for base in formula.declarations.arguments
    }
    expected = eval(function)(*tensors.values())
    torch.testing.assert_close(evaluate_loops(formula, tensors), expected)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[text for text, _ in MISTAKES])
def test_mistakes(text, message):
    with pytest.raises(DeriveError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_every_code_has_a_mistake_in_the_table():
    sources = (Path(__file__).parents[2] / "derive/frontend/text").glob("*.py")
    raised = set()
    for source in sources:
        raised |= set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', source.read_text("utf8")))
    assert raised
    assert raised <= {message.partition(":")[0] for _, message in MISTAKES}
    assert all("help:" in message for _, message in MISTAKES)


@pytest.mark.parametrize(("named", "code"), ROWS["wrong arguments of parse are refused"])
def test_wrong_arguments_of_parse_are_refused(named, code):
    with pytest.raises(DeriveError) as caught:
        parse("x[N]; y[i] = x[i]", **named)
    assert caught.value.diagnostic.code == code


def test_only_text_is_parsed():
    with pytest.raises(DeriveError, match="text-wanted"):
        parse(b"x[N]; y[i] = x[i]")  # type: ignore[arg-type]


# --- any text is read or refused ------------------------------------------------------------------


def read(text: str) -> None:
    """Parse a text; the marks of a refusal must be inside the lines that it shows."""
    try:
        parse(text)
    except DeriveError as error:
        for mark in error.diagnostic.marks:
            assert 0 <= mark.start < mark.end <= len(mark.line) + 1
            assert "\n" not in mark.line
        assert str(error)


@pytest.mark.parametrize(
    "text", ROWS["hostile texts are read or refused"], ids=lambda text: ascii(text[:24])
)
def test_hostile_texts_are_read_or_refused(text):
    read(text)  # the test passes if the call returns


WORDS = """
    ** // == <= sum softmax where index size scalar int bool return not if lambda 9**9**9 1e-5 0 oo
    pi x N i True None var correction=1 phi(x)=x*x (-i) [i<j] where(i<j,1,x[i]) x[i] sum[k](k)
    exp(i) α ² \0
"""
PARTS = st.sampled_from([*WORDS.split(), *"()[]{}=<>!+-*/%,;.#\n :@'\"\\^&~", " and ", " or "])


@given(st.text())
@example("a[")
@example("return")
def test_any_text_is_read_or_refused(text):
    read(text)


@given(st.lists(PARTS, max_size=20).map("".join))
def test_any_words_are_read_or_refused(text):
    read("x[N]; " + text)


@given(st.sampled_from(ROUND_TRIPS), st.randoms(use_true_random=False), st.lists(PARTS, max_size=3))
def test_any_change_of_a_formula_is_read_or_refused(text, random, parts):
    tokens = re.findall(r"\w+|\*\*|//|[<>=!]=|\s+|[^\w\s]", text)
    for part in parts:
        at = random.randrange(len(tokens))
        tokens[at] = random.choice([part, "", tokens[at] * 2, random.choice(tokens)])
    read("".join(tokens))
