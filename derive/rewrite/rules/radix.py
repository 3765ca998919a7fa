"""Splitting of an index whose quotients and remainders are read: p = r*i + j.

    y_p = x_(p // r) * w_(p % r)          y_(r*i + j) = x_i * w_j

A plan reads both as views, and merges them where the equation's left side does. An index at a place
that an earlier equation merges from several indices is split too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from derive.analysis.affine import simplify_place
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, divide_wholly, is_same_extent
from derive.ir.walk import (
    Names,
    find_free,
    is_reading,
    is_whole,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.rewrite.rule import system_rule

PARTS = {"floordiv", "mod"}
Merged: TypeAlias = Mapping[ir.Tensor, tuple[ir.Expr, ...]]  # the places on the left sides


@system_rule(
    law="f(p // r, p % r) = f(i, j) where p = r*i + j",
    before="g[N]; w[2]; index p < 2*N; y[p] = g[p//2] * w[p % 2]",
    after="g[N]; w[2]; index q < N; index r < 2; y[2*q + r] = g[q] * w[r]",
    refuses="g[N]; index p < 2*N - 1; y[p] = g[p//2]",
)
def split_index(system: ir.System) -> Iterator[ir.System]:
    """Split indices whose quotients and remainders are read."""
    names = Names.of(system)
    merged = {e.target.tensor: e.target.places for e in system.equations}
    equations = tuple(_split_equation(equation, merged, names) for equation in system.equations)
    if equations != system.equations:
        yield replace(system, equations=equations)


def _split_equation(equation: ir.Equation, merged: Merged, names: Names) -> ir.Equation:
    if is_reading(equation.value, equation.target.tensor):
        return equation
    value, places = _split_bound(equation.value, merged, names), equation.target.places
    for index in find_free(equation.target):
        found = _split_index(value, index, merged, names)
        if found is not None:
            value, new = found
            places = tuple(substitute(place, {index: new}) for place in places)
    return ir.Equation(ir.Access(equation.target.tensor, places), value)


def _split_bound(expr: ir.Expr, merged: Merged, names: Names) -> ir.Expr:

    def split_reduction(here: ir.Expr) -> ir.Expr:
        if not isinstance(here, ir.Reduce):
            return here
        bound, both = list(here.bound), ir.Where(here.condition, here.body, ir.ZERO)
        for index in here.bound:
            found = _split_index(both, index, merged, names)
            if found is not None and isinstance(found[0], ir.Where):
                both, new = found[0], found[1]
                at = bound.index(index)
                bound[at : at + 1] = find_free(new)
        return ir.Reduce(here.kind, tuple(bound), both.condition, both.then)

    return rewrite_bottom_up(expr, split_reduction)


def _split_index(
    expr: ir.Expr, index: ir.Index, merged: Merged, names: Names
) -> tuple[ir.Expr, ir.Expr] | None:
    """(the expression over the parts of an index, the index in terms of its parts), or None."""
    place: ir.Expr = index
    taken = Names(names)
    waiting = [index]
    while waiting:
        here = waiting.pop()
        both = next(_find_parts(expr, here, merged, taken), None)
        if both is None:
            continue
        try:
            put_in = substitute(expr, {here: both})
        except ValueError:  # a function along the index
            return None
        expr = rewrite_bottom_up(put_in, _simplify)
        place = substitute(place, {here: both})
        waiting += find_free(both)
    new = {*find_free(place)}
    if place is index or any(_is_part(p) and new & {*find_free(p)} for p in walk(expr)):
        return None
    names |= taken
    return expr, simplify_place(place)


def _is_part(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Call) and expr.function in PARTS


def _find_parts(expr: ir.Expr, index: ir.Index, merged: Merged, taken: Names) -> Iterator[ir.Expr]:
    """The ways to write an index by several new ones.

    The index is divided by a divisor of its extent, or occurs at a merged place.
    """
    for part in walk(expr):
        match part:
            case ir.Call(name, (over, under)) if name in PARTS and over is index:
                radix = Polynomial.of(under)
                count = divide_wholly(Polynomial.of(index.extent), radix)
                if count is not None and count.constant != 1 and radix.constant != 1:
                    extents = count.to_expr(), under
                    outer, inner = (taken.take_index(ir.Index(index.name, e)) for e in extents)
                    yield ir.Add((ir.Mul((under, outer)), inner))
            case ir.Access(tensor, places) if index in places and tensor in merged:
                at = places.index(index)
                place, is_all = merged[tensor][at], is_same_extent(index.extent, tensor.shape[at])
                new: dict[ir.Expr, ir.Expr] = {i: taken.take_index(i) for i in find_free(place)}
                if len(new) > 1 and is_all:
                    yield substitute(place, new)


def _simplify(expr: ir.Expr) -> ir.Expr:
    """A node with its positions, quotients and remainders simplified."""
    match expr:
        case ir.Access(tensor, places):
            return ir.Access(tensor, tuple(map(simplify_place, places)))
        case ir.Call(name) if name in PARTS:
            return simplify_place(expr)
        case ir.Compare(relation, left, right) if is_whole(left) and is_whole(right):
            return ir.Compare(relation, simplify_place(left), simplify_place(right))
    return expr
