"""Arithmetic on the numbers of a loop nest: as IEEE has it on floats, exact on fractions.

Python raises where the hardware answers inf or nan (1 / 0.0, exp(1000), log(0)). Here nothing is
raised: 1 / 0 is inf, 0 / 0 is nan, exp overflows to inf, log(0) is -inf, log(-1) is nan. A function
that leaves the rationals is refused in exact arithmetic, `not-rational`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from derive.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

Value: TypeAlias = Any  # int, float or Fraction; bool where a truth value is used as a number

INF, NAN = math.inf, math.nan


def divide(over: Value, under: Value) -> Value:
    """`over / under`; two integers that divide give an integer, so that positions stay exact."""
    if under != under or over != over:
        return NAN
    if under == 0:
        sign = math.copysign(1.0, under) * (1 if over > 0 else -1)
        return NAN if over == 0 else INF * sign
    if isinstance(over, int) and isinstance(under, int):
        return over // under if over % under == 0 else over / under
    return over / under


def divide_exactly(over: Value, under: Value) -> Value:
    """`over / under` as a fraction; as in IEEE where a side is not finite or 0 divides."""
    if under == 0 or isinstance(over, float) or isinstance(under, float):
        return divide(over, under)
    return Fraction(over) / Fraction(under)


def divide_down(over: Value, under: Value) -> Value:
    """`over // under`; nan or inf where that has no value."""
    if under == 0 or not is_finite(over) or not is_finite(under):
        return floor(divide(over, under))
    return over // under


def find_remainder(over: Value, under: Value) -> Value:
    """`over % under`, with the sign of `under`; nan where that has no value."""
    if under == 0 or not is_finite(over) or under != under:
        return NAN
    return over % under


def raise_power(base: Value, exponent: Value) -> Value:
    """`base ** exponent` as torch.pow has it."""
    if exponent == 0.5:
        return root(base)
    if exponent < 0 and base == 0:
        return divide(1, raise_power(base, -exponent))
    try:
        found = base**exponent
    except OverflowError:
        odd = exponent == int(exponent) and int(exponent) % 2 == 1
        return -INF if base < 0 and odd else INF
    return NAN if isinstance(found, complex) else found


def raise_power_exactly(base: Value, exponent: Value) -> Value:
    """`base ** exponent` where that is rational."""
    if isinstance(base, float) or isinstance(exponent, float):
        return raise_power(base, exponent)
    exponent = Fraction(exponent)
    if exponent.denominator == 2:
        return raise_power_exactly(root_exactly(base), exponent.numerator)
    if exponent.denominator != 1:
        raise _irrational(f"the power {exponent}")
    if base == 0 and exponent < 0:
        return INF
    return Fraction(base) ** int(exponent)


def is_finite(value: Value) -> bool:
    """Is it neither inf nor nan?"""
    return not isinstance(value, float) or math.isfinite(value)


def floor(value: Value) -> Value:
    """The largest integer not above; inf and nan stay."""
    return math.floor(value) if is_finite(value) else value


def ceiling(value: Value) -> Value:
    """The smallest integer not below; inf and nan stay."""
    return math.ceil(value) if is_finite(value) else value


def root(value: Value) -> float:
    """The square root; nan below 0."""
    return NAN if value != value or value < 0 else math.sqrt(value)


def root_exactly(value: Value) -> Value:
    """The square root of a square; any other is refused."""
    if isinstance(value, float):
        return root(value)
    if value < 0:
        return NAN
    above, below = Fraction(value).as_integer_ratio()
    found = Fraction(math.isqrt(above), math.isqrt(below))
    if found * found != value:
        raise _irrational("sqrt", f"it was asked for the root of {value}")
    return found


def exp(value: Value) -> float:
    """The exponential; inf where it overflows."""
    try:
        return math.exp(value)
    except OverflowError:
        return INF if value > 0 else 0.0


def log(value: Value) -> float:
    """The natural logarithm; -inf at 0, nan below."""
    if value == 0:
        return -INF
    return math.log(value) if value > 0 else NAN


def log1p(value: Value) -> float:
    """`log(1 + x)` without loss near 0; -inf at -1, nan below."""
    return math.log1p(value) if value > -1 else -INF if value == -1 else NAN


def sign(value: Value) -> Value:
    """1, 0 or -1; nan stays."""
    return value if value != value else (value > 0) - (value < 0)


def largest(values: Any) -> Value:
    """The largest of them; nan if one is nan, -inf if there is none."""
    best: Value = -INF
    for value in values:
        if value != value:
            return NAN
        if value > best:
            best = value
    return best


def smallest(values: Any) -> Value:
    """The smallest of them; nan if one is nan, inf if there is none."""
    best: Value = INF
    for value in values:
        if value != value:
            return NAN
        if value < best:
            best = value
    return best


def guard_domain(function: Callable[..., float]) -> Callable[..., float]:
    """A function of `math` that answers nan outside its domain, and inf where it overflows."""

    def answer(*values: Value) -> float:
        try:
            return function(*values)
        except ValueError:
            return NAN
        except OverflowError:
            return INF if values[0] > 0 or function is math.cosh else -INF

    return answer


def refuse_exactly(name: str) -> Callable[..., Any]:
    """What stands for an irrational function in exact arithmetic."""

    def answer(*_: Any, **__: Any) -> Any:
        raise _irrational(name)

    return answer


def _irrational(name: str, *facts: str) -> Exception:
    return refuse(
        "not-rational",
        f"{name} has no exact value in fractions",
        facts=facts,
        help="evaluate the formula without exact=True",
    )
