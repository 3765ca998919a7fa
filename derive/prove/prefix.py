"""Sums over a part of a range as differences of sums from its start, so that parts add up.

sum_{v < E} f(v + c) = sum_{v < c + E} f(v) - sum_{v < c} f(v)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.analysis.affine import to_affine
from derive.analysis.affine_form import Affine
from derive.analysis.affine_sizes import NOTHING, is_never_negative
from derive.analysis.affine_sizes import ONE as UNIT
from derive.ir.polynomial import Polynomial
from derive.prove.letters import find_read_places
from derive.prove.merge import put_in
from derive.prove.signs import is_total
from derive.prove.terms import Algebra, Poly, Term, find_affine_free

if TYPE_CHECKING:
    from derive.ir.nodes import Index


def open_range(algebra: Algebra, term: Term) -> Poly | None:
    """A sum that starts later, as a difference of two that start at 0."""
    if not term.bound or not is_total(term):
        return None
    places = find_read_places(term)
    for index in term.bound:
        start = _find_start(index, places)
        if start is None:
            continue
        rest = put_in(term, bound=tuple(i for i in term.bound if i is not index))
        extent = Polynomial.of(index.extent)
        found: list[Term] = []
        for end, sign in ((start + extent, 1), (start, -1)):
            fresh = algebra.make_index(end.to_expr())
            place = to_affine(fresh) - Affine({}, start)
            for made in algebra.replace((rest,), {index: place}):
                number = made.coefficient * sign
                found.append(put_in(made, coefficient=number, bound=(*made.bound, fresh)))
        return tuple(found)
    return None


def _find_start(index: Index, places: tuple[Affine, ...]) -> Polynomial | None:
    """The least c of the places v + c, if all are of this kind and it is above 0."""
    least: Polynomial | None = None
    for place in places:
        if index not in find_affine_free(place):
            continue
        if len(place.terms) != 1 or place.terms.get(index) != UNIT:
            return None
        offset = place.constant
        if least is None or is_never_negative(least - offset):
            least = offset
        elif not is_never_negative(offset - least):
            return None
    if least is None or least == NOTHING or not is_never_negative(least):
        return None
    return least
