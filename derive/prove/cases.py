"""Cases: what conditions free of the summed letters make of the argument of a function.

f(where(c, a, b)) = [c] f(a) + [not c] f(b)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.prove.literals import ALWAYS, Cubes, check_count, compare, deny, join
from derive.prove.signs import is_above, is_total
from derive.prove.terms import Algebra, Cube, Endless, GivesUp, Literal, Poly, Term

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_CASES = 4  # conditions that are told apart; with more they stay inside


def assume(poly: Poly, cube: Cube) -> Poly:
    """The terms where the literals hold."""
    if not cube:
        return poly
    found = []
    for term in poly:
        made = _assume_term(term, cube)
        if made is not None:
            found.append(made)
    return tuple(found)


def _assume_term(term: Term, cube: Cube) -> Term | None:
    guards, numeric = [], []
    for literal in term.guards:
        fate = _judge(cube, literal)
        if fate is False:
            return None
        if fate is None:
            guards.append(literal)
    for literal in term.numeric:
        fate = _judge(cube, literal)
        if fate is not True:
            numeric.append(literal)
    if len(guards) == len(term.guards) and len(numeric) == len(term.numeric):
        return term
    return Term(
        term.coefficient, term.bound, tuple(guards), tuple(numeric), term.factors, term.power
    )


def _judge(cube: Cube, literal: Literal) -> bool | None:
    for known in cube:
        fate = compare(known, literal)
        if fate in {"same", "tells"}:
            return True
        if fate == "excludes":
            return False
    return None


def by_cases(algebra: Algebra, poly: Poly, act: Callable[[Poly], Poly | None]) -> Poly | None:
    """The function case by case; None where it has no value in one of them."""
    literals = _find_literals(poly)
    if len(literals) > _MOST_CASES:
        return act(poly)
    if not literals:
        return act(poly)
    literal = literals[0]
    found: list[Term] = []
    for each in (literal, literal.contrary):
        part = by_cases(algebra, assume(poly, (each,)), act)
        if part is None:
            return None
        found += algebra.guard(((each,),), part)
    return tuple(found)


def _find_literals(poly: Poly) -> list[Literal]:
    """The conditions that do not hang on a summed letter, each once."""
    found: list[Literal] = []
    for term in poly:
        for literal in term.guards:
            if any(index in literal.free for index in term.bound):
                continue
            if not any(compare(known, literal) in {"same", "excludes"} for known in found):
                found.append(literal)
    return found


def is_endless(term: Term) -> bool:
    """Is it infinite where its guards hold?"""
    return any(isinstance(factor.atom, Endless) for factor in term.factors)


def refuse_endless(poly: Poly) -> None:
    """GivesUp where infinity goes into what has no rule for it."""
    if any(map(is_endless, poly)):
        raise GivesUp("infinity as an argument")


def find_regions(poly: Poly, *, negative: bool) -> tuple[Poly, Cubes, Poly]:
    """The finite terms, the cubes where no infinite one counts, and terms that are nan beside it.

    Those are among the finite ones: they may be nan or infinite where an infinite one counts.
    """
    finite = tuple(term for term in poly if not is_endless(term))
    regions = ALWAYS
    rough: list[Term] = []
    for term in poly:
        if not is_endless(term):
            continue
        others = [f for f in term.factors if not isinstance(f.atom, Endless)]
        plain = not term.bound and not term.numeric and term.power is None
        one = len(term.factors) - len(others) == 1 and plain
        if not one or (term.coefficient < 0) is not negative or not term.coefficient:
            raise GivesUp("infinity that is not plain")
        if not all(is_above(f.atom) and is_total(f) for f in others):
            raise GivesUp("infinity times what may be 0")
        regions = check_count(join([regions, deny((term.guards,))]))
        for each in finite:
            if each not in rough and not all(map(is_total, assume((each,), term.guards))):
                rough.append(each)
    return finite, regions, tuple(rough)
