"""Boundary values of tables of recurrences over two indices, found in choices by position.

where(i - 1 < 0, top[j], D[i - 1,j])          D[-1,j] is top[j]
where(i >= 1, D[i - 1,j] + e[i,j], -oo)       D[-1,j] is -oo, and e is 0 there

A small table shows which branch of a choice is taken at each position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from derive.analysis.extents import is_always
from derive.analysis.names import is_condition
from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS
from derive.ir.polynomial import evaluate_extent
from derive.ir.recurrences import Recurrence
from derive.ir.walk import find_accesses, find_size_names, substitute, walk

Depths = tuple[int, int]  # the distance before the first position of each index; 0 inside

MOST = 8  # the largest number in a condition for which a small table is tried


@dataclass(frozen=True, slots=True)
class Grid:
    """A small table: its extents, and the sizes that lead to them."""

    indices: tuple[ir.Index, ir.Index]
    outer: int
    inner: int
    sizes: Mapping[str, int]

    @staticmethod
    def of(system: ir.System, recurrence: Recurrence) -> Grid | None:
        """A small table of a recurrence; None where conditions have large numbers."""
        loops = recurrence.loops
        values = [equation.value for equation in recurrence.equations]
        conditions = [p for value in values for p in walk(value) if isinstance(p, ir.Compare)]
        numbers = [n for each in conditions for n in walk(each) if isinstance(n, ir.Number)]
        most = max((abs(number.value) for number in numbers), default=Fraction(0))
        if most > MOST:
            return None
        extents = [loop.index.extent for loop in loops]
        names = [name for part in (*extents, *conditions) for name in find_size_names(part)]
        sizes = {name: int(most) + 4 + k for k, name in enumerate(dict.fromkeys(names))}
        outer, inner = (evaluate_extent(extent, sizes) for extent in extents)
        one, other = (loop.index for loop in loops)
        return Grid((one, other), outer, inner, sizes) if min(outer, inner) > most else None

    def find_leaves(self, expr: ir.Expr) -> dict[tuple[int, int], ir.Expr]:
        """The branch that nested choices take at each position."""
        return {
            place: self.pick_branch(expr, place)
            for place in product(range(self.outer), range(self.inner))
        }

    def pick_branch(self, expr: ir.Expr, place: tuple[int, int]) -> ir.Expr:
        """The branch that nested choices take at a position."""
        one, other = self.indices
        at: dict[ir.Expr, ir.Expr] = {ir.Size(n): _to_number(k) for n, k in self.sizes.items()}
        at |= {one: _to_number(place[0]), other: _to_number(place[1])}
        while isinstance(expr, ir.Where):
            held = substitute(expr.condition, at)
            if not is_always(held) and not is_always(ir.Not(held)):
                break
            expr = expr.then if is_always(held) else expr.other
        return expr


def _to_number(number: int) -> ir.Expr:
    return ir.Number(Fraction(number))


def has_infinity(expr: ir.Expr) -> bool:
    """Whether an infinity is among the parts of a value."""
    return any(isinstance(part, ir.Infinity) for part in walk(expr))


def push_guard(expr: ir.Expr, reads: Callable[[ir.Expr], bool]) -> ir.Expr:
    """A choice between a number and a sum or product, moved to the one read inside."""
    if isinstance(expr, ir.Mul):
        guards = [factor for factor in expr.factors if is_condition(factor)]
        rest = [factor for factor in expr.factors if factor not in guards]
        if guards and any(map(reads, rest)) and not any(map(find_accesses, guards)):
            return push_guard(ir.Where(ir.all_of(*guards), ir.product_of(rest), ir.ZERO), reads)
        return expr
    if not isinstance(expr, ir.Where) or find_accesses(expr.condition):
        return expr
    condition, then, other = expr.condition, expr.then, expr.other
    if reads(other) and not reads(then):
        condition, then, other = ir.negate(condition), other, then
    if not reads(then) or not isinstance(other, (ir.Number, ir.Infinity)):
        return expr
    parts: tuple[ir.Expr, ...] = ()
    if isinstance(then, ir.Add):
        parts = then.terms
    elif isinstance(then, ir.Mul) and other is ir.ZERO:
        parts = then.factors
    own = [part for part in parts if reads(part)]
    if len(own) != 1:
        return expr
    rest = [part for part in parts if part is not own[0]]
    inner = push_guard(ir.Where(condition, own[0], other), reads)
    guarded = (ir.Where(condition, part, ir.ZERO) if find_accesses(part) else part for part in rest)
    if isinstance(then, ir.Add):  # where the read is replaced, all other terms are 0
        guarded = (ir.Where(condition, part, ir.ZERO) for part in rest)
    whole = (inner, *guarded)
    return ir.Add(whole) if isinstance(then, ir.Add) else ir.Mul(whole)


SMOOTH = (ir.Access, ir.Add, ir.Mul, ir.Where)
CONDITIONS = (ir.Compare, ir.And, ir.Or, ir.Not, ir.Truth)


def is_harmless(expr: ir.Expr) -> bool:
    """Whether a value has no infinite part and no function that is undefined somewhere."""
    for part in walk(expr):
        match part:
            case _ if not find_accesses(part):  # only scalars and positions
                known = not has_infinity(part)
            case ir.Pow(_, ir.Number(value)):
                known = value > 0 and value.denominator == 1
            case ir.Call(function):
                known = function != "log" and not FUNCTIONS[function].domain
            case ir.Reduce(kind, _, ir.Truth(True)):
                known = kind in {"sum", "logsumexp", "max", "min"}
            case _:
                known = isinstance(part, (*SMOOTH, *CONDITIONS))
        if not known:
            return False
    return True
