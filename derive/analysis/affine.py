"""A linear form over atoms, with coefficients that are polynomials over sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import TypeAlias

from derive.analysis import facts as known_facts
from derive.analysis.facts import Facts, Range, is_never_negative, is_positive
from derive.ir import nodes as ir
from derive.ir.pieces import to_text
from derive.ir.polynomial import (
    NOTHING,
    ONE,
    Polynomial,
    divide_sizes,
    divide_wholly,
    find_divisors,
)
from derive.ir.walk import find_free, map_children, substitute


class Affine:
    """A linear form over atoms; equal ones compare equal."""

    __slots__ = ("_hash", "constant", "terms")

    def __init__(self, terms: Mapping[ir.Expr, Polynomial], constant: Polynomial = NOTHING) -> None:
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

    def __neg__(self) -> Affine:
        return Affine({atom: -each for atom, each in self.terms.items()}, -self.constant)

    def __sub__(self, other: Affine) -> Affine:
        return self + -other

    def scale(self, by: Polynomial) -> Affine:
        """The affine times a polynomial over sizes."""
        if by == ONE:
            return self
        return Affine({atom: each * by for atom, each in self.terms.items()}, self.constant * by)

    @property
    def index(self) -> ir.Index | None:
        """The index that it is, if it is one alone."""
        if len(self.terms) == 1 and not self.constant.terms:
            ((atom, each),) = self.terms.items()
            if isinstance(atom, ir.Index) and each == ONE:
                return atom
        return None

    def to_polynomial(self) -> Polynomial:
        """The same value as a polynomial over sizes and atoms."""
        total = self.constant
        for atom, each in self.terms.items():
            total = total + each * Polynomial.of(atom)
        return total

    def to_expr(self) -> ir.Expr:
        """The expression, terms in order of their text."""
        plain = self.index
        if plain is not None:
            return plain
        atoms = sorted(self.terms, key=order_atom)
        parts = [_to_product(self.terms[atom], atom) for atom in atoms]
        if self.constant.terms or not parts:
            constant = self.constant.to_expr()
            parts += ir.split_sum(constant)
        return ir.sum_of(parts)

    def __repr__(self) -> str:
        return f"Affine({to_text(self.to_expr())})"


@lru_cache(maxsize=20000)
def order_atom(atom: ir.Expr) -> tuple[str, str]:
    """What sorts atoms: their text."""
    return to_text(atom), repr(atom) if isinstance(atom, ir.Index) else ""


def _to_product(factor: Polynomial, atom: ir.Expr) -> ir.Expr:
    if factor == ONE:
        return atom
    return ir.Mul((*ir.split_product(factor.to_expr()), atom))


# Index expressions as linear forms over ranged atoms, and their simplification by ranges.
#
#     affine = sum of coefficient * atom + constant
#     atom   = Index | floordiv(affine, divisor) | clip(..), an integer tensor's element, ...
#
# A remainder is `l - n*(l // n)`, so that quotients are the only new atoms. Ranges simplify them:
# `l // n` goes where its range lies between two multiples of n, and (g*A + r)//(g*m) = A//m where
# 0 <= r < g. An index of extent 1 is 0. A view of a tensor is `unravel(ravel(places, old), new)`.
#
# Laws:
# - Equal affines have equal values; what is simplified is equal for all sizes >= 1 and all values
# of
#   the indices within their extents (and wherever the given facts are >= 0).

# `least`: affine >= 0, or `zero`: affine = 0; and whether that holds, or its contrary
Relation: TypeAlias = tuple[str, Affine, bool]


def _read(value: Affine | ir.Expr | Polynomial | int) -> Affine:
    match value:
        case Affine():
            return value
        case Polynomial():
            return Affine({}, value)
        case int():
            return Affine({}, Polynomial.of(value))
    return to_affine(value)


def _of_atom(atom: ir.Expr) -> Affine:
    return Affine({atom: ONE})


@lru_cache(maxsize=50000)
def to_affine(expr: ir.Expr) -> Affine:
    """The simplified affine of an integer expression; what is not linear becomes an atom."""
    match expr:
        case ir.Number(value):
            return Affine({}, Polynomial.of(value))
        case ir.Size():
            return Affine({}, Polynomial.of(expr))
        case ir.Index(_, extent):
            return Affine({}) if Polynomial.of(extent) == ONE else _of_atom(expr)
        case ir.Add(terms):
            total = Affine({})
            for term in terms:
                total = total + to_affine(term)
            return total
        case ir.Mul(factors):
            return _multiply([to_affine(factor) for factor in factors])
        case ir.Pow(base, ir.Number(power)):
            inner = to_affine(base)
            if not inner.terms and power.denominator == 1:
                return Affine({}, Polynomial.of(ir.Pow(inner.constant.to_expr(), ir.Number(power))))
        case ir.Call("floordiv", (over, under)):
            above, divisor = to_affine(over), to_affine(under)
            if not divisor.terms:
                return divide(above, divisor.constant)
            return _of_atom(ir.Call("floordiv", (above.to_expr(), divisor.to_expr())))
        case ir.Call("mod", (over, under)):
            above, divisor = to_affine(over), to_affine(under)
            if not divisor.terms and is_never_negative(divisor.constant):
                return modulo(above, divisor.constant)
            return _of_atom(ir.Call("mod", (above.to_expr(), divisor.to_expr())))
        case ir.Call("clip", arguments):
            inside, low, high = map(to_affine, arguments)
            if low == high:
                return low
            if _is_least_zero(inside - low) and _is_least_zero(high - inside):
                return inside
            return _of_atom(ir.Call("clip", (inside.to_expr(), low.to_expr(), high.to_expr())))
    return _of_atom(map_children(expr, simplify_place))


def simplify_place(expr: ir.Expr) -> ir.Expr:
    """The expression of a place or an extent, simplified."""
    if isinstance(expr, (ir.Index, ir.Size, ir.Number, ir.Add, ir.Mul, ir.Call)):
        return to_affine(expr).to_expr()
    return map_children(expr, simplify_place)


def simplify_places(expr: ir.Expr) -> ir.Expr:
    """A read at places in a simple form; else the expression itself."""
    if not isinstance(expr, ir.Access):
        return expr
    return ir.Access(expr.tensor, tuple(map(simplify_place, expr.places)))


def _multiply(parts: list[Affine]) -> Affine:
    total = Affine({}, ONE)
    for part in sorted(parts, key=lambda each: bool(each.terms)):
        if total.terms and part.terms:
            made = ir.Mul(
                tuple(
                    each.to_expr()
                    for each in sorted(parts, key=lambda part: order_atom(part.to_expr()))
                )
            )
            return _of_atom(made)
        total = part.scale(total.constant) if part.terms else total.scale(part.constant)
    return total


def find_range(value: Affine, facts: Facts = ()) -> Range:
    """The least and the largest value, polynomials over sizes; None where it is not known."""
    if not value.terms:
        return Range(value.constant, value.constant)
    return known_facts.find_range(value.to_polynomial(), facts)


def _is_least_zero(value: Affine) -> bool:
    low = find_range(value)[0]
    return low is not None and is_never_negative(low)


def divide(value: Affine | ir.Expr, under: ir.Expr | Polynomial | int, facts: Facts = ()) -> Affine:
    """The value // under, simplified."""
    over, divisor = _read(value), _read(under).constant
    if divisor == ONE:
        return over
    exact, remainder = _split(over, divisor)
    if not remainder.terms and not remainder.constant.terms:
        return exact
    if not is_never_negative(divisor, facts):  # an index that has a value has an extent
        extents = (atom.extent for atom in over.terms if isinstance(atom, ir.Index))
        facts = (*facts, *(Polynomial.of(extent) - ONE for extent in extents))
    if not is_never_negative(divisor, facts) or not _is_whole(over):
        return _keep_quotient(over, divisor)
    if not is_positive(divisor, facts):
        facts = (*facts, divisor - ONE)  # nothing is divided by 0
    found = _find_whole_quotient(over, divisor, facts)
    if found is not None:
        return found
    own = (each for each in over.terms.values() if each.constant is None and each != divisor)
    for divisor_part in dict.fromkeys((*find_divisors(divisor), *own)):
        wide: dict[ir.Expr, Polynomial] = {}
        for atom, each in over.terms.items():
            times = divide_wholly(each, divisor_part)
            if times is not None:
                wide[atom] = times
        whole, left = divide_sizes(over.constant, divisor_part)
        rest = Affine({a: each for a, each in over.terms.items() if a not in wide}, left)
        left_divisor = divide_wholly(divisor, divisor_part)
        if left_divisor is not None and _is_between(rest, divisor_part, facts):
            return divide(Affine(wide, whole), left_divisor, facts)
    quotient, rest = _split(over, divisor)
    merged = _merge_quotients(rest, divisor, facts)
    return quotient + (merged or _keep_quotient(rest, divisor))


def _is_whole(value: Affine) -> bool:
    """Has it whole coefficients?"""
    parts = (*value.terms.values(), value.constant)
    return all(number.denominator == 1 for part in parts for number in part.terms.values())


def _split(over: Affine, divisor: Polynomial) -> tuple[Affine, Affine]:
    """The pair (q, r) with over = q * divisor + r."""
    quotient, rest = {}, {}
    for atom, each in over.terms.items():
        quotient[atom], rest[atom] = divide_sizes(each, divisor)
    whole, left = divide_sizes(over.constant, divisor)
    return Affine(quotient, whole), Affine(rest, left)


def _find_whole_quotient(over: Affine, divisor: Polynomial, facts: Facts) -> Affine | None:
    """The quotient, where the remainder's range lies between two multiples of the divisor."""
    for quotient, rest in _find_splits(over, divisor):
        low, high = find_range(rest, facts)
        if low is None or high is None:
            continue
        first = divide_sizes(low, divisor)[0]
        for step in (first, first - ONE, first + ONE, NOTHING):
            start = step * divisor
            if is_never_negative(low - start, facts) and is_never_negative(
                start + divisor - ONE - high, facts
            ):
                return quotient + Affine({}, step)
    return None


def _find_splits(over: Affine, divisor: Polynomial) -> list[tuple[Affine, Affine]]:
    """Ways to write over = q * divisor + r: with whole parts, small ones, or none taken out."""
    splits = [_split(over, divisor)]
    number = divisor.constant
    if number is not None and any(each.constant is not None for each in over.terms.values()):
        nearest, rest = splits[0]
        for atom, each in rest.terms.items():
            if each.constant is not None and 2 * each.constant > number:
                nearest = nearest + _of_atom(atom)
        splits.append((nearest, over - nearest.scale(divisor)))
    splits.append((Affine({}), over))
    return splits


def _is_between(rest: Affine, end: Polynomial, facts: Facts) -> bool:
    """Is 0 <= rest < end?"""
    low, high = find_range(rest, facts)
    if low is None or high is None:
        return False
    return is_never_negative(low, facts) and is_never_negative(end - ONE - high, facts)


def _merge_quotients(rest: Affine, divisor: Polynomial, facts: Facts) -> Affine | None:
    """(a // n + b) // m = (a + n*b) // (n*m)."""
    quotients = [
        (atom, atom.arguments)
        for atom in rest.terms
        if isinstance(atom, ir.Call) and atom.function == "floordiv"
        if not to_affine(atom.arguments[1]).terms
    ]
    if len(quotients) != 1 or rest.terms[quotients[0][0]] != ONE:
        return None
    atom, (over, under) = quotients[0]
    times = Polynomial.of(under)
    if not is_positive(times, facts):
        return None
    others = (rest - _of_atom(atom)).scale(times)
    return divide(to_affine(over) + others, divisor * times, facts)


def _keep_quotient(over: Affine, divisor: Polynomial) -> Affine:
    made = ir.Call("floordiv", (over.to_expr(), divisor.to_expr()))
    if over.terms:
        return _of_atom(made)
    if not over.constant.terms:
        return Affine({})
    if over.constant.constant is not None and divisor.constant:
        return Affine({}, Polynomial.of(Fraction(over.constant.constant // divisor.constant)))
    return Affine({}, Polynomial.of(made))


def modulo(value: Affine | ir.Expr, under: ir.Expr | Polynomial | int) -> Affine:
    """The value % under: what a quotient leaves."""
    over, divisor = _read(value), _read(under).constant
    return over - divide(over, divisor).scale(divisor)


def ravel(places: Sequence[Affine | ir.Expr], shape: Sequence[ir.Expr | int]) -> Affine:
    """The position in row-major order of an element of a tensor of this shape."""
    total = Affine({})
    for place, extent in zip(places, shape, strict=True):
        total = total.scale(_read(extent).constant) + _read(place)
    return total


def unravel(position: Affine | ir.Expr, shape: Sequence[ir.Expr | int]) -> tuple[Affine, ...]:
    """The places in a tensor of this shape of an element by its position in row-major order."""
    left = _read(position)
    places: list[Affine] = []
    for extent in reversed(shape[1:]):
        length = _read(extent).constant
        above = divide(left, length)
        places.append(left - above.scale(length))
        left = above
    return (*([left] if shape else []), *reversed(places))


def relate(relation: str, left: Affine, right: Affine) -> Relation:
    """A comparison of whole numbers as a relation to 0; `<` leaves 1 at least between them."""
    if relation in {"==", "!="}:
        return "zero", left - right, relation == "=="
    gap = right - left if relation in {"<", "<="} else left - right
    parts = (*gap.terms.values(), gap.constant)
    gap = gap.scale(Polynomial.of(lcm(*(n.denominator for e in parts for n in e.terms.values()))))
    return "least", gap - Affine({}, ONE) if relation in {"<", ">"} else gap, True


def find_truth(kind: str, subject: Affine) -> bool | None:
    """The truth of `affine >= 0` or `affine = 0` where its range tells it."""
    low, high = find_range(subject)
    is_below = high is not None and is_never_negative(Polynomial.of(-1) - high)
    if kind == "least":
        is_held = low is not None and is_never_negative(low)
        return is_held or (False if is_below else None)
    if low == high == NOTHING:
        return True
    is_above = low is not None and is_never_negative(low - ONE)
    return False if is_below or is_above else None


def put(value: Affine, new: dict[ir.Index, Affine]) -> Affine:
    """The affine with others in place of its indices, simplified."""
    total = Affine({}, value.constant)
    for atom, each in value.terms.items():
        if isinstance(atom, ir.Index):
            total = total + (new[atom].scale(each) if atom in new else Affine({atom: each}))
        elif any(index in new for index in find_free(atom)):
            written: dict[ir.Expr, ir.Expr] = {
                i: new[i].to_expr() for i in find_free(atom) if i in new
            }
            total = total + to_affine(substitute(atom, written)).scale(each)
        else:
            total = total + Affine({atom: each})
    return total


def is_never_empty(index: ir.Index | None, relations: Sequence[Relation]) -> bool:
    """Do all relations hold for some value of the index, whatever the others and all tensors are?

    Tried are the ends of its range, and where a relation just holds.
    """
    for place in _find_witnesses(index, relations):
        new = {index: place} if index is not None else {}
        truths = (
            find_truth(kind, put(subject, new)) is holds for kind, subject, holds in relations
        )
        if all(truths):
            return True
    return False


def _find_witnesses(index: ir.Index | None, relations: Sequence[Relation]) -> Iterator[Affine]:
    if index is None:
        yield Affine({})
        return
    last = Affine({}, Polynomial.of(index.extent) - ONE)
    found = [Affine({}), last]
    for _, subject, _ in relations:
        slope = subject.terms.get(index)
        if slope is not None and slope.constant in (1, -1):
            sign = Polynomial.of(-slope.constant)
            edge = (subject - Affine({index: slope})).scale(sign)
            found += [edge, edge + Affine({}, sign)]
    for place in found:
        inside = all(map(_is_least_zero, (place, last - place)))
        if inside and not any(index in find_free(atom) for atom in place.terms):
            yield place
