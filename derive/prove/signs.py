"""What is known of the values of pieces: finite, positive, never negative.

Laws:
- Inputs are finite real numbers; sizes are at least 1.
- No is never wrong.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from derive.analysis.affine import find_range, to_affine
from derive.analysis.affine_form import Affine
from derive.analysis.affine_sizes import ONE, is_never_negative, is_positive
from derive.ir.nodes import Call, Expr, Index, Number, Scalar, Size
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_free, substitute
from derive.prove.terms import (
    Atom,
    Base,
    Cube,
    Endless,
    Factor,
    Fold,
    Function,
    Literal,
    Normal,
    Read,
    Symbol,
    Term,
    Value,
    find_affine_free,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_EVERYWHERE = {"sin", "cos", "erf", "abs", "floor", "sign", "whole", "share"}


@lru_cache(maxsize=50000)
def is_total(piece: Atom | Factor | Term | Normal) -> bool:
    """Is it finite for all inputs? Guards count for nothing."""
    match piece:
        case Read(tensor, _):
            return tensor.kind != "rough"  # a symbol of what may be nan
        case Symbol() | Value():
            return True
        case Factor(atom, exponent, partial):
            if partial or not is_total(atom):
                return False
            return exponent >= 0 or is_above(atom)
        case Term():
            return all(map(is_total, piece.factors)) and (
                piece.power is None or is_total(piece.power)
            )
        case Normal(terms):
            return all(map(is_total, terms))
        case Base(normal):
            return is_total(normal)
        case Function(name, arguments):
            if name == "log" and not is_above(Base(arguments[0])):
                return False
            return name in {*_EVERYWHERE, "log"} and all(map(is_total, arguments))
        case Fold(kind, bound, literals, body):
            filled = kind == "prod" or is_filled(bound, literals)
            return filled and is_total(body)
        case Endless():
            return False


@lru_cache(maxsize=50000)
def is_above(atom: Atom) -> bool:
    """Is the atom > 0?"""
    match atom:
        case Symbol(expr):
            return not isinstance(expr, Scalar)
        case Read(tensor, _):
            low = tensor.lower
            if not isinstance(low, Number):
                return False
            return low.value > 0 or (low.value == 0 and tensor.strict[0])
        case Function("whole", (inner,)):
            return is_above(Base(inner))
        case Base(normal):
            terms = normal.terms
            rests = all(is_term_nonnegative(term) for term in terms)
            return rests and any(is_term_positive(term) for term in terms) and is_total(normal)
    return False


@lru_cache(maxsize=50000)
def is_nonnegative_atom(atom: Atom) -> bool:
    """Is the atom >= 0?"""
    match atom:
        case Read(tensor, _):
            low = tensor.lower
            return tensor.kind == "bool" or (isinstance(low, Number) and low.value >= 0)
        case Function("abs"):
            return True
        case Function("whole" | "share", (inner,)):
            return is_nonnegative_atom(Base(inner))
        case Value(affine):
            low_end = find_range(affine)[0]
            return low_end is not None and is_never_negative(low_end)
        case Base(normal):
            return all(is_term_nonnegative(term) for term in normal.terms)
    return is_above(atom)


def is_term_nonnegative(term: Term) -> bool:
    """Is the term >= 0 (or not a number)?"""
    return term.coefficient >= 0 and all(map(is_factor_nonnegative, term.factors))


def is_factor_nonnegative(factor: Factor) -> bool:
    """Is the factor >= 0 (or not a number)?"""
    return (
        factor.partial
        or (factor.exponent.denominator == 1 and factor.exponent % 2 == 0)
        or is_nonnegative_atom(factor.atom)
    )


def is_term_positive(term: Term) -> bool:
    """Is the term, which is >= 0, > 0 wherever it is finite?"""
    return (
        term.coefficient > 0
        and not term.numeric
        and all(is_above(factor.atom) for factor in term.factors)
        and is_filled(term.bound, term.guards)
    )


def is_filled(bound: tuple[Index, ...], literals: Cube) -> bool:
    """Is there, for all values of the free letters, a value of the bound ones that fits?"""
    if not all(is_positive(Polynomial.of(index.extent)) for index in bound):
        return False
    if not literals:
        return True
    asked = [index for index in bound if any(index in each.free for each in literals)]
    if len(asked) > 1 or not all(each.kind in {"least", "zero"} for each in literals):
        return False
    index = asked[0] if asked else None
    for place in _find_witnesses(index, literals):
        if all(_holds(each, index, place) for each in literals):
            return True
    return False


def _find_witnesses(index: Index | None, literals: Cube) -> Iterator[Affine]:
    """Values of a letter that may fit: its ends, and where a condition just holds."""
    if index is None:
        yield Affine({})
        return
    extent = Polynomial.of(index.extent)
    found = [Affine({}), Affine({}, extent - ONE)]
    for literal in literals:
        subject = literal.subject
        assert isinstance(subject, Affine)
        slope = subject.terms.get(index)
        if slope is None or slope.constant not in (1, -1):
            continue
        rest = Affine({a: each for a, each in subject.terms.items() if a is not index})
        rest = rest + Affine({}, subject.constant)
        edge = rest.scale(Polynomial.of(-slope.constant))
        found.append(edge)
        found.append(edge + Affine({}, Polynomial.of(-slope.constant)))
    for place in found:
        if index in find_affine_free(place):
            continue
        low, high = find_range(place)
        if low is None or high is None:
            continue
        if is_never_negative(low) and is_never_negative(extent - ONE - high):
            yield place


def _holds(literal: Literal, index: Index | None, place: Affine) -> bool:
    subject = literal.subject
    assert isinstance(subject, Affine)
    if index is not None and index in find_affine_free(subject):
        subject = put(subject, {index: place})
    value = judge(literal.kind, subject)
    return value is not None and value is literal.positive


def judge(kind: str, subject: Affine) -> bool | None:
    """The truth of `affine >= 0` or `affine = 0` where its range tells it."""
    low, high = find_range(subject)
    if kind == "least":
        if low is not None and is_never_negative(low):
            return True
        if high is not None and is_never_negative(Polynomial.of(-1) - high):
            return False
        return None
    if not subject.terms and not subject.constant.terms:
        return True
    below = high is not None and is_never_negative(Polynomial.of(-1) - high)
    above = low is not None and is_never_negative(low - ONE)
    return False if below or above else None


def put(value: Affine, new: dict[Index, Affine]) -> Affine:
    """The affine with others in place of its letters, simplified."""
    total = Affine({}, value.constant)
    for atom, each in value.terms.items():
        if isinstance(atom, Index):
            total = total + (new[atom].scale(each) if atom in new else Affine({atom: each}))
        elif any(index in new for index in find_free(atom)):
            written: dict[Expr, Expr] = {i: new[i].to_expr() for i in find_free(atom) if i in new}
            total = total + to_affine(substitute(atom, written)).scale(each)
        else:
            total = total + Affine({atom: each})
    return total


def is_tame(piece: Factor | Term | Normal) -> bool:
    """Is it finite but where inputs meet by accident? Not so a share of an empty row."""
    match piece:
        case Factor(atom, exponent, partial):
            if isinstance(atom, Read) and atom.tensor.kind == "int":
                return exponent > 0 and not partial  # an integer is 0 often
            if isinstance(atom, (Read, Symbol)) and not partial and is_total(atom):
                return exponent.denominator == 1 or is_above(atom)
            return is_total(piece)
        case Term():
            return all(map(is_tame, piece.factors)) and (
                piece.power is None or is_tame(piece.power)
            )
        case Normal(terms):
            return all(map(is_tame, terms))


def is_size(factor: Factor) -> bool:
    """Is it a power of a size, a prime number or pi, which are positive?"""
    return isinstance(factor.atom, Symbol) and isinstance(factor.atom.expr, (Size, Number, Call))
