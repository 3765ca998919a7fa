"""Factors that are 0 far from a position: a sum over all places becomes one over a few near it.

    sum_l f(a_n - l) * x_l   =   sum_{k < K} f(d_n - k) * x_(i_n + k)
    sum_n f(a_n - l) * v_n   =   sum_{k < K} sum_n [i_n + k == l] * f(d_n - k) * v_n

with i_n the first place within the width of f, shifted so that all K places exist, and
d_n = a_n - i_n. At a shifted place that is not near, f is 0 by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial, reduce
from math import ceil, floor, inf, sqrt

from derive.analysis.facts import find_sign, is_integer, is_never_negative
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import (
    Names,
    exchange,
    find_accesses,
    find_free,
    map_children,
    rewrite_bottom_up,
    rewrite_top_down,
    substitute,
)
from derive.rewrite.rule import system_rule
from derive.rewrite.rules.sums import find_factors, is_constant

MOST = 8  # places that are read one by one
GAP = ir.Scalar("gap")  # slope * (l - a)


@dataclass(frozen=True, slots=True)
class Interval:
    """The interval of the gap, slope * (l - a), outside of which a function is 0."""

    low: float
    high: float
    is_closed: bool = False  # whether the ends belong to it

    def intersect(self, other: "Interval") -> "Interval":
        """The intersection with another interval."""
        ends = max(self.low, other.low), min(self.high, other.high)
        return Interval(*ends, self.is_closed or other.is_closed)

    def unite(self, other: "Interval") -> "Interval":
        """The least interval that contains both."""
        if self.low >= self.high or other.low >= other.high:
            return other if self.low >= self.high else self
        ends = min(self.low, other.low), max(self.high, other.high)
        return Interval(*ends, self.is_closed or other.is_closed)


ALL, NONE = Interval(-inf, inf), Interval(0, 0)


@dataclass(frozen=True, slots=True)
class Near:
    """A factor f(gap), 0 but at `count` places l near a position a, with gap = slope * (l - a)."""

    factor: ir.Expr
    position: ir.Expr
    slope: Fraction
    first: Fraction  # the first place is after a + first, or at it if closed
    count: int
    is_closed: bool


def find_near(factor: ir.Expr, index: ir.Index) -> Near | None:
    """The factor as a function of the gap, if it is 0 but at MOST places of the index, or None."""
    opened = _open_gap(factor, index)
    if opened is None:
        return None
    inner, written, slope = opened
    band = _find_interval(inner)
    if not (-inf < band.low and band.high < inf):
        return None
    ends = sorted((Fraction(band.low) / slope, Fraction(band.high) / slope))
    low, high = (each.limit_denominator(1 << 20) for each in ends)
    count = ceil(high - low) + band.is_closed
    if not 0 < count <= MOST:
        return None
    position = cancel_factors(ir.product_of([ir.Number(-1 / slope), written]))
    return Near(inner, position, slope, low, count, band.is_closed)


def _open_gap(factor: ir.Expr, index: ir.Index) -> tuple[ir.Expr, ir.Expr, Fraction] | None:
    """(the factor as a function of GAP, the gap at place 0, its slope), or None."""
    lead: tuple[Polynomial, Polynomial] | None = None
    written = factor

    def insert_gap(part: ir.Expr) -> ir.Expr:
        """A sum written by GAP, if it is plus or minus the gap plus a number; else unchanged."""
        nonlocal lead, written
        if not isinstance(part, ir.Add) or index not in find_free(part):
            return part
        halves = Polynomial.of(part).split_linear(index)
        if halves is None or not is_constant(halves[0].to_expr()):
            return part
        slope, rest = halves
        if lead is None:
            if not find_accesses(rest.to_expr()) or is_integer(rest):
                return part
            lead = slope, rest
            written = ir.sum_of([t for t in part.terms if index not in find_free(t)])
        times = next((n for n in (1, -1) if lead[0] * Polynomial.of(n) == slope), None)
        apart = None if times is None else rest - lead[1] * Polynomial.of(times)
        if times is None or apart is None or not is_constant(apart.to_expr()):
            return part
        gap = ir.Mul((ir.Number(Fraction(times)), GAP)) if times < 0 else GAP
        return ir.Add((gap, apart.to_expr())) if apart.terms else gap

    inner = rewrite_top_down(factor, insert_gap)
    if lead is None or index in find_free(inner) or find_accesses(inner):
        return None
    if Polynomial.of(written) != lead[1]:
        written = lead[1].to_expr()
    slope = lead[0].constant
    return None if slope is None else (inner, written, slope)


def _split_power(factor: ir.Expr) -> tuple[ir.Expr, Fraction]:
    """The base and exponent of nested powers; a root of a square is an abs, and stays."""
    match factor:
        case ir.Pow(base, ir.Number(value)):
            inner, power = _split_power(base)
            if power == 1 or value.denominator == 1 or is_never_negative(inner):
                return inner, power * value
    return factor, Fraction(1)


def cancel_factors(expr: ir.Expr) -> ir.Expr:
    """A product with powers of one base merged, or an abs with constant factors moved out."""
    match expr:
        case ir.Call("abs", (ir.Mul() as inside,)):
            outside = [f for f in find_factors(inside) if is_constant(f) and find_sign(f)]
            rest = [f for f in find_factors(inside) if f not in outside and f is not ir.MINUS_ONE]
            if len(rest) == len(find_factors(inside)):
                return expr
            return cancel_factors(ir.product_of([*outside, ir.Call("abs", (ir.product_of(rest),))]))
        case ir.Mul():
            powers: dict[ir.Expr, Fraction] = {}
            number = Fraction(1)
            for factor in find_factors(expr):
                base, power = _split_power(factor)
                if isinstance(base, ir.Number) and power in (1, -1):
                    number = number * base.value if power == 1 else number / base.value
                else:
                    powers[base] = powers.get(base, Fraction(0)) + power
            left = [b if n == 1 else ir.Pow(b, ir.Number(n)) for b, n in powers.items() if n]
            return ir.product_of([*([] if number == 1 and left else [ir.Number(number)]), *left])
    return expr


def _find_interval(expr: ir.Expr, *, above: bool = False) -> Interval:
    """The interval of gaps where an expression may be nonzero (`above`: positive), or true."""
    find, find_above = partial(_find_interval, above=above), partial(_find_interval, above=True)
    match expr:
        case ir.ZERO:
            return NONE
        case ir.Where(condition, then, other):
            one = find(then).intersect(_find_interval(condition))
            return one.unite(find(other).intersect(_find_interval(ir.negate(condition))))
        case ir.And(parts):
            return reduce(Interval.intersect, map(find, parts), ALL)
        case ir.Or(parts):
            return reduce(Interval.unite, map(find, parts), NONE)
        case ir.Compare("<" | "<=" as relation, low, high) | ir.Compare(
            ">" | ">=" as relation, high, low
        ):
            gap = ir.Add((high, ir.Mul((ir.MINUS_ONE, low))))
            return replace(find_above(gap), is_closed="=" in relation)
        case ir.Mul(parts) if not above:
            return reduce(Interval.intersect, map(find, parts), ALL)
        case ir.Add(parts) if not above:
            return reduce(Interval.unite, map(find, parts), NONE)
        case ir.Pow(base, ir.Number(power)) if power > 0:
            return _find_interval(base, above=above and power.denominator == 1 == power % 2)
        case ir.Call("min", parts) if above:
            return reduce(Interval.intersect, map(find, parts), ALL)
        case ir.Call("max", parts) if above or ir.ZERO in parts:
            return reduce(Interval.unite, map(find_above, parts), NONE)
        case ir.Call("relu", (part,)) | ir.Call("clip", (part, ir.ZERO, _)):
            return find_above(part)
        case ir.Call("abs", (part,)) if not above:
            return find(part)
    return _find_positive(expr) if above else ALL


def _find_positive(expr: ir.Expr) -> Interval:
    """The interval of gaps at which a polynomial may be above 0."""
    value = Polynomial.of(expr)
    atoms = value.atoms
    halves = value.split_linear(atoms[0]) if len(atoms) == 1 else None
    if halves is None:
        square = [(m, n) for m, n in value.terms.items() if m]
        if len(atoms) == 1 and len(square) == 1 and square[0][0] == ((GAP, 2),):
            least = value.terms.get((), Fraction(0)) / -square[0][1]
            if square[0][1] < 0 <= least:
                return Interval(-sqrt(least), sqrt(least))
        return ALL if atoms or (value.constant or 0) > 0 else NONE
    slope, start = halves[0].constant, halves[1].constant
    if slope is None or start is None:
        return ALL
    end = -start / slope
    match atoms[0]:
        case ir.Scalar():
            return Interval(float(end), inf) if slope > 0 else Interval(-inf, float(end))
        case ir.Call("abs", (inside,)) if slope < 0:
            down = ir.Mul((ir.MINUS_ONE, inside))
            sides = (_find_positive(ir.Add((ir.Number(end), side))) for side in (inside, down))
            return reduce(Interval.intersect, sides)
    return ALL


@dataclass
class _Reader:
    """Rewrites sums over all places, and collects the equations of the few places in `made`."""

    names: Names
    target: str = ""

    def __post_init__(self) -> None:
        self.made: dict[tuple[object, ...], tuple[ir.Equation, ...]] = {}

    def rewrite_sums(self, expr: ir.Expr) -> ir.Expr:
        """The expression with sums over the few places where factors are not 0."""
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
            less = ir.Mul((ir.Number(-near.slope), left))
            weight = rewrite_bottom_up(exchange(near.factor, GAP, less), cancel_factors)
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
        """The pair (the position minus the first near place, all near places), as named tensors."""
        key = (near.position, index, near.first, near.count)
        if key not in self.made:
            whole = Fraction(floor(near.first))
            start = near.position
            if near.first != whole:
                start = ir.Add((start, ir.Number(near.first - whole)))
            whole += not near.is_closed
            start = ir.Call("floor", (start,))
            start = ir.Add((start, ir.Number(whole))) if whole else start
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
        """An equation, named with `word`, over the position's indices; integers are < `below`."""
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
