"""The normal form of an expression: one form for all ways to write it, for all sizes.

    to_normal(expr) -> Normal

Products are multiplied out within the polynomial skeleton; what a function is taken of is
normalised by itself and becomes an atom; bound indices have no names. Two expressions whose normal
forms have one key are equal for all sizes wherever both are finite; of others nothing is said.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import TYPE_CHECKING

from derive.analysis.affine import Affine
from derive.ir import nodes as ir
from derive.ir.polynomial import ONE as UNIT
from derive.prove import functions, products
from derive.prove.conditions import decide as decide_literal
from derive.prove.conditions import is_above, is_nonnegative_atom
from derive.prove.definedness import Definedness
from derive.prove.reader import Reader, decide_normal
from derive.prove.sums import count, tidy
from derive.prove.terms import (
    Base,
    Cube,
    Factor,
    Found,
    GivesUp,
    Labeller,
    Literal,
    Normal,
    Piece,
    Poly,
    Term,
    Value,
    find_anonymous,
    shorten,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GivesUp", "Normal", "NormalAlgebra", "to_key", "to_normal"]

MOST_STEPS = 200_000


def to_key(expr: ir.Expr, *, steps: int = MOST_STEPS) -> str:
    """What expressions that are equal wherever they are finite, which is at the same places, share.

    GivesUp where it is not found, or where it takes too long.
    """
    reader = Reader(NormalAlgebra(steps), ir.System("", (), (), (), ()))
    needs = Definedness(reader).find(expr, {})
    asked = sorted(f"{what} where {key}" for key, (_, what) in needs.items())
    return "; ".join((reader.algebra.finish(reader.read(expr, {})).key, *asked))


def to_normal(expr: ir.Expr, *, steps: int = MOST_STEPS) -> Normal:
    """The normal form of an expression. GivesUp where it has none, or where it takes too long."""
    reader = Reader(NormalAlgebra(steps), ir.System("", (), (), (), ()))
    return reader.algebra.finish(reader.read(expr, {}))


class NormalAlgebra:
    """The operations of the normal form, a budget of steps, and indices that are used once."""

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self._left = steps
        self._indices = 0
        self._labeller = Labeller(self.step)
        self._tidy: dict[Term, None] = {}

    def step(self, count: int = 1) -> None:
        """Count steps; GivesUp where there are too many."""
        self._left -= count
        if self._left < 0:
            raise GivesUp("it takes too long")

    def limited(self, steps: int, act: Callable[[], Found]) -> Found:
        """What `act` gives; GivesUp where it takes more than so many steps."""
        kept = max(self._left - steps, 0)
        self._left -= kept
        try:
            return act()
        finally:
            self._left = max(self._left, 0) + kept

    def fresh(self, index: ir.Index) -> ir.Index:
        """An index of the same extent, used nowhere else."""
        return self.make_index(index.extent)

    def make_index(self, extent: ir.Expr) -> ir.Index:
        """An index, used nowhere else."""
        self._indices += 1
        return ir.Index(f"~{self._indices}", extent)

    def key(self, piece: Piece) -> str:
        """What tells two pieces apart; bound indices are renamed for it."""
        return self._labeller.write(piece, {})

    def coarse_key(self, piece: Piece) -> str:
        """A key in which all indices of one extent are one; to choose by."""
        return self._labeller.write(piece, find_anonymous(piece))

    def finish(self, poly: Poly) -> Normal:
        """The normal form of a sum of terms."""
        found: dict[str, Term] = {}
        for raw in poly:
            for term in self.tidy(raw):
                key = self.key(term)
                total = term.coefficient + (found[key].coefficient if key in found else 0)
                found[key] = dataclasses.replace(term, coefficient=total)
        keys = sorted(key for key, term in found.items() if term.coefficient)
        text = "+".join(f"{found[key].coefficient}*{key}" for key in keys)
        for key in keys:
            self._tidy[found[key]] = None
        return Normal(tuple(found[key] for key in keys), tuple(keys), shorten(text))

    def tidy(self, term: Term) -> Poly:
        """The term with its sums simplified."""
        if term in self._tidy:
            return (term,)
        return tidy(self, term)

    collect = products.collect
    multiply = products.multiply
    guard = products.guard
    replace = products.replace
    power = functions.power
    exponential = functions.exponential
    logarithm = functions.logarithm
    apply = functions.apply
    fold = functions.fold

    def value(self, affine: Affine) -> Poly:
        """An index expression as a number."""
        found = list(count(affine.constant))
        for atom, each in affine.terms.items():
            value = Value(Affine({atom: UNIT}))
            for term in count(each):
                found += self.collect(term, (Factor(value, Fraction(1)),))
        return tuple(found)

    def decide(self, literal: Literal) -> bool | Cube:
        """The literal in its canonical form, or its value where it has one."""
        if isinstance(literal.subject, Normal):
            return decide_normal(self, literal)
        return decide_literal(literal)

    def is_positive(self, normal: Normal) -> bool:
        """Is it > 0 for all inputs?"""
        if len(normal.terms) == 1 and normal.terms[0].power is None:
            term = normal.terms[0]
            if not term.bound and not term.guards:
                return term.coefficient > 0 and all(is_above(f.atom) for f in term.factors)
        return is_above(Base(normal))

    def is_nonnegative(self, normal: Normal) -> bool:
        """Is it >= 0 for all inputs?"""
        return is_nonnegative_atom(Base(normal))
