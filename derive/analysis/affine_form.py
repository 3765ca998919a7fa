"""A linear form over atoms, with coefficients that are polynomials over sizes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from derive.analysis.affine_sizes import NOTHING, ONE
from derive.ir.nodes import Add, Expr, Index, Mul
from derive.ir.pieces import to_text
from derive.ir.polynomial import Polynomial

if TYPE_CHECKING:
    from collections.abc import Mapping


class Affine:
    """A linear form over atoms; equal ones compare equal."""

    __slots__ = ("_hash", "constant", "terms")

    def __init__(self, terms: Mapping[Expr, Polynomial], constant: Polynomial = NOTHING) -> None:
        self.terms = {atom: each for atom, each in terms.items() if each.terms}
        self.constant = constant
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Affine):
            return NotImplemented
        return self.terms == other.terms and self.constant == other.constant

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((frozenset(self.terms.items()), self.constant))
        return self._hash

    def __add__(self, other: Affine) -> Affine:
        if not other.terms and not other.constant.terms:
            return self
        terms = dict(self.terms)
        for atom, each in other.terms.items():
            terms[atom] = terms[atom] + each if atom in terms else each
        return Affine(terms, self.constant + other.constant)

    def __sub__(self, other: Affine) -> Affine:
        return self + other.scale(Polynomial.of(-1))

    def scale(self, by: Polynomial) -> Affine:
        """The affine times a polynomial over sizes."""
        if by == ONE:
            return self
        return Affine({atom: each * by for atom, each in self.terms.items()}, self.constant * by)

    @property
    def index(self) -> Index | None:
        """The index that it is, if it is one alone."""
        if len(self.terms) == 1 and not self.constant.terms:
            ((atom, each),) = self.terms.items()
            if isinstance(atom, Index) and each == ONE:
                return atom
        return None

    def to_expr(self) -> Expr:
        """The expression, terms in order of their text."""
        plain = self.index
        if plain is not None:
            return plain
        atoms = sorted(self.terms, key=order_atom)
        parts = [_to_product(self.terms[atom], atom) for atom in atoms]
        if self.constant.terms or not parts:
            constant = self.constant.to_expr()
            parts += constant.terms if isinstance(constant, Add) else (constant,)
        return parts[0] if len(parts) == 1 else Add(tuple(parts))

    def __repr__(self) -> str:
        return f"Affine({to_text(self.to_expr())})"


@lru_cache(maxsize=20000)
def order_atom(atom: Expr) -> tuple[str, str]:
    """What sorts atoms: their text."""
    return to_text(atom), repr(atom) if isinstance(atom, Index) else ""


def _to_product(factor: Polynomial, atom: Expr) -> Expr:
    if factor == ONE:
        return atom
    made = factor.to_expr()
    return Mul((*made.factors, atom) if isinstance(made, Mul) else (made, atom))
