"""The sign and the range of a value, for all sizes >= 1.

    is_never_negative(expression or polynomial, facts)    >= 0, or nan
    is_positive(expression or polynomial, facts)          > 0; of an integer polynomial, >= 1
    find_range(expression over indices)                   the least and the largest value

    range = [low, high], each a polynomial over sizes, or None where nothing is known
    facts = polynomials over indices and sizes that the guards in force keep >= 0

A remainder, `l % n` or `l - n*(l // n)`, is one atom with a range of its own. The sign rules for
sums, products, powers, functions and rows are shared by expressions and normal forms.

Laws:
- A result holds for all sizes >= 1, all values of the indices, and wherever the facts hold.
- Sound, not complete: False, None or UNKNOWN means "not shown"; a bound need not be tight.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import chain, combinations
from math import comb, lcm
from typing import NamedTuple, TypeAlias

from derive.ir import nodes as ir
from derive.ir.definitions import unfold
from derive.ir.functions import FUNCTIONS, ROWS, is_complex
from derive.ir.norms import is_square
from derive.ir.polynomial import (
    NOTHING,
    ONE,
    Monomial,
    Polynomial,
    clear_divisors,
    divide_sizes,
    divide_wholly,
    find_divisors,
    split_steps,
)
from derive.ir.walk import find_free

Facts = tuple[Polynomial, ...]  # polynomials known to be >= 0


def is_never_negative(value: ir.Expr | Polynomial, facts: Facts = ()) -> bool:
    """Whether a value is shown to be >= 0, or nan; only polynomials use the facts."""
    if isinstance(value, Polynomial):
        return _is_never_negative(value, facts)
    return find_sign(value) >= Sign.NEVER_NEGATIVE


def is_positive(value: ir.Expr | Polynomial, facts: Facts = ()) -> bool:
    """Whether a value is shown to be > 0; a polynomial must have integer values."""
    if isinstance(value, Polynomial):
        return value == ONE or _is_never_negative(value - ONE, facts)
    return find_sign(value) is Sign.POSITIVE


@lru_cache(maxsize=20000)
def _is_never_negative(value: Polynomial, facts: Facts) -> bool:
    if _holds_for_sizes(value, facts):
        return True
    for count in range(min(len(facts), _MOST_FACTS) + 1):
        for chosen in combinations(facts, count):
            rest = value
            for fact in chosen:  # scaled to cancel the first monomial that both have
                shared = (rest.terms[m] / n for m, n in fact.terms.items() if m and m in rest.terms)
                rest = rest - fact * Polynomial.of(next((n for n in shared if n > 0), Fraction(1)))
            parts = lcm(*(number.denominator for number in rest.terms.values()))
            # an integer multiple of 1/parts that is > -1 and is an integer is >= 0
            slack = Polynomial.of(1 - Fraction(1, parts if is_whole(value) else 1))
            if (low := _find_sum_range(rest).low) is not None and _holds_for_sizes(low + slack):
                return True
    return any(_is_never_negative(each, facts) for each in _clear_quotients(value))


@lru_cache(maxsize=20000)
def _holds_for_sizes(value: Polynomial, facts: Facts = ()) -> bool:
    """Whether a polynomial over sizes is shown to be >= 0 by its coefficients and the facts."""
    terms = value.terms
    if all(number >= 0 for number in terms.values()) and all(map(_is_counting, value.atoms)):
        return True
    if not facts and sum(terms.values()) < 0 and all(isinstance(a, ir.Size) for a in value.atoms):
        return False  # the sum of the coefficients is the value at sizes 1
    cleared = clear_divisors(value)
    if _has_no_minus(cleared) or any(map(_holds_for_sizes, _clear_quotients(cleared))):
        return True
    for count in range(1, min(len(facts), 2) + 1):
        for chosen in combinations(facts, count):
            rest = cleared
            for fact in chosen:
                rest = rest - fact
            if _has_no_minus(clear_divisors(rest)):
                return True
    return False


def _has_no_minus(value: Polynomial) -> bool:
    """Whether all coefficients are >= 0 after the substitution size = 1 + size'."""
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
    """Whether the atom of an extent is shown to be >= 0."""
    match atom:
        case ir.Size():
            return True
        case ir.Call("floordiv", (over, under)):
            return is_never_negative(Polynomial.of(over)) and is_positive(Polynomial.of(under))
        case ir.Call("mod", (_, under)):
            return is_positive(Polynomial.of(under))
        case ir.Call("max" | "min" as which, arguments):
            signs = (is_never_negative(Polynomial.of(argument)) for argument in arguments)
            return any(signs) if which == "max" else all(signs)
        case ir.Pow(base, ir.Number(power)) if power.denominator == 1:
            return is_never_negative(Polynomial.of(base))
    return False


def _clear_quotients(value: Polynomial) -> Iterator[Polynomial]:
    """Polynomials that are >= 0 only where the value is, each without one quotient `a // n`.

    n*r + a >= 0 is r + a // n >= 0 for an integer r; other slopes use a/n or (a + 1 - n)/n.
    """
    for atom in value.atoms:
        match atom:
            case ir.Call("floordiv", (over, under)) if is_positive(Polynomial.of(under)):
                slope, rest = value.split_linear(atom) or (NOTHING, NOTHING)
                times, above = Polynomial.of(under), Polynomial.of(over)
                is_exact = is_whole(rest) and slope in (ONE, -ONE)
                is_rising = _has_no_minus(clear_divisors(slope))
                if slope.terms and (is_rising or _has_no_minus(clear_divisors(-slope))):
                    above += ONE - times if is_rising is not is_exact else NOTHING
                    yield times * rest + slope * above


Bound: TypeAlias = Polynomial | None

_MOST_FACTS = 2  # facts combined in one proof; a chain `0 <= e < T` has two


class Range(NamedTuple):
    """A lower and an upper bound of an expression, None where unknown."""

    low: Bound
    high: Bound


def find_range(value: ir.Expr | Polynomial, facts: Facts = ()) -> Range:
    """The range of an expression over indices, sizes and integer tensors; the facts over sizes."""
    value = value if isinstance(value, Polynomial) else Polynomial.of(value)
    return _find_sum_range(value, facts)


def find_facts(condition: ir.Expr) -> Facts:
    """The polynomials that are >= 0 where the condition holds; () if it gives none."""
    match condition:
        case ir.And(parts) | ir.Not(ir.Or(parts)):
            kept = parts if isinstance(condition, ir.And) else map(ir.negate, parts)
            return tuple(chain.from_iterable(map(find_facts, kept)))
        case ir.Not(ir.Not(part)):
            return find_facts(part)
        case ir.Not(ir.Compare(relation, left, right)):
            return find_facts(ir.Compare(ir.NEGATED[relation], left, right))
        case ir.Compare(relation, left, right):
            facts = _compare(relation, Polynomial.of(left), Polynomial.of(right))
            return tuple(chain.from_iterable(_expand_calls(fact) for fact in facts))
    return ()


def _expand_calls(fact: Polynomial) -> Facts:
    """The fact without abs and %: abs(e) <= b is e <= b and -e <= b; e % n is e - n*(e // n)."""
    for atom in fact.atoms:
        slope, rest = fact.split_linear(atom) or (NOTHING, NOTHING)
        match atom:
            case ir.Call("abs", (inside,)) if (slope.constant or 0) < 0:
                value = slope * Polynomial.of(inside)
                return (*_expand_calls(rest + value), *_expand_calls(rest - value))
            case ir.Call("mod", (inside, under)) if slope.constant:
                value, quotient = Polynomial.of(inside), ir.Call("floordiv", (inside, under))
                opened = [value - Polynomial.of(under) * Polynomial.atom(quotient)]
                opened += [value] if slope.constant > 0 and is_never_negative(value) else []
                return (fact, *chain.from_iterable(_expand_calls(rest + slope * e) for e in opened))
    return (fact,)


def _compare(relation: str, left: Polynomial, right: Polynomial) -> Facts:
    if not (is_integer(left) and is_integer(right)):
        return ()
    if relation in {">", ">="}:
        relation, left, right = ir.MIRRORED[relation], right, left
    match relation:
        case "<=":
            return (right - left,)
        case "<":
            return (_tighten(right - left),)
        case "==":
            return (left - right, right - left)
    return tuple(_tighten(g) for g in (left - right, right - left) if is_never_negative(g))[:1]


def is_integer(value: Polynomial) -> bool:
    """Whether all atoms are integers; the coefficients may be fractions."""
    return all(_is_integer_atom(atom) for atom in value.atoms)


def _is_integer_atom(atom: ir.Expr) -> bool:
    match atom:
        case ir.Size() | ir.Index() | ir.Reduce("argmax") | ir.Call("floor" | "sign"):
            return True
        case ir.Access(tensor, _):
            return tensor.kind == "int"
        case ir.Reduce("max" | "min", _, condition) if condition is not ir.TRUE:
            return False  # infinite where no entry fulfils the condition
        case ir.Reduce("sum" | "prod" | "max" | "min", _, _, body) | ir.Along("cumsum", _, _, body):
            return is_whole(Polynomial.of(body))
        case ir.Call("floordiv" | "mod" | "clip" | "max" | "min" | "abs", arguments):
            return all(is_whole(Polynomial.of(argument)) for argument in arguments)
        case ir.Where(_, then, other):
            return all(is_whole(Polynomial.of(part)) for part in (then, other))
    return False


def is_whole(value: Polynomial) -> bool:
    """Whether the value is an integer for all sizes and indices: atoms and coefficients are."""
    return is_integer(value) and all(each.denominator == 1 for each in value.terms.values())


def read_bounds(condition: ir.Expr, index: ir.Index) -> tuple[tuple[bool, Polynomial], ...]:
    """The pairs (is_lower, bound) of a condition `2 <= i and i < S` on an index; () for others."""
    facts = find_facts(condition) if is_implied_by_facts(condition) else ()
    found = [edge for fact in facts if (edge := fact.find_edge(index)) and is_whole(edge[1])]
    return tuple(found) if len(found) == len(facts) else ()


def is_implied_by_facts(condition: ir.Expr) -> bool:
    """Whether a condition holds exactly where all of its facts do."""
    match condition:
        case ir.And(parts):
            return all(map(is_implied_by_facts, parts))
        case ir.Not(ir.Not(part)):
            return is_implied_by_facts(part)
        case ir.Compare(relation) | ir.Not(ir.Compare(relation)):
            return relation != "!=" and bool(find_facts(condition))
    return False


def _tighten(value: Polynomial) -> Polynomial:
    """The fact `value > 0` as a polynomial >= 0 with integer coefficients."""
    scale = lcm(1, *(coefficient.denominator for coefficient in value.terms.values()))
    return value * Polynomial.of(scale) - ONE


def fold_remainders(value: Polynomial) -> Polynomial:
    """The value with each `l - n*(l // n)` replaced by `l % n`."""
    for atom in value.atoms:
        match atom:
            case ir.Call("floordiv", (over, under)) if _is_ranged(atom):
                split = value.split_linear(atom)
                found = _find_remainder(value, atom, over, under) if split is not None else None
                if split is not None and found is not None:
                    slope, modulus, rest = found
                    return fold_remainders(rest) + slope * Polynomial.atom(modulus)
    return value


def _find_remainder(
    value: Polynomial, quotient: ir.Expr, over: ir.Expr, under: ir.Expr
) -> tuple[Polynomial, ir.Expr, Polynomial] | None:
    """The triple with value = slope*remainder + rest, in which the quotient is gone; or None."""
    whole = Polynomial.of(under)
    for divisor in (whole, *find_divisors(whole)):
        outer = divide_wholly(whole, divisor)
        if outer is None or not is_never_negative(divisor - ONE):
            continue
        inner = _divide(Polynomial.of(over), outer)
        slope = _find_multiple(value, inner)
        if slope is None or not is_never_negative(outer - ONE):
            continue
        rest = value - slope * (inner - divisor * Polynomial.atom(quotient))
        before, after = (split_steps(e)[0].get(quotient, NOTHING).terms for e in (value, rest))
        left = {*filter(_is_ranged, inner.atoms)} & {*rest.atoms}
        if len(after) < len(before) and not left:
            return slope, ir.Call("mod", (inner.to_expr(), divisor.to_expr())), rest
    return None


def _divide(over: Polynomial, under: Polynomial) -> Polynomial:
    """The value over // under, with the multiples of `under` divided exactly."""
    whole, rest = NOTHING, NOTHING
    for monomial, number in over.terms.items():
        term = Polynomial({monomial: number})
        times = divide_wholly(term, under)
        whole, rest = (whole, rest + term) if times is None else (whole + times, rest)
    if rest.terms:
        whole += Polynomial.atom(ir.Call("floordiv", (rest.to_expr(), under.to_expr())))
    return whole


def _find_multiple(value: Polynomial, inner: Polynomial) -> Polynomial | None:
    """The f for which f * inner cancels a ranged atom of `inner` in the value; None without."""
    for atom in filter(_is_ranged, inner.atoms):
        own, other = (split_steps(each)[0].get(atom, NOTHING) for each in (value, inner))
        if other.constant:
            own, other = own * Polynomial.of(1 / other.constant), ONE
        return divide_wholly(own, other) if own.terms and other.terms else None
    return None


@lru_cache(maxsize=20000)
def _find_sum_range(value: Polynomial, facts: Facts = ()) -> Range:
    """The range of a polynomial, with each ranged atom in turn replaced by one of its bounds."""
    value = fold_remainders(value)
    return Range(_find_bound(value, facts, low=True), _find_bound(value, facts, low=False))


def _find_bound(value: Polynomial, facts: Facts, *, low: bool) -> Bound:
    while (atom := next(filter(_is_ranged, value.atoms), None)) is not None:
        bounds = _find_atom_range(atom)
        if bounds == Range(None, None):
            return None
        split = value.split_linear(atom)
        rising = _is_rising(split[0], facts) if split is not None else None
        if split is None or rising is None:
            return _bound_monomials(value, low=low)
        chosen = bounds.low if rising is low else bounds.high
        if chosen is None:
            return None
        value = split[1] + split[0] * chosen
    return value


def _is_rising(slope: Polynomial, facts: Facts) -> bool | None:
    """True where the slope is >= 0, False where it is <= 0, None where it is unknown."""
    for sign in (slope, -slope):
        if _holds_for_sizes(sign, facts) or _is_never_negative(sign, ()):
            return sign is slope
    return None


def _bound_monomials(value: Polynomial, *, low: bool) -> Bound:
    """A lower (`low`) or upper bound by monomials; None if an atom may be < 0 or has no bound."""
    total = NOTHING
    for monomial, coefficient in value.terms.items():
        term = Polynomial.of(coefficient)
        for atom, power in monomial:
            own = Polynomial.atom(atom)
            bounds = _find_atom_range(atom) if _is_ranged(atom) else Range(own, own)
            chosen = bounds.low if (coefficient > 0) is low else bounds.high
            if chosen is None or bounds.low is None or not is_never_negative(bounds.low):
                return None
            term = reduce(Polynomial.__mul__, [chosen] * power, term)
        total = total + term
    return total


def _is_ranged(atom: ir.Expr) -> bool:
    """Whether an atom depends on indices or tensors, or is a function with a known range."""
    match atom:
        case ir.Size():
            return False
        case ir.Call("floordiv", (over, under)):
            holds = any(isinstance(part, ir.Access) for part in Polynomial.of(over).atoms)
            return bool(find_free(over) or find_free(under)) or holds
    return True


def _find_atom_range(atom: ir.Expr) -> Range:
    match atom:
        case ir.Index(_, ir.Call("max", (extent, ir.ZERO)) | extent):  # a value needs extent > 0
            return Range(NOTHING, Polynomial.of(extent) - ONE)
        case ir.Access(tensor, _) if tensor.kind == "int":
            high = Polynomial.of(tensor.below) - ONE if tensor.below is not None else None
            starts = high is not None or tensor.lower is not None
            return Range(NOTHING if starts else None, high)
        case ir.Call("floordiv", (over, under)):
            divisor = Polynomial.of(under)
            # An index with a value has an extent >= 1, so that the extent's divisors are >= 1 too.
            extents = (Polynomial.of(i.extent) for i in find_free(over))
            is_there = any(divide_wholly(each, divisor) is not None for each in extents)
            known = (divisor - ONE,) if is_there and is_never_negative(divisor) else ()
            if not is_never_negative(divisor - ONE, known):
                return Range(None, None)
            above = find_range(over)  # a quotient is monotonic in its dividend
            if not any(map(_is_ranged, divisor.atoms)):
                return Range(*(_divide_bound(end, divisor, known) for end in above))
            starts = above.low is not None and is_never_negative(above.low)
            return Range(NOTHING, above.high) if starts else Range(None, None)
        case ir.Mul():
            return find_range(atom)
        case ir.Call("mod", (_, under)):
            if not is_never_negative(Polynomial.of(under) - ONE):
                return Range(None, None)
            high = _find_sum_range(Polynomial.of(under)).high
            return Range(NOTHING, None if high is None else high - ONE)
        case ir.Call("clip", (_, least, most)):
            return _unite_ranges(find_range(least), find_range(most))
        case ir.Call("floor", (inside,)) if is_whole((ends := find_range(inside)).low or NOTHING):
            return ends  # floor is monotonic and keeps integers
        case ir.Call("max", arguments):
            lows = [low for a in arguments if (low := find_range(a).low) is not None]
            high = _find_extreme([find_range(a).high for a in arguments], least=False)
            return Range(_find_extreme(lows, least=False) or next(iter(lows), None), high)
        case ir.Call("min", arguments):
            highs = [high for a in arguments if (high := find_range(a).high) is not None]
            low = _find_extreme([find_range(a).low for a in arguments], least=True)
            return Range(low, _find_extreme(highs, least=True) or next(iter(highs), None))
        case ir.Call("abs", (inside,)):
            ends = find_range(inside)
            down = None if ends.low is None else -ends.low
            return Range(NOTHING, _find_extreme([ends.high, down], least=False))
        case ir.Where(_, then, other):
            return _unite_ranges(find_range(then), find_range(other))
        case ir.Reduce("argmax", (index,), _, _):
            return Range(NOTHING, Polynomial.of(index.extent) - ONE)
        case ir.Call("sign"):
            return Range(-ONE, ONE)
        case ir.Reduce("max" | "min", _, _, body):
            return find_range(body)
        case ir.Reduce("sum") | ir.Along("cumsum") if is_never_negative(Polynomial.of(atom.body)):
            every = ir.product_of([atom.body, *(i.extent for i in atom.indices)])
            return Range(NOTHING, find_range(every).high)
    return Range(None, None)


def _divide_bound(bound: Bound, under: Polynomial, facts: Facts) -> Bound:
    if bound is None:
        return None
    quotient, rest = divide_sizes(bound, under)
    for step in (NOTHING, ONE, Polynomial.of(-1)):
        left = rest - step * under
        if is_never_negative(left, facts) and is_never_negative(under - ONE - left, facts):
            return quotient + step
    return Polynomial.atom(ir.Call("floordiv", (bound.to_expr(), under.to_expr())))


def _find_extreme(bounds: Sequence[Bound], *, least: bool) -> Bound:
    """The least or the largest of bounds; None if one is unknown or they cannot be compared."""
    known = [bound for bound in bounds if bound is not None]
    if len(known) < len(bounds):
        return None
    gaps = ((each, (other - each if least else each - other for other in known)) for each in known)
    return next((each for each, gap in gaps if all(map(is_never_negative, gap))), None)


def _unite_ranges(one: Range, other: Range) -> Range:
    low = _find_extreme([one.low, other.low], least=True)
    return Range(low, _find_extreme([one.high, other.high], least=False))


class Sign(IntEnum):
    """The known sign of a value, where it is not nan; a larger member is a stronger statement."""

    UNKNOWN = 0
    NEVER_NEGATIVE = 1
    POSITIVE = 2


def add_signs(signs: Iterable[Sign]) -> Sign:
    """The sign of a sum of terms with these signs."""
    known = (Sign.NEVER_NEGATIVE, *signs)
    return max(known) if min(known) else Sign.UNKNOWN


def raise_sign(base: Sign, exponent: Fraction) -> Sign:
    """The sign of a power of a base with this sign."""
    is_odd = exponent.denominator == 1 and exponent.numerator % 2 == 1
    return base if is_odd else max(base, Sign.NEVER_NEGATIVE)


def apply_sign(name: str, arguments: Iterable[Sign]) -> Sign:
    """The sign of a function at arguments with these signs."""
    low = FUNCTIONS[name].range[0]
    if low is not None and low >= 0:
        return Sign.POSITIVE if low else Sign.NEVER_NEGATIVE
    return {"max": max, "min": min}[name](arguments) if name in {"max", "min"} else Sign.UNKNOWN


def reduce_sign(kind: str, body: Sign, *, is_filled: bool) -> Sign:
    """The sign of a reduction of entries with this sign; `is_filled`: it always has an entry."""
    row = ROWS.get(kind)
    if row is None or row.range[0] == 0:
        return Sign.NEVER_NEGATIVE if row is not None else Sign.UNKNOWN
    if not row.keeps_sign:
        return Sign.UNKNOWN
    of_nothing = {"0": Sign.NEVER_NEGATIVE, "-oo": Sign.UNKNOWN}.get(row.nothing, Sign.POSITIVE)
    return body if is_filled else min(body, of_nothing)


@lru_cache(maxsize=20000)
def find_sign(expr: ir.Expr) -> Sign:
    """The sign for all sizes, indices and inputs in their domain; UNKNOWN of complex values."""
    if is_complex(expr):
        return Sign.UNKNOWN
    found = _find_sign(expr)
    if found is Sign.POSITIVE or (isinstance(expr, ir.Access) and expr.tensor.kind != "int"):
        return found
    value = Polynomial.of(expr)
    if _is_never_negative(value - ONE, ()):
        return Sign.POSITIVE
    return max(found, Sign(_is_never_negative(value, ())))


def _find_sign(expr: ir.Expr) -> Sign:
    match expr:
        case ir.Size():
            return Sign.POSITIVE
        case ir.Number(value):
            return Sign.POSITIVE if value > 0 else Sign(value == 0)
        case ir.Access(it) | (ir.Scalar() as it) if isinstance(low := it.lower, ir.Number):
            return Sign(1 + (low.value > 0 or it.strict[0]) if low.value >= 0 else 0)
        case ir.Access(tensor):
            return Sign(tensor.kind == "bool")
        case ir.Mul(parts):
            return min(map(find_sign, parts))
        case ir.Add(parts):
            return max(add_signs(map(find_sign, parts)), Sign(is_square(parts)))
        case ir.Pow(base, ir.Number(value)):
            return raise_sign(find_sign(base), value)
        case ir.Pow(base):
            return find_sign(base)
        case ir.Where(condition, then, other):
            is_kept = condition is ir.Compare(">", then, ir.ZERO)
            return find_sign(other) if is_kept else min(find_sign(then), find_sign(other))
        case ir.Reduce(kind, bound, condition, body):
            is_there = all(is_positive(Polynomial.of(index.extent)) for index in bound)
            return reduce_sign(kind, find_sign(body), is_filled=condition is ir.TRUE and is_there)
        case ir.Along(kind, _, condition, body):
            return reduce_sign(kind, find_sign(body), is_filled=condition is ir.TRUE)
        case ir.Call(name, arguments):
            known, opened = apply_sign(name, map(find_sign, arguments)), unfold(expr)
            return known if opened is None else max(known, find_sign(opened))
    return Sign.UNKNOWN
