"""Where letters stand: all index expressions of a piece, and letters that quotients split."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from derive.analysis.affine import to_affine
from derive.analysis.affine_form import Affine
from derive.analysis.affine_sizes import divide_wholly, is_never_negative
from derive.ir.nodes import Call, Index
from derive.ir.polynomial import Polynomial
from derive.ir.walk import walk
from derive.prove.terms import (
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
    find_affine_free,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from derive.prove.terms import Algebra


@lru_cache(maxsize=20000)
def find_affines(piece: Piece | Factor) -> tuple[Affine, ...]:
    """Every index expression inside, each once; letters that are bound inside have any names."""
    match piece:
        case Read(_, places):
            return tuple(dict.fromkeys(places))
        case Value(affine):
            return (affine,)
        case Base(normal):
            return find_affines(normal)
        case Function(_, arguments):
            return _gather(arguments)
        case Fold(_, _, literals, body):
            return _gather((*literals, body))
        case Literal(_, subject):
            return (subject,) if isinstance(subject, Affine) else find_affines(subject)
        case Factor(atom):
            return find_affines(atom)
        case Term():
            inner = () if piece.power is None else (piece.power,)
            return _gather((*piece.guards, *piece.numeric, *piece.factors, *inner))
        case Normal(terms):
            return _gather(terms)
        case Symbol() | Endless():
            return ()


@lru_cache(maxsize=20000)
def find_read_places(piece: Piece | Factor) -> tuple[Affine, ...]:
    """The positions of tensors alone, without conditions and letters as numbers."""
    match piece:
        case Read(_, places):
            return tuple(dict.fromkeys(places))
        case Base(normal) | Fold(_, _, _, normal):
            inner: tuple[Piece | Factor, ...] = (normal,)
        case Function(_, arguments):
            inner = arguments
        case Factor(atom):
            inner = (atom,)
        case Term():
            inner = (*piece.factors, *(() if piece.power is None else (piece.power,)))
        case Normal(terms):
            inner = terms
        case Literal(_, subject):
            inner = () if isinstance(subject, Affine) else (subject,)
        case Symbol() | Endless() | Value():
            return ()
    return tuple(dict.fromkeys(place for each in inner for place in find_read_places(each)))


def _gather(pieces: Sequence[Piece | Factor]) -> tuple[Affine, ...]:
    if len(pieces) == 1:
        return find_affines(pieces[0])
    return tuple(dict.fromkeys(affine for piece in pieces for affine in find_affines(piece)))


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
    algebra: Algebra, index: Index, affines: Sequence[Affine]
) -> tuple[Index, Index, Affine] | None:
    """Two letters for one that is divided by a divisor of its extent, and what it is in them."""
    extent = Polynomial.of(index.extent)
    for affine in affines:
        if index not in find_affine_free(affine):
            continue
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
