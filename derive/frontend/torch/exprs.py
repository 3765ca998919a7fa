"""Constructors of expressions that fold constants, and turn masks of 0 and 1 into conditions.

A simplification holds for all values: numbers are added up, `where(c, 1, 0) > 0` is c, a sum with
one term is the term. None turns nan into a number. Index arithmetic in places and conditions is
simplified by ranges (`tidy`).

`write_place` orders the terms of a place as a person does: the index of the result first.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

from derive.analysis import affine, facts
from derive.analysis.names import is_condition
from derive.ir import definitions
from derive.ir import nodes as ir
from derive.ir.polynomial import NOTHING, Monomial, Polynomial, add_all, split_steps
from derive.ir.walk import is_whole, map_children, substitute, walk

_DIGITS = 12  # the most digits of a decimal that a person writes
_LARGEST = 20_000  # the largest numerator and denominator of a recognised quotient
HALF = ir.Number(Fraction(1, 2))
PI = ir.Call("pi", ())


def from_float(value: Any) -> ir.Expr:
    """Return the exact number for a Python number: 1/10 for 0.1, sqrt(1/2) for 0.7071..

    ValueError for nan and for other types.
    """
    if isinstance(value, (bool, int)):
        return ir.Number(Fraction(int(value)))
    if isinstance(value, Fraction):
        return ir.Number(value)
    if isinstance(value, complex):
        return add(from_float(value.real), multiply(from_float(value.imag), ir.Call("I", ())))
    if not isinstance(value, float) or math.isnan(value):
        raise ValueError(f"no number: {value!r}")
    if math.isinf(value):
        return ir.Infinity(value < 0)
    decimal = Fraction(repr(float.__add__(value, 0.0)))
    if len(repr(value).strip("-").split("e")[0].replace(".", "").strip("0")) <= _DIGITS:
        return ir.Number(decimal)
    return _recognise(value) or ir.Number(decimal)


def _recognise(value: float) -> ir.Expr | None:
    """Return p/q, sqrt(p/q), p/q * pi, sqrt(p/q * pi), sqrt(p/q / pi) of small p, q; or None."""
    square = value * value
    # p/q, further factors, whether the root is taken
    ways: list[tuple[float, list[ir.Expr], bool]] = [
        (value, [], False),
        (square, [], True),
        (value / math.pi, [PI], False),
        (square / math.pi, [PI], True),
        (square * math.pi, [ir.Pow(PI, ir.MINUS_ONE)], True),
    ]
    for number, factors, is_root in ways:
        found = _find_quotient(number)
        if found is not None:
            made = ir.product_of([ir.Number(found), *factors])
            made = ir.Pow(made, HALF) if is_root else made
            return ir.Mul((ir.MINUS_ONE, made)) if is_root and value < 0 else made
    return None


def _find_quotient(value: float) -> Fraction | None:
    if not value or not 1e-9 < abs(value) < 1e12:
        return None
    found = Fraction(value).limit_denominator(_LARGEST)
    close = abs(float(found) - value) <= 4e-16 * abs(value)
    return found if found and close and abs(found.numerator) <= _LARGEST else None


def add(*terms: ir.Expr) -> ir.Expr:
    """Return a sum; numbers are added up, and where(c, 1, 0) + 2 is where(c, 3, 2)."""
    flat = [part for term in terms for part in ir.split_sum(term)]
    mask = _map_mask(flat, add)
    if mask is not None:
        return mask
    number = sum((t.value for t in flat if isinstance(t, ir.Number)), Fraction(0))
    others: list[ir.Expr] = [term for term in flat if not isinstance(term, ir.Number)]
    if number or not others:
        others.append(ir.Number(number))
    return ir.sum_of(others)


def multiply(*factors: ir.Expr) -> ir.Expr:
    """Return a product; numbers are multiplied and go first, a factor 1 is dropped."""
    flat = [p for f in factors for p in ir.split_product(f)]
    mask = _map_mask(flat, multiply)
    if mask is not None:
        return mask
    match definitions.multiply(*flat):
        case ir.Mul((ir.Number(number), ir.Infinity(negative))) if number:
            return ir.Infinity(negative == (number > 0))
        case found:
            return found


def flip_sign(value: ir.Expr) -> ir.Expr:
    """Return the negated value."""
    return multiply(ir.MINUS_ONE, value)


def subtract(one: ir.Expr, two: ir.Expr) -> ir.Expr:
    """Return a difference."""
    return add(one, flip_sign(two))


def divide(over: ir.Expr, under: ir.Expr) -> ir.Expr:
    """Return a quotient."""
    return multiply(over, power(under, ir.MINUS_ONE))


def power(base: ir.Expr, exponent: ir.Expr) -> ir.Expr:
    """Return a power; 2**3 is 8, (x**a)**-1 is x**-a, and sqrt(x)**2 is x."""
    if exponent is ir.ONE:
        return base
    match base, exponent:
        case ir.Number(one), ir.Number(two) if two.denominator == 1 and (one or two >= 0):
            return ir.Number(one ** int(two)) if abs(two) < 64 else ir.Pow(base, exponent)
        case ir.Pow(inner, ir.Number(one)), ir.Number(two) if two == -1:
            return power(inner, ir.Number(one * two))
        case ir.Pow(inner, ir.Number(one)), ir.Number(two) if two == 2 and one == Fraction(1, 2):
            return inner
    return ir.Pow(base, exponent)


def _map_mask(parts: Sequence[ir.Expr], act: Callable[..., ir.Expr]) -> ir.Expr | None:
    """Return `act(where(c, 1, 0), 2)` as where(c, act(1, 2), act(0, 2)); None for other parts."""
    match parts:
        case [ir.Where(condition, ir.Number() as then, ir.Number() as other), ir.Number() as two]:
            return ir.Where(condition, act(then, two), act(other, two))
        case [ir.Number() as one, ir.Where(condition, ir.Number() as then, ir.Number() as other)]:
            return ir.Where(condition, act(one, then), act(one, other))
    return None


def choose(condition: ir.Expr, then: ir.Expr, other: ir.Expr) -> ir.Expr:
    """Return `where(condition, then, other)`; for conditions `then` and `other`, a condition."""
    if isinstance(condition, ir.Truth):
        return then if condition.value else other
    if then is other:
        return then
    if is_condition(then) and is_condition(other):
        return ir.any_of(ir.all_of(condition, then), ir.all_of(negate_truth(condition), other))
    if isinstance(condition, ir.Not):
        return choose(condition.part, other, then)
    return ir.Where(condition, then, other)


def choose_element(place: ir.Expr, values: Sequence[ir.Expr]) -> ir.Expr:
    """Return the value at a place of a short list, as nested choices."""
    *before, found = values
    for number, value in reversed(list(enumerate(before))):
        found = choose(compare("==", place, ir.Number(Fraction(number))), value, found)
    return found


def compare(relation: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    """Return a comparison; where(c, 1, 0) > 0 is c."""
    match left, right:
        case ((ir.Number() | ir.Infinity()), (ir.Number() | ir.Infinity())):
            return ir.Truth(ir.DECIDING[relation](_to_value(left), _to_value(right)))
        case ir.Where(condition, then, other), (ir.Number() | ir.Infinity()):
            if all(isinstance(branch, (ir.Number, ir.Infinity)) for branch in (then, other)):
                sides = (compare(relation, then, right), compare(relation, other, right))
                return choose(condition, *sides)
    return ir.Compare(relation, left, right)


def _to_value(number: ir.Number | ir.Infinity) -> Fraction | float:
    if isinstance(number, ir.Number):
        return number.value
    return -math.inf if number.negative else math.inf


def negate_truth(condition: ir.Expr) -> ir.Expr:
    """Return the negation; a relation becomes its opposite, >= of <, if no side can be nan."""
    match condition:
        case ir.Truth(value):
            return ir.Truth(not value)
        case ir.Not(part):
            return part
        case ir.Compare(relation, left, right) if not _may_be_nan(left) and not _may_be_nan(right):
            return ir.Compare(ir.NEGATED[relation], left, right)
    return ir.Not(condition)


def _may_be_nan(expr: ir.Expr) -> bool:
    return any(
        isinstance(p, (ir.Pow, ir.Infinity))
        or (isinstance(p, ir.Access) and p.tensor.kind in {"real", "complex"})
        for p in walk(expr)
    )


def to_number(value: ir.Expr) -> ir.Expr:
    """Return a truth value as 1 or 0, and a number unchanged."""
    return choose(value, ir.ONE, ir.ZERO) if is_condition(value) else value


def to_condition(value: ir.Expr) -> ir.Expr:
    """Return the condition `value != 0` of a number, and a truth value unchanged."""
    return value if is_condition(value) else compare("!=", value, ir.ZERO)


def tidy(expr: ir.Expr) -> ir.Expr:
    """Return the expression with simplified index arithmetic and without decided choices."""
    done: dict[ir.Expr, ir.Expr] = {}

    def visit(here: ir.Expr) -> ir.Expr:
        if here not in done:
            done[here] = _tidy(here, visit)
        return done[here]

    return visit(expr)


def _tidy(here: ir.Expr, visit: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    match here:
        case ir.Index() | ir.Size() | ir.Number():
            return here
        case ir.Compare(relation, left, right) if is_whole(left) and is_whole(right):
            return decide(relation, left, right)
        case ir.Access(tensor, places):
            for number, place in enumerate(places):
                if isinstance(place, ir.Where):  # where(c, x[i], x[j]) for x[where(c, i, j)]
                    ends = places[:number], places[number + 1 :]
                    either = (place.then, place.other)
                    reads = (ir.Access(tensor, (*ends[0], each, *ends[1])) for each in either)
                    return choose(visit(place.condition), *map(visit, reads))
            return ir.Access(
                tensor, tuple(affine.simplify_place(p) if is_whole(p) else visit(p) for p in places)
            )
        case ir.Add() | ir.Mul() | ir.Call() if is_whole(here):
            return affine.simplify_place(here)
    new = map_children(here, visit)
    match new:
        case ir.Where(condition, then, other):
            return choose(condition, then, other)
        case ir.And(parts):
            return ir.all_of(*parts)
        case ir.Or(parts):
            return ir.any_of(*parts)
        case ir.Not(part):
            return negate_truth(part)
        case ir.Compare(relation, left, right):
            return compare(relation, left, right)
    return new


def decide(relation: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    """Return a comparison of integers, or its truth value if their ranges decide it."""
    one, other = affine.to_linear(left), affine.to_linear(right)
    kind, subject, holds = affine.relate(relation, one, other)
    truth = affine.find_truth(kind, subject)
    if truth is not None:
        return ir.Truth(truth is holds)
    gap = other - one
    if not split_steps(gap)[0]:
        return ir.Compare(relation, affine.simplify_place(left), affine.simplify_place(right))
    return _split_sides(relation, gap)


def _split_sides(relation: str, gap: Polynomial) -> ir.Expr:
    """Return `gap relation 0` with each term on the side where it is positive: t > s, i < S - 1."""
    steps, constant = split_steps(gap)
    terms = [
        (Polynomial.atom(a) * each, facts.is_never_negative(each)) for a, each in steps.items()
    ]
    left = add_all(-term for term, is_right in terms if not is_right)
    right = add_all(term for term, is_right in terms if is_right)
    if not left.terms:
        left, right, constant = right, NOTHING, -constant
        relation = ir.MIRRORED[relation]
    step, strict = _STRICT.get(relation, (0, relation))
    if right.terms and constant == Polynomial.of(step):
        relation, constant = strict, NOTHING
    return ir.Compare(relation, affine.to_place(left), affine.to_place(right + constant))


_STRICT = {">=": (1, ">"), "<=": (-1, "<"), "<": (1, "<="), ">": (-1, ">=")}


def within(place: ir.Expr, extent: ir.Expr) -> ir.Expr:
    """Return the condition 0 <= place < extent, without a part that always holds."""
    return ir.all_of(decide("<=", ir.ZERO, place), decide("<", place, extent))


def substitute_at(expr: ir.Expr, indices: Sequence[ir.Index], places: Sequence[ir.Expr]) -> ir.Expr:
    """Return the expression with places for indices, simplified."""
    new: Mapping[ir.Expr, ir.Expr] = {
        old: place for old, place in zip(indices, places, strict=True) if old is not place
    }
    if not new:
        return expr
    return tidy(substitute(expr, new))


def reduce_over(
    kind: str, bound: Sequence[ir.Index], value: ir.Expr, condition: ir.Expr = ir.TRUE
) -> ir.Expr:
    """Return the reduction over the axes longer than 1, or the element itself if there are none."""
    longer = tuple(index for index in bound if index.extent is not ir.ONE)
    match value:
        case ir.Where(inner, then, ir.Infinity(below)) if kind == ("max" if below else "min"):
            if longer:  # the largest of no entries is -oo too
                return ir.Reduce(kind, longer, ir.all_of(condition, inner), then)
    return ir.Reduce(kind, longer, condition, value) if longer else value


def count_nodes(expr: ir.Expr) -> int:
    """Return the number of nodes of an expression; a shared node counts once."""
    return sum(1 for _ in walk(expr))


def write_place(place: ir.Expr, first: Collection[ir.Index]) -> ir.Expr:
    """Return the place in readable form; the indices `first` precede others."""
    inner = map_children(place, lambda part: write_place(part, first))
    if not is_whole(inner) or isinstance(inner, (ir.Index, ir.Number)):
        return inner
    return _sort_terms(facts.fold_remainders(Polynomial.of(inner)), first)


def _sort_terms(whole: Polynomial, first: Collection[ir.Index]) -> ir.Expr:
    """Return the sum with its terms in order: of indices `first`, other indices, sizes, numbers.

    Negative terms follow all positive ones; in a class, terms without a factor are last: `D*h + d`.
    """

    def rank(term: tuple[Monomial, Fraction]) -> tuple[bool, bool, int, bool]:
        monomial, number = term
        parts = [part for atom, _ in monomial for part in walk(atom) if isinstance(part, ir.Index)]
        place = 0 if any(part in first for part in parts) else 1 if parts else 2
        return not monomial, number < 0, place, len(monomial) == abs(number) == 1

    terms = [Polynomial({m: n}).to_expr() for m, n in sorted(whole.terms.items(), key=rank)]
    return ir.Add(tuple(terms)) if len(terms) > 1 else whole.to_expr()
