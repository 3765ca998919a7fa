"""The text of an exact number.

Decimals where they end soon, 1e-5 where they begin late, else a quotient. What would take too many
digits is no number of the notation.
"""

from __future__ import annotations

from fractions import Fraction

from derive.errors import refuse
from derive.ir import nodes as ir

LONGEST = 300  # digits, and powers of ten; exact numbers are kept in full
TOO_LONG = f"numbers are kept exactly, so they end at {LONGEST} digits"
MAKE_SCALAR = "make it a scalar: scalar c"
_FEW = 20  # digits in a row that read at a glance
_MOST_BITS = 4 * 2 * LONGEST  # of a number of the longest digits at the smallest power of ten


def write_number(value: Fraction) -> str:
    """`0.25`, `1e-5`, `3e120`, `1 / 3`."""
    ended = _split_decimal(value)
    if ended is None:
        return _write_quotient(value)
    digits, power = ended
    sign = "-" if value < 0 else ""
    leading = len(digits) - 1 + power  # the power of ten of the first digit
    late = f"{sign}{digits[0]}{f'.{digits[1:]}' if digits[1:] else ''}e{leading}"
    if power >= 0:
        whole = f"{sign}{digits}{'0' * power}"
        return late if len(digits) + power > _FEW and len(late) < len(whole) else whole
    if -power < _FEW and leading >= -4:
        digits = digits.zfill(1 - power)
        return f"{sign}{digits[:power]}.{digits[power:]}"
    return late if -power < _FEW else min(late, _write_quotient(value), key=len)


def _write_quotient(value: Fraction) -> str:
    over, under = Fraction(value.numerator), Fraction(value.denominator)
    return f"{write_number(over)} / {write_number(under)}"


def to_exact(value: Fraction) -> ir.Number:
    """The number as a node; DeriveError where the notation cannot write it."""
    if not _is_writable(value):
        raise refuse("number-too-long", TOO_LONG, help=MAKE_SCALAR)
    return ir.Number(value)


def _is_writable(value: Fraction) -> bool:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        return False
    text = write_number(value).lstrip("-")
    return all(is_readable(part) for part in text.split(" / "))


def is_readable(text: str) -> bool:
    """Is a whole number or a decimal short enough, as it is written, to be read?"""
    mantissa, _, exponent = text.lower().replace("_", "").partition("e")
    whole, _, rest = mantissa.partition(".")
    if len(whole) + len(rest) > LONGEST or len(exponent) > len(f"-{LONGEST}"):
        return False
    digits, power = (whole + rest).lstrip("0"), int(exponent or 0)
    leading = len(digits) - 1 - len(rest) + power
    return not digits or max(abs(power), abs(leading)) <= LONGEST


def _split_decimal(value: Fraction) -> tuple[str, int] | None:
    """(digits, power of ten) of a decimal that ends: 0.025 is ("25", -3)."""
    twos, rest = _divide_out(value.denominator, 2)
    fives, rest = _divide_out(rest, 5)
    if rest != 1:
        return None
    places = max(twos, fives)
    digits = str(abs(value.numerator) * 10**places // value.denominator)
    bare = digits.rstrip("0") or "0"
    return bare, len(digits) - len(bare) - places if bare != "0" else 0


def _divide_out(number: int, prime: int) -> tuple[int, int]:
    """(how often the prime divides it, what is left)."""
    times = 0
    while number % prime == 0:
        number //= prime
        times += 1
    return times, number
