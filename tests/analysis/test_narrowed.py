"""An index declared shorter than the place it reads: only its own positions are read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sympy import Eq
from texts import read_tables

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
    tensors,
)
from derive.judge.compare import judge_source
from derive.judge.samples import choose_sizes

NARROWED = read_tables(Path(__file__).with_name("tables.txt"))["narrowed"]


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
