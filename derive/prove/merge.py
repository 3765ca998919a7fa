"""Two bound letters that only stand together, as high*B + low, are one letter of extent A*B."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from derive.analysis.affine import to_affine
from derive.analysis.affine_form import Affine
from derive.analysis.affine_sizes import ONE as UNIT
from derive.analysis.affine_sizes import is_positive
from derive.ir.nodes import Expr, Index
from derive.ir.polynomial import Polynomial
from derive.prove.letters import find_affines
from derive.prove.terms import (
    Algebra,
    Poly,
    Term,
    find_affine_free,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def put_in(term: Term, **new: object) -> Term:
    """The term with some of its parts exchanged."""
    parts = {
        "coefficient": term.coefficient,
        "bound": term.bound,
        "guards": term.guards,
        "numeric": term.numeric,
        "factors": term.factors,
        "power": term.power,
    }
    return Term(**{**parts, **new})  # type: ignore[arg-type]


def merge_letters(algebra: Algebra, term: Term) -> Poly | None:
    """Two summed letters that stand only together, as h*D + d, become one."""
    if len(term.bound) < 2:
        return None
    affines = find_affines(term)
    pairs = _find_pairs(term.bound, affines)
    for high in term.bound:
        for low in term.bound:
            if (high, low) not in pairs or not _stand_together(high, low, affines):
                continue
            extent = Polynomial.of(high.extent) * Polynomial.of(low.extent)
            fresh = algebra.make_index(extent.to_expr())
            place = to_affine(fresh)
            kept = tuple(i for i in term.bound if i is not high and i is not low)
            rest = put_in(term, bound=kept)
            made = algebra.replace((rest,), {high: Affine({}), low: place})
            return tuple(put_in(each, bound=(*each.bound, fresh)) for each in made)
    return None


def _find_pairs(bound: tuple[Index, ...], affines: Sequence[Affine]) -> set[tuple[Expr, Expr]]:
    """Letters that stand together in some position."""
    found: set[tuple[Expr, Expr]] = set()
    for affine in affines:
        letters = [atom for atom in affine.terms if atom in bound]
        if len(letters) > 1:
            found |= set(permutations(letters, 2))
    return found


def _stand_together(high: Index, low: Index, affines: Sequence[Affine]) -> bool:
    """Do they stand in every position as c * (high * extent of low + low), and plainly?"""
    extent = Polynomial.of(low.extent)
    for affine in affines:
        if high not in find_affine_free(affine) and low not in find_affine_free(affine):
            continue
        one, other = affine.terms.get(high), affine.terms.get(low)
        if one is None or other is None or one != other * extent:
            return False
        if any(
            not isinstance(atom, Index)
            and (high in find_free_of(atom) or low in find_free_of(atom))
            for atom in affine.terms
        ):
            return False
    return is_positive(extent)


def find_free_of(atom: Expr) -> frozenset[Index]:
    """The indices of an atom."""
    return find_affine_free(Affine({atom: UNIT}))
