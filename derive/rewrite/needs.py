"""Needs: the condition under which the value of an expression is used, over its own indices.

needed(f_i) = some j: c_ij   where f_i is used under c_ij
"""

from functools import lru_cache

from derive.analysis import facts
from derive.analysis.extents import is_always, is_filled, is_never_empty
from derive.ir import nodes as ir
from derive.ir import polynomial
from derive.ir.walk import find_accesses, find_free, substitute, walk


def find_need(condition: ir.Expr, expr: ir.Expr) -> ir.Expr:
    """The condition under which an expression is needed, over the expression's indices alone.

    It holds where the given condition holds for some values of all other indices.
    """
    free = {*find_free(expr)}
    parts = [part for part in ir.split_and(condition) if part is not ir.TRUE]
    inside = [part for part in parts if {*find_free(part)} <= free]
    if len(inside) == len(parts):
        return condition
    outside = ir.all_of(*(part for part in parts if part not in inside))
    rest = tuple(index for index in find_free(outside) if index not in free)
    if not find_accesses(expr) and any(isinstance(part, ir.Scalar) for part in walk(expr)):
        known = {*walk(outside)}  # a quotient of scalars is finite wherever the condition is
        if expr in known or ir.Pow(expr, ir.MINUS_ONE) in known:
            return ir.all_of(*inside)
    return ir.all_of(*inside, find_some(outside, rest))


@lru_cache(maxsize=1 << 12)
def find_some(condition: ir.Expr, rest: tuple[ir.Index, ...]) -> ir.Expr:
    """The condition that `condition` holds for at least one value of the indices `rest`.

    A relation with these indices on one side holds for the maximum or the minimum of that side. For
    other conditions, the number of values for which they hold is above 0.
    """
    if len(rest) == 1 and _holds_somewhere(condition, *rest):
        return ir.TRUE
    match condition:
        case ir.Compare("!=", one, other):
            index = find_segment(ir.Compare("==", one, other))
            if index in rest:
                return ir.Compare(">", index.extent, ir.ONE)
    if isinstance(condition, ir.Compare) and condition.relation not in {"==", "!="}:
        relation, left, right = condition.relation, condition.left, condition.right
        if not {*rest} & {*find_free(left)}:
            relation, left, right = ir.MIRRORED[relation], right, left
        is_apart = not {*rest} & {*find_free(right)}
        if is_apart and (isinstance(left, ir.Index) or all(map(is_filled, rest))):
            is_above = relation in {">", ">="}
            bounds = facts.find_range(left)
            bound = bounds.high if is_above else bounds.low
            most: ir.Expr = ir.Reduce("max" if is_above else "min", rest, ir.TRUE, left)
            if isinstance(left, ir.Index) and bound is not None:
                most = bound.to_expr()
            return ir.Compare(relation, most, right)
    return ir.Compare(">", ir.Reduce("sum", rest, condition, ir.ONE), ir.ZERO)


def _holds_somewhere(condition: ir.Expr, index: ir.Index) -> bool:
    """Whether the condition holds for some value of the index, for all other indices and tensors.

    False means not shown. Tried values are other indices, and integers that equal the index.
    """
    match condition:
        case ir.Compare("!=", ir.Index() as left, ir.Index() as right) if left is not right:
            return True
    if find_segment(condition) is index:
        return True
    others = [i for i in find_free(condition) if polynomial.is_same_extent(i.extent, index.extent)]
    found = (substitute(condition, {index: other}) for other in others if other is not index)
    return any(map(_is_certain, found)) or is_never_empty(condition, index)


def _is_certain(condition: ir.Expr) -> bool:
    match condition:
        case ir.And(parts):
            return all(map(_is_certain, parts))
        case ir.Compare("<=" | ">=" | "==", left, right) if left is right:
            return True
    return is_always(condition)


def find_segment(condition: ir.Expr) -> ir.Index | None:
    """The index that a condition equates with an integer in the index's range, or None."""
    if isinstance(condition, ir.Compare) and condition.relation == "==":
        for index, place in (condition.children, condition.children[::-1]):
            is_free = isinstance(index, ir.Index) and index not in find_free(place)
            if isinstance(index, ir.Index) and is_free and is_position(place, index):
                return index
    return None


def is_position(place: ir.Expr, index: ir.Index) -> bool:
    """Whether the place is, for all sizes, one of the values of the index."""
    if isinstance(place, ir.Index) and place.extent is index.extent:
        return True
    value, extent = polynomial.Polynomial.of(place), polynomial.Polynomial.of(index.extent)
    is_inside = facts.is_never_negative(value) and facts.is_positive(extent - value)
    return facts.is_whole(value) and is_inside
