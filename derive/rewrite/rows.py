"""What is known of rows: which are never empty, and which indices of two rows play one part.

A row is what a reduction, or a function along an index, runs over: an index, under a condition.
"""

from __future__ import annotations

from derive.analysis import affine
from derive.analysis.affine import Relation, to_affine
from derive.analysis.facts import find_facts, is_never_negative
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_accesses, find_free, map_children, substitute, walk


def is_never_empty(condition: ir.Expr, index: ir.Index) -> bool:
    """Does it hold for some value of the index, whatever the others and all tensors are?"""
    if condition is ir.TRUE or not is_never_negative(
        Polynomial.of(index.extent) - Polynomial.of(1)
    ):
        return is_never_negative(Polynomial.of(index.extent) - Polynomial.of(1))
    if find_accesses(condition):
        return False
    relations: list[Relation] = []
    for part in ir.split_and(condition):
        facts = find_facts(part) if isinstance(part, ir.Compare) else ()
        if not facts:
            return False
        relations += [("least", to_affine(fact.to_expr()), True) for fact in facts]
    return affine.is_never_empty(index, relations)


def is_filled(index: ir.Index) -> bool:
    """Has it a value even where a size is 0?"""
    return is_above_zero(index.extent)


def is_above_zero(number: ir.Expr) -> bool:
    """Is it 1 at least, even where a size is 0?"""
    sizes = [part for part in walk(number) if isinstance(part, ir.Size)]
    less: dict[ir.Expr, ir.Expr] = {size: ir.Add((size, ir.MINUS_ONE)) for size in sizes}
    return is_never_negative(Polynomial.of(substitute(number, less)) - Polynomial.of(1))


def match_index(one: ir.Expr, other: ir.Expr, summed: ir.Index) -> ir.Index | None:
    """The index of `one` that plays the part of `summed` in `other`, if they are else the same."""
    for index in find_free(one):
        if index.extent is summed.extent and index not in find_free(other):
            if is_alike(substitute(other, {summed: index}), one):
                return index
        elif index is summed and is_alike(one, other):
            return index
    return None


def is_alike(one: ir.Expr, other: ir.Expr) -> bool:
    """Are they the same but for the indices that they bind?"""
    return one is other or _number_indices(one, 0) is _number_indices(other, 0)


def _number_indices(expr: ir.Expr, depth: int) -> ir.Expr:
    """The expression with its bound indices numbered from outside to inside."""
    if isinstance(expr, ir.Reduce):
        numbered = (ir.Index(f"#{depth + k}", i.extent) for k, i in enumerate(expr.bound))
        new: dict[ir.Expr, ir.Expr] = dict(zip(expr.bound, numbered, strict=True))
        condition, body = (substitute(part, new) for part in (expr.condition, expr.body))
        expr = ir.Reduce(expr.kind, tuple(new.values()), condition, body)  # type: ignore[arg-type]
        depth += len(new)
    return map_children(expr, lambda child: _number_indices(child, depth))
