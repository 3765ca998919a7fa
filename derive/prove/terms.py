"""The pieces of a normal form: sums of monomials over canonical atoms.

    normal  = terms, each once, in order of their keys
    term    = coefficient * sum over bound of [guards] * ([numeric] * atom**exponent * .. * exp(..))
    atom    = Symbol (size, scalar, prime number, pi) | Read A[i, j] | Value of an index
            | Base, a normal | Function of normals | Fold (max, prod, argmax) | Endless
    literal = an affine >= 0, an affine = 0, a Boolean element, or a normal compared with 0;
              or the contrary of one of these

Laws:
- Where a guard is false the term is 0, whatever stands beside it. A numeric literal is the number
  1 or 0: times what is not finite it gives nan.
- A factor that is `partial` is a power that only exists where its base is >= 0.
- A bound letter is made for one sum and is used nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from derive.ir.nodes import Expr, Index, Tensor
from derive.ir.walk import find_free

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from derive.analysis.affine_form import Affine

Found = TypeVar("Found")
Free: TypeAlias = frozenset[Index]
NONE: Free = frozenset()


class GivesUp(Exception):  # noqa: N818 - it is no error: the form is not found, and that is said
    """Something has no normal form here, or it would take too long."""


@lru_cache(maxsize=50000)
def find_affine_free(value: Affine) -> Free:
    """The indices of an affine."""
    return frozenset(index for atom in value.terms for index in find_free(atom))


def unite(parts: Iterable[Free]) -> Free:
    """The free indices of all the parts."""
    return NONE.union(*parts)


@dataclass(frozen=True, eq=False)
class Symbol:
    """A size, a scalar, a prime number or pi."""

    expr: Expr

    free = NONE


@dataclass(frozen=True, eq=False)
class Read:
    """An element of a tensor."""

    tensor: Tensor
    places: tuple[Affine, ...]

    @cached_property
    def free(self) -> Free:
        """Its free indices."""
        return unite(map(find_affine_free, self.places))


@dataclass(frozen=True, eq=False)
class Value:
    """An index, or an atom of index expressions, as a number."""

    affine: Affine

    @cached_property
    def free(self) -> Free:
        """Its free indices."""
        return find_affine_free(self.affine)


@dataclass(frozen=True, eq=False)
class Base:
    """A normal form as the base of a power."""

    normal: Normal

    @cached_property
    def free(self) -> Free:
        """Its free indices."""
        return self.normal.free


@dataclass(frozen=True, eq=False)
class Function:
    """An elementwise function of normal forms."""

    name: str
    arguments: tuple[Normal, ...]

    @cached_property
    def free(self) -> Free:
        """Its free indices."""
        return unite(argument.free for argument in self.arguments)


@dataclass(frozen=True, eq=False)
class Fold:
    """A reduction that is no sum; entries where a literal is false have no part."""

    kind: str
    bound: tuple[Index, ...]
    literals: tuple[Literal, ...]
    body: Normal

    @cached_property
    def free(self) -> Free:
        """Its free indices."""
        parts = (self.body.free, *(literal.free for literal in self.literals))
        return unite(parts).difference(self.bound)


@dataclass(frozen=True, eq=False)
class Endless:
    """Infinity; its sign is that of the coefficient."""

    free = NONE


Atom: TypeAlias = Symbol | Read | Value | Base | Function | Fold | Endless


@dataclass(frozen=True, eq=False)
class Literal:
    """A condition or its contrary.

    Kinds: `least` (affine >= 0), `zero` (affine = 0), `read` (Boolean element), `above` (normal >
    0), `from` (normal >= 0, of what may be nan), `equal` (normal = 0).
    """

    kind: str
    subject: Affine | Read | Normal
    positive: bool = True

    @cached_property
    def free(self) -> Free:
        """Its free indices."""
        if isinstance(self.subject, (Read, Normal)):
            return self.subject.free
        return find_affine_free(self.subject)

    @cached_property
    def contrary(self) -> Literal:
        """The literal that holds where this one does not."""
        return Literal(self.kind, self.subject, not self.positive)


Cube: TypeAlias = tuple[Literal, ...]  # all of them hold


@dataclass(frozen=True, eq=False)
class Factor:
    """A power of an atom."""

    atom: Atom
    exponent: Fraction
    partial: bool = False

    @property
    def free(self) -> Free:
        """Its free indices."""
        return self.atom.free


@dataclass(frozen=True, eq=False)
class Term:
    """A monomial under its sums."""

    coefficient: Fraction = Fraction(1)
    bound: tuple[Index, ...] = ()
    guards: Cube = ()
    numeric: Cube = ()
    factors: tuple[Factor, ...] = ()
    power: Normal | None = None  # the argument of its exp

    @cached_property
    def inner(self) -> Free:
        """The indices that occur, bound ones among them."""
        parts = [literal.free for literal in (*self.guards, *self.numeric)]
        parts += [factor.free for factor in self.factors]
        return unite([*parts, self.power.free if self.power else NONE])

    @cached_property
    def free(self) -> Free:
        """Its free indices."""
        return self.inner.difference(self.bound)

    def times(self, number: Fraction) -> Term:
        """The term with another coefficient."""
        return Term(
            self.coefficient * number,
            self.bound,
            self.guards,
            self.numeric,
            self.factors,
            self.power,
        )


Poly: TypeAlias = tuple[Term, ...]


@dataclass(frozen=True, eq=False)
class Normal:
    """A finished sum of terms; equal keys mean equal values for all sizes."""

    terms: Poly
    keys: tuple[str, ...]
    key: str

    @cached_property
    def free(self) -> Free:
        """Its free indices."""
        return unite(term.free for term in self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Normal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


Piece: TypeAlias = Atom | Literal | Term | Normal
ONE: Poly = (Term(),)


class Algebra(Protocol):
    """What the operations of the normal form know of each other."""

    def step(self, count: int = 1) -> None:
        """Count steps; GivesUp where there are too many."""

    def limited(self, steps: int, act: Callable[[], Found]) -> Found:
        """What `act` gives; GivesUp where it takes more than so many steps."""

    def fresh(self, index: Index) -> Index:
        """A letter of the same extent, used nowhere else."""

    def make_index(self, extent: Expr) -> Index:
        """A letter, used nowhere else."""

    def key(self, piece: Piece) -> str:
        """What tells two pieces apart; bound letters are renamed for it."""

    def coarse_key(self, piece: Piece) -> str:
        """A key in which all letters of one extent are one; to choose by."""

    def finish(self, poly: Poly) -> Normal:
        """The normal form of a sum of terms."""

    def tidy(self, term: Term) -> Poly:
        """The term with its sums simplified."""

    def collect(self, term: Term, factors: tuple[Factor, ...]) -> Poly:
        """A term times more factors, the powers of one atom merged."""

    def value(self, affine: Affine) -> Poly:
        """An index expression as a number."""

    def multiply(self, one: Poly, other: Poly) -> Poly:
        """The product, as numbers."""

    def guard(self, cubes: tuple[Cube, ...], poly: Poly) -> Poly:
        """The sum of terms where one of the cubes, which exclude each other, holds; else 0."""

    def power(self, poly: Poly, exponent: Fraction) -> Poly:
        """The power with a number as its exponent."""

    def exponential(self, poly: Poly) -> Poly:
        """The exp of it."""

    def logarithm(self, poly: Poly) -> Poly:
        """The log of it."""

    def apply(self, name: str, arguments: tuple[Poly, ...]) -> Poly:
        """An elementwise function of its arguments."""

    def fold(
        self, kind: str, bound: tuple[Index, ...], poly: Poly, cubes: tuple[Cube, ...]
    ) -> Poly:
        """A reduction that is no sum over the entries where a cube holds."""

    def decide(self, literal: Literal) -> bool | Cube:
        """The literal in its canonical form, or its value where it has one."""

    def replace(self, poly: Poly, new: Mapping[Index, Affine]) -> Poly:
        """The terms with indices put in place of others."""

    def is_total(self, piece: Piece) -> bool:
        """Is it finite for all finite inputs?"""

    def is_positive(self, normal: Normal) -> bool:
        """Is it > 0 for all inputs?"""

    def is_nonnegative(self, normal: Normal) -> bool:
        """Is it >= 0 for all inputs?"""
