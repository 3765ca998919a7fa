"""Expressions as code writes them: constants folded, masks of 0 and 1 seen as conditions.

Only what holds for all values is done: numbers are added up, `(c ? 1 : 0) > 0` is c, a sum with one
term is the term. Whatever could turn nan into a number stays as it is. Index arithmetic in places
and conditions is simplified by ranges (`tidy`).

So it has one form for each value, `(l + k)//2 - k`, and a condition on it turns into one between
indices. `write_place` and `write_guards` give it back as a person writes it, `(l - k)//2` and
`0 <= h + k - 1 < H`: the index of the result first, a quotient with all of its index under it, a
guard with the place that it guards.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeGuard

from derive.analysis.affine import Affine, find_range, simplify_place, to_affine
from derive.analysis.facts import fold_remainders, is_never_negative, negate
from derive.ir.nodes import (
    FALSE,
    MINUS_ONE,
    NEGATED,
    ONE,
    TRUE,
    ZERO,
    Access,
    Add,
    And,
    Call,
    Compare,
    Expr,
    Index,
    Infinity,
    Mul,
    Not,
    Number,
    Or,
    Pow,
    Size,
    Truth,
    Where,
    all_of,
    any_of,
)
from derive.ir.polynomial import Polynomial
from derive.ir.walk import map_children, substitute, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from derive.ir.nodes import Index as IndexNode
    from derive.ir.polynomial import Monomial


_DIGITS = 12  # a decimal that a person writes has no more
_LARGEST = 20_000  # the numerator and denominator of a quotient that is recognised
HALF = Number(Fraction(1, 2))
PI = Call("pi", ())


def from_float(value: Any) -> Expr:
    """The exact number that a Python number stands for: 0.1 is 1/10, 0.7071.. is sqrt(1/2).

    ValueError for nan and for what is no real number.
    """
    if isinstance(value, (bool, int)):
        return Number(Fraction(int(value)))
    if isinstance(value, Fraction):
        return Number(value)
    if not isinstance(value, float) or math.isnan(value):
        raise ValueError(f"no number: {value!r}")
    if math.isinf(value):
        return Infinity(value < 0)
    decimal = Fraction(repr(float.__add__(value, 0.0)))
    if len(repr(value).strip("-").split("e")[0].replace(".", "").strip("0")) <= _DIGITS:
        return Number(decimal)
    return _recognise(value) or Number(decimal)


def _recognise(value: float) -> Expr | None:
    """p/q, sqrt(p/q), p/q * pi, sqrt(p/q * pi), sqrt(p/q / pi), within rounding."""
    plain = _find_quotient(value)
    if plain is not None:
        return Number(plain)
    square = _find_quotient(value * value)
    if square is not None:
        root: Expr = Pow(Number(square), HALF)
        return root if value > 0 else Mul((MINUS_ONE, root))
    times = _find_quotient(value / math.pi)
    if times is not None:
        return Mul((Number(times), PI))
    for power_, inside in ((1, value * value / math.pi), (-1, value * value * math.pi)):
        found = _find_quotient(inside)
        if found is not None:
            factor = PI if power_ == 1 else Pow(PI, MINUS_ONE)
            root = Pow(Mul((Number(found), factor)), HALF)
            return root if value > 0 else Mul((MINUS_ONE, root))
    return None


def _find_quotient(value: float) -> Fraction | None:
    if not value or not 1e-9 < abs(value) < 1e12:
        return None
    found = Fraction(value).limit_denominator(_LARGEST)
    close = abs(float(found) - value) <= 4e-16 * abs(value)
    return found if found and close and abs(found.numerator) <= _LARGEST else None


def add(*terms: Expr) -> Expr:
    """A sum; numbers are added up, masks of two numbers keep being such."""
    flat = [part for term in terms for part in (term.terms if isinstance(term, Add) else (term,))]
    if len(flat) == 2:
        mask = _map_mask(flat[0], flat[1], add)
        if mask is not None:
            return mask
    number = sum((t.value for t in flat if isinstance(t, Number)), Fraction(0))
    others: list[Expr] = [term for term in flat if not isinstance(term, Number)]
    if number or not others:
        others.append(Number(number))
    return others[0] if len(others) == 1 else Add(tuple(others))


def multiply(*factors: Expr) -> Expr:
    """A product; numbers are multiplied and go first, a factor 1 is let go."""
    flat = [p for f in factors for p in (f.factors if isinstance(f, Mul) else (f,))]
    if len(flat) == 2:
        mask = _map_mask(flat[0], flat[1], multiply)
        if mask is not None:
            return mask
    number = math.prod((f.value for f in flat if isinstance(f, Number)), start=Fraction(1))
    others: list[Expr] = [factor for factor in flat if not isinstance(factor, Number)]
    if len(others) == 1 and isinstance(others[0], Infinity) and number:
        return others[0] if number > 0 else Infinity(not others[0].negative)
    if number != 1 or not others:
        others.insert(0, Number(number))
    return others[0] if len(others) == 1 else Mul(tuple(others))


def flip_sign(value: Expr) -> Expr:
    """The value with the other sign."""
    return multiply(MINUS_ONE, value)


def subtract(one: Expr, two: Expr) -> Expr:
    """A difference."""
    return add(one, flip_sign(two))


def divide(over: Expr, under: Expr) -> Expr:
    """A quotient."""
    return multiply(over, power(under, MINUS_ONE))


def power(base: Expr, exponent: Expr) -> Expr:
    """A power; of numbers a number where it is rational, and powers of roots are one power."""
    if exponent is ONE:
        return base
    match base, exponent:
        case Number(one), Number(two) if two.denominator == 1 and (one or two >= 0):
            return Number(one ** int(two)) if abs(two) < 64 else Pow(base, exponent)
        case Pow(inner, Number(one)), Number(two) if two == -1:
            return power(inner, Number(one * two))
        case Pow(inner, Number(one)), Number(two) if two == 2 and one == Fraction(1, 2):
            return inner
    return Pow(base, exponent)


def _map_mask(one: Expr, two: Expr, act: Callable[..., Expr]) -> Expr | None:
    """`act` of a choice between constants and a constant, taken inside."""
    if _is_choice(one) and isinstance(two, Number):
        assert isinstance(one, Where)
        return Where(one.condition, act(one.then, two), act(one.other, two))
    if _is_choice(two) and isinstance(one, Number):
        assert isinstance(two, Where)
        return Where(two.condition, act(one, two.then), act(one, two.other))
    return None


def _is_choice(expr: Expr) -> bool:
    if not isinstance(expr, Where):
        return False
    return isinstance(expr.then, Number) and isinstance(expr.other, Number)


def choose(condition: Expr, then: Expr, other: Expr) -> Expr:
    """`then` where the condition holds, else `other`."""
    if isinstance(condition, Truth):
        return then if condition.value else other
    if then is other:
        return then
    if isinstance(condition, Not):
        return choose(condition.part, other, then)
    match other:
        case Where(inner, _, rest) if inner is condition:
            return Where(condition, then, rest)
    match then:
        case Where(inner, first, _) if inner is condition:
            return Where(condition, first, other)
    return Where(condition, then, other)


def compare(relation: str, left: Expr, right: Expr) -> Expr:
    """A comparison; one of a choice between numbers with a number is a condition of theirs."""
    match left, right:
        case Number(one), Number(two):
            return Truth(_is_so(relation, one, two))
        case Infinity(negative), Number():
            return Truth(_is_so(relation, -math.inf if negative else math.inf, 0))
        case Number(), Infinity(negative):
            return Truth(_is_so(relation, 0, -math.inf if negative else math.inf))
        case Infinity(one), Infinity(two):
            return Truth(_is_so(relation, -one or 1, -two or 1))
        case Where(condition, then, other), (Number() | Infinity()):
            if all(isinstance(branch, (Number, Infinity)) for branch in (then, other)):
                sides = (compare(relation, then, right), compare(relation, other, right))
                return choose_truth(condition, *sides)
    return Compare(relation, left, right)


def _is_so(relation: str, one: Any, two: Any) -> bool:
    truths = {"<": one < two, "<=": one <= two, "==": one == two}
    return truths[relation] if relation in truths else not truths[NEGATED[relation]]


def choose_truth(condition: Expr, then: Expr, other: Expr) -> Expr:
    """A choice between conditions as a condition."""
    return any_of(all_of(condition, then), all_of(negate_truth(condition), other))


def negate_truth(condition: Expr) -> Expr:
    """The negation; a relation between what is never nan turns round."""
    match condition:
        case Truth(value):
            return Truth(not value)
        case Not(part):
            return part
        case Compare(relation, left, right) if not _may_be_nan(left) and not _may_be_nan(right):
            return Compare(NEGATED[relation], left, right)
    return Not(condition)


def _may_be_nan(expr: Expr) -> bool:
    return any(
        isinstance(p, (Pow, Infinity)) or (isinstance(p, Access) and p.tensor.kind == "real")
        for p in walk(expr)
    )


def to_number(value: Expr, kind: str) -> Expr:
    """A truth value as 1 or 0; a number as it is."""
    if kind != "bool":
        return value
    return choose(value, ONE, ZERO)


def to_condition(value: Expr, kind: str) -> Expr:
    """A number as the condition that it is not 0; a truth value as it is."""
    return value if kind == "bool" else compare("!=", value, ZERO)


_WHOLE_CALLS = {"floordiv", "mod", "clip", "max", "min", "abs"}


def is_whole(expr: Expr) -> bool:
    """Is it made of indices, sizes, integers and integer tensors alone, without fractions?"""
    match expr:
        case Index() | Size():
            return True
        case Number(value):
            return value.denominator == 1
        case Access(tensor, _):
            return tensor.kind == "int"
        case Add(parts) | Mul(parts):
            return all(is_whole(part) for part in parts)
        case Pow(base, Number(power)):
            return power >= 0 and power.denominator == 1 and is_whole(base)
        case Call(function, arguments):
            return function in _WHOLE_CALLS and all(is_whole(part) for part in arguments)
    return False


def tidy(expr: Expr) -> Expr:
    """The expression with its index arithmetic simplified, and what that decides decided."""
    done: dict[Expr, Expr] = {}

    def visit(here: Expr) -> Expr:
        if here not in done:
            done[here] = _tidy(here, visit)
        return done[here]

    return visit(expr)


def _tidy(here: Expr, visit: Callable[[Expr], Expr]) -> Expr:
    match here:
        case Index() | Size() | Number():
            return here
        case Compare(relation, left, right) if is_whole(left) and is_whole(right):
            return decide(relation, left, right)
        case Access(tensor, places):
            return Access(
                tensor, tuple(simplify_place(p) if is_whole(p) else visit(p) for p in places)
            )
        case Add() | Mul() | Call() if is_whole(here):
            return simplify_place(here)
    new = map_children(here, visit)
    match new:
        case Where(condition, then, other):
            return choose(condition, then, other)
        case And(parts):
            return all_of(*parts)
        case Or(parts):
            return any_of(*parts)
        case Not(part):
            return negate_truth(part)
        case Compare(relation, left, right):
            return compare(relation, left, right)
    return new


def decide(relation: str, left: Expr, right: Expr) -> Expr:
    """A comparison of whole numbers, true or false where their ranges decide it."""
    gap = to_affine(right) - to_affine(left)
    low, high = find_range(gap)
    one = Polynomial.of(1)
    above = low is not None and is_never_negative(low)
    below = high is not None and is_never_negative(negate(high))
    far_above = low is not None and is_never_negative(low - one)
    far_below = high is not None and is_never_negative(negate(high) - one)
    known = {
        "<=": (above, far_below),
        "<": (far_above, below),
        ">=": (below, far_above),
        ">": (far_below, above),
        "==": (above and below, far_above or far_below),
        "!=": (far_above or far_below, above and below),
    }
    yes, no = known[relation]
    if yes or no:
        return TRUE if yes else FALSE
    if not gap.terms:
        return Compare(relation, simplify_place(left), simplify_place(right))
    return _turn(relation, gap)


def _turn(relation: str, gap: Affine) -> Expr:
    """`left relation right` for right - left: t > s, i < S - 1, and not -s + t >= 1."""
    signs = {a: is_never_negative(each) for a, each in gap.terms.items()}
    left = Affine({a: negate(each) for a, each in gap.terms.items() if not signs[a]})
    right = Affine({a: each for a, each in gap.terms.items() if signs[a]}, gap.constant)
    if not left.terms:
        left = Affine(right.terms)
        right = Affine({}, negate(right.constant))
        relation = _TURNED.get(relation, relation)
    step, strict = _STRICT.get(relation, (0, relation))
    if right.terms and right.constant == Polynomial.of(step):
        relation, right = strict, Affine(right.terms)
    return Compare(relation, left.to_expr(), right.to_expr())


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_STRICT = {">=": (1, ">"), "<=": (-1, "<"), "<": (1, "<="), ">": (-1, ">=")}


def within(place: Expr, extent: Expr) -> Expr:
    """The condition 0 <= place < extent, as far as it is open."""
    return all_of(decide("<=", ZERO, place), decide("<", place, extent))


def put(expr: Expr, indices: Sequence[IndexNode], places: Sequence[Expr]) -> Expr:
    """The expression at these places of its indices."""
    new: Mapping[Expr, Expr] = {
        old: place for old, place in zip(indices, places, strict=True) if old is not place
    }
    if not new:
        return expr
    return tidy(substitute(expr, new))


def count_nodes(expr: Expr) -> int:
    """How many nodes an expression has."""
    return sum(1 for _ in walk(expr))


def write_place(place: Expr, first: Collection[Index]) -> Expr:
    """The same place; `first` are the indices that go before others."""
    inner = map_children(place, lambda part: write_place(part, first))
    if not is_whole(inner) or isinstance(inner, (Index, Number)):
        return inner
    whole = Polynomial.of(inner)
    if any(isinstance(part, Call) for part in walk(inner)):
        whole = _fill_quotients(fold_remainders(whole), first)
    return _order(whole, first)


def _fill_quotients(whole: Polynomial, first: Collection[Index]) -> Polynomial:
    """`(l + k)//2 - k` as `(l - k)//2`: what stands under a quotient does so with all of it."""
    for monomial, share in whole.terms.items():
        match monomial:
            case ((Call("floordiv", (over, Number(divisor))), 1),) if share == 1:
                inside, rest = Polynomial.of(over), whole - Polynomial({monomial: share})
                for key, number in rest.terms.items():
                    old = inside.terms.get(key, Fraction(0))
                    if old and abs(old + number * divisor) <= abs(old):
                        inside += Polynomial({key: number * divisor})
                        rest -= Polynomial({key: number})
                quotient = Call("floordiv", (_order(inside, first), Number(divisor)))
                return rest + Polynomial.of(quotient)
    return whole


def _order(whole: Polynomial, first: Collection[Index]) -> Expr:
    """Terms with these indices, with others, of sizes, numbers; what is taken off behind.

    Of two alike the one with a factor is first: `D*h + d`.
    """

    def rank(term: tuple[Monomial, Fraction]) -> tuple[bool, bool, int, bool]:
        monomial, number = term
        parts = [part for atom, _ in monomial for part in walk(atom) if isinstance(part, Index)]
        place = 0 if any(part in first for part in parts) else 1 if parts else 2
        return not monomial, number < 0, place, len(monomial) == abs(number) == 1

    terms = [Polynomial({m: n}).to_expr() for m, n in sorted(whole.terms.items(), key=rank)]
    return Add(tuple(terms)) if len(terms) > 1 else whole.to_expr()


def write_guards(value: Expr, first: Collection[Index]) -> Expr:
    """The value with conditions on places written as the places are."""
    known: dict[Expr, tuple[int, Expr]] = {}
    reads = (part for part in walk(value) if isinstance(part, Access))
    pairs = (pair for each in reads for pair in zip(each.places, each.tensor.shape, strict=True))
    for number, (place, extent) in enumerate(pairs):
        if isinstance(place, (Index, Number)) or not is_whole(place):
            continue
        written = write_place(place, first)
        for part in walk(written):
            match part:
                case Call("floordiv", (over, under)):
                    rest = Call("mod", (over, under))
                    known[decide("==", rest, ZERO)] = number, Compare("==", rest, ZERO)
        known[decide("<=", ZERO, place)] = number, Compare("<=", ZERO, written)
        known[decide("<", place, extent)] = number, Compare("<", written, extent)
    return _exchange(value, {old: new for old, new in known.items() if isinstance(old, Compare)})


def _exchange(value: Expr, known: Mapping[Expr, tuple[int, Expr]]) -> Expr:
    """The value with known conditions, those of one place together: `0 <= h - k < H`."""
    match value:
        case Compare() if value in known:
            return known[value][1]
        case And(parts):
            groups: dict[int, list[Expr]] = {}
            for part in sorted(parts, key=lambda each: known[each][0] if each in known else -1):
                number, new = known.get(part, (-1, part))
                groups.setdefault(number, []).append(_exchange(new, known))
            found = []
            for group in groups.values():
                equal = [e for e in group if not _is_bound(e)]
                found += equal
                bounds = sorted(
                    (e for e in group if _is_bound(e)), key=lambda e: e.left is not ZERO
                )
                found += bounds
            return all_of(*found)
    return map_children(value, lambda part: _exchange(part, known)) if known else value


def _is_bound(condition: Expr) -> TypeGuard[Compare]:
    return isinstance(condition, Compare) and condition.relation in {"<", "<="}
