"""Typical errors of users with their whole messages, and beside each error the right form."""

import re

import pytest
import sympy
import torch
from sympy import Eq, Symbol
from texts import Expressions, read_parts, read_rows, read_tables, read_text

from derive import (
    DeriveError,
    Formula,
    build,
    evaluate_loops,
    indices,
    mean,
    parse,
    show,
    sizes,
    softmax,  # noqa: F401 - the rows name it
    tensors,
)
from derive.analysis.names import find_mistakes
from derive.frontend.from_sympy import from_sympy
from derive.judge.compare import judge_source
from derive.judge.samples import choose_sizes, draw_inputs

N, M, H, D, V = sizes("N M H D V")
i, j, k = indices("i j k", N)
m = indices("m", M)
x, y = tensors("x y", N)
A = tensors("A", N, N)
w = tensors("w", M)
bools = tensors("bools", N, dtype="bool")
z, q, L = tensors("z q L")
n, s = Symbol("n", integer=True), Symbol("s", integer=True)

_, *BLOCKS = read_text(__file__, "analyser_mistakes.txt").split("\n\n")
CODE = re.compile(r"\n(?=[a-z]+(?:-[a-z]+)+: )")  # a message begins with its code
MISTAKES = [CODE.split(block.strip(), maxsplit=1) for block in BLOCKS]
ROWS = Expressions(__file__, "mistakes_rows.txt", {**vars(sympy), **globals()})


def check_system(system):
    """Raise the first error of the system."""
    for mistake in find_mistakes(system):
        raise DeriveError(mistake)


def refuse(formula: Formula) -> str:
    """The message that the formula gets."""
    with pytest.raises(DeriveError) as caught:
        check_system(from_sympy(formula))
    return str(caught.value)


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[t for t, _ in MISTAKES])
def test_a_text_is_refused_with_this_message(text, message):
    assert refuse(parse(text)) == message


SYMPY = dict(ROWS["sympy"])


MESSAGES = read_parts(__file__, "sympy_mistakes.txt")


@pytest.mark.parametrize("name", SYMPY)
def test_sympy_objects_are_refused_with_this_message(name):
    assert refuse(SYMPY[name]) == MESSAGES[name][0]


RIGHT = [text for (text,) in read_rows(__file__, "analyser_right.txt")]


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_beside_a_mistake_is_accepted_and_has_a_value(text):
    formula = parse(text)
    system = from_sympy(formula)
    assert not [*find_mistakes(system)]
    for drawn in choose_sizes(system, count=2):  # the loops refuse any read outside a tensor
        evaluate_loops(formula, draw_inputs(system, drawn, seed=0))


@pytest.mark.parametrize(
    "place", ["max(i - 1, 1)", "max(i + 1, 0)", "min(i - 1, N - 1)", "min(i, N)"]
)
def test_of_a_largest_or_smallest_place_one_part_keeps_each_end(place):
    text = f"x[N]\nindex i < N + 1\ny[i] = x[{place}]"
    with pytest.raises(DeriveError, match="may read outside x"):
        check_system(from_sympy(parse(text)))


NARROWED = read_tables(__file__, "tables.txt")["narrowed"]


@pytest.mark.parametrize("text", [text for (text,) in NARROWED])
def test_only_its_own_positions_are_read(text: str) -> None:
    formula = parse(text)
    built = build(formula)
    draws = choose_sizes(built.system, count=3)
    judgement = judge_source(built.source, built.name, formula, built.system, draws)
    assert judgement.agrees, judgement.where


def test_a_line_that_wins_is_shown_wherever_its_index_is_read_first() -> None:
    text = "x[B, D]; a[B, 4*D]\nindex d < D\nk[b,d] = x[b,d] * a[b,d]"
    assert show(parse(text)) == text
    assert "index" not in show(parse("x[N]; a[N]; index i < N; k[i] = x[i] * a[i]"))
    with pytest.raises(DeriveError, match="index-extents"):
        build(parse("x[B, D]; a[B, 4*D]; k[b,d] = x[b,d] * a[b,d]"))


def test_every_condition_of_a_reduction_counts() -> None:
    n = sizes("N")
    i, j = indices("i j", n)
    x, y, m = tensors("x", n), tensors("y"), tensors("m", n, n, dtype="bool")
    formula = Formula(Eq(y[i], mean(x[j], j, m[i, j], j <= i)))
    inputs = {"x": torch.tensor([1.0, 2.0, 6.0]), "m": torch.ones(3, 3, dtype=torch.bool)}
    wanted = torch.tensor([1.0, 1.5, 3.0])
    torch.testing.assert_close(build(formula).function(**inputs), wanted)
    torch.testing.assert_close(evaluate_loops(formula, inputs), wanted.double())
