"""Numbers that ordinary code computes in floating point, as elements of a tower.

    0.125, 0.1, 1/3        quotients of small integers, and short decimals
    0.7071067811865476     roots of these, where the tower has them
    0.7978845608028654     quotients and roots with pi, which is a random element
    any other              a hash of its first ten digits: an unknown number

The fourth roots and logarithms of primes are those of the tower, or random elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import torch

from derive.ir.polynomial import factor_number
from derive.judge.fields.algebra import (
    ABOVE,
    BELOW,
    FINITE,
    HIGH,
    LOW,
    NAN,
    NotModelledError,
    Parts,
    Usage,
    build,
    fill,
)
from derive.judge.fields.tower import UNKNOWN, Tower, hash_residues, take_logarithm

_MOST = 20_000  # the largest numerator and denominator of a recognised quotient
_LOGARITHMS = 200  # the same for a quotient whose logarithm is recognised
_CLOSE = 5e-16  # the relative error of a few roundings
_DIGITS = 12  # the most digits of a decimal taken as exact
_LOW, _HIGH = -1e4, 1e8  # constants beyond them are used as infinities

_MOST_NAMES = 2  # hashed numbers of one tensor that are recorded one by one


class Element(NamedTuple):
    """A number over a tower: residues, state, the name of a hashed constant, companions."""

    residues: tuple[int, ...]
    state: int = FINITE
    hashed: str = ""
    companions: tuple[int, ...] = ()


def find_element(tower: Tower, value: float | Fraction | int) -> Element:
    """A number as an element of a tower."""
    if isinstance(value, float) and not math.isfinite(value):
        state = NAN if value != value else ABOVE if value > 0 else BELOW
        return Element((0,) * tower.levels, state)
    state = LOW if value <= _LOW else HIGH if value >= _HIGH else FINITE
    return _find_finite(tower, value)._replace(state=state)


@lru_cache(maxsize=100_000)
def _find_finite(tower: Tower, value: float | Fraction | int) -> Element:
    quotient = to_fraction(value)
    if quotient is not None:
        return Element(tower.embed(quotient))
    value = float(value)
    for find in (_find_root, _find_logarithm, _find_over_logarithm):
        found = find(tower, value)
        if found:
            return found
    return Element(_hash(tower, value), hashed=f"the number {value:.6g}")


def to_fraction(value: float | Fraction | int) -> Fraction | None:
    """The simple rational near a float, or the exact one of a decimal or a huge float, or None."""
    if not isinstance(value, float):
        return Fraction(value)
    if not math.isfinite(value):
        return None
    quotient = _find_quotient(value)
    if quotient is None and (_is_decimal(value) or abs(value) >= _HIGH):
        quotient = Fraction(repr(value)) if _is_decimal(value) else Fraction(value)
    return quotient


def _is_decimal(value: float) -> bool:
    digits = repr(value).strip("-").split("e")[0].replace(".", "").strip("0")
    return len(digits) <= _DIGITS


def _find_quotient(value: float, close: float = _CLOSE) -> Fraction | None:
    """The quotient of small integers within a relative error of a float; None for none."""
    if not 1e-9 < abs(value) < 1e9:
        return Fraction(0) if not value else None
    found = Fraction(value).limit_denominator(_MOST)
    near = found and abs(float(found) - value) <= close * abs(value)
    return found if near and abs(found.numerator) <= _MOST * found.denominator else None


def _find_root(tower: Tower, value: float) -> Element | None:
    """The element for q * pi, a square root of q, q * pi or q / pi, or a fourth root; else None."""
    # the root of pi: a random square
    half = tuple(each * each % p for each, p in zip(_hash(tower, 0.5), tower.primes, strict=True))
    tries = (
        (value * value, 0, 2),
        (value / math.pi, 2, 4),
        (value * value / math.pi, 1, 2),
        (value * value * math.pi, -1, 2),
        (value * math.pi, -2, 4),
        (value**4, 0, 1),
    )
    for number, halves, quarters in tries:
        quotient = _find_quotient(number, 3 * _CLOSE if quarters > 1 else 5 * _CLOSE)
        if quotient:
            found = embed_power(tower, abs(quotient), quarters)
            sign = -1 if value < 0 else 1
            residues = tuple(
                sign * each * pow(pi, halves, prime) % prime if each >= 0 else each
                for each, pi, prime in zip(found.residues, half, tower.primes, strict=True)
            )
            return found._replace(residues=residues)
    return None


def embed_power(tower: Tower, value: Fraction, quarters: int) -> Element:
    """A positive rational to the power quarters/4, by fourth roots of its prime factors.

    The fourth root of a prime that is not a square at every level is a random element.
    """
    found, drawn = [1] * tower.levels, []
    for factor, times in factor_number(value).items():
        whole, rest = divmod(abs(times) * quarters, 4)
        fourth = _find_fourth_root(tower, factor)
        if rest and factor not in tower.squares:
            drawn.append(f"the root of {factor}")
        for level, prime in enumerate(tower.primes):
            if not factor % prime or found[level] < 0:
                found[level] = UNKNOWN
                continue
            own = pow(factor, whole, prime) * pow(fourth[level], rest, prime)
            found[level] = found[level] * pow(own, 1 if times > 0 else -1, prime) % prime
    return Element(tuple(found), hashed=", ".join(drawn))


@lru_cache(maxsize=10_000)
def _find_fourth_root(tower: Tower, factor: int) -> tuple[int, ...]:
    """The fourth root that is a square itself; a random element where there is none."""
    if factor in tower.squares:
        return tuple(pow(factor, ((p + 1) // 4) ** 2, p) for p in tower.primes)
    drawn = _hash(tower, factor + 0.25)
    return tuple(max(each * each % p, 1) for each, p in zip(drawn, tower.primes, strict=True))


def _find_over_logarithm(tower: Tower, value: float) -> Element | None:
    """A quotient, or a root of one, times or over log(2), as an element; None for other values."""
    logarithm = math.log(2)
    for number, power in ((value * logarithm, -1), (value / logarithm, 1)):
        quotient = _find_quotient(number, 3 * _CLOSE)
        found = Element(tower.embed(quotient)) if quotient else _find_root(tower, number)
        if found:
            factors = embed_logarithm(tower, Fraction(2))
            residues = tuple(
                each * pow(factor, power, prime) % prime if each >= 0 else each
                for each, factor, prime in zip(found.residues, factors, tower.primes, strict=True)
            )
            return found._replace(residues=residues)
    return None


def _find_logarithm(tower: Tower, value: float) -> Element | None:
    """The element for the logarithm of p/q; None if the value is none."""
    if abs(value) > math.log(_MOST):
        return None
    quotient = Fraction(math.exp(value)).limit_denominator(_LOGARITHMS)
    near = quotient and abs(math.log(quotient) - value) <= _CLOSE * max(abs(value), 1)
    if not near or quotient == 1:
        return None
    return Element(embed_logarithm(tower, quotient), companions=tower.embed(quotient)[:-1])


def embed_logarithm(tower: Tower, value: Fraction) -> tuple[int, ...]:
    """The logarithm of a positive rational: the sum of the logarithms of its prime factors.

    At level 0, where logarithms are unknown, the logarithm of a prime is a random number.
    """
    total = [0] * tower.levels
    for factor, times in factor_number(value).items():
        own = _find_prime_logarithm(tower, factor)
        total = [old + times * each for old, each in zip(total, own, strict=True)]
    return tuple(each % prime for each, prime in zip(total, tower.primes, strict=True))


@lru_cache(maxsize=10_000)
def _find_prime_logarithm(tower: Tower, factor: int) -> tuple[int, ...]:
    below = (
        int(take_logarithm(torch.tensor([factor % prime]), tower, level))
        for level, prime in enumerate(tower.primes[:-1])
    )
    return (_hash(tower, -factor - 0.25)[0], *below)


def _hash(tower: Tower, value: float) -> tuple[int, ...]:
    """A random element, the same for floats of the same ten digits; negative for negative ones."""
    size = torch.tensor([int.from_bytes(f"{abs(value):.9e}".encode(), "big") % (1 << 62)])
    sign = -1 if value < 0 else 1
    return tuple(
        sign * int(hash_residues(tower.key ^ (level + 1), size)) % prime
        for level, prime in enumerate(tower.primes)
    )


def record_hashed(usage: Usage, names: Sequence[str]) -> None:
    """Record the names of hashed numbers; many numbers of one tensor as one entry."""
    if len(names) > _MOST_NAMES:
        names = ["numbers that the code computes"]
    usage.opaque |= dict.fromkeys(names)


def embed_tensor(tower: Tower, usage: Usage | None, tensor: torch.Tensor) -> Parts:
    """The tensor as residues modulo each prime, with a state for each element: finite, nan, .."""
    if tensor.is_complex():
        raise NotModelledError("complex numbers")
    values, places = torch.unique(tensor.detach(), return_inverse=True)
    if tensor.is_floating_point():
        numbers = values.double().tolist()
    else:
        numbers = [int(each) for each in values.tolist()]
    elements = [find_element(tower, each) for each in numbers]
    if usage is not None:
        hashed = [each.hashed for each in elements if each.hashed]
        record_hashed(usage, hashed)
        usage.guessed = usage.guessed or bool(hashed)
    if not elements:
        return fill(tower, tensor.shape, (0,) * tower.levels)
    nothing = (0,) * tower.depth
    columns = zip(*(each.residues + (each.companions or nothing) for each in elements), strict=True)
    every = [torch.tensor(column, dtype=torch.int64)[places] for column in columns]
    state = torch.tensor([each.state for each in elements], dtype=torch.int8)[places]
    return build(tower, every[: tower.levels], state, every[tower.levels :])
