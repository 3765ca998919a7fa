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
        """The index, if the form is a single index, else None."""
        if len(self.terms) == 1 and not self.constant.terms:
            ((atom, each),) = self.terms.items()
            if isinstance(atom, ir.Index) and each == ONE:
                return atom
        return None

    def to_polynomial(self) -> Polynomial:
        """The form as a polynomial over sizes and atoms."""
        total = self.constant
        for atom, each in self.terms.items():
            total = total + each * Polynomial.of(atom)
        return total

    def to_expr(self) -> ir.Expr:
        """The expression, terms in order of their text."""
        plain = self.index
        if plain is not None:
            return plain
        atoms = sorted(self.terms, key=atom_key)
        parts = [_to_product(self.terms[atom], atom) for atom in atoms]
        if self.constant.terms or not parts:
            constant = self.constant.to_expr()
            parts += ir.split_sum(constant)
        return ir.sum_of(parts)


@lru_cache(maxsize=20000)
def atom_key(atom: ir.Expr) -> tuple[str, str]:
    """The sort key of atoms: the text."""
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
# `l // n` is a constant if the range of l is between two multiples of n, and
# (g*A + r)//(g*m) = A//m if 0 <= r < g. An index of extent 1 is 0. A view of a tensor is
# `unravel(ravel(places, old), new)`.
#
# Laws:
# - Equal affines have equal values. A simplified affine is equal to the original for all sizes >= 1
#   and all values of the indices within their extents (and wherever the given facts are >= 0).

# (kind, affine, truth): `least` is affine >= 0, `zero` is affine = 0; truth False negates it
Relation: TypeAlias = tuple[str, Affine, bool]


def _to_form(value: Affine | ir.Expr | Polynomial | int) -> Affine:
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
    """The simplified affine of an integer expression; a nonlinear part becomes an atom."""
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
    """An access with simplified places; any other expression unchanged."""
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
                    for each in sorted(parts, key=lambda part: atom_key(part.to_expr()))
                )
            )
            return _of_atom(made)
        total = part.scale(total.constant) if part.terms else total.scale(part.constant)
    return total


def find_range(value: Affine, facts: Facts = ()) -> Range:
    """The range of a form, with bounds that are polynomials over sizes or None."""
    if not value.terms:
        return Range(value.constant, value.constant)
    return known_facts.find_range(value.to_polynomial(), facts)


def _is_least_zero(value: Affine) -> bool:
    low = find_range(value)[0]
    return low is not None and is_never_negative(low)


def divide(value: Affine | ir.Expr, under: ir.Expr | Polynomial | int, facts: Facts = ()) -> Affine:
    """The value // under, simplified."""
    over, divisor = _to_form(value), _to_form(under).constant
    if divisor == ONE:
        return over
    exact, remainder = _split_multiples(over, divisor)
    if not remainder.terms and not remainder.constant.terms:
        return exact
    if not is_never_negative(divisor, facts):  # an index with a value has an extent >= 1
        extents = (atom.extent for atom in over.terms if isinstance(atom, ir.Index))
        facts = (*facts, *(Polynomial.of(extent) - ONE for extent in extents))
    if not is_never_negative(divisor, facts) or not _is_whole(over):
        return _keep_quotient(over, divisor)
    if not is_positive(divisor, facts):
        facts = (*facts, divisor - ONE)  # a division by 0 has no value
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
    quotient, rest = _split_multiples(over, divisor)
    merged = _merge_quotients(rest, divisor, facts)
    return quotient + (merged or _keep_quotient(rest, divisor))


def _is_whole(value: Affine) -> bool:
    """Whether all coefficients are integers."""
    parts = (*value.terms.values(), value.constant)
    return all(number.denominator == 1 for part in parts for number in part.terms.values())


def _split_multiples(over: Affine, divisor: Polynomial) -> tuple[Affine, Affine]:
    """The pair (q, r) with over = q * divisor + r."""
    quotient, rest = {}, {}
    for atom, each in over.terms.items():
        quotient[atom], rest[atom] = divide_sizes(each, divisor)
    whole, left = divide_sizes(over.constant, divisor)
    return Affine(quotient, whole), Affine(rest, left)


def _find_whole_quotient(over: Affine, divisor: Polynomial, facts: Facts) -> Affine | None:
    """The quotient, if the range of a remainder is between two multiples of the divisor."""
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
    """Pairs (q, r) with over = q * divisor + r: by floors, by nearest integers, and q = 0."""
    splits = [_split_multiples(over, divisor)]
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
    """Whether 0 <= rest < end is shown."""
    low, high = find_range(rest, facts)
    if low is None or high is None:
        return False
    return is_never_negative(low, facts) and is_never_negative(end - ONE - high, facts)


def _merge_quotients(rest: Affine, divisor: Polynomial, facts: Facts) -> Affine | None:
    """The quotient by the law (a // n + b) // m = (a + n*b) // (n*m), if it fits."""
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
    """The value % under, as value - under * (value // under)."""
    over, divisor = _to_form(value), _to_form(under).constant
    return over - divide(over, divisor).scale(divisor)


def ravel(places: Sequence[Affine | ir.Expr], shape: Sequence[ir.Expr | int]) -> Affine:
    """The row-major position of an element of a tensor of this shape."""
    total = Affine({})
    for place, extent in zip(places, shape, strict=True):
        total = total.scale(_to_form(extent).constant) + _to_form(place)
    return total


def unravel(position: Affine | ir.Expr, shape: Sequence[ir.Expr | int]) -> tuple[Affine, ...]:
    """The places of the element at a row-major position of a tensor of this shape."""
    left = _to_form(position)
    places: list[Affine] = []
    for extent in reversed(shape[1:]):
        length = _to_form(extent).constant
        above = divide(left, length)
        places.append(left - above.scale(length))
        left = above
    return (*([left] if shape else []), *reversed(places))


def relate(relation: str, left: Affine, right: Affine) -> Relation:
    """A comparison of integers as a relation to 0; a < b is b - a - 1 >= 0."""
    if relation in {"==", "!="}:
        return "zero", left - right, relation == "=="
    gap = right - left if relation in {"<", "<="} else left - right
    parts = (*gap.terms.values(), gap.constant)
    gap = gap.scale(Polynomial.of(lcm(*(n.denominator for e in parts for n in e.terms.values()))))
    return "least", gap - Affine({}, ONE) if relation in {"<", ">"} else gap, True


def find_truth(kind: str, subject: Affine) -> bool | None:
    """The truth of `affine >= 0` or `affine = 0` by its range; None if undecided."""
    low, high = find_range(subject)
    is_below = high is not None and is_never_negative(Polynomial.of(-1) - high)
    if kind == "least":
        is_held = low is not None and is_never_negative(low)
        return is_held or (False if is_below else None)
    if low == high == NOTHING:
        return True
    is_above = low is not None and is_never_negative(low - ONE)
    return False if is_below or is_above else None


def substitute_indices(value: Affine, new: dict[ir.Index, Affine]) -> Affine:
    """The affine with indices replaced by affines, simplified."""
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
    """Whether all relations are shown to hold for some value of the index, for any others.

    The candidates are the ends of its range and the edges of the relations.
    """
    for place in _find_witnesses(index, relations):
        new = {index: place} if index is not None else {}
        truths = (
            find_truth(kind, substitute_indices(subject, new)) is holds
            for kind, subject, holds in relations
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
