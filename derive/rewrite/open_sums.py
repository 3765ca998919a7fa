"""Wide sums that have a name of their own, put where they are contracted.

    keys[i,j,d] = k[j,d] + a[i,j,d]     s[i,j] = sum[d](q[i,d] * keys[i,j,d])

A sum with more indices than any of its terms is built only to be contracted: put into the product
it can be distributed, and is never built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import Access, Add, Compare, Equation, Expr, Index, Mul, Reduce, Tensor
from derive.ir.walk import find_accesses, find_free, map_children, substitute
from derive.rewrite.rules.products import is_bracket, is_negative

if TYPE_CHECKING:
    from collections.abc import Sequence


def open_wide_sums(
    equations: tuple[Equation, ...], results: Sequence[Tensor]
) -> tuple[Equation, ...]:
    """The equations with every wide sum put into the one contraction that reads it."""
    found = list(equations)
    for tensor in [each.target.tensor for each in equations]:
        equation = next(each for each in found if each.target.tensor is tensor)
        if tensor in results or not _is_wide_sum(equation):
            continue
        readers = [each for each in found if _count(each.value, tensor)]
        is_read_once = sum(_count(each.value, tensor) for each in readers) == 1
        if not is_read_once and not _find_deltas(equation):
            continue
        opened = {each: _open(each.value, equation) for each in readers}
        if all(new is not None and not _count(new, tensor) for new in opened.values()):
            found = [Equation(e.target, opened.get(e) or e.value) for e in found]
            found = [each for each in found if each.target.tensor is not tensor]
    return tuple(found)


def _find_deltas(equation: Equation) -> list[Expr]:
    """The terms that are 1 where two letters of the left side are equal, and else 0."""
    terms = equation.value.terms if isinstance(equation.value, Add) else ()
    return [t for t in terms if is_bracket(t) and _is_delta(t.condition)]


def _is_delta(condition: Expr) -> bool:
    match condition:
        case Compare("==", Index(_, one), Index(_, other)):
            return one is other
        case _:
            return False


def _is_wide_sum(equation: Equation) -> bool:
    value, places = equation.value, equation.target.places
    if not isinstance(value, Add) or not all(isinstance(place, Index) for place in places):
        return False
    deltas = _find_deltas(equation)
    rest = [term for term in value.terms if term not in deltas]
    narrow = bool(deltas) or all(len(find_free(term)) < len(places) for term in rest)
    return narrow and not any(map(is_negative, rest))


def _count(value: Expr, tensor: Tensor) -> int:
    return sum(1 for access in find_accesses(value) if access.tensor is tensor)


def _open(value: Expr, equation: Equation) -> Expr | None:
    """The value with the sum in place of its name, if it is a factor of a contraction."""
    done = False

    def visit(here: Expr) -> Expr:
        nonlocal done
        if isinstance(here, Reduce) and here.kind == "sum" and isinstance(here.body, Mul):
            factors = tuple(_put(factor, equation) for factor in here.body.factors)
            if factors != here.body.factors:
                done = True
                return Reduce(here.kind, here.bound, here.condition, Mul(factors))
        elif isinstance(here, Reduce) and here.kind == "sum":
            body = _put(here.body, equation)
            if body is not here.body:
                done = True
                return Reduce(here.kind, here.bound, here.condition, body)
        return map_children(here, visit)

    new = visit(value)
    return new if done else None


def _put(factor: Expr, equation: Equation) -> Expr:
    """The sum for a read of it at indices alone."""
    if not isinstance(factor, Access) or factor.tensor is not equation.target.tensor:
        return factor
    if not all(isinstance(place, Index) for place in factor.places):
        return factor
    pairs = zip(equation.target.places, factor.places, strict=True)
    try:
        return substitute(equation.value, dict(pairs))
    except ValueError:  # a letter of the reader is bound inside
        return factor
