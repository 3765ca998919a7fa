"""Exact numbers as text: whatever is shown is read back, and what would not be is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Eq, Float, Integer, Rational

from derive import DeriveError, Formula, indices, parse, show, sizes, tensors
from derive.ir.pieces import is_readable, write_number

N = sizes("N")
I = indices("i", N)
X = tensors("x", N)
Z = tensors("z")

WRITTEN = {
    "100000": 10**5,
    "1e30": 10**30,
    "-2.5e120": -(25 * 10**119),
    "12345678901234567890123": 12345678901234567890123,
    "0.00012345": Fraction(12345, 10**8),
    "1.5e-20": Fraction(3, 2 * 10**20),
    "1e-300": Fraction(1, 10**300),
    "1 / 3e30": Fraction(1, 3 * 10**30),
    "1 / 1180591620717411303424": Fraction(1, 2**70),
}
AT_THE_LIMIT = ("1e-300", "1e300", "9.75e-300", "1" * 300, "1" + "0" * 299, "1" * 296 + "e-99")
BEYOND = (
    "3e-301",
    "1e301",
    "123e300",
    "0.001e-300",
    "1" * 301,
    "1" + "0" * 300,
    "1e-" + "9" * 5000,
)


@pytest.mark.parametrize("text", WRITTEN)
def test_the_text_of_a_number(text: str) -> None:
    assert write_number(Fraction(WRITTEN[text])) == text


@given(
    st.integers(-(10**30), 10**30),
    st.integers(-340, 340),
    st.sampled_from([1, 3, 2**30, 2**100, 3 * 10**30]),
)
def test_the_text_means_the_number(mantissa: int, power: int, under: int) -> None:
    value = Fraction(mantissa) * Fraction(10) ** power / under
    parts = write_number(value).split(" / ")
    assert Fraction(parts[0]) / Fraction(parts[-1] if len(parts) > 1 else 1) == value


@pytest.mark.parametrize("number", AT_THE_LIMIT)
def test_what_is_shown_near_the_limit_is_read_back(number: str) -> None:
    shown = show(parse(f"x[N]; z[i] = x[i] * {number}"))
    assert show(parse(shown)) == shown
    assert is_readable(number)


@pytest.mark.parametrize("number", BEYOND)
def test_what_is_beyond_the_limit_is_refused(number: str) -> None:
    with pytest.raises(DeriveError, match="number-too-long"):
        parse(f"x[N]; z[i] = x[i] * {number}")


@pytest.mark.parametrize("number", [Float(1e-300), Float("1.25e300"), Rational(1, 3 * 10**290)])
def test_numbers_of_sympy_are_read_back(number: object) -> None:
    shown = show(Formula(Eq(Z[I], X[I] * number)))
    assert show(parse(shown)) == shown


@pytest.mark.parametrize("number", [Integer(10) ** 5000, Rational(1, 3**700), Float("1e-305")])
def test_numbers_of_sympy_beyond_the_limit_are_refused(number: object) -> None:
    with pytest.raises(DeriveError, match="number-too-long"):
        show(Formula(Eq(Z[I], X[I] * number)))
