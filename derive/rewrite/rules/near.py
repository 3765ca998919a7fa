"""Factors that are 0 far from a position: a sum over all places becomes one over a few near it.

    sum_l f(a_n - l) * x_l   =   sum_{k < K} f(d_n - k) * x_(i_n + k)
    sum_n f(a_n - l) * v_n   =   sum_{k < K} sum_n [i_n + k == l] * f(d_n - k) * v_n

with i_n the first place within the width of f, shifted so that all K places exist, and
d_n = a_n - i_n. At a shifted place that is not near, f is 0 by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import ceil, floor, inf
from typing import NamedTuple

from derive.analysis.facts import is_integer
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import (
    Names,
    exchange,
    find_accesses,
    find_free,
    map_children,
    rewrite_top_down,
    substitute,
)
from derive.rewrite.rule import system_rule
from derive.rewrite.rules.sums import find_factors, is_number

MOST = 8  # places that are read one by one
GAP = ir.Scalar("gap")  # the position minus the place


class Band(NamedTuple):
    """The open interval of gaps at which a function may be other than 0."""

    low: Fraction | float
    high: Fraction | float

    def intersect(self, other: "Band") -> "Band":
        """The intersection with another interval."""
        return Band(max(self.low, other.low), min(self.high, other.high))

    def unite(self, other: "Band") -> "Band":
        """The least interval that contains both."""
        return Band(min(self.low, other.low), max(self.high, other.high))


ALL = Band(-inf, inf)


@dataclass(frozen=True, slots=True)
class Near:
    """A factor as a function of the gap, with the position a."""

    factor: ir.Expr
    position: ir.Expr
    first: Fraction  # the first place is after a + first
    count: int


def find_near(factor: ir.Expr, index: ir.Index) -> Near | None:
    """The factor as a function of the distance to a position of data, if it has a width."""
    inner, position = _open_gap(factor, index)
    low, high = ALL if position is None else _find_band(inner)
    if position is None or not (isinstance(low, Fraction) and isinstance(high, Fraction)):
        return None
    count = ceil(high - low)
    return Near(inner, position, -high, count) if 0 < count <= MOST else None


def _open_gap(factor: ir.Expr, index: ir.Index) -> tuple[ir.Expr, ir.Expr | None]:
    """The factor as a function of the gap a - l, and the position a; None if it is none."""
    position: ir.Expr | None = None

    def insert_gap(part: ir.Expr) -> ir.Expr:
        """A sum in terms of GAP, if it is plus or minus the gap plus a number."""
        nonlocal position
        if not isinstance(part, ir.Add) or index not in find_free(part):
            return part
        slope, rest = Polynomial.of(part).split_linear(index) or (Polynomial.of(0),) * 2
        if slope.constant not in {-1, 1}:
            return part
        is_falling = slope.constant == -1
        if position is None and find_accesses(rest.to_expr()) and not is_integer(rest):
            others = ir.sum_of([t for t in part.terms if index not in find_free(t)])
            position = others if is_falling else (-rest).to_expr()
        apart = None if position is None else rest + slope * Polynomial.of(position)
        if apart is None or not is_number(apart.to_expr()):
            return part
        gap = GAP if is_falling else ir.Mul((ir.MINUS_ONE, GAP))
        return ir.Add((gap, apart.to_expr())) if apart.terms else gap

    inner = rewrite_top_down(factor, insert_gap)
    is_open = index not in find_free(inner) and not find_accesses(inner)
    return inner, position if is_open else None


def _find_band(expr: ir.Expr) -> Band:
    """The interval of gaps at which the expression may be other than 0."""
    match expr:
        case ir.Mul(factors):
            return reduce(Band.intersect, map(_find_band, factors))
        case ir.Add(terms):
            return reduce(Band.unite, map(_find_band, terms))
        case ir.Pow(base, ir.Number(power)) if power > 0:
            return _find_band(base)
        case ir.Call("relu", (part,)) | ir.Call("clip", (part, ir.ZERO, _)):
            return _find_positive(part)
        case ir.Call("max", (part, ir.ZERO)) | ir.Call("max", (ir.ZERO, part)):
            return _find_positive(part)
    return ALL


def _find_positive(expr: ir.Expr) -> Band:
    """The interval of gaps at which the expression may be above 0."""
    value = Polynomial.of(expr)
    halves = value.split_linear(value.atoms[0]) if len(value.atoms) == 1 else None
    slope, start = (half.constant for half in halves) if halves is not None else (None, None)
    if slope is None or start is None:
        return ALL
    end = -start / slope
    match value.atoms[0]:
        case ir.Scalar():
            return Band(end, inf) if slope > 0 else Band(-inf, end)
        case ir.Call("abs", (inside,)) if slope < 0:
            sides = (inside, ir.Mul((ir.MINUS_ONE, inside)))
            return Band.intersect(*(_find_positive(ir.Add((ir.Number(end), e))) for e in sides))
    return ALL


@dataclass
class _Reader:
    """Rewrites sums, and collects the new equations of positions."""

    names: Names
    target: str = ""

    def __post_init__(self) -> None:
        self.made: dict[tuple[object, ...], tuple[ir.Equation, ...]] = {}

    def rewrite_sums(self, expr: ir.Expr) -> ir.Expr:
        """The expression with sums over all places replaced by sums over a few."""
        if isinstance(expr, ir.Reduce) and expr.kind == "sum":
            opened = self._open_sum(expr)
            if opened is not None:
                return self.rewrite_sums(opened)
        if isinstance(expr, (ir.Access, ir.Compare)):
            return expr
        return map_children(expr, self.rewrite_sums)

    def _open_sum(self, expr: ir.Reduce) -> ir.Expr | None:
        factors = find_factors(expr.body)
        for factor in factors:
            for index in find_free(factor):
                near = find_near(factor, index)
                if near is None:
                    continue
                if index not in expr.bound and not {*expr.bound} & {*find_free(near.position)}:
                    continue
                rest = [f for f in factors if f is not factor]
                return self._write_sum(expr, near, index, rest)
        return None

    def _write_sum(
        self, expr: ir.Reduce, near: Near, index: ir.Index, rest: Sequence[ir.Expr]
    ) -> ir.Expr:
        gap, places = self._find_places(near, index)
        terms: list[ir.Expr] = []
        for k, place in enumerate(places):
            left = ir.Add((gap, ir.Number(Fraction(-k)))) if k else gap
            weight = exchange(near.factor, GAP, left)
            # 0 for the places beyond the extent, if it is below K
            there = ir.Call("max", (ir.ZERO, ir.Add((index.extent, ir.Number(Fraction(-k))))))
            counted = [ir.Call("min", (ir.ONE, there))] if k else []
            condition, body = expr.condition, ir.product_of([*counted, weight, *rest])
            if index in expr.bound:
                condition, body = (substitute(e, {index: place}) for e in (condition, body))
            else:
                condition = ir.all_of(condition, ir.Compare("==", place, index))
            bound = tuple(i for i in expr.bound if i is not index)
            terms.append(ir.sum_over(bound, body, condition))
        return ir.sum_of(terms)

    def _find_places(self, near: Near, index: ir.Index) -> tuple[ir.Access, list[ir.Access]]:
        """The position minus its first place, and the places."""
        key = (near.position, index, near.first, near.count)
        if key not in self.made:
            whole = Fraction(floor(near.first))
            start = near.position
            if near.first != whole:
                start = ir.Add((start, ir.Number(near.first - whole)))
            start = ir.Call("floor", (start,))
            start = ir.Add((start, ir.Number(whole + 1))) if whole != -1 else start
            last = ir.Add((index.extent, ir.MINUS_ONE))
            count = ir.Number(Fraction(-near.count))
            end = ir.Call("max", (ir.ZERO, ir.Add((index.extent, count))))
            base = self._make_equation(
                "floor", near.position, ir.Call("clip", (start, ir.ZERO, end))
            )
            less = ir.Mul((ir.MINUS_ONE, base.target))
            gap = self._make_equation("gap", near.position, ir.Add((near.position, less)))
            first = self._make_equation("place", near.position, base.target, index.extent)
            places = [first]
            for k in range(1, near.count):
                moved = ir.Add((first.target, ir.Number(Fraction(k))))
                kept = ir.Call("min", (moved, last))
                places.append(self._make_equation("place", near.position, kept, index.extent))
            self.made[key] = (base, gap, *places)
        _, gap, *places = self.made[key]
        return gap.target, [place.target for place in places]

    def _make_equation(
        self, word: str, position: ir.Expr, value: ir.Expr, below: ir.Expr | None = None
    ) -> ir.Equation:
        """An equation over the indices of the position; an integer one with the bound `below`."""
        name, kind = self.names.take(f"{self.target}_{word}"), "real" if below is None else "int"
        return ir.Equation(ir.name_axes(name, find_free(position), kind, below), value)


@system_rule(
    law="sum_l f(a_n - l) * x_l = sum_k f(a_n - i_n - k) * x_(i_n + k) where f is 0 further on",
    before="x[L]; a[N]; y[n] = sum[l](x[l] * relu(1 - abs(a[n] - l)))",
    after="x[L]; a[N]; y_floor[n] = clip(floor(a[n]), 0, max(0, L - 2)); "
    "y_gap[n] = a[n] - y_floor[n]; y_place[n] = y_floor[n]; "
    "y_place_2[n] = min(y_place[n] + 1, L - 1); y[n] = relu(1 - abs(y_gap[n])) * x[y_place[n]] "
    "+ min(1, max(0, L - 1)) * relu(1 - abs(y_gap[n] - 1)) * x[y_place_2[n]]",
    refuses="x[L]; a[N]; y[n] = sum[l](x[l] * relu(1 + abs(a[n] - l)))",
)
def read_near(system: ir.System) -> Iterator[ir.System]:
    """Write a sum over places as one over the few places near a position."""
    reader = _Reader(Names.of(system))
    equations: list[ir.Equation] = []
    for equation in system.equations:
        reader.target, count = equation.target.tensor.name, len(reader.made)
        value = reader.rewrite_sums(equation.value)
        made = [each for group in [*reader.made.values()][count:] for each in group]
        value = value if made else equation.value
        equations += [*made, ir.Equation(equation.target, value)]
    if reader.made:
        yield replace(system, equations=tuple(equations))
