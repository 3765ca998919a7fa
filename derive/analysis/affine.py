"""The normal form of places: linear forms over atoms with ranges, simplified by these ranges.

    place = sum of step * atom + constant, a polynomial whose steps and constant are over sizes
    atom  = Index | floordiv(place, divisor) | clip(..), an integer tensor's element, ...

A remainder is `l - n*(l // n)`, so that quotients are the only new atoms. Ranges simplify them:
`l // n` is a constant if the range of l is between two multiples of n, and
`(g*A + r)//(g*m) = A//m` if 0 <= r < g. An index of extent 1 is 0. A view of a tensor is
`unravel(ravel(places, old), new)`.

Laws:
- Equal places have equal polynomials. A simplified place is equal to the original for all
  sizes >= 1 and all values of the indices within their extents (and wherever the facts are >= 0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from math import lcm
from typing import TypeAlias

from derive.analysis.facts import Facts, find_range, is_never_negative, is_positive
from derive.ir import nodes as ir
from derive.ir.pieces import to_text
from derive.ir.polynomial import (
    NOTHING,
    ONE,
    Polynomial,
    add_all,
    divide_sizes,
    divide_wholly,
    find_divisors,
    is_varying,
    split_steps,
)
from derive.ir.walk import find_free, map_children, substitute

# (kind, place, truth): `least` is place >= 0, `zero` is place = 0; truth False negates it
Relation: TypeAlias = tuple[str, Polynomial, bool]


def to_place(place: Polynomial) -> ir.Expr:
    """The expression of a place, with its terms sorted by text."""
    steps, constant = split_steps(place)
    parts = [_to_product(steps[atom], atom) for atom in sorted(steps, key=atom_key)]
    return ir.sum_of([*parts, *(ir.split_sum(constant.to_expr()) if constant.terms else ())])


@lru_cache(maxsize=20000)
def atom_key(atom: ir.Expr) -> tuple[str, str]:
    """The sort key of atoms: the text, and for indices of the same text the repr."""
    return to_text(atom), repr(atom) if isinstance(atom, ir.Index) else ""


def _to_product(factor: Polynomial, atom: ir.Expr) -> ir.Expr:
    if factor == ONE:
        return atom
    return ir.Mul((*ir.split_product(factor.to_expr()), atom))


@lru_cache(maxsize=50000)
def to_linear(expr: ir.Expr) -> Polynomial:
    """The simplified linear form of an integer; a nonlinear part becomes an atom."""
    match expr:
        case ir.Index(_, extent) if Polynomial.of(extent) == ONE:
            return NOTHING
        case ir.Add(terms):
            return add_all(map(to_linear, terms))
        case ir.Mul(factors):
            parts = [*map(to_linear, factors)]
            if all(p.terms for p in parts) and sum(bool(split_steps(p)[0]) for p in parts) > 1:
                return Polynomial.atom(ir.Mul(tuple(sorted(map(to_place, parts), key=atom_key))))
            return reduce(Polynomial.__mul__, parts, ONE)
        case ir.Call("floordiv", (over, under)):
            above, divisor = to_linear(over), to_linear(under)
            if not split_steps(divisor)[0]:
                return divide(above, divisor)
            return Polynomial.atom(ir.Call("floordiv", (to_place(above), to_place(divisor))))
        case ir.Call("mod", (over, under)):
            above, divisor = to_linear(over), to_linear(under)
            if not split_steps(divisor)[0] and is_never_negative(divisor):
                return modulo(above, divisor)
            return Polynomial.atom(ir.Call("mod", (to_place(above), to_place(divisor))))
        case ir.Call("clip", arguments):
            inside, low, high = map(to_linear, arguments)
            if low == high:
                return low
            if _is_least_zero(inside - low) and _is_least_zero(high - inside):
                return inside
            return Polynomial.atom(ir.Call("clip", tuple(map(to_place, (inside, low, high)))))
    made = map_children(expr, simplify_place)
    return Polynomial.atom(made) if is_varying(made) else Polynomial.of(made)


def simplify_place(expr: ir.Expr) -> ir.Expr:
    """The expression of a place or an extent, simplified."""
    if isinstance(expr, (ir.Index, ir.Size, ir.Number, ir.Add, ir.Mul, ir.Call)):
        return to_place(to_linear(expr))
    return map_children(expr, simplify_place)


def simplify_places(expr: ir.Expr) -> ir.Expr:
    """An access with simplified places; any other expression unchanged."""
    if not isinstance(expr, ir.Access):
        return expr
    return ir.Access(expr.tensor, tuple(map(simplify_place, expr.places)))


def _is_least_zero(value: Polynomial) -> bool:
    low = find_range(value).low
    return low is not None and is_never_negative(low)


def _to_form(value: ir.Expr | Polynomial) -> Polynomial:
    return value if isinstance(value, Polynomial) else to_linear(value)


def divide(
    value: Polynomial | ir.Expr, under: ir.Expr | Polynomial, facts: Facts = ()
) -> Polynomial:
    """The place `value // under`, simplified."""
    over, divisor = _to_form(value), _to_form(under)
    if divisor == ONE:
        return over
    exact, remainder = _split_multiples(over, divisor)
    if not remainder.terms:
        return exact
    if not is_never_negative(divisor, facts):  # an index with a value has an extent >= 1
        extents = (atom.extent for atom in over.atoms if isinstance(atom, ir.Index))
        facts = (*facts, *(Polynomial.of(extent) - ONE for extent in extents))
    is_whole = all(number.denominator == 1 for number in over.terms.values())
    if not is_never_negative(divisor, facts) or not is_whole:
        return _keep_quotient(over, divisor)
    if not is_positive(divisor, facts):
        facts = (*facts, divisor - ONE)  # a division by 0 has no value
    found = _find_whole_quotient(over, divisor, facts)
    if found is not None:
        return found
    steps, constant = split_steps(over)
    own = (each for each in steps.values() if each.constant is None and each != divisor)
    for divisor_part in dict.fromkeys((*find_divisors(divisor), *own)):
        wide = NOTHING
        for atom, each in steps.items():
            wide += (divide_wholly(each, divisor_part) or NOTHING) * Polynomial.atom(atom)
        wide += divide_sizes(constant, divisor_part)[0]
        left_divisor = divide_wholly(divisor, divisor_part)
        rest = over - wide * divisor_part
        if left_divisor is not None and _is_between(rest, divisor_part, facts):
            return divide(wide, left_divisor, facts)
    merged = _merge_quotients(remainder, divisor, facts)
    return exact + (merged or _keep_quotient(remainder, divisor))


def _split_multiples(over: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """The pair (q, r) with over = q * divisor + r; multiples of the divisor are in q."""
    steps, constant = split_steps(over)
    whole = (divide_sizes(e, divisor)[0] * Polynomial.atom(atom) for atom, e in steps.items())
    quotient = add_all((divide_sizes(constant, divisor)[0], *whole))
    return quotient, over - quotient * divisor


def _find_whole_quotient(over: Polynomial, divisor: Polynomial, facts: Facts) -> Polynomial | None:
    """The quotient, if the rest is shown between two multiples of the divisor; else None."""
    for quotient, rest in _find_splits(over, divisor):
        low, high = find_range(rest, facts)
        if low is None or high is None:
            continue
        first = divide_sizes(low, divisor)[0]
        for step in (first, first - ONE, first + ONE, NOTHING):
            if _is_between(rest - step * divisor, divisor, facts):
                return quotient + step
    return None


def _find_splits(over: Polynomial, divisor: Polynomial) -> list[tuple[Polynomial, Polynomial]]:
    """Pairs (q, r) with over = q * divisor + r: q rounded down, to nearest integers, and 0."""
    splits = [_split_multiples(over, divisor)]
    number = divisor.constant
    if number is not None and any(
        each.constant is not None for each in split_steps(over)[0].values()
    ):
        nearest, rest = splits[0]
        for atom, each in split_steps(rest)[0].items():
            if each.constant is not None and 2 * each.constant > number:
                nearest = nearest + Polynomial.atom(atom)
        splits.append((nearest, over - nearest * divisor))
    splits.append((NOTHING, over))
    return splits


def _is_between(rest: Polynomial, end: Polynomial, facts: Facts) -> bool:
    """Whether 0 <= rest < end is shown."""
    low, high = find_range(rest, facts)
    if low is None or high is None:
        return False
    return is_never_negative(low, facts) and is_never_negative(end - ONE - high, facts)


def _merge_quotients(rest: Polynomial, divisor: Polynomial, facts: Facts) -> Polynomial | None:
    """The quotient by the law (a // n + b) // m = (a + n*b) // (n*m); None if it does not fit."""
    steps = split_steps(rest)[0]
    quotients = [
        (atom, atom.arguments)
        for atom in steps
        if isinstance(atom, ir.Call) and atom.function == "floordiv"
        if not split_steps(to_linear(atom.arguments[1]))[0]
    ]
    if len(quotients) != 1 or steps[quotients[0][0]] != ONE:
        return None
    atom, (over, under) = quotients[0]
    times = Polynomial.of(under)
    if not is_positive(times, facts):
        return None
    others = (rest - Polynomial.atom(atom)) * times
    return divide(to_linear(over) + others, divisor * times, facts)


def _keep_quotient(over: Polynomial, divisor: Polynomial) -> Polynomial:
    if over.constant is not None and divisor.constant:
        return Polynomial.of(Fraction(over.constant // divisor.constant))
    return Polynomial.atom(ir.Call("floordiv", (to_place(over), divisor.to_expr())))


def modulo(value: Polynomial | ir.Expr, under: ir.Expr | Polynomial) -> Polynomial:
    """The place `value % under`, as value - under * (value // under)."""
    over, divisor = _to_form(value), _to_form(under)
    return over - divide(over, divisor) * divisor


def ravel(places: Sequence[Polynomial | ir.Expr], shape: Sequence[ir.Expr]) -> Polynomial:
    """The row-major position of an element of a tensor of this shape."""
    total = NOTHING
    for place, extent in zip(places, shape, strict=True):
        total = total * _to_form(extent) + _to_form(place)
    return total


def unravel(position: Polynomial | ir.Expr, shape: Sequence[ir.Expr]) -> tuple[Polynomial, ...]:
    """The places of the element at a row-major position of a tensor of this shape."""
    left = _to_form(position)
    places: list[Polynomial] = []
    for extent in reversed(shape[1:]):
        length = _to_form(extent)
        above = divide(left, length)
        places.append(left - above * length)
        left = above
    return (*([left] if shape else []), *reversed(places))


def relate(relation: str, left: Polynomial, right: Polynomial) -> Relation:
    """A comparison of integers as a relation to 0: a < b is b - a - 1 >= 0."""
    if relation in {"==", "!="}:
        return "zero", left - right, relation == "=="
    gap = right - left if relation in {"<", "<="} else left - right
    gap = gap * Polynomial.of(lcm(*(number.denominator for number in gap.terms.values())))
    return "least", gap - ONE if relation in {"<", ">"} else gap, True


def find_truth(kind: str, subject: Polynomial) -> bool | None:
    """The truth of `place >= 0` or `place = 0` by its range; None if undecided."""
    low, high = find_range(subject)
    is_below = high is not None and is_never_negative(-ONE - high)
    if kind == "least":
        is_held = low is not None and is_never_negative(low)
        return is_held or (False if is_below else None)
    if low == high == NOTHING:
        return True
    is_above = low is not None and is_never_negative(low - ONE)
    return False if is_below or is_above else None


def substitute_indices(place: Polynomial, new: Mapping[ir.Index, Polynomial]) -> Polynomial:
    """The place with indices replaced by places, simplified."""
    steps, constant = split_steps(place)
    for atom, step in steps.items():
        inside: dict[ir.Expr, ir.Expr] = {i: to_place(new[i]) for i in find_free(atom) if i in new}
        value = Polynomial.atom(atom)
        if inside:
            value = new[atom] if isinstance(atom, ir.Index) else to_linear(substitute(atom, inside))
        constant += value * step
    return constant


def is_never_empty(index: ir.Index | None, relations: Sequence[Relation]) -> bool:
    """Whether some value of an index is shown to fulfil all relations, for all other indices.

    The values tried are the ends of its range and the edges of the relations. `index` None: whether
    the relations always hold.
    """
    places: Iterable[Polynomial] = [NOTHING]
    if index is not None:
        last = Polynomial.of(index.extent) - ONE
        edges = [found for _, subject, _ in relations if (found := subject.find_edge(index))]
        sides = (e + (-ONE if is_lower else ONE) for is_lower, e in edges)
        tried = (NOTHING, last, *(edge for _, edge in edges), *sides)
        places = (p for p in tried if _is_least_zero(p) and _is_least_zero(last - p))
    return any(
        all(
            find_truth(kind, substitute_indices(subject, {index: place} if index else {})) is holds
            for kind, subject, holds in relations
        )
        for place in places
    )
