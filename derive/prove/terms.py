"""The pieces of a normal form: sums of monomials over canonical atoms.

    normal  = terms, each once, in order of their keys
    term    = coefficient * sum over bound of [guards] * atom**exponent * .. * exp(..)
    atom    = Symbol (size, scalar, prime number, pi) | Read A[i, j] | Value of an index
            | Base, a normal | Function of normals | Fold (max, prod, argmax) | Infinite
    literal = a linear form >= 0 or = 0, a Boolean element, or a normal compared with 0;
              or the negation of one of these

Laws:
- Where a guard is false the term is 0, even if its factors are infinite there.
- A normal form gives the value wherever its expression is finite; see `definedness`.
- A bound index is fresh for its sum and is used nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Any, ClassVar, TypeAlias

from derive.analysis.affine import to_linear
from derive.ir import nodes as ir
from derive.ir import walk
from derive.ir.pieces import to_text
from derive.ir.polynomial import Polynomial, split_steps

Free: TypeAlias = frozenset[ir.Index]
Indices: TypeAlias = tuple[ir.Index, ...]
Env: TypeAlias = Mapping[ir.Index, Polynomial]  # the values of indices
ONCE = Fraction(1)
MOST_STEPS = 200_000


class GivesUp(Exception):  # noqa: N818 - a missing normal form is no error
    """An expression has no normal form here, or none within the steps."""


@lru_cache(maxsize=50000)
def find_form_indices(value: Polynomial) -> Free:
    """The indices of a linear form."""
    return frozenset(index for atom in value.atoms for index in walk.find_free(atom))


class Part:
    """A piece of a normal form, with the pieces inside and its free indices."""

    holds: ClassVar[tuple[str, ...]] = ()  # the fields that contain parts or linear forms

    @cached_property
    def inside(self) -> tuple[Any, ...]:
        """The parts and linear forms directly inside."""
        found: list[Any] = []
        for value in (getattr(self, name) for name in self.holds):
            found += value if isinstance(value, tuple) else () if value is None else (value,)
        return tuple(found)

    @cached_property
    def inner(self) -> Free:
        """The indices that occur inside, bound ones included."""
        frees = (find_form_indices(e) if isinstance(e, Polynomial) else e.free for e in self.inside)
        return Free().union(*frees)

    @cached_property
    def free(self) -> Free:
        """The free indices."""
        return self.inner.difference(getattr(self, "bound", ()))


@dataclass(frozen=True, eq=False)
class Symbol(Part):
    """A size, a scalar, a prime number, or pi."""

    expr: ir.Expr


@dataclass(frozen=True, eq=False)
class Read(Part):
    """An element of a tensor."""

    holds = ("places",)
    tensor: ir.Tensor
    places: tuple[Polynomial, ...]


@dataclass(frozen=True, eq=False)
class Value(Part):
    """An index or an expression of indices, such as `i // 2`, as a factor of a term."""

    holds = ("form",)
    form: Polynomial


@dataclass(frozen=True, eq=False)
class Base(Part):
    """A normal form as the base of a power."""

    holds = ("normal",)
    normal: Normal


@dataclass(frozen=True, eq=False)
class Function(Part):
    """An elementwise function of normal forms."""

    holds = ("arguments",)
    name: str
    arguments: tuple[Normal, ...]


@dataclass(frozen=True, eq=False)
class Fold(Part):
    """A reduction other than a sum, over the entries where all literals hold."""

    holds = ("literals", "body")
    kind: str
    bound: Indices
    literals: tuple[Literal, ...]
    body: Normal


@dataclass(frozen=True, eq=False)
class Infinite(Part):
    """Infinity; its sign is that of the coefficient."""


Atom: TypeAlias = Symbol | Read | Value | Base | Function | Fold | Infinite


@dataclass(frozen=True, eq=False)
class Literal(Part):
    """A condition or its negation.

    Kinds: `least` (form >= 0), `zero` (form = 0), `read` (Boolean element), `above` (normal >
    0), `equal` (normal = 0).
    """

    holds = ("subject",)
    kind: str
    subject: Polynomial | Read | Normal
    positive: bool = True

    @cached_property
    def negation(self) -> Literal:
        """The literal that holds where this one does not."""
        return Literal(self.kind, self.subject, not self.positive)


Cube: TypeAlias = tuple[Literal, ...]  # all of them hold


@dataclass(frozen=True, eq=False)
class Factor(Part):
    """A power of an atom."""

    holds = ("atom",)
    atom: Atom
    exponent: Fraction = ONCE


@dataclass(frozen=True, eq=False)
class Term(Part):
    """A coefficient times factors, summed over bound indices where the guards hold."""

    holds = ("guards", "factors", "power")
    coefficient: Fraction = ONCE
    bound: Indices = ()
    guards: Cube = ()
    factors: tuple[Factor, ...] = ()
    power: Normal | None = None  # the argument of its exp

    def times(self, number: Fraction | int) -> Term:
        """The term times a number."""
        return replace(self, coefficient=self.coefficient * number)

    def without(self, *gone: ir.Index | Literal) -> Term:
        """The term without some of its summed indices and guards."""
        bound = tuple(index for index in self.bound if index not in gone)
        return replace(
            self, bound=bound, guards=tuple(each for each in self.guards if each not in gone)
        )


Poly: TypeAlias = tuple[Term, ...]


@dataclass(frozen=True, eq=False)
class Normal(Part):
    """A finished sum of terms; equal keys mean equal values for all sizes."""

    holds = ("terms",)
    terms: Poly
    keys: tuple[str, ...]
    key: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Normal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


ONE: Poly = (Term(),)


def single(atom: Atom, exponent: Fraction = ONCE, coefficient: Fraction = ONCE) -> Poly:
    """A power of an atom, times a number."""
    return (Term(coefficient, factors=(Factor(atom, exponent),)),)


class Algebra(ABC):
    """The budget of steps, the source of fresh indices, and the cache of keys."""

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self._left = steps
        self._indices = 0
        self._labeller = Labeller(self.step)
        self._tidied: dict[Term, None] = {}

    def step(self, count: int = 1) -> None:
        """Spend steps; GivesUp where none are left."""
        self._left -= count
        if self._left < 0:
            raise GivesUp("it takes too long")

    def make_index(self, extent: ir.Expr) -> ir.Index:
        """A fresh index."""
        self._indices += 1
        return ir.Index(f"~{self._indices}", extent)

    def key(self, piece: Part) -> str:
        """A text that only pieces share which are equal up to the names of bound indices."""
        return self._labeller.write_key(piece, {})

    def coarse_key(self, piece: Part) -> str:
        """A key in which all free indices of one extent are alike, those of a result aside.

        A choice by this key does not depend on the names of indices.
        """
        free = (index for index in piece.free if index.name[0] != "@")
        return self._labeller.write_key(piece, {index: (1, write_extent(index)) for index in free})

    def finish(self, poly: Poly) -> Normal:
        """The normal form of a sum of terms."""
        found: dict[str, Term] = {}
        for raw in poly:
            for term in (raw,) if raw in self._tidied else self.tidy(raw):
                key = self.key(term)
                total = term.coefficient + (found[key].coefficient if key in found else 0)
                found[key] = replace(term, coefficient=total)
        keys = sorted(key for key, term in found.items() if term.coefficient)
        text = "+".join(f"{found[key].coefficient}*{key}" for key in keys)
        self._tidied |= {found[key]: None for key in keys}
        return Normal(tuple(found[key] for key in keys), tuple(keys), shorten(text))

    @abstractmethod
    def tidy(self, term: Term) -> Poly:
        """The terms that a term becomes when its sums are simplified."""

    @abstractmethod
    def replace(self, poly: Poly, new: Env) -> Poly:
        """The terms with indices replaced."""


# Keys of pieces: texts that are equal where two pieces differ in bound indices alone.
#
# The bound indices of a term get labels by colour refinement (indices that occur in different parts
# get different colours) and individualisation (each index of a shared colour is tried as the first
# one). The labels of an inner sum have a greater depth than those of the indices around it. A label
# depends on the parts with its index alone, not on the order of sums and factors.

Labels: TypeAlias = Mapping[ir.Index, tuple[int, str]]  # the depth of the sum, and a text
Marked: TypeAlias = tuple[str, Part]  # "!" before a guard, "e^" before the argument of an exp

_LONG = 96
_MOST_LEAVES = 48  # orders of equally coloured indices that are tried


@lru_cache(maxsize=20000)
def write_size(value: Polynomial) -> str:
    """The text of a polynomial over sizes; equal polynomials have one text."""
    if value.constant is not None:
        return str(value.constant)
    return to_text(value.to_expr())


@lru_cache(maxsize=20000)
def write_extent(index: ir.Index) -> str:
    """The text of an index's extent."""
    return write_size(Polynomial.of(index.extent))


def shorten(text: str) -> str:
    """The text itself, or a digest of a long one."""
    if len(text) <= _LONG:
        return text
    return "#" + blake2b(text.encode(), digest_size=16).hexdigest()


class Labeller:
    """The keys of pieces (their texts, with labels in place of indices), cached."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._known: dict[tuple[object, ...], str] = {}
        self._step = step

    def write_key(self, piece: Part, labels: Labels) -> str:
        """The key of a piece; an index without a label is written by its name."""
        mine = {index: labels[index] for index in piece.free if index in labels}
        under = (piece, *sorted((i.name, *label) for i, label in mine.items()))
        found = self._known.get(under)
        if found is None:
            self._step()
            found = self._known[under] = shorten(self._write_piece(piece, mine))
        return found

    def _write_piece(self, piece: Part, labels: Labels) -> str:
        match piece:
            case Factor(atom, exponent):
                return f"{self.write_key(atom, labels)}^{exponent}"
            case Symbol(expr):
                return to_text(expr)
            case Read(tensor, places):
                return f"{tensor.name}[{','.join(self.write_form(p, labels) for p in places)}]"
            case Value(form):
                return f"value({self.write_form(form, labels)})"
            case Base(normal):
                return f"({self.write_key(normal, labels)})"
            case Function(name, arguments):
                return f"{name}({','.join(self.write_key(each, labels) for each in arguments)})"
            case Fold(kind, bound, literals, body):
                marked = [*(("!", each) for each in literals), ("", body)]
                return f"{kind}{self.write_bound(bound, marked, labels)}"
            case Infinite():
                return "oo"
            case Literal():
                return self._write_literal(piece, labels)
            case Term(_, bound, guards, factors, power):
                marked = [*(("!", each) for each in guards), *(("", each) for each in factors)]
                marked += [("e^", power)] if power else []
                return self.write_bound(bound, marked, labels)
            case Normal(terms):
                pieces = zip(terms, (term.coefficient for term in terms), strict=True)
                return "+".join(sorted(f"{n}*{self.write_key(t, labels)}" for t, n in pieces))
        raise AssertionError(piece)

    def _write_literal(self, literal: Literal, labels: Labels) -> str:
        sign = "" if literal.positive else "not "
        subject = literal.subject
        if not isinstance(subject, Polynomial):
            return f"{sign}{literal.kind} {self.write_key(subject, labels)}"
        sides = (subject, -subject) if literal.kind == "zero" else (subject,)
        text = min(self.write_form(side, labels) for side in sides)
        return f"{sign}{literal.kind} {text}"

    def write_form(self, value: Polynomial, labels: Labels) -> str:
        """The text of an index expression, its indices by their labels."""
        steps, constant = split_steps(value)
        parts = [f"{write_size(e)}*{self._write_place(a, labels)}" for a, e in steps.items()]
        if constant.terms or not parts:
            parts.append(write_size(constant))
        return "+".join(sorted(parts)) if len(parts) > 1 else parts[0]

    def _write_place(self, atom: ir.Expr, labels: Labels) -> str:
        match atom:
            case ir.Index(name):
                depth, text = labels.get(atom, (0, name))
                return f"~{depth}.{text}" if atom in labels else text
            case ir.Number() | ir.Size() | ir.Scalar():
                return to_text(atom)
            case ir.Call(function, arguments):
                inner = (self.write_form(to_linear(each), labels) for each in arguments)
                return f"{function}({','.join(inner)})"
            case ir.Access(tensor, places):
                inner = (self.write_form(to_linear(each), labels) for each in places)
                return f"{tensor.name}[{','.join(inner)}]"
        raise GivesUp("a position of an unknown kind")

    def write_bound(self, bound: Indices, parts: Sequence[Marked], labels: Labels) -> str:
        """The text of parts under a sum over bound indices, independent of their names."""
        if not bound:
            return "*".join(sorted(mark + self.write_key(part, labels) for mark, part in parts))
        depth = 1 + max((label[0] for label in labels.values()), default=0)
        colours = {index: write_extent(index) for index in bound}
        return min(islice(self._find_leaves(parts, labels, depth, colours), _MOST_LEAVES))

    def _find_leaves(
        self, parts: Sequence[Marked], labels: Labels, depth: int, colours: dict[ir.Index, str]
    ) -> Iterator[str]:
        """The texts of the parts, one for each order of equally coloured indices."""
        colours = self._refine(parts, labels, depth, colours)
        cells: dict[str, list[ir.Index]] = {}
        for index, colour in colours.items():
            cells.setdefault(colour, []).append(index)
        cell = next((cells[c] for c in sorted(cells) if len(cells[c]) > 1), None)
        if cell is None:
            order = sorted(colours, key=colours.__getitem__)
            named = {**labels, **{index: (depth, str(k)) for k, index in enumerate(order)}}
            yield f"{{{';'.join(map(write_extent, order))}|{self.write_bound((), parts, named)}}}"
        for index in cell or ():
            yield from self._find_leaves(parts, labels, depth, {**colours, index: "!"})

    def _refine(
        self, parts: Sequence[Marked], labels: Labels, depth: int, colours: dict[ir.Index, str]
    ) -> dict[ir.Index, str]:
        """The classes (colours) of indices, refined by the parts with each, to a fixed point."""
        while len(set(colours.values())) < len(colours):
            coloured = {**labels, **{i: (depth, f"c{c}") for i, c in colours.items()}}
            seen = {}
            for index, colour in colours.items():
                marked = {**coloured, index: (depth, "*")}
                company = [m + self.write_key(p, marked) for m, p in parts if index in p.free]
                seen[index] = shorten("&".join([colour, *sorted(company)]))
            ranks = {text: f"{k:03d}" for k, text in enumerate(sorted(set(seen.values())))}
            if len(ranks) == len(set(colours.values())):
                return {index: ranks[seen[index]] for index in colours}
            colours = {index: ranks[seen[index]] for index in colours}
        return colours
