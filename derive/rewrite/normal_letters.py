"""Where letters stand: all index expressions of a piece, and letters that quotients split."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.analysis.affine import to_affine
from derive.analysis.affine_form import Affine
from derive.analysis.affine_sizes import divide_wholly, is_never_negative
from derive.ir.nodes import Call, Index
from derive.ir.polynomial import Polynomial
from derive.ir.walk import walk
from derive.rewrite.normal_terms import (
    Base,
    Endless,
    Factor,
    Fold,
    Function,
    Literal,
    Normal,
    Piece,
    Read,
    Symbol,
    Term,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.rewrite.normal_terms import Algebra


def find_affines(piece: Piece) -> list[Affine]:
    """Every index expression inside, each once."""
    return list(dict.fromkeys(_walk(piece)))


def _walk(piece: Piece | Factor) -> Iterator[Affine]:
    match piece:
        case Read(_, places):
            yield from places
        case Value(affine):
            yield affine
        case Base(normal):
            yield from _walk(normal)
        case Function(_, arguments):
            for argument in arguments:
                yield from _walk(argument)
        case Fold(_, _, literals, body):
            for literal in literals:
                yield from _walk(literal)
            yield from _walk(body)
        case Literal(_, subject):
            if isinstance(subject, Affine):
                yield subject
            else:
                yield from _walk(subject)
        case Factor(atom):
            yield from _walk(atom)
        case Term():
            for literal in (*piece.guards, *piece.numeric):
                yield from _walk(literal)
            for factor in piece.factors:
                yield from _walk(factor)
            if piece.power is not None:
                yield from _walk(piece.power)
        case Normal(terms):
            for term in terms:
                yield from _walk(term)
        case Symbol() | Endless():
            return


def find_quotients(affine: Affine) -> Iterator[tuple[Affine, Polynomial]]:
    """The quotients inside, by what is divided and the divisor."""
    for atom in affine.terms:
        if isinstance(atom, Index):
            continue
        for here in walk(atom):
            match here:
                case Call("floordiv", (over, under)):
                    yield to_affine(over), to_affine(under).constant


def split_quotient(
    algebra: Algebra, index: Index, affines: list[Affine]
) -> tuple[Index, Index, Affine] | None:
    """Two letters for one that is divided by a divisor of its extent, and what it is in them."""
    extent = Polynomial.of(index.extent)
    for affine in affines:
        for over, divisor in find_quotients(affine):
            if over.index is not index:
                continue
            times = divide_wholly(extent, divisor)
            if times is None or not is_never_negative(times) or not is_never_negative(divisor):
                continue
            high = algebra.make_index(times.to_expr())
            low = algebra.make_index(divisor.to_expr())
            return high, low, to_affine(high).scale(divisor) + to_affine(low)
    return None
