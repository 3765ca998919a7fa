"""Expressions as code writes them: constants folded, masks of 0 and 1 seen as conditions.

Only what holds for all values is done: numbers are added up, `(c ? 1 : 0) > 0` is c, a sum with one
term is the term. Whatever could turn nan into a number stays as it is.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from derive.ir.nodes import (
    FALSE,
    MINUS_ONE,
    ONE,
    TRUE,
    ZERO,
    Access,
    Add,
    And,
    Call,
    Compare,
    Expr,
    Infinity,
    Mul,
    Not,
    Number,
    Or,
    Pow,
    Truth,
    Where,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_DIGITS = 12  # a decimal that a person writes has no more
_LARGEST = 20_000  # the numerator and denominator of a quotient that is recognised
HALF = Number(Fraction(1, 2))
PI = Call("pi", ())
CONTRARY = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


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


def negate(value: Expr) -> Expr:
    """The value with the other sign."""
    return multiply(MINUS_ONE, value)


def subtract(one: Expr, two: Expr) -> Expr:
    """A difference."""
    return add(one, negate(two))


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
    if _is_choice(one) and _is_constant(two):
        assert isinstance(one, Where)
        return Where(one.condition, act(one.then, two), act(one.other, two))
    if _is_choice(two) and _is_constant(one):
        assert isinstance(two, Where)
        return Where(two.condition, act(one, two.then), act(one, two.other))
    return None


def _is_constant(expr: Expr) -> bool:
    return isinstance(expr, Number)


def _is_choice(expr: Expr) -> bool:
    return isinstance(expr, Where) and all(
        isinstance(branch, Number) for branch in (expr.then, expr.other)
    )


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
    return truths[relation] if relation in truths else not truths[CONTRARY[relation]]


def choose_truth(condition: Expr, then: Expr, other: Expr) -> Expr:
    """A choice between conditions as a condition."""
    return any_of(all_of(condition, then), all_of(negate_truth(condition), other))


def negate_truth(condition: Expr) -> Expr:
    """The contrary; a relation between what is never nan turns round."""
    match condition:
        case Truth(value):
            return Truth(not value)
        case Not(part):
            return part
        case Compare(relation, left, right) if not _may_be_nan(left) and not _may_be_nan(right):
            return Compare(CONTRARY[relation], left, right)
    return Not(condition)


def _may_be_nan(expr: Expr) -> bool:
    from derive.ir.walk import walk

    return any(
        isinstance(p, (Pow, Infinity)) or (isinstance(p, Access) and p.tensor.kind == "real")
        for p in walk(expr)
    )


def all_of(*parts: Expr) -> Expr:
    """The conjunction."""
    flat = [p for part in parts for p in (part.parts if isinstance(part, And) else (part,))]
    kept = tuple(dict.fromkeys(part for part in flat if part is not TRUE))
    if FALSE in kept:
        return FALSE
    return And(kept) if len(kept) > 1 else kept[0] if kept else TRUE


def any_of(*parts: Expr) -> Expr:
    """The disjunction."""
    flat = [p for part in parts for p in (part.parts if isinstance(part, Or) else (part,))]
    kept = tuple(dict.fromkeys(part for part in flat if part is not FALSE))
    if TRUE in kept:
        return TRUE
    return Or(kept) if len(kept) > 1 else kept[0] if kept else FALSE


def to_number(value: Expr, kind: str) -> Expr:
    """A truth value as 1 or 0; a number as it is."""
    if kind != "bool":
        return value
    return choose(value, ONE, ZERO)


def to_condition(value: Expr, kind: str) -> Expr:
    """A number as the condition that it is not 0; a truth value as it is."""
    return value if kind == "bool" else compare("!=", value, ZERO)
