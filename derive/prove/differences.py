"""Is a difference of two normal forms zero? What is tried when their keys differ.

Positive divisors are cleared, letters of a few values are put at each of them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from derive.analysis.affine_form import Affine
from derive.ir.polynomial import Polynomial
from derive.prove.letters import find_affines, split_quotient
from derive.prove.merge import put_in
from derive.prove.signs import is_above
from derive.prove.terms import Algebra, Base, Factor, Normal, Poly, Term

if TYPE_CHECKING:
    from derive.ir.nodes import Index

_MOST_SPLITS = 8
_MOST_CLEARED = 4
_FEW = 8  # values of a letter that are tried one by one
_MOST_UNROLLED = 8  # entries of a sum that are written out
_LARGEST = 120  # terms of a difference that is looked at


def is_equal(algebra: Algebra, ours: Normal, theirs: Normal, letters: tuple[Index, ...]) -> bool:
    """Are both equal for all values of the letters, as far as is seen?"""
    ours, theirs, letters = _split(algebra, ours, theirs, letters)
    if algebra.key(ours) == algebra.key(theirs):
        return True
    gap = algebra.finish((*ours.terms, *(term.times(Fraction(-1)) for term in theirs.terms)))
    if not gap.terms:
        return True
    if len(gap.terms) > _LARGEST:
        return False
    return _is_zero(algebra, gap, letters)


def _split(
    algebra: Algebra, ours: Normal, theirs: Normal, letters: tuple[Index, ...]
) -> tuple[Normal, Normal, tuple[Index, ...]]:
    """Both with the letters that quotients divide in either split in two."""
    for _ in range(_MOST_SPLITS):
        if algebra.key(ours) == algebra.key(theirs):
            break
        affines = [*find_affines(ours), *find_affines(theirs)]
        for letter in letters:
            parts = split_quotient(algebra, letter, affines)
            if parts is not None:
                break
        else:
            break
        high, low, place = parts
        letters = (*(each for each in letters if each is not letter), high, low)
        ours, theirs = (
            algebra.finish(algebra.replace(side.terms, {letter: place})) for side in (ours, theirs)
        )
    return ours, theirs, letters


def _is_zero(algebra: Algebra, gap: Normal, letters: tuple[Index, ...]) -> bool:
    gap = _unroll(algebra, gap)
    for _ in range(_MOST_CLEARED):
        if not gap.terms:
            return True
        cleared = _clear_divisor(algebra, gap)
        if cleared is None:
            break
        gap = cleared
    if not gap.terms:
        return True
    for letter in letters:
        extent = Polynomial.of(letter.extent).constant
        if extent is None or not 1 < extent <= _FEW or letter not in gap.free:
            continue
        rest = tuple(each for each in letters if each is not letter)
        return all(
            _is_zero(algebra, _put(algebra, gap, letter, value), rest)
            for value in range(int(extent))
        )
    return False


def _unroll(algebra: Algebra, gap: Normal) -> Normal:
    """The difference with its sums over a few numbers written out."""
    found: list[Term] = []
    for term in gap.terms:
        few = [index for index in term.bound if _is_few(index)]
        poly: Poly = (put_in(term, bound=tuple(i for i in term.bound if i not in few)),)
        for index in few:
            extent = Polynomial.of(index.extent).constant
            assert extent is not None
            places = [Affine({}, Polynomial.of(value)) for value in range(int(extent))]
            poly = tuple(t for place in places for t in algebra.replace(poly, {index: place}))
        found += poly
    return algebra.finish(tuple(found)) if len(found) > len(gap.terms) else gap


def _is_few(index: Index) -> bool:
    extent = Polynomial.of(index.extent).constant
    return extent is not None and 1 < extent <= _MOST_UNROLLED


def _put(algebra: Algebra, gap: Normal, letter: Index, value: int) -> Normal:
    place = Affine({}, Polynomial.of(value))
    return algebra.finish(algebra.replace(gap.terms, {letter: place}))


def _clear_divisor(algebra: Algebra, gap: Normal) -> Normal | None:
    """The difference times a positive divisor of some of its terms; None where there is none."""
    found: dict[str, Factor] = {}
    for term in gap.terms:
        for factor in term.factors:
            if _is_divisor(factor, term):
                key = algebra.key(factor.atom)
                known = found.get(key)
                if known is None or factor.exponent < known.exponent:
                    found[key] = factor
    if not found:
        return None
    key = min(found)
    times = -found[key].exponent
    base = found[key].atom
    assert isinstance(base, Base)
    terms: list[Term] = []
    for term in gap.terms:
        own = [factor for factor in term.factors if algebra.key(factor.atom) == key]
        left = times + sum(factor.exponent for factor in own)
        if left.denominator != 1 or left < 0:
            return None
        rest = tuple(factor for factor in term.factors if factor not in own)
        bare: Poly = (
            Term(term.coefficient, term.bound, term.guards, term.numeric, rest, term.power),
        )
        terms += algebra.multiply(bare, algebra.power(base.normal.terms, left))
    return algebra.finish(tuple(terms))


def _is_divisor(factor: Factor, term: Term) -> bool:
    """Is it 1/K**n of a positive K that is free of the summed letters?"""
    whole = isinstance(factor.atom, Base) and factor.exponent.denominator == 1
    if not whole or factor.exponent >= 0 or factor.partial:
        return False
    return is_above(factor.atom) and not factor.free.intersection(term.bound)
