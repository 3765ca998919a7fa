"""Boundary values of tables of recurrences over two indices, found in choices by position.

where(i - 1 < 0, top[j], D[i - 1,j])          D[-1,j] is top[j]
where(i >= 1, D[i - 1,j] + e[i,j], -oo)       D[-1,j] is -oo, and e is 0 there

A small table shows which branch of a choice is taken at each position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from derive.analysis.extents import decide_condition
from derive.analysis.safety import is_finite
from derive.ir import nodes as ir
from derive.ir.polynomial import evaluate_extent
from derive.ir.recurrences import Recurrence
from derive.ir.walk import find_accesses, find_size_names, rewrite_top_down, substitute, walk

Depths = tuple[int, int]  # the distance before the first position of each index; 0 inside

MOST = 8  # the largest number in a condition for which a small table is tried


@dataclass(frozen=True, slots=True)
class Grid:
    """A small table of positions (i, j): its extents, and the sizes that lead to them."""

    indices: tuple[ir.Index, ir.Index]
    outer: int
    inner: int
    sizes: Mapping[str, int]

    @staticmethod
    def of(system: ir.System, recurrence: Recurrence) -> Grid | None:
        """A table larger than all numbers of the conditions; None where these are large."""
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
        """The branch that nested choices take at a position; another expression itself."""
        one, other = self.indices
        at: dict[ir.Expr, ir.Expr] = {ir.Size(n): _to_number(k) for n, k in self.sizes.items()}
        at |= {one: _to_number(place[0]), other: _to_number(place[1])}
        while isinstance(expr, ir.Where):
            held = decide_condition(substitute(expr.condition, at))
            if held is None:
                break
            expr = expr.then if held else expr.other
        return expr


def _to_number(number: int) -> ir.Expr:
    return ir.Number(Fraction(number))


def has_infinity(expr: ir.Expr) -> bool:
    """Whether an infinity is among the parts of a value."""
    return any(isinstance(part, ir.Infinity) for part in walk(expr))


def is_harmless(expr: ir.Expr) -> bool:
    """Whether a value has no infinite part and no function that is undefined somewhere."""

    def skip_number(part: ir.Expr) -> ir.Expr:
        is_number = isinstance(part, (ir.Call, ir.Pow)) and not find_accesses(part)
        return ir.ONE if is_number and not has_infinity(part) else part

    return is_finite(rewrite_top_down(expr, skip_number))
