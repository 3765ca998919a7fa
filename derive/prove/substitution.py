"""Indices put in place of others, all through a sum of terms; what comes out is simplified anew."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from derive.analysis.affine_form import Affine
from derive.analysis.affine_sizes import ONE as UNIT
from derive.prove.literals import compare, to_cubes
from derive.prove.signs import put
from derive.prove.terms import (
    Algebra,
    Atom,
    Base,
    Cube,
    Endless,
    Factor,
    Fold,
    Function,
    GivesUp,
    Literal,
    Poly,
    Read,
    Symbol,
    Term,
    Value,
    find_affine_free,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.ir.nodes import Index

New = "Mapping[Index, Affine]"


def replace(algebra: Algebra, poly: Poly, new: Mapping[Index, Affine]) -> Poly:
    """The terms with indices put in place of others."""
    found: list[Term] = []
    for term in poly:
        found += _replace_term(algebra, term, new)
    return tuple(found)


def _replace_term(algebra: Algebra, term: Term, new: Mapping[Index, Affine]) -> Poly:
    new = {index: value for index, value in new.items() if index in term.free}
    if not new:
        return (term,)
    algebra.step()
    bound, new = _free_bound(algebra, term.bound, new)
    guards = replace_cube(algebra, term.guards, new)
    numeric = replace_cube(algebra, term.numeric, new)
    if guards is None or (numeric is None and not term.numeric):
        return ()
    if numeric is None:
        raise GivesUp("a numeric condition that never holds")
    plain: list[Factor] = []
    parts: list[Poly] = []
    for factor in term.factors:
        if not any(index in new for index in factor.free):
            plain.append(factor)
        elif isinstance(factor.atom, Read):
            plain.append(Factor(_put_read(factor.atom, new), factor.exponent, factor.partial))
        else:
            parts.append(_replace_factor(algebra, factor, new))
    power = term.power
    if power is not None and any(index in new for index in power.free):
        parts.append(algebra.exponential(replace(algebra, power.terms, new)))
        power = None
    body: Poly = algebra.collect(Term(term.coefficient, (), (), (), (), power), tuple(plain))
    for part in parts:
        body = algebra.multiply(body, part)
    return tuple(_cover(made, bound, guards, numeric) for made in body)


def _cover(term: Term, bound: tuple[Index, ...], guards: Cube, numeric: Cube) -> Term:
    return Term(
        term.coefficient,
        (*bound, *term.bound),
        (*guards, *term.guards),
        (*numeric, *term.numeric),
        term.factors,
        term.power,
    )


def _free_bound(
    algebra: Algebra, bound: tuple[Index, ...], new: Mapping[Index, Affine]
) -> tuple[tuple[Index, ...], dict[Index, Affine]]:
    """The bound letters, renamed where what comes in holds one of them."""
    coming = {index for value in new.values() for index in find_affine_free(value)}
    kept = []
    changed = dict(new)
    for index in bound:
        fresh = algebra.fresh(index) if index in coming else index
        if fresh is not index:
            changed[index] = Affine({fresh: UNIT})
        kept.append(fresh)
    return tuple(kept), changed


def replace_cube(algebra: Algebra, cube: Cube, new: Mapping[Index, Affine]) -> Cube | None:
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


def replace_literal(algebra: Algebra, literal: Literal, new: Mapping[Index, Affine]) -> Literal:
    """The literal with indices put in place of others."""
    subject = literal.subject
    if isinstance(subject, Affine):
        return Literal(literal.kind, put(subject, dict(new)), literal.positive)
    if isinstance(subject, Read):
        return Literal(literal.kind, _put_read(subject, new), literal.positive)
    inner = algebra.finish(replace(algebra, subject.terms, new))
    return Literal(literal.kind, inner, literal.positive)


def _put_read(read: Read, new: Mapping[Index, Affine]) -> Read:
    return Read(read.tensor, tuple(put(place, dict(new)) for place in read.places))


def _replace_factor(algebra: Algebra, factor: Factor, new: Mapping[Index, Affine]) -> Poly:
    atom: Atom = factor.atom
    match atom:
        case Value(affine):
            return algebra.power(algebra.value(put(affine, dict(new))), factor.exponent)
        case Base(normal):
            inner = algebra.finish(replace(algebra, normal.terms, new))
            if inner.terms and _is_like(inner.terms, normal.terms):
                return (Term(factors=(Factor(Base(inner), factor.exponent, factor.partial),)),)
            return algebra.power(inner.terms, factor.exponent)
        case Function("whole", (inner,)):
            kept = Function("whole", (algebra.finish(replace(algebra, inner.terms, new)),))
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
        case Symbol() | Endless() | Read():
            return (Term(factors=(factor,)),)
    if factor.exponent == 1 and not factor.partial:
        return made
    if factor.partial and factor.exponent.denominator == 1:
        raise GivesUp("a power that was a root")
    return algebra.power(made, Fraction(factor.exponent))


def _is_like(one: Poly, other: Poly) -> bool:
    """Are the terms of one shape, so that nothing new can be drawn out of their sum?"""
    return len(one) == len(other) and all(
        len(a.bound) == len(b.bound)
        and len(a.factors) == len(b.factors)
        and (a.power is None) == (b.power is None)
        and len(a.guards) == len(b.guards)
        for a, b in zip(one, other, strict=True)
    )
