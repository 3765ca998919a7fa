"""What is known of positions and extents: signs and ranges, with sizes as symbols >= 1.

    is_never_negative(polynomial over sizes)        for all sizes
    find_range(expression over indices)             the least and the largest value
    is_nonnegative(polynomial over indices, facts)  under guards
    is_never_empty(indices, what is kept >= 0)      has a row an entry, whatever the others are?
    find_magnitude(expression of whole numbers)     how large it gets, sizes up to LONGEST

    range = [low, high], each a polynomial over sizes, or None where nothing is known
    facts = polynomials over indices and sizes that the guards in force keep >= 0

A remainder, `l % n` or `l - n*(l // n)`, is one atom with a range of its own.

Laws:
- What is said holds for all sizes >= 1 and all values of the indices, and wherever the facts are
  >= 0.
- No answer (False, None) is never wrong; a bound need not be the tightest.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial, reduce
from itertools import chain, combinations
from math import comb, inf, lcm, prod
from typing import TYPE_CHECKING, TypeAlias

from derive.ir import nodes as ir
from derive.ir.polynomial import (
    NOTHING,
    ONE,
    Monomial,
    Polynomial,
    divide_sizes,
    divide_wholly,
    find_divisors,
)
from derive.ir.walk import find_free

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


Facts = tuple[Polynomial, ...]


def negate(value: Polynomial) -> Polynomial:
    """The value with the other sign."""
    return Polynomial({monomial: -number for monomial, number in value.terms.items()})


@lru_cache(maxsize=20000)
def is_never_negative(value: Polynomial, facts: Facts = ()) -> bool:
    """Is the value >= 0 for all sizes >= 1 for which the facts are >= 0?"""
    terms = value.terms
    if all(number >= 0 for number in terms.values()) and all(map(_is_counting, value.atoms)):
        return True
    if not facts and sum(terms.values()) < 0 and all(isinstance(a, ir.Size) for a in value.atoms):
        return False  # that is the value where every size is 1
    cleared = _clear_divisors(value)
    if _has_no_minus(cleared) or any(_has_no_minus(each) for each in _relax(cleared)):
        return True
    for count in range(1, min(len(facts), 2) + 1):
        for chosen in combinations(facts, count):
            rest = cleared
            for fact in chosen:
                rest = rest - fact
            if _has_no_minus(_clear_divisors(rest)):
                return True
    return False


def is_positive(value: Polynomial, facts: Facts = ()) -> bool:
    """Is the value, a whole number, >= 1 for all sizes?"""
    return value == ONE or is_never_negative(value - ONE, facts)


def _clear_divisors(value: Polynomial) -> Polynomial:
    """The value times the sizes that it is divided by, which are positive."""
    least: dict[ir.Expr, int] = {}
    for monomial in value.terms:
        for atom, power in monomial:
            least[atom] = min(least.get(atom, 0), power)
    for atom, power in least.items():
        if power < 0 and isinstance(atom, ir.Size):
            value = value * Polynomial({((atom, -power),): Fraction(1)})
    return value


def _has_no_minus(value: Polynomial) -> bool:
    """Are all coefficients >= 0, written in size - 1?"""
    shifted: dict[tuple[tuple[ir.Expr, int], ...], Fraction] = {}
    for monomial, number in value.terms.items():
        parts: list[tuple[Monomial, Fraction]] = [((), number)]
        for atom, power in monomial:
            if power < 0 or not _is_counting(atom):
                return False
            if isinstance(atom, ir.Size):
                parts = [
                    ((*left, (atom, k)) if k else left, times * comb(power, k))
                    for left, times in parts
                    for k in range(power + 1)
                ]
            else:
                parts = [((*left, (atom, power)), times) for left, times in parts]
        for left, times in parts:
            shifted[left] = shifted.get(left, Fraction(0)) + times
    return all(number >= 0 for number in shifted.values())


def _is_counting(atom: ir.Expr) -> bool:
    """Is the atom of an extent known to be >= 0?"""
    match atom:
        case ir.Size():
            return True
        case ir.Call("floordiv", (over, under)):
            return is_never_negative(Polynomial.of(over)) and is_positive(Polynomial.of(under))
        case ir.Call("mod", (_, under)):
            return is_positive(Polynomial.of(under))
        case ir.Call("max", arguments):
            return any(is_never_negative(Polynomial.of(argument)) for argument in arguments)
        case ir.Call("min", arguments):
            return all(is_never_negative(Polynomial.of(argument)) for argument in arguments)
        case ir.Pow(base, ir.Number(power)) if power.denominator == 1:
            return is_never_negative(Polynomial.of(base))
    return False


def _relax(value: Polynomial) -> list[Polynomial]:
    """The value with its quotients `a // n`, n >= 1, at the bound that makes it smallest."""
    for atom in value.atoms:
        match atom:
            case ir.Call("floordiv", (over, under)) if is_positive(Polynomial.of(under)):
                split = value.split(atom)
                if split is None:
                    continue
                times = split[0] * Polynomial.of(ir.Pow(under, ir.Number(Fraction(-1))))
                above = Polynomial.of(over)
                if _has_no_minus(_clear_divisors(times)):
                    above = above + ONE - Polynomial.of(under)
                elif not _has_no_minus(_clear_divisors(negate(times))):
                    continue
                smaller = split[1] + times * above
                return [smaller, *_relax(smaller)]
    return []


Bound: TypeAlias = Polynomial | None

_MOST_FACTS = 2  # used together in one proof; a chain `0 <= e < T` gives two


@dataclass(frozen=True)
class Range:
    """The least and the largest value that an expression can have, as far as they are known."""

    low: Bound
    high: Bound


def find_range(value: ir.Expr | Polynomial, facts: Facts = ()) -> Range:
    """The range of an expression over indices, sizes and integer tensors.

    The facts are over sizes alone.
    """
    value = value if isinstance(value, Polynomial) else Polynomial.of(value)
    return _find_sum_range(value, facts)


def is_nonnegative(value: Polynomial, facts: Facts = ()) -> bool:
    """Is the value >= 0 for all sizes >= 1 and all indices, as far as can be shown?"""
    for count in range(min(len(facts), _MOST_FACTS) + 1):
        for chosen in combinations(facts, count):
            rest = value
            for fact in chosen:  # as often as the first that both are made of stands in the value
                shared = (rest.terms[m] / n for m, n in fact.terms.items() if m and m in rest.terms)
                rest = rest - fact * Polynomial.of(max(next(shared, 1), Fraction(1)))
            if (low := _find_sum_range(rest).low) is not None and is_never_negative(low):
                return True
    return any(is_nonnegative(each, facts) for each in _open_quotient(value)) if facts else False


def _open_quotient(value: Polynomial) -> Iterator[Polynomial]:
    """What is >= 0 exactly where `rest + a // n` or `rest - a // n` is: n * rest + a, .."""
    for atom in value.atoms:
        match atom:
            case ir.Call("floordiv", (over, under)) if is_positive(Polynomial.of(under)):
                slope, rest = value.split(atom) or (NOTHING, NOTHING)
                times, above = Polynomial.of(under), Polynomial.of(over)
                if slope == ONE:
                    yield times * rest + above
                elif slope == negate(ONE):
                    yield times * rest + times - ONE - above


def find_facts(condition: ir.Expr) -> Facts:
    """What a condition that holds keeps >= 0."""
    match condition:
        case ir.And(parts):
            return tuple(chain.from_iterable(find_facts(part) for part in parts))
        case ir.Not(ir.Compare(relation, left, right)):
            return find_facts(ir.Compare(ir.NEGATED[relation], left, right))
        case ir.Compare(relation, left, right):
            facts = _compare(relation, Polynomial.of(left), Polynomial.of(right))
            return tuple(chain.from_iterable(_open_abs(fact) for fact in facts))
    return ()


def _open_abs(fact: Polynomial) -> Facts:
    """What is at least `abs(e)` is at least e and at least -e."""
    for atom in fact.atoms:
        match atom:
            case ir.Call("abs", (inside,)):
                split = fact.split(atom)
                if split is None or split[0].constant is None or split[0].constant > 0:
                    continue
                slope, rest = split
                value = Polynomial.of(inside)
                return (*_open_abs(rest + slope * value), *_open_abs(rest - slope * value))
    return (fact,)


def _compare(relation: str, left: Polynomial, right: Polynomial) -> Facts:
    if not (is_integer(left) and is_integer(right)):
        return ()
    match relation:
        case "<=":
            return (right - left,)
        case ">=":
            return (left - right,)
        case "<":
            return (_tighten(right - left),)
        case ">":
            return (_tighten(left - right),)
        case "==":
            return (left - right, right - left)
    gap = left - right
    if is_nonnegative(gap):
        return (_tighten(gap),)
    return (_tighten(right - left),) if is_nonnegative(right - left) else ()


def is_integer(value: Polynomial) -> bool:
    """Is it made of indices, sizes and integers alone? Its coefficients may be fractions."""
    return all(_is_integer_atom(atom) for atom in value.atoms)


def _is_integer_atom(atom: ir.Expr) -> bool:
    match atom:
        case ir.Size() | ir.Index() | ir.Reduce("argmax", _, _, _):
            return True
        case ir.Access(tensor, _):
            return tensor.kind == "int"
        case ir.Call("floordiv" | "mod" | "clip" | "max" | "min" | "abs", arguments):
            return all(is_whole(Polynomial.of(argument)) for argument in arguments)
        case ir.Where(_, then, other):
            return is_whole(Polynomial.of(then)) and is_whole(Polynomial.of(other))
    return False


def is_whole(value: Polynomial) -> bool:
    """Is it an integer for all sizes and indices: integers with integer coefficients?"""
    whole = all(coefficient.denominator == 1 for coefficient in value.terms.values())
    return whole and is_integer(value)


def _tighten(value: Polynomial) -> Polynomial:
    """From value > 0 to a polynomial >= 0 with integer coefficients."""
    scale = lcm(1, *(coefficient.denominator for coefficient in value.terms.values()))
    return value * Polynomial.of(scale) - ONE


def fold_remainders(value: Polynomial) -> Polynomial:
    """The same value with each `l - n*(l // n)` in it as `l % n`."""
    for atom in value.atoms:
        match atom:
            case ir.Call("floordiv", (over, under)) if _is_ranged(atom):
                split = value.split(atom)
                found = _find_remainder(value, atom, over, under) if split is not None else None
                if split is not None and found is not None:
                    slope, modulus, rest = found
                    return fold_remainders(rest) + slope * _of(modulus)
    return value


def _find_remainder(
    value: Polynomial, quotient: ir.Expr, over: ir.Expr, under: ir.Expr
) -> tuple[Polynomial, ir.Expr, Polynomial] | None:
    """A slope, a remainder and a rest that make up the value and lessen the quotient's share."""
    whole = Polynomial.of(under)
    for divisor in (whole, *find_divisors(whole)):
        outer = divide_wholly(whole, divisor)
        if outer is None or not is_never_negative(divisor - ONE):
            continue
        inner = _divide(Polynomial.of(over), outer)
        slope = _find_multiple(value, inner)
        if slope is None or not is_never_negative(outer - ONE):
            continue
        rest = value - slope * (inner - divisor * _of(quotient))
        if _count_terms(rest, quotient) < _count_terms(value, quotient) and not any(
            part in rest.atoms for part in inner.atoms if _is_ranged(part)
        ):
            return slope, ir.Call("mod", (inner.to_expr(), divisor.to_expr())), rest
    return None


def _divide(over: Polynomial, under: Polynomial) -> Polynomial:
    """The value // under, with what is a multiple of it taken out."""
    whole, rest = NOTHING, NOTHING
    for monomial, number in over.terms.items():
        term = Polynomial({monomial: number})
        times = divide_wholly(term, under)
        whole, rest = (whole, rest + term) if times is None else (whole + times, rest)
    return (
        whole + _of(ir.Call("floordiv", (rest.to_expr(), under.to_expr()))) if rest.terms else whole
    )


def _find_multiple(value: Polynomial, inner: Polynomial) -> Polynomial | None:
    """How often the value has another one in it, as told by the first atom that varies."""
    for atom in filter(_is_ranged, inner.atoms):
        own, other = _find_slope(value, atom), _find_slope(inner, atom)
        if other.constant:
            own, other = own * Polynomial.of(1 / other.constant), ONE
        return divide_wholly(own, other) if own.terms and other.terms else None
    return None


def _find_slope(value: Polynomial, atom: ir.Expr) -> Polynomial:
    """The coefficient of an atom's first power, wherever else the atom may stand."""
    return Polynomial(
        {
            tuple(power for power in monomial if power[0] is not atom): number
            for monomial, number in value.terms.items()
            if (atom, 1) in monomial
        }
    )


def _count_terms(value: Polynomial, atom: ir.Expr) -> int:
    return sum(any(part is atom for part, _ in monomial) for monomial in value.terms)


@lru_cache(maxsize=20000)
def _find_sum_range(value: Polynomial, facts: Facts = ()) -> Range:
    """Bounds of a polynomial: each ranged atom is put at its worst, one after the other."""
    value = fold_remainders(value)
    return Range(_put_at_worst(value, facts, low=True), _put_at_worst(value, facts, low=False))


def _put_at_worst(value: Polynomial, facts: Facts, *, low: bool) -> Bound:
    for atom in value.atoms:
        if not _is_ranged(atom):
            continue
        split = value.split(atom)
        if split is None:
            return _put_powers(value, low=low)
        slope, rest = split
        rising = _find_sign(slope, facts)
        if rising is None:
            return _put_powers(value, low=low)
        bounds = _find_atom_range(atom)
        chosen = bounds.low if rising is low else bounds.high
        if chosen is None:
            return None
        return _put_at_worst(rest + slope * chosen, facts, low=low)
    return value


def _find_sign(slope: Polynomial, facts: Facts) -> bool | None:
    """True where the slope is >= 0, False where it is <= 0, None where it is unknown."""
    for sign in (slope, negate(slope)):
        if is_never_negative(sign, facts) or is_nonnegative(sign):
            return sign is slope
    return None


def _put_powers(value: Polynomial, *, low: bool) -> Bound:
    """Bounds monomial by monomial, for products and powers of what is never negative."""
    total = NOTHING
    for monomial, coefficient in value.terms.items():
        term = Polynomial.of(coefficient)
        for atom, power in monomial:
            bounds = _find_atom_range(atom) if _is_ranged(atom) else Range(_of(atom), _of(atom))
            chosen = bounds.low if (coefficient > 0) is low else bounds.high
            if chosen is None or bounds.low is None or not is_never_negative(bounds.low):
                return None
            term = reduce(Polynomial.__mul__, [chosen] * power, term)
        total = total + term
    return total


def _of(atom: ir.Expr) -> Polynomial:
    return Polynomial({((atom, 1),): Fraction(1)})


def _is_ranged(atom: ir.Expr) -> bool:
    """Does the atom vary, or is it one of the functions whose bounds are known?"""
    match atom:
        case ir.Size():
            return False
        case ir.Call("floordiv", (over, under)):
            holds = any(isinstance(part, ir.Access) for part in Polynomial.of(over).atoms)
            return bool(find_free(over) or find_free(under)) or holds
    return True


def _find_atom_range(atom: ir.Expr) -> Range:
    match atom:
        case ir.Index(_, extent):
            return Range(NOTHING, Polynomial.of(extent) - ONE)
        case ir.Access(tensor, _) if tensor.kind == "int":
            high = Polynomial.of(tensor.below) - ONE if tensor.below is not None else None
            return Range(NOTHING if high is not None else None, high)
        case ir.Call("floordiv", (over, under)):
            divisor = Polynomial.of(under)
            # A position that is there has an extent above 0, and so have the divisors of that.
            extents = (Polynomial.of(i.extent) for i in find_free(over))
            is_there = any(divide_wholly(each, divisor) is not None for each in extents)
            known = (divisor - ONE,) if is_there and is_never_negative(divisor) else ()
            if not is_nonnegative(divisor - ONE, known):
                return Range(None, None)
            above = find_range(over)  # a quotient rises with what is divided
            if not any(map(_is_ranged, divisor.atoms)):
                low, high = (_divide_bound(e, divisor, known) for e in (above.low, above.high))
                return Range(low, high)
            starts = above.low is not None and is_never_negative(above.low)
            return Range(NOTHING, above.high) if starts else Range(None, None)
        case ir.Call("mod", (_, under)):
            if not is_nonnegative(Polynomial.of(under) - ONE):
                return Range(None, None)
            high = _find_sum_range(Polynomial.of(under)).high
            return Range(NOTHING, None if high is None else high - ONE)
        case ir.Call("clip", (_, least, most)):
            return _join(find_range(least), find_range(most))
        case ir.Call("max", arguments):
            lows = [low for a in arguments if (low := find_range(a).low) is not None]
            return Range(_pick(lows, least=False) or next(iter(lows), None), None)
        case ir.Call("min", arguments):
            highs = [high for a in arguments if (high := find_range(a).high) is not None]
            return Range(None, _pick(highs, least=True) or next(iter(highs), None))
        case ir.Call("abs", (inside,)):
            ends = find_range(inside)
            down = None if ends.low is None else negate(ends.low)
            return Range(NOTHING, _pick([ends.high, down], least=False))
        case ir.Where(_, then, other):
            return _join(find_range(then), find_range(other))
        case ir.Reduce("argmax", (index,), _, _):
            return Range(NOTHING, Polynomial.of(index.extent) - ONE)
    return Range(None, None)


def _divide_bound(bound: Bound, under: Polynomial, facts: Facts) -> Bound:
    if bound is None:
        return None
    quotient, rest = divide_sizes(bound, under)
    for step in (NOTHING, ONE, Polynomial.of(-1)):
        left = rest - step * under
        if is_never_negative(left, facts) and is_never_negative(under - ONE - left, facts):
            return quotient + step
    return _of(ir.Call("floordiv", (bound.to_expr(), under.to_expr())))


def _pick(bounds: Sequence[Bound], *, least: bool) -> Bound:
    """The least, or the largest, of all; None where that is not told."""
    known = [bound for bound in bounds if bound is not None]
    if len(known) < len(bounds):
        return None
    gaps = ((each, (other - each if least else each - other for other in known)) for each in known)
    return next((each for each, gap in gaps if all(map(is_never_negative, gap))), None)


def _join(one: Range, other: Range) -> Range:
    low = _pick([one.low, other.low], least=True)
    return Range(low, _pick([one.high, other.high], least=False))


LONGEST = 46_340  # of sizes: the last one whose square is held in 32 bits


def find_magnitude(expr: ir.Expr, known: Mapping[ir.Tensor, float]) -> float:
    """A bound of the size of whole numbers, for sizes up to LONGEST; infinite where there is none.

    Polynomials of positions have one that is soon told; a power with a position in its exponent and
    a product along an index grow without one. What is known of tensors counts for their entries.
    """
    ends = find_range(expr)
    try:
        found = _find_growth(expr, known)
        if ends.low is None or ends.high is None:
            return found
        return min(found, max(_put_sizes(ends.high), _put_sizes(negate(ends.low))))
    except OverflowError:
        return inf


def _put_sizes(bound: Polynomial) -> float:
    total = 0.0
    for monomial, number in bound.terms.items():
        if not all(isinstance(atom, ir.Size) and power > 0 for atom, power in monomial):
            return inf
        degree = sum(power for _, power in monomial)
        total += float(number) * (float(LONGEST) ** degree if number > 0 else 1.0)
    return total


def _find_growth(expr: ir.Expr, known: Mapping[ir.Tensor, float]) -> float:
    """By the parts: what is not known is not bounded."""
    measure = partial(find_magnitude, known=known)
    match expr:
        case ir.Number(value):
            return abs(float(value))
        case ir.Size() | ir.Scalar():
            return float(LONGEST)
        case ir.Index(_, extent):
            return measure(extent) - 1
        case ir.Access(tensor, _):
            if tensor.kind == "bool":
                return 1.0
            below = known.get(tensor, float(LONGEST)) + 1
            return (below if tensor.below is None else measure(tensor.below)) - 1
        case ir.Truth() | ir.Compare() | ir.And() | ir.Or() | ir.Not() | ir.Call("sign"):
            return 1.0
        case ir.Add(terms):
            return sum(map(measure, terms))
        case ir.Mul(factors):
            return prod(map(measure, factors))
        case ir.Pow(base, exponent):
            inner, most = measure(base), measure(exponent)
            if isinstance(exponent, ir.Number) and exponent.value < 0:
                return 1.0  # a divisor
            return float(max(inner, 1.0) ** most)
        case ir.Where(_, then, other):
            return max(measure(then), measure(other))
        case ir.Call("mod", (_, under)):
            return measure(under)
        case ir.Call("floordiv" | "abs" | "floor" | "ceiling", (inside, *_)):
            return measure(inside)
        case ir.Call("max" | "min" | "clip", arguments):
            return max(map(measure, arguments))
        case ir.Reduce(kind, bound, _, body):
            count = prod(measure(index.extent) for index in bound)
            if kind.startswith("arg"):
                return count
            inner = 1.0 if kind in _TRUTHS else measure(body)
            if kind == "prod":
                return float(max(inner, 1.0) ** count)
            return inner * count if kind == "sum" else inner if kind in _KEPT else inf
        case ir.Along("cumsum", index, _, body):
            return measure(body) * measure(index.extent)
        case ir.Along("softmax"):
            return 1.0
    return inf


_TRUTHS = frozenset(["any", "all"])
_KEPT = frozenset(["max", "min", "mean", "any", "all"])
