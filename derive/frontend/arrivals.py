"""Inversion of reads: the places of an access, solved for its indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.analysis.affine import simplify_place, to_affine, unravel
from derive.analysis.extents import is_always
from derive.analysis.places import find_reversed, split_merged
from derive.frontend.torch.exprs import multiply, subtract
from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import find_free, rewrite_bottom_up, walk

if TYPE_CHECKING:
    from collections.abc import Sequence


def solve_place(
    place: ir.Expr, here: ir.Expr, extent: ir.Expr, indices: Sequence[ir.Index]
) -> tuple[dict[ir.Expr, ir.Expr], list[ir.Expr]]:
    """Solve `place == here` for an index; return substitutions and remaining conditions."""
    if isinstance(place, ir.Index) and place in indices:
        inside = is_same_extent(place.extent, extent)
        return {place: here}, [] if inside else [ir.Compare("<", here, place.extent)]
    parts = split_merged(place, extent)
    if parts and all(part in indices for part in parts):
        theirs = split_merged(here, extent)
        if [i.extent for i in theirs] == [i.extent for i in parts]:
            return dict(zip(parts, theirs, strict=True)), []
        digits = unravel(here, [i.extent for i in parts])
        return {i: each.to_expr() for i, each in zip(parts, digits, strict=True)}, []
    line = to_affine(place)
    steps = {
        index: factor.constant
        for index, factor in line.terms.items()
        if isinstance(index, ir.Index)
        and index in indices
        and factor.constant
        and not any(index in find_free(atom) for atom in line.terms if atom is not index)
    }
    if not steps:
        return {}, [ir.Compare("==", place, here)]
    index = max(steps, key=lambda i: abs(steps[i]))
    step = steps[index]
    rest = line - to_affine(multiply(ir.Number(step), index))
    low, high = (rest.to_expr(), here) if step > 0 else (here, rest.to_expr())
    off = subtract(high, low)
    if find_reversed(place, extent) is index:
        return {index: off}, []
    if abs(step) == 1:
        return {index: off}, [ir.Compare("<=", low, high), ir.Compare("<", off, index.extent)]
    width = ir.Number(abs(step))
    found = ir.Call("floordiv", (off, width))
    whole = ir.Compare("==", ir.Call("mod", (off, width)), ir.ZERO)
    return {index: found}, [
        whole,
        ir.Compare(">=", found, ir.ZERO),
        ir.Compare("<", found, index.extent),
    ]


def simplify_reads(expr: ir.Expr, known: set[ir.Access]) -> ir.Expr:
    """Simplify the places of reads that are not in `known`, and take decided choices.

    Places with calls stay unchanged, because conditions contain them in that form.
    """

    def simplify(place: ir.Expr) -> ir.Expr:
        return place if any(isinstance(p, ir.Call) for p in walk(place)) else simplify_place(place)

    def act(part: ir.Expr) -> ir.Expr:
        if isinstance(part, ir.Where) and is_always(part.condition):
            return part.then
        if isinstance(part, ir.Where) and is_always(ir.Not(part.condition)):
            return part.other
        if not isinstance(part, ir.Access) or part in known:
            return part
        return ir.Access(part.tensor, tuple(map(simplify, part.places)))

    return rewrite_bottom_up(expr, act)
