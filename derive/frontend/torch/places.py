"""Index arithmetic in expressions that code makes: places and conditions, simplified by ranges.

tidy(expr)         every place, whole-number quotient and comparison of indices simplified
is_whole(expr)     is it made of indices, sizes and integers alone?
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.analysis.affine import find_range, simplify_place, to_affine
from derive.analysis.affine_form import Affine
from derive.analysis.affine_sizes import is_never_negative, negate
from derive.frontend.torch.exprs import all_of, any_of, choose, compare, negate_truth
from derive.ir.nodes import (
    FALSE,
    TRUE,
    ZERO,
    Access,
    Add,
    And,
    Call,
    Compare,
    Expr,
    Index,
    Mul,
    Not,
    Number,
    Or,
    Pow,
    Size,
    Where,
)
from derive.ir.polynomial import Polynomial
from derive.ir.walk import map_children, substitute, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.ir.nodes import Index as Letter

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
            return Access(tensor, tuple(_tidy_place(place, visit) for place in places))
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


def _tidy_place(place: Expr, visit: Callable[[Expr], Expr]) -> Expr:
    return simplify_place(place) if is_whole(place) else visit(place)


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


def put(expr: Expr, letters: Sequence[Letter], places: Sequence[Expr]) -> Expr:
    """The expression at these places of its letters."""
    new: Mapping[Expr, Expr] = {
        old: place for old, place in zip(letters, places, strict=True) if old is not place
    }
    if not new:
        return expr
    return tidy(substitute(expr, new))


def count_nodes(expr: Expr) -> int:
    """How many nodes an expression has."""
    return sum(1 for _ in walk(expr))
