"""Polynomials over sizes: their sign for all sizes >= 1, and their quotients.

Laws:
- What is said holds for all sizes >= 1, and wherever the given facts are >= 0.
- No answer (False, None) is never wrong.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import floor

from derive.ir.nodes import Call, Expr, Number, Pow, Size
from derive.ir.polynomial import Monomial, Polynomial

Facts = tuple[Polynomial, ...]

NOTHING = Polynomial({})
ONE = Polynomial.of(1)
_MOST_STEPS = 24  # of a division; one that takes more is left as it is
_MOST_DIVISOR = 64  # numbers up to this one are tried as divisors


def negate(value: Polynomial) -> Polynomial:
    """The value with the other sign."""
    return Polynomial({monomial: -number for monomial, number in value.terms.items()})


@lru_cache(maxsize=20000)
def is_never_negative(value: Polynomial, facts: Facts = ()) -> bool:
    """Is the value >= 0 for all sizes >= 1 for which the facts are >= 0?"""
    terms = value.terms
    if all(number >= 0 for number in terms.values()) and all(map(_is_counting, value.atoms)):
        return True
    if not facts and sum(terms.values()) < 0 and all(isinstance(a, Size) for a in value.atoms):
        return False  # that is the value where every size is 1
    cleared = _clear_divisors(value)
    if _has_no_minus(cleared) or any(_has_no_minus(each) for each in _relax(cleared)):
        return True
    for count in range(1, min(len(facts), 2) + 1):
        for chosen in combinations(facts, count):
            rest = cleared
            for fact in chosen:
                rest = rest - fact
            if _has_no_minus(_clear_divisors(rest)):
                return True
    return False


def is_positive(value: Polynomial, facts: Facts = ()) -> bool:
    """Is the value, a whole number, >= 1 for all sizes?"""
    return value == ONE or is_never_negative(value - ONE, facts)


def _clear_divisors(value: Polynomial) -> Polynomial:
    """The value times the sizes that it is divided by, which are positive."""
    least: dict[Expr, int] = {}
    for monomial in value.terms:
        for atom, power in monomial:
            least[atom] = min(least.get(atom, 0), power)
    for atom, power in least.items():
        if power < 0 and isinstance(atom, Size):
            value = value * Polynomial({((atom, -power),): Fraction(1)})
    return value


def _has_no_minus(value: Polynomial) -> bool:
    """Are all coefficients >= 0, written in size - 1?"""
    shifted: dict[tuple[tuple[Expr, int], ...], Fraction] = {}
    for monomial, number in value.terms.items():
        parts: list[tuple[Monomial, Fraction]] = [((), number)]
        for atom, power in monomial:
            if power < 0 or not _is_counting(atom):
                return False
            if isinstance(atom, Size):
                row = _binomials(power)
                parts = [
                    ((*left, (atom, k)) if k else left, times * row[k])
                    for left, times in parts
                    for k in range(power + 1)
                ]
            else:
                parts = [((*left, (atom, power)), times) for left, times in parts]
        for left, times in parts:
            shifted[left] = shifted.get(left, Fraction(0)) + times
    return all(number >= 0 for number in shifted.values())


def _binomials(power: int) -> list[int]:
    row = [1]
    for k in range(power):
        row.append(row[-1] * (power - k) // (k + 1))
    return row


def _is_counting(atom: Expr) -> bool:
    """Is the atom of an extent known to be >= 0?"""
    match atom:
        case Size():
            return True
        case Call("floordiv", (over, under)):
            return is_never_negative(Polynomial.of(over)) and is_positive(Polynomial.of(under))
        case Call("mod", (_, under)):
            return is_positive(Polynomial.of(under))
        case Call("max", arguments):
            return any(is_never_negative(Polynomial.of(argument)) for argument in arguments)
        case Call("min", arguments):
            return all(is_never_negative(Polynomial.of(argument)) for argument in arguments)
        case Pow(base, Number(power)) if power.denominator == 1:
            return is_never_negative(Polynomial.of(base))
    return False


def _relax(value: Polynomial) -> list[Polynomial]:
    """The value with its quotients `a // n`, n a number, at the bound that makes it smallest."""
    for atom in value.atoms:
        match atom:
            case Call("floordiv", (over, Number(number))) if number >= 1:
                split = value.split(atom)
                if split is None or split[0].constant is None:
                    continue
                slope, rest = split
                assert slope.constant is not None
                above = Polynomial.of(over)
                if slope.constant > 0:
                    above = above + ONE - Polynomial.of(number)
                smaller = rest + slope * above * Polynomial.of(1 / number)
                return [smaller, *_relax(smaller)]
    return []


@lru_cache(maxsize=20000)
def divide_sizes(value: Polynomial, under: Polynomial) -> tuple[Polynomial, Polynomial]:
    """The pair (q, r) with value = q * under + r, q whole, and r as small as is seen."""
    if under.constant is not None:
        number = under.constant
        whole = {
            monomial: Fraction(floor(each / number))
            for monomial, each in value.terms.items()
            if each.denominator == 1 and number > 0 and floor(each / number)
        }
        quotient = Polynomial(whole)
        return quotient, value - quotient * under
    lead = max(under.terms, key=_rank)
    quotient, rest = NOTHING, value
    for _ in range(_MOST_STEPS):
        step = _find_step(rest, lead, under.terms[lead])
        if step is None:
            break
        quotient, rest = quotient + step, rest - step * under
    return quotient, rest


def _rank(monomial: Monomial) -> tuple[int, str]:
    return sum(power for _, power in monomial), repr(monomial)


def _find_step(rest: Polynomial, lead: Monomial, scale: Fraction) -> Polynomial | None:
    for monomial, number in sorted(rest.terms.items(), key=lambda term: _rank(term[0])):
        times = floor(number / scale)
        powers = dict(monomial)
        for atom, power in lead:
            powers[atom] = powers.get(atom, 0) - power
        if number.denominator == 1 and times and min(powers.values(), default=0) >= 0:
            left = Polynomial({monomial: Fraction(times)})
            return left * Polynomial({tuple((atom, -power) for atom, power in lead): Fraction(1)})
    return None


def divide_wholly(value: Polynomial, under: Polynomial) -> Polynomial | None:
    """Value / under where nothing is left over."""
    quotient, rest = divide_sizes(value, under)
    return None if rest.terms else quotient


@lru_cache(maxsize=4000)
def find_divisors(value: Polynomial) -> tuple[Polynomial, ...]:
    """The divisors that are seen: numbers and sizes in every term, larger ones first, without 1."""
    common = dict(next(iter(value.terms), ()))
    number = 0
    for monomial, each in value.terms.items():
        powers = dict(monomial)
        common = {atom: min(power, powers.get(atom, 0)) for atom, power in common.items()}
        number = _gcd(number, int(each)) if each.denominator == 1 else 1
    found = [Polynomial.of(n) for n in range(1, min(number, _MOST_DIVISOR) + 1) if number % n == 0]
    if number > _MOST_DIVISOR:
        found.append(Polynomial.of(number))
    for atom, power in common.items():
        steps = [Polynomial({((atom, k),): Fraction(1)}) for k in range(1, power + 1)]
        found = [one * other for one in found for other in [ONE, *steps]]
    found = [each for each in found if each not in (ONE, value)]
    return tuple(sorted(found, key=_weigh, reverse=True))


def _gcd(one: int, other: int) -> int:
    while other:
        one, other = other, one % other
    return abs(one)


def _weigh(value: Polynomial) -> tuple[int, Fraction, str]:
    ((monomial, number),) = value.terms.items()
    return sum(power for _, power in monomial), number, repr(monomial)
