"""Products and guards of sums of terms.

A guard covers all of its term; a condition that came in by a number (a softmax entry left out, say)
covers what was finite beside it, and stays a number beside what may not be.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING

from derive.analysis.affine import Affine, put
from derive.ir import nodes as ir
from derive.ir.polynomial import ONE as UNIT
from derive.prove.conditions import (
    Cubes,
    compare,
    to_cubes,
    unite,
)
from derive.prove.terms import (
    ONE,
    Algebra,
    Atom,
    Base,
    Cube,
    Factor,
    Fold,
    Function,
    GivesUp,
    Infinite,
    Literal,
    Poly,
    Read,
    Symbol,
    Term,
    Value,
    find_affine_free,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


MOST_TERMS = 160  # of a product that is multiplied out; a longer one keeps a factor whole
_MOST_EXPANDED = 24  # terms of a power that is multiplied out


def multiply(algebra: Algebra, one: Poly, other: Poly) -> Poly:
    """The product, multiplied out."""
    if len(one) * len(other) > MOST_TERMS:
        one, other = (_combine(algebra, each) for each in (one, other))
    if len(one) * len(other) > MOST_TERMS:
        if len(one) < len(other):
            one, other = other, one
        whole = Function("sum", (algebra.finish(one),))  # the longer sum stays one atom
        one = (Term(factors=(Factor(whole, Fraction(1)),)),)
    found: list[Term] = []
    for left in one:
        for right in other:
            found += _times(algebra, left, right)
    return _combine(algebra, tuple(found)) if len(found) > 8 else tuple(found)


def _combine(algebra: Algebra, poly: Poly) -> Poly:
    return algebra.finish(poly).terms if len(poly) > 1 else poly


def _times(algebra: Algebra, one: Term, other: Term) -> Poly:
    algebra.step()
    other = rename_apart(algebra, other, one)
    guards = unite(one.guards, other.guards)
    if guards is None:
        return ()
    power = one.power or other.power
    if one.power and other.power:
        power = algebra.finish((*one.power.terms, *other.power.terms))
        power = power if power.terms else None
    number = one.coefficient * other.coefficient
    bound, factors = (*one.bound, *other.bound), (*one.factors, *other.factors)
    if one.factors and other.factors:
        return collect(algebra, Term(number, bound, guards, (), power), factors)
    return (Term(number, bound, guards, factors, power),)


def rename_apart(algebra: Algebra, term: Term, other: Term) -> Term:
    """The term with indices of its own where the other one uses its bound indices."""
    clash = [index for index in term.bound if index in other.inner or index in other.bound]
    if not clash:
        return term
    new = {index: algebra.fresh(index) for index in clash}
    made = algebra.replace(
        (dataclasses.replace(term, bound=()),), {old: Affine({i: UNIT}) for old, i in new.items()}
    )
    if len(made) != 1:
        raise GivesUp("a term that falls apart when its letters are renamed")
    bound = tuple(new.get(index, index) for index in term.bound)
    return dataclasses.replace(made[0], bound=(*bound, *made[0].bound))


def collect(algebra: Algebra, term: Term, factors: Iterable[Factor]) -> Poly:
    """A term times more factors, the powers of one atom merged."""
    number, merged, opened = merge_factors(algebra, (*term.factors, *factors))
    number *= term.coefficient
    made: Poly = (dataclasses.replace(term, coefficient=number, factors=merged),)
    for poly in opened:
        made = multiply(algebra, made, poly)
    return made


def merge_factors(
    algebra: Algebra, factors: Iterable[Factor]
) -> tuple[Fraction, tuple[Factor, ...], list[Poly]]:
    """The number, the powers by atom, and the powers that are to be multiplied out."""
    found: dict[str, Factor] = {}
    for factor in factors:
        key = algebra.key(factor.atom)
        known = found.get(key)
        found[key] = (
            factor if known is None else Factor(known.atom, known.exponent + factor.exponent)
        )
    number = Fraction(1)
    merged: list[Factor] = []
    opened: list[Poly] = []
    for factor in found.values():
        atom, exponent = factor.atom, factor.exponent
        if _is_even_size(factor):
            assert isinstance(atom, Function)
            opened.append(expand(algebra, atom.arguments[0].terms, int(exponent)))
            continue
        if isinstance(atom, Symbol) and isinstance(atom.expr, ir.Number):
            whole = floor(exponent)
            number *= atom.expr.value**whole
            exponent -= whole
        if not exponent:
            continue
        if isinstance(atom, Base) and _is_opened(atom, exponent):
            opened.append(expand(algebra, atom.normal.terms, int(exponent)))
            continue
        merged.append(Factor(atom, exponent))
    return number, tuple(merged), opened


def _is_even_size(factor: Factor) -> bool:
    """Is it an even power of an abs, which is the power of what is inside?"""
    match factor.atom:
        case Function("abs", (inner,)):
            even = factor.exponent > 0 and factor.exponent % 2 == 0
            return even and len(inner.terms) ** int(factor.exponent) <= _MOST_EXPANDED
    return False


def _is_opened(atom: Base, exponent: Fraction) -> bool:
    size = len(atom.normal.terms)
    return exponent.denominator == 1 and exponent > 0 and size**exponent <= _MOST_EXPANDED


def expand(algebra: Algebra, poly: Poly, exponent: int) -> Poly:
    """A whole power, multiplied out."""
    found = ONE
    for _ in range(exponent):
        found = multiply(algebra, found, poly)
    return found


def guard(algebra: Algebra, cubes: Cubes, poly: Poly) -> Poly:
    """The terms where one of the cubes holds; elsewhere 0, whatever they are."""
    found: list[Term] = []
    for cube in cubes:
        for term in poly:
            algebra.step()
            made = guard_term(term, cube)
            if made is not None:
                found.append(made)
    return tuple(found)


def guard_term(term: Term, cube: Cube) -> Term | None:
    """A term under more guards; None where they exclude each other."""
    guards = unite(term.guards, cube)
    return None if guards is None else dataclasses.replace(term, guards=guards)


# Indices put in place of others, all through a sum of terms; what comes out is simplified anew.


New = "Mapping[ir.Index, Affine]"


def replace(algebra: Algebra, poly: Poly, new: Mapping[ir.Index, Affine]) -> Poly:
    """The terms with indices put in place of others."""
    found: list[Term] = []
    for term in poly:
        found += _replace_term(algebra, term, new)
    return tuple(found)


def _replace_term(algebra: Algebra, term: Term, new: Mapping[ir.Index, Affine]) -> Poly:
    new = {index: value for index, value in new.items() if index in term.free}
    if not new:
        return (term,)
    algebra.step()
    bound, new = _free_bound(algebra, term.bound, new)
    guards = replace_cube(algebra, term.guards, new)
    if guards is None:
        return ()
    plain: list[Factor] = []
    parts: list[Poly] = []
    for factor in term.factors:
        if not any(index in new for index in factor.free):
            plain.append(factor)
        elif isinstance(factor.atom, Read):
            plain.append(Factor(_put_read(factor.atom, new), factor.exponent))
        else:
            parts.append(_replace_factor(algebra, factor, new))
    power = term.power
    if power is not None and any(index in new for index in power.free):
        parts.append(algebra.exponential(replace(algebra, power.terms, new)))
        power = None
    body: Poly = algebra.collect(Term(term.coefficient, power=power), tuple(plain))
    for part in parts:
        body = algebra.multiply(body, part)
    return tuple(
        dataclasses.replace(made, bound=(*bound, *made.bound), guards=(*guards, *made.guards))
        for made in body
    )


def _free_bound(
    algebra: Algebra, bound: tuple[ir.Index, ...], new: Mapping[ir.Index, Affine]
) -> tuple[tuple[ir.Index, ...], dict[ir.Index, Affine]]:
    """The bound indices, renamed where what comes in holds one of them."""
    coming = {index for value in new.values() for index in find_affine_free(value)}
    kept = []
    changed = dict(new)
    for index in bound:
        fresh = algebra.fresh(index) if index in coming else index
        if fresh is not index:
            changed[index] = Affine({fresh: UNIT})
        kept.append(fresh)
    return tuple(kept), changed


def replace_cube(algebra: Algebra, cube: Cube, new: Mapping[ir.Index, Affine]) -> Cube | None:
    """The literals with indices put in place of others; None where they exclude each other."""
    found: list[Literal] = []
    for literal in cube:
        if not any(index in new for index in literal.free):
            found.append(literal)
            continue
        cubes = to_cubes(algebra.decide(replace_literal(algebra, literal, new)))
        if not cubes:
            return None
        for each in cubes[0]:
            fates = {compare(known, each) for known in found}
            if "excludes" in fates:
                return None
            if not fates & {"same", "tells"}:
                found.append(each)
    return tuple(found)


def replace_literal(algebra: Algebra, literal: Literal, new: Mapping[ir.Index, Affine]) -> Literal:
    """The literal with indices put in place of others."""
    subject = literal.subject
    if isinstance(subject, Affine):
        return Literal(literal.kind, put(subject, dict(new)), literal.positive)
    if isinstance(subject, Read):
        return Literal(literal.kind, _put_read(subject, new), literal.positive)
    inner = algebra.finish(replace(algebra, subject.terms, new))
    return Literal(literal.kind, inner, literal.positive)


def _put_read(read: Read, new: Mapping[ir.Index, Affine]) -> Read:
    return Read(read.tensor, tuple(put(place, dict(new)) for place in read.places))


def _replace_factor(algebra: Algebra, factor: Factor, new: Mapping[ir.Index, Affine]) -> Poly:
    atom: Atom = factor.atom
    match atom:
        case Value(affine):
            return algebra.power(algebra.value(put(affine, dict(new))), factor.exponent)
        case Base(normal):
            inner = algebra.finish(replace(algebra, normal.terms, new))
            if inner.terms and _is_like(inner.terms, normal.terms):
                return (Term(factors=(Factor(Base(inner), factor.exponent),)),)
            return algebra.power(inner.terms, factor.exponent)
        case Function("sum", (inner,)):
            kept = Function("sum", (algebra.finish(replace(algebra, inner.terms, new)),))
            return (Term(factors=(Factor(kept, factor.exponent),)),)
        case Function(name, arguments):
            parts = tuple(replace(algebra, each.terms, new) for each in arguments)
            made = algebra.apply(name, parts)
        case Fold(kind, bound, literals, body):
            kept_bound, changed = _free_bound(algebra, bound, new)
            cube = replace_cube(algebra, literals, changed)
            if cube is None:
                raise GivesUp("a largest entry of nothing")
            inner_poly = replace(algebra, body.terms, changed)
            made = algebra.fold(kind, kept_bound, inner_poly, (cube,))
        case Symbol() | Infinite() | Read():
            return (Term(factors=(factor,)),)
    return made if factor.exponent == 1 else algebra.power(made, factor.exponent)


def _is_like(one: Poly, other: Poly) -> bool:
    """Are the terms of one shape, so that nothing new can be drawn out of their sum?"""
    return len(one) == len(other) and all(
        len(a.bound) == len(b.bound)
        and len(a.factors) == len(b.factors)
        and (a.power is None) == (b.power is None)
        and len(a.guards) == len(b.guards)
        for a, b in zip(one, other, strict=True)
    )
