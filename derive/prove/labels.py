"""Keys of pieces: texts that are equal where two pieces differ in their bound letters alone.

The bound letters of a term get labels by colour refinement (letters that stand in different
company are told apart) and individualisation (of those left, each is tried as the first one). The
labels of an inner sum lie deeper than those of the letters around it. A label stands for its
letter's part in the term, so the order in which sums and factors were written has no say.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

from derive.analysis.affine import to_affine
from derive.analysis.affine_form import Affine
from derive.ir.nodes import Access, Call, Expr, Index, Number, Scalar, Size
from derive.ir.pieces import to_text
from derive.ir.polynomial import Polynomial
from derive.prove.terms import (
    Base,
    Endless,
    Factor,
    Fold,
    Function,
    GivesUp,
    Literal,
    Normal,
    Piece,
    Read,
    Symbol,
    Term,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Label: TypeAlias = tuple[int, str]  # how deep its sum lies, and the text
Labels: TypeAlias = "Mapping[Index, Label]"
Part: TypeAlias = "tuple[str, Factor | Literal | Normal]"

_LONG = 96
_MOST_LEAVES = 48  # orders of letters that colours cannot tell apart; one is tried beyond


@lru_cache(maxsize=20000)
def write_size(value: Polynomial) -> str:
    """A polynomial over sizes as a text; equal ones have one text."""
    if value.constant is not None:
        return str(value.constant)
    return to_text(value.to_expr())


@lru_cache(maxsize=20000)
def write_extent(index: Index) -> str:
    """The text of an index' extent."""
    return write_size(Polynomial.of(index.extent))


def shorten(text: str) -> str:
    """The text itself, or a digest of a long one."""
    if len(text) <= _LONG:
        return text
    return "#" + blake2b(text.encode(), digest_size=16).hexdigest()


class Labeller:
    """Keys of pieces under labels for their letters; what is found is kept."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._known: dict[tuple[object, ...], str] = {}
        self._step = step

    def write(self, piece: Piece | Factor, labels: Labels) -> str:
        """The key of a piece; letters without a label stand for themselves."""
        mine = {index: labels[index] for index in piece.free if index in labels}
        under = (piece, *sorted((i.name, *label) for i, label in mine.items()))
        found = self._known.get(under)
        if found is None:
            self._step()
            found = self._known[under] = shorten(self._write(piece, mine))
        return found

    def _write(self, piece: Piece | Factor, labels: Labels) -> str:
        match piece:
            case Factor(atom, exponent, partial):
                return f"{self.write(atom, labels)}^{exponent}{'?' if partial else ''}"
            case Symbol(expr):
                return to_text(expr)
            case Read(tensor, places):
                return f"{tensor.name}[{','.join(self.write_affine(p, labels) for p in places)}]"
            case Value(affine):
                return f"value({self.write_affine(affine, labels)})"
            case Base(normal):
                return f"({self.write(normal, labels)})"
            case Function(name, arguments):
                return f"{name}({','.join(self.write(each, labels) for each in arguments)})"
            case Fold(kind, bound, literals, body):
                return f"{kind}{self.write_bound(bound, _mark_all(literals, body), labels)}"
            case Endless():
                return "oo"
            case Literal():
                return self._write_literal(piece, labels)
            case Term():
                return self.write_bound(piece.bound, _mark_parts(piece), labels)
            case Normal(terms):
                pieces = zip(terms, (term.coefficient for term in terms), strict=True)
                return "+".join(sorted(f"{n}*{self.write(t, labels)}" for t, n in pieces))
        raise AssertionError(piece)

    def _write_literal(self, literal: Literal, labels: Labels) -> str:
        sign = "" if literal.positive else "not "
        subject = literal.subject
        if not isinstance(subject, Affine):
            return f"{sign}{literal.kind} {self.write(subject, labels)}"
        text = self.write_affine(subject, labels)
        if literal.kind == "zero":
            other = self.write_affine(subject.scale(Polynomial.of(-1)), labels)
            text = min(text, other)
        return f"{sign}{literal.kind} {text}"

    def write_affine(self, value: Affine, labels: Labels) -> str:
        """An index expression, its letters by their labels."""
        parts = [
            f"{write_size(each)}*{self._write_place(atom, labels)}"
            for atom, each in value.terms.items()
        ]
        if value.constant.terms or not parts:
            parts.append(write_size(value.constant))
        return "+".join(sorted(parts)) if len(parts) > 1 else parts[0]

    def _write_place(self, atom: Expr, labels: Labels) -> str:
        match atom:
            case Index(name):
                depth, text = labels.get(atom, (0, name))
                return f"~{depth}.{text}" if atom in labels else text
            case Number() | Size() | Scalar():
                return to_text(atom)
            case Call(function, arguments):
                inner = (self.write_affine(to_affine(each), labels) for each in arguments)
                return f"{function}({','.join(inner)})"
            case Access(tensor, places):
                inner = (self.write_affine(to_affine(each), labels) for each in places)
                return f"{tensor.name}[{','.join(inner)}]"
        raise GivesUp("a position of an unknown kind")

    def write_bound(self, bound: tuple[Index, ...], parts: Sequence[Part], labels: Labels) -> str:
        """The parts under a sum over the bound letters, whatever their names are."""
        if not bound:
            return "*".join(sorted(mark + self.write(part, labels) for mark, part in parts))
        depth = 1 + max((label[0] for label in labels.values()), default=0)
        colours = {index: write_extent(index) for index in bound}
        leaves: list[str] = []
        self._find_leaves(parts, labels, depth, colours, leaves)
        return min(leaves)

    def _find_leaves(
        self,
        parts: Sequence[Part],
        labels: Labels,
        depth: int,
        colours: dict[Index, str],
        leaves: list[str],
    ) -> None:
        colours = self._refine(parts, labels, depth, colours)
        cells: dict[str, list[Index]] = {}
        for index, colour in colours.items():
            cells.setdefault(colour, []).append(index)
        cell = next((cells[c] for c in sorted(cells) if len(cells[c]) > 1), None)
        if cell is None:
            leaves.append(self._write_leaf(parts, labels, depth, colours))
            return
        for index in cell:
            self._find_leaves(parts, labels, depth, {**colours, index: "!"}, leaves)
            if len(leaves) >= _MOST_LEAVES:
                return

    def _write_leaf(
        self, parts: Sequence[Part], labels: Labels, depth: int, colours: dict[Index, str]
    ) -> str:
        order = sorted(colours, key=lambda index: colours[index])
        named = {**labels, **{index: (depth, str(k)) for k, index in enumerate(order)}}
        body = "*".join(sorted(mark + self.write(part, named) for mark, part in parts))
        return f"{{{';'.join(write_extent(index) for index in order)}|{body}}}"

    def _refine(
        self, parts: Sequence[Part], labels: Labels, depth: int, colours: dict[Index, str]
    ) -> dict[Index, str]:
        """Colours that tell letters apart by the company in which they stand."""
        while len(set(colours.values())) < len(colours):
            coloured = {**labels, **{i: (depth, f"c{c}") for i, c in colours.items()}}
            seen = {}
            for index, colour in colours.items():
                marked = {**coloured, index: (depth, "*")}
                company = [m + self.write(p, marked) for m, p in parts if index in p.free]
                seen[index] = shorten("&".join([colour, *sorted(company)]))
            ranks = {text: f"{k:03d}" for k, text in enumerate(sorted(set(seen.values())))}
            if len(ranks) == len(set(colours.values())):
                return {index: ranks[seen[index]] for index in colours}
            colours = {index: ranks[seen[index]] for index in colours}
        return colours


def _mark_parts(term: Term) -> list[Part]:
    parts: list[Part] = [("!", each) for each in term.guards]
    parts += [("?", each) for each in term.numeric]
    parts += [("", each) for each in term.factors]
    return [*parts, ("e^", term.power)] if term.power else parts


def _mark_all(literals: Sequence[Literal], body: Normal) -> list[Part]:
    return [*(("!", each) for each in literals), ("", body)]


def find_anonymous(piece: Piece) -> dict[Index, Label]:
    """One label for all free letters of an extent: for choices that must not hang on names."""
    return {index: (1, write_extent(index)) for index in piece.free if index.name[0] != "@"}
