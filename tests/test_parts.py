"""Several equations that fill one tensor; each position must be filled exactly once."""

from __future__ import annotations

import pytest
import sympy
from sympy import Eq

from derive import DeriveError, Formula, build, indices, parse, show, sizes, tensors


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a, b[N]; y[2*p] = a[p]; y[2*p + 2] = b[p]", "place-not-filled", "y[1]"),
        ("a, b[N]; y[p] = a[p]; y[p + N - 1] = b[p]", "place-filled-twice", "y[0]"),
        ("a, b[N]; y[p] = a[p]; y[p + N + 1] = b[p]", "place-not-filled", "y[1]"),
        ("a[N]; y[i + 1] = a[i]", "left-side", ""),
        ("a[N]; y[2] = 1; y[1] = 2", "place-not-filled", "y[0]"),
        ("a, b[N]; y[3*p] = a[p]; y[3*p + 1] = b[p]", "place-not-filled", "y[2]"),
        ("a, b[N, N]; y[i,j] = a[i,j]; y[i,j + N] = b[i,j]; y[i + N,j] = b[i,j]", "", "y[1, 1]"),
        ("a, b[N]; y[p] = a[p]; z[p] = y[p]; y[p + N] = b[p]", "used-before-defined", ""),
        ("a, b[N]; y[i] = a[i]; y[j] = b[j]", "defined-twice", ""),
    ],
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
