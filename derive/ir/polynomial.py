"""Exact polynomials over sizes and indices: the normal form of extents, places and costs.

    polynomial = {monomial: rational}        monomial = ((atom, power), ...) in order of the text

An atom is a Size, an Index, a Scalar, or any expression that is not a polynomial (`S // 2`).
Powers are integers other than 0; a negative power divides, so that `E/H * H` is E. The atoms of a
monomial are sorted by a total order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from math import floor, gcd
from typing import TypeAlias

from derive.errors import refuse
from derive.ir import nodes as ir
from derive.ir.pieces import to_compact, to_text
from derive.ir.walk import find_size_names, walk

Monomial: TypeAlias = tuple[tuple[ir.Expr, int], ...]


@dataclass(frozen=True)
class Polynomial:
    """A sum of monomials with exact coefficients; equal polynomials compare equal."""

    terms: Mapping[Monomial, Fraction]

    @staticmethod
    def of(value: ir.Expr | int | Fraction) -> Polynomial:
        """The polynomial of an expression; a part that is no polynomial becomes an atom."""
        return _convert_cached(value)

    @staticmethod
    def _of(value: ir.Expr | int | Fraction) -> Polynomial:
        match value:
            case int() | Fraction():
                return Polynomial({(): Fraction(value)} if value else {})
            case ir.Number(number):
                return Polynomial({(): number} if number else {})
            case ir.Add(parts):
                return add_all(map(Polynomial.of, parts))
            case ir.Mul(parts):
                return reduce(Polynomial.__mul__, map(Polynomial.of, parts), ONE)
            case ir.Pow(base, ir.Number(power)) if power.denominator == 1 and power >= 0:
                return reduce(Polynomial.__mul__, [Polynomial.of(base)] * int(power), ONE)
            case ir.Pow(base, ir.Number(power)) if power.denominator == 1:
                return _invert(Polynomial.of(base), int(power)) or Polynomial.atom(value)
        return Polynomial.atom(value)

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for monomial, value in other.terms.items():
            terms[monomial] = terms.get(monomial, Fraction(0)) + value
        return Polynomial({m: c for m, c in terms.items() if c})

    def __mul__(self, other: Polynomial) -> Polynomial:
        products = (
            Polynomial({_times(m, n): c * d})
            for m, c in self.terms.items()
            for n, d in other.terms.items()
        )
        return add_all(products)

    def __neg__(self) -> Polynomial:
        return Polynomial({monomial: -number for monomial, number in self.terms.items()})

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __str__(self) -> str:
        """The terms in descending degree, without blanks around products: `4*B*N**2 + N`."""
        return to_compact(self.to_expr())

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    @property
    def constant(self) -> Fraction | None:
        """The number that the polynomial is; None if it has atoms."""
        return self.terms.get((), Fraction(0)) if set(self.terms) <= {()} else None

    @property
    def atoms(self) -> tuple[ir.Expr, ...]:
        """The atoms, each once, in the order of the terms."""
        return tuple(dict.fromkeys(atom for monomial in self.terms for atom, _ in monomial))

    def split_linear(self, atom: ir.Expr) -> tuple[Polynomial, Polynomial] | None:
        """The pair (a, b) with self = a * atom + b; None where it is not linear in the atom."""
        if any(atom in walk(other) for other in self.atoms if other is not atom):
            return None  # another atom contains this one, as S // 2 contains S
        coefficient: dict[Monomial, Fraction] = {}
        rest: dict[Monomial, Fraction] = {}
        for monomial, value in self.terms.items():
            powers = dict(monomial)
            if powers.get(atom, 1) != 1:
                return None
            if atom in powers:
                coefficient[tuple(p for p in monomial if p[0] is not atom)] = value
            else:
                rest[monomial] = value
        return Polynomial(coefficient), Polynomial(rest)

    def find_edge(self, index: ir.Index) -> tuple[bool, Polynomial] | None:
        """The pair (slope is 1, value of the index where self is 0); None for other slopes."""
        slope = split_steps(self)[0].get(index, NOTHING)
        edge = Polynomial.of(index) - self * slope
        is_edge = slope in (ONE, -ONE) and not any(index in walk(atom) for atom in edge.atoms)
        return (slope == ONE, edge) if is_edge else None

    @staticmethod
    def atom(value: ir.Expr, power: int = 1) -> Polynomial:
        """The polynomial of one atom, `value**power`."""
        return Polynomial({((value, power),) if power else (): Fraction(1)})

    def evaluate(self, value_of: Callable[[ir.Expr], Fraction]) -> Fraction:
        """The number at given values of the atoms."""
        total = Fraction(0)
        for monomial, value in self.terms.items():
            for atom, power in monomial:
                value = value * value_of(atom) ** power  # noqa: PLW2901 - a running product
            total += value
        return total

    def at(self, sizes: Mapping[str, int]) -> Fraction:
        """The number at given sizes; KeyError names a size without a value."""
        return self.evaluate(lambda atom: evaluate_atom(atom, sizes))

    def find_decreasing(self, sizes: Mapping[str, int]) -> tuple[str, ...]:
        """The sizes that, doubled, lower the number: K in L - K + 1."""
        here = self.at(sizes)
        names = dict.fromkeys(name for atom in self.atoms for name in find_size_names(atom))
        return tuple(n for n in names if self.at({**sizes, n: 2 * sizes[n]}) < here)

    def to_expr(self) -> ir.Expr:
        """The expression with the terms in descending degree."""
        ordered = sorted(self.terms.items(), key=lambda term: _term_key(term[0]))
        return ir.sum_of([_to_product(monomial, value) for monomial, value in ordered])


@lru_cache(maxsize=50000)
def split_steps(place: Polynomial) -> tuple[Mapping[ir.Expr, Polynomial], Polynomial]:
    """The pair (step of each atom, constant): ({i: S, j: 2}, 1) of `S*i + 2*j + 1`.

    Steps and constant are over sizes; a product of other atoms counts as one atom.
    """
    found: dict[ir.Expr, Polynomial] = {}
    for monomial, number in place.terms.items():
        own = tuple(pair for pair in monomial if is_varying(pair[0]))
        step = Polynomial({tuple(pair for pair in monomial if pair not in own): number})
        is_plain = len(own) == 1 and own[0][1] == 1
        atom = own[0][0] if is_plain else Polynomial({own: Fraction(1)}).to_expr()
        found[atom] = found[atom] + step if atom in found else step
    constant = found.pop(ir.ONE, NOTHING)
    return found, constant


@lru_cache(maxsize=20000)
def is_varying(atom: ir.Expr) -> bool:
    """Whether an atom depends on more than sizes: not a size, a power or a quotient of them."""
    match atom:
        case ir.Size() | ir.Number():
            return False
        case ir.Add() | ir.Mul() | ir.Pow() | ir.Call("floordiv"):
            return any(map(is_varying, atom.children))
    return True


def add_all(parts: Iterable[Polynomial]) -> Polynomial:
    """The sum of the polynomials."""
    return reduce(Polynomial.__add__, parts, Polynomial({}))


@lru_cache(maxsize=1 << 14)
def _convert_cached(value: ir.Expr | int | Fraction) -> Polynomial:
    return Polynomial._of(value)


def is_same_extent(one: ir.Expr, other: ir.Expr) -> bool:
    """Whether two extents are one polynomial, and so equal for all sizes."""
    return one is other or Polynomial.of(one) == Polynomial.of(other)


def evaluate_extent(extent: ir.Expr, sizes: Mapping[str, int]) -> int:
    """The extent at given sizes; KeyError for a size not given, DeriveError for a fraction."""
    if isinstance(extent, ir.Size):
        return sizes[extent.name]
    value = Polynomial.of(extent).at(sizes)
    if value.denominator != 1:
        given = find_size_names(extent)
        raise refuse(
            "extent-not-whole",
            f"the extent {to_text(extent)} is {value}",
            facts=(f"at {', '.join(f'{name}={sizes[name]}' for name in given)}",),
            help="give sizes for which it is a whole number",
        )
    return int(value)


def holds_at(condition: ir.Compare, sizes: Mapping[str, int]) -> bool:
    """Whether a relation holds at these sizes; KeyError or ZeroDivisionError if undefined."""
    one, two = (Polynomial.of(side).at(sizes) for side in (condition.left, condition.right))
    return bool(ir.DECIDING[condition.relation](one, two))


def evaluate_atom(atom: ir.Expr, sizes: Mapping[str, int]) -> Fraction:
    """The value of one atom of an extent; KeyError names an atom without a value."""
    match atom:
        case ir.Size(name):
            return Fraction(sizes[name])
        case ir.Call("floordiv", (over, under)):
            return Fraction(Polynomial.of(over).at(sizes) // Polynomial.of(under).at(sizes))
        case ir.Call("mod", (over, under)):
            return Polynomial.of(over).at(sizes) % Polynomial.of(under).at(sizes)
        case ir.Call("max", arguments):
            return max(Polynomial.of(a).at(sizes) for a in arguments)
        case ir.Call("min", arguments):
            return min(Polynomial.of(a).at(sizes) for a in arguments)
        case ir.Pow(base, ir.Number(power)) if power.denominator == 1:
            return Polynomial.of(base).at(sizes) ** int(power)
        case _:
            raise KeyError(to_text(atom))


def _invert(base: Polynomial, power: int) -> Polynomial | None:
    """`base**power` for a negative power; None if the base is 0 or has several terms."""
    if len(base.terms) != 1:
        return None
    ((monomial, value),) = base.terms.items()
    return Polynomial({tuple((atom, k * power) for atom, k in monomial): value**power})


def _times(one: Monomial, other: Monomial) -> Monomial:
    powers = dict(one)
    for atom, power in other:
        powers[atom] = powers.get(atom, 0) + power
    kept = ((atom, power) for atom, power in powers.items() if power)
    return tuple(sorted(kept, key=lambda pair: _atom_key(pair[0])))


def _term_key(monomial: Monomial) -> tuple[object, ...]:
    """The sort key of terms: descending degree, then the atoms."""
    degree = sum(power for _, power in monomial)
    return -degree, tuple((*_atom_key(atom), power) for atom, power in monomial)


def _atom_key(atom: ir.Expr) -> tuple[bool, str, str]:
    """The sort key of atoms: the name, nameless ones last; for equal names the whole node."""
    name = getattr(atom, "name", "")
    return not name, name, "" if isinstance(atom, ir.Size) else repr(atom)


def _to_product(monomial: Monomial, value: Fraction) -> ir.Expr:
    factors: list[ir.Expr] = [] if value == 1 and monomial else [ir.Number(value)]
    for atom, power in monomial:
        factors.append(atom if power == 1 else ir.Pow(atom, ir.Number(Fraction(power))))
    return ir.product_of(factors)


NOTHING = Polynomial({})
ONE = Polynomial.of(1)
_MOST_STEPS = 24  # steps of a long division; the rest remains undivided
_MOST_DIVISOR = 64  # the largest number tried as a divisor
_LARGEST_PRIME = 1000


@lru_cache(maxsize=20000)
def divide_sizes(value: Polynomial, under: Polynomial) -> tuple[Polynomial, Polynomial]:
    """The pair (q, r) with value = q * under + r; q has integer coefficients, r is what is left."""
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
    """The quotient of a division without remainder, else None."""
    quotient, rest = divide_sizes(value, under)
    return None if rest.terms else quotient


def clear_divisors(value: Polynomial) -> Polynomial:
    """The value times its divisors that are sizes, hence positive: a + b/H becomes H*a + b."""
    least: dict[ir.Expr, int] = {}
    for monomial in value.terms:
        for atom, power in monomial:
            least[atom] = min(least.get(atom, 0), power)
    for atom, power in least.items():
        if power < 0 and isinstance(atom, ir.Size):
            value = value * Polynomial.atom(atom, -power)
    return value


@lru_cache(maxsize=4000)
def find_divisors(value: Polynomial) -> tuple[Polynomial, ...]:
    """The monomials found to divide all terms, larger ones first, without 1 and the value."""
    common = dict(next(iter(value.terms), ()))
    number = 0
    for monomial, each in value.terms.items():
        powers = dict(monomial)
        common = {atom: min(power, powers.get(atom, 0)) for atom, power in common.items()}
        number = gcd(number, int(each)) if each.denominator == 1 else 1
    found = [Polynomial.of(n) for n in range(1, min(number, _MOST_DIVISOR) + 1) if number % n == 0]
    if number > _MOST_DIVISOR:
        found.append(Polynomial.of(number))
    for atom, power in common.items():
        steps = [Polynomial.atom(atom, k) for k in range(1, power + 1)]
        found = [one * other for one in found for other in [ONE, *steps]]
    found = [each for each in found if each not in (ONE, value)]
    return tuple(sorted(found, key=_divisor_key, reverse=True))


def _divisor_key(value: Polynomial) -> tuple[int, Fraction, str]:
    ((monomial, number),) = value.terms.items()
    return sum(power for _, power in monomial), number, repr(monomial)


def factor_number(number: Fraction) -> dict[int, int]:
    """The exponent of each prime in a positive rational; large primes are not separated."""
    found: dict[int, int] = {}
    for part, sign in ((number.numerator, 1), (number.denominator, -1)):
        left, prime = part, 2
        while left > 1:
            while left % prime == 0:
                found[prime] = found.get(prime, 0) + sign
                left //= prime
            prime += 1
            if prime > _LARGEST_PRIME and left > 1:
                found[left] = found.get(left, 0) + sign
                break
    return found
