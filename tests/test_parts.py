"""Several equations that fill one tensor; each position must be filled exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest
import sympy
from sympy import Eq
from texts import read_literals

from derive import DeriveError, Formula, build, indices, parse, show, sizes, tensors

ROWS = read_literals(Path(__file__).with_name("parts_rows.txt"))


@pytest.mark.parametrize(
    ("text", "code", "place"), ROWS["what does not fill each place once is refused"]
)
def test_gaps_and_overlaps_are_refused(text, code, place):
    with pytest.raises(DeriveError) as caught:
        build(parse(text))
    assert code in caught.value.diagnostic.code
    assert place in caught.value.diagnostic.says


def test_parts_are_written_with_sympy_too():
    T, P = sizes("T P")
    t, p = indices("t", T), indices("p", P)
    x, c = tensors("x", T, 2 * P), tensors("c", T, P)
    y = tensors("y")
    formula = Formula(
        Eq(y[t, 2 * p], x[t, 2 * p] * c[t, p]),
        Eq(y[t, 2 * p + 1], x[t, 2 * p + 1] * sympy.exp(c[t, p])),
        name="pairs",
    )
    assert build(formula).judge().agrees
    assert show(formula).count("\n") == 2
