"""A softmax's shift that has cancelled: 0 * max, which is nan where the largest entry is infinite.

It may go where the share beside it is nan there too: where the largest entry is over nothing, so is
the sum, and what makes an entry nan is in the exps of the sum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from derive.prove.conditions import is_size, is_tame, is_total
from derive.prove.terms import Algebra, Base, Cube, Factor, Fold, Poly, Term, unite

if TYPE_CHECKING:
    from derive.ir.nodes import Index


def drop_shift(algebra: Algebra, term: Term) -> Poly | None:
    """The shift that has cancelled goes, where the share is not defined either if it was not."""
    if term.power is None or all(each.coefficient for each in term.power.terms):
        return None
    shares = [
        told
        for factor in term.factors
        if isinstance(factor.atom, Base) and factor.exponent < 0
        for told in [_find_share(algebra, factor)]
        if told is not None
    ]
    kept = [each for each in term.power.terms if not _is_told(algebra, each, shares)]
    if len(kept) == len(term.power.terms):
        return None
    power = algebra.finish(tuple(kept)) if kept else None
    return (replace(term, power=power),)


def _find_share(algebra: Algebra, factor: Factor) -> tuple[str, set[str]] | None:
    """The rows over which a divisor is summed, and what makes it nan."""
    assert isinstance(factor.atom, Base)
    terms = factor.atom.normal.terms
    rows = {_write_rows(algebra, t.bound, (*t.guards, *t.numeric)) for t in terms}
    if len(rows) != 1:
        return None
    rough: set[str] = set()
    for term in terms:
        if term.power is not None:
            cube = (*term.guards, *term.numeric)
            rough |= _write_rough(algebra, term.bound, cube, term.power.terms)
    return rows.pop(), rough


def _write_rows(algebra: Algebra, bound: tuple[Index, ...], cube: Cube) -> str:
    """The key of the condition under which there are entries."""
    return algebra.key(_ask(bound, cube, ()))


def _ask(bound: tuple[Index, ...], cube: Cube, parts: Poly) -> Term:
    asked = tuple(each for each in cube if any(index in each.free for index in bound))
    free = unite([*(each.free for each in asked), *(part.free for part in parts)])
    used = [index for index in bound if index in free]
    return Term(bound=tuple(used), guards=asked)


def _write_rough(algebra: Algebra, bound: tuple[Index, ...], cube: Cube, terms: Poly) -> set[str]:
    """The keys of the terms that may be nan, each over its rows."""
    found = set()
    for term in terms:
        if not is_total(term):
            asked = _ask(bound, cube, (term,))
            whole = replace(
                term,
                factors=tuple(factor for factor in term.factors if not is_size(factor)),
                bound=(*asked.bound, *term.bound),
                guards=(*asked.guards, *term.guards),
            )
            found.add(algebra.key(whole))
    return found


def _is_told(algebra: Algebra, term: Term, shares: list[tuple[str, set[str]]]) -> bool:
    """Is `0 * max` nan only where one of the shares is?"""
    if term.coefficient or term.bound:
        return False
    folds = [f.atom for f in term.factors if isinstance(f.atom, Fold)]
    others = [f for f in term.factors if not isinstance(f.atom, Fold)]
    if len(folds) != 1 or folds[0].kind != "max" or not all(map(is_tame, others)):
        return False
    (fold,) = folds
    rows = _write_rows(algebra, fold.bound, fold.literals)
    rough = _write_rough(algebra, fold.bound, fold.literals, fold.body.terms)
    return any(rows == known and rough <= nans for known, nans in shares)
