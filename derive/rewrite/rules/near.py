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
from typing import NamedTuple

from derive.analysis.facts import Sign, find_range, find_sign, is_integer, is_never_negative
from derive.ir import nodes as ir
from derive.ir.polynomial import NOTHING, ONE, Polynomial, add_all
from derive.ir.walk import (
    Names,
    exchange,
    find_accesses,
    find_free,
    find_size_names,
    map_children,
    rewrite_bottom_up,
    rewrite_top_down,
    substitute,
    walk,
)
from derive.rewrite.rule import system_rule
from derive.rewrite.rules.sums import find_factors, is_number

MOST = 8  # places that are read one by one
GAP = ir.Scalar("gap")  # slope * (l - a)
SIZE = ir.Scalar("size", ir.ZERO, None, (True, False))  # the absolute value of the slope
TRIED = (11, 29, 83)  # sizes that are tried: a width must not depend on them


@dataclass(frozen=True, slots=True)
class Band:
    """The interval of gaps at which a function may be other than 0, with or without its ends."""

    low: float
    high: float
    is_closed: bool = False

    def intersect(self, other: "Band") -> "Band":
        """The intersection with another interval."""
        ends = max(self.low, other.low), min(self.high, other.high)
        return Band(*ends, self.is_closed or other.is_closed)

    def unite(self, other: "Band") -> "Band":
        """The least interval that contains both."""
        if self.low >= self.high or other.low >= other.high:
            return other if self.low >= self.high else self
        ends = min(self.low, other.low), max(self.high, other.high)
        return Band(*ends, self.is_closed or other.is_closed)


ALL, NONE = Band(-inf, inf), Band(0, 0)


@dataclass(frozen=True, slots=True)
class Near:
    """A factor as a function of the gap, with the position a and the slope of the gap."""

    factor: ir.Expr
    position: ir.Expr
    slope: ir.Expr
    first: Fraction  # the first place is after a + first, or at it if closed
    count: int
    is_closed: bool
    size: ir.Expr = ir.ONE
    holds: ir.Expr = ir.TRUE  # where the factor has a width, for a slope of unknown sign
    far: ir.Expr = ir.ZERO  # the factor where it has no width


class Ends(NamedTuple):
    """The interval of places, relative to the position, at which the factor may be other than 0."""

    low: Fraction
    high: Fraction
    is_closed: bool


def find_near(factor: ir.Expr, index: ir.Index) -> Near | None:
    """The factor as a function of the distance to a position of data, if it has a width."""
    opened = _open_gap(factor, index)
    if opened is None:
        return None
    inner, written, slope = opened
    found: dict[bool, set[Ends | Fraction | None]] = {True: set(), False: set()}
    for numbers in _try_numbers(inner, slope):
        step = Polynomial.of(substitute(slope, numbers)).constant
        if step is None:
            return None
        if step:
            found[step < 0].add(_measure(substitute(inner, numbers), step))
    near = [
        is_falling for is_falling, each in found.items() if any(isinstance(e, Ends) for e in each)
    ]
    if len(near) != 1 or len(found[near[0]]) > 1:
        return None
    (is_falling,) = near
    (ends,), rest = found[is_falling], found[not is_falling]
    assert isinstance(ends, Ends)
    count = ceil(ends.high - ends.low) + ends.is_closed
    if not 0 < count <= MOST:
        return None
    size = -Polynomial.of(slope) if is_falling else Polynomial.of(slope)
    sign = ir.MINUS_ONE if is_falling else ir.ONE
    at = _divide(written, is_falling, size.to_expr())
    made = Near(inner, at, slope, ends.low, count, ends.is_closed)
    if not isinstance(slope, ir.Number):
        inner = rewrite_top_down(inner, partial(_name_size, size))
        made = replace(made, factor=inner, slope=ir.Mul((sign, SIZE)), size=size.to_expr())
    is_known = find_sign(size.to_expr()) is Sign.POSITIVE
    if is_known or not any(isinstance(part, ir.Scalar) for part in walk(slope)):
        return made if not rest else None
    (far, *more) = rest or (None,)
    if more or not isinstance(far, Fraction):
        return None
    holds = ir.Compare(">", made.size, ir.ZERO)
    whole: ir.Expr = ir.Number(far)
    if far:  # for a slope of 0, where the quotient must stay finite
        turned = (ir.MINUS_ONE, ir.Call("abs", (made.size,)), ir.Pow(made.size, ir.MINUS_ONE))
        whole = cancel(ir.Mul((whole, *turned)))
    safe = ir.Where(holds, made.size, ir.ONE)
    return replace(made, position=_divide(written, is_falling, safe), holds=holds, far=whole)


def _name_size(size: Polynomial, expr: ir.Expr) -> ir.Expr:
    """A number that is a multiple of the size of the slope, in terms of SIZE."""
    if not is_number(expr) or isinstance(expr, ir.Number) or expr is GAP:
        return expr
    value = Polynomial.of(expr)
    (monomial, number), *_ = size.terms.items()
    times = value.terms.get(monomial, Fraction(0)) / number
    is_part = times and value == size * Polynomial.of(times)
    return cancel(ir.Mul((ir.Number(times), SIZE))) if is_part else expr


def _divide(written: ir.Expr, is_falling: bool, size: ir.Expr) -> ir.Expr:
    """The position: the place at which the gap is 0."""
    over = (ir.Pow(f, ir.MINUS_ONE) for f in ir.split_product(size) if f is not ir.ONE)
    factors = (*([] if is_falling else [ir.MINUS_ONE]), written, *over)
    return cancel(ir.Mul(factors)) if len(factors) > 1 else written


def _try_numbers(*parts: ir.Expr) -> Iterator[dict[ir.Expr, ir.Expr]]:
    """Several choices of numbers for sizes and scalars, to test that a width is constant."""
    names = sorted({*find_size_names(*parts)})
    atoms = dict.fromkeys(part for each in parts for part in walk(each) if part is not GAP)
    scalars = [part for part in atoms if isinstance(part, ir.Scalar)]
    for k, size in enumerate(TRIED * (4 if scalars else 1)):
        numbers: dict[ir.Expr, ir.Expr] = {
            ir.Size(name): ir.Number(Fraction(size + 2 * j)) for j, name in enumerate(names)
        }
        for j, scalar in enumerate(scalars):
            value = Fraction((5 * k + 7 * j) % 13 + 1, 3)
            if isinstance(scalar.lower, ir.Number):
                value += scalar.lower.value
            elif isinstance(scalar.upper, ir.Number) or (j + k) % 2:
                value = getattr(scalar.upper, "value", 0) - value
            numbers[scalar] = ir.Number(value)
        yield numbers


def _open_gap(factor: ir.Expr, index: ir.Index) -> tuple[ir.Expr, ir.Expr, ir.Expr] | None:
    """The factor as a function of the gap, the gap at place 0, and the slope of the gap."""
    lead: tuple[Polynomial, Polynomial] | None = None
    written = factor

    def insert_gap(part: ir.Expr) -> ir.Expr:
        """A sum in terms of GAP, if it is plus or minus the gap plus a number."""
        nonlocal lead, written
        if not isinstance(part, ir.Add) or index not in find_free(part):
            return part
        halves = Polynomial.of(part).split_linear(index)
        if halves is None or not is_number(halves[0].to_expr()):
            return part
        slope, rest = halves
        if lead is None:
            if not find_accesses(rest.to_expr()) or is_integer(rest):
                return part
            lead = slope, rest
            written = ir.sum_of([t for t in part.terms if index not in find_free(t)])
        times = next((n for n in (1, -1) if lead[0] * Polynomial.of(n) == slope), None)
        apart = None if times is None else rest - lead[1] * Polynomial.of(times)
        if times is None or apart is None or not is_number(apart.to_expr()):
            return part
        gap = ir.Mul((ir.Number(Fraction(times)), GAP)) if times < 0 else GAP
        return ir.Add((gap, apart.to_expr())) if apart.terms else gap

    inner = rewrite_top_down(factor, insert_gap)
    if lead is None or index in find_free(inner) or find_accesses(inner):
        return None
    if Polynomial.of(written) != lead[1]:
        written = lead[1].to_expr()
    return inner, written, lead[0].to_expr()


def _split_power(factor: ir.Expr) -> tuple[ir.Expr, Fraction]:
    """The base and exponent of nested powers; a root of a square is an abs, and stays."""
    match factor:
        case ir.Pow(base, ir.Number(value)):
            inner, power = _split_power(base)
            if power == 1 or value.denominator == 1 or is_never_negative(inner):
                return inner, power * value
    return factor, Fraction(1)


def cancel(expr: ir.Expr) -> ir.Expr:
    """A product with powers of one base merged, or an abs with constant factors moved out."""
    match expr:
        case ir.Call("abs", (ir.Mul() as inside,)):
            outside = [f for f in find_factors(inside) if is_number(f) and find_sign(f)]
            rest = [f for f in find_factors(inside) if f not in outside and f is not ir.MINUS_ONE]
            if len(rest) == len(find_factors(inside)):
                return expr
            return cancel(ir.product_of([*outside, ir.Call("abs", (ir.product_of(rest),))]))
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


def _measure(inner: ir.Expr, step: Fraction) -> Ends | Fraction | None:
    """The interval of a factor without sizes, or its value if it is constant."""
    band = _find_band(inner)
    if -inf < band.low and band.high < inf:
        ends = sorted((Fraction(band.low) / step, Fraction(band.high) / step))
        low, high = (each.limit_denominator(1 << 20) for each in ends)
        return Ends(low, high, band.is_closed)
    whole = rewrite_bottom_up(inner, _resolve_far)
    return Polynomial.of(whole).constant if GAP not in {*walk(whole)} else None


def _resolve_far(expr: ir.Expr) -> ir.Expr:
    """A function replaced by one of its branches if this applies for all gaps."""
    match expr:
        case ir.Call("relu", (part,)):
            return _resolve_far(ir.Call("max", (part, ir.ZERO)))
        case ir.Call("max" | "min" as name, (one, other)):
            for low, high in ((one, other), (other, one)):
                least, most = find_range(high).low, find_range(low).high
                if least is not None and most is not None and is_never_negative(least - most):
                    return high if name == "max" else low
        case ir.Call("clip", (part, low, high)):
            inner = _resolve_far(ir.Call("max", (part, low)))
            inner = _resolve_far(ir.Call("min", (inner, high)))
            return inner if GAP not in {*walk(inner)} else expr
    return expr


def _find_band(expr: ir.Expr) -> Band:
    """The interval of gaps at which the expression may be other than 0."""
    match expr:
        case ir.ZERO:
            return NONE
        case ir.Where(condition, then, other):
            one = _find_band(then).intersect(_find_region(condition))
            return one.unite(_find_band(other).intersect(_find_region(ir.negate(condition))))
        case ir.Mul(factors):
            return reduce(Band.intersect, map(_find_band, factors), ALL)
        case ir.Add(terms):
            return reduce(Band.unite, map(_find_band, terms), NONE)
        case ir.Pow(base, ir.Number(power)) if power > 0:
            return _find_band(base)
        case ir.Call("max", (*parts, ir.ZERO)) | ir.Call("max", (ir.ZERO, *parts)):
            return reduce(Band.unite, map(_find_positive, parts), NONE)
        case ir.Call("relu", (part,)) | ir.Call("clip", (part, ir.ZERO, _)):
            return _find_positive(part)
        case ir.Call("abs", (part,)):
            return _find_band(part)
    return ALL


def _find_region(condition: ir.Expr) -> Band:
    """The interval of gaps at which a condition may hold."""
    match condition:
        case ir.And(parts):
            return reduce(Band.intersect, map(_find_region, parts), ALL)
        case ir.Or(parts):
            return reduce(Band.unite, map(_find_region, parts), NONE)
        case ir.Compare("<" | "<=" as relation, left, right):
            gap = ir.Add((right, ir.Mul((ir.MINUS_ONE, left))))
            return replace(_find_positive(gap), is_closed=relation == "<=")
        case ir.Compare(">" | ">=" as relation, left, right):
            return _find_region(ir.Compare("<" if relation == ">" else "<=", right, left))
    return ALL


def _find_positive(expr: ir.Expr) -> Band:
    """The interval of gaps at which the expression may be above 0."""
    match expr:
        case ir.Call("min", parts):
            return reduce(Band.intersect, map(_find_positive, parts), ALL)
        case ir.Call("max", parts):
            return reduce(Band.unite, map(_find_positive, parts), NONE)
        case ir.Pow(base, ir.Number(power)) if power.denominator == 1 and power > 0:
            return _find_positive(base) if power % 2 else _find_band(base)
    value = Polynomial.of(expr)
    atoms = value.atoms
    halves = value.split_linear(atoms[0]) if len(atoms) == 1 else None
    if halves is None:
        square = [(m, n) for m, n in value.terms.items() if m]
        if len(atoms) == 1 and len(square) == 1 and square[0][0] == ((GAP, 2),):
            least = value.terms.get((), Fraction(0)) / -square[0][1]
            if square[0][1] < 0 <= least:
                return Band(-sqrt(least), sqrt(least))
        return ALL if atoms or (value.constant or 0) > 0 else NONE
    slope, start = halves[0].constant, halves[1].constant
    if slope is None or start is None:
        return ALL
    end = -start / slope
    match atoms[0]:
        case ir.Scalar():
            return Band(float(end), inf) if slope > 0 else Band(-inf, float(end))
        case ir.Call("abs", (inside,)) if slope < 0:
            return _find_positive(ir.Add((ir.Number(end), inside))).intersect(
                _find_positive(ir.Add((ir.Number(end), ir.Mul((ir.MINUS_ONE, inside)))))
            )
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
        is_inside = _is_inside(near, index)
        gap, places = self._find_places(near, index, is_inside=is_inside)
        terms: list[ir.Expr] = []
        for k, place in enumerate(places):
            left = ir.Add((gap, ir.Number(Fraction(-k)))) if k else gap
            less = ir.Mul((ir.MINUS_ONE, *ir.split_product(near.slope), left))
            weight = rewrite_bottom_up(exchange(near.factor, GAP, less), cancel)
            weight = exchange(weight, SIZE, near.size)
            weight = rewrite_bottom_up(weight, partial(_resolve, gap)) if is_inside else weight
            # 0 for the places beyond the extent, if it is below K
            there = ir.Call("max", (ir.ZERO, ir.Add((index.extent, ir.Number(Fraction(-k))))))
            counted = [ir.Call("min", (ir.ONE, there))] if k and not is_inside else []
            condition, body = expr.condition, ir.product_of([*counted, weight, *rest])
            if index in expr.bound:
                condition, body = (substitute(e, {index: place}) for e in (condition, body))
            else:
                condition = ir.all_of(condition, ir.Compare("==", place, index))
            bound = tuple(i for i in expr.bound if i is not index)
            terms.append(ir.sum_over(bound, body, condition))
        if near.holds is ir.TRUE:
            return ir.sum_of(terms)
        far = ir.sum_over(expr.bound, ir.product_of([near.far, *rest]), expr.condition)
        return ir.Where(near.holds, ir.sum_of(terms), ir.ZERO if near.far is ir.ZERO else far)

    def _find_places(
        self, near: Near, index: ir.Index, *, is_inside: bool
    ) -> tuple[ir.Access, list[ir.Access]]:
        """The position minus its first place, and the places."""
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
            end = last if is_inside else ir.Call("max", (ir.ZERO, ir.Add((index.extent, count))))
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


def _is_inside(near: Near, index: ir.Index) -> bool:
    """Whether the position, and the place before it, are in range for all data.

    The place after the last one is read with a weight of 0, up to rounding.
    """
    ends = _find_ends(near.position)
    if ends is None or near.count != 2 or near.first != -1 or near.is_closed:
        return False
    last = Polynomial.of(index.extent) - ONE
    return is_never_negative(ends[0]) and is_never_negative(last - ends[1])


def _find_ends(expr: ir.Expr) -> tuple[Polynomial, Polynomial] | None:
    """The least and the largest value of an expression, from the bounds of tensors."""
    match expr:
        case _ if is_number(expr):
            return Polynomial.of(expr), Polynomial.of(expr)
        case ir.Access(ir.Tensor(lower=low, upper=high)) if low is not None and high is not None:
            return Polynomial.of(low), Polynomial.of(high)
        case ir.Call("clip", (_, low, high)) if is_number(low) and is_number(high):
            return Polynomial.of(low), Polynomial.of(high)
        case ir.Call("sigmoid"):
            return NOTHING, ONE
        case ir.Add(terms):
            each = [found for term in terms if (found := _find_ends(term)) is not None]
            if len(each) == len(terms):
                return add_all(low for low, _ in each), add_all(high for _, high in each)
        case ir.Mul(factors):
            inside = [f for f in factors if not is_number(f)]
            number = ir.product_of([f for f in factors if f not in inside])
            ends = _find_ends(inside[0]) if len(inside) == 1 else None
            if ends is not None:
                times = Polynomial.of(number)
                one, other = times * ends[0], times * ends[1]
                if is_never_negative(times) or is_never_negative(-times):
                    return (one, other) if is_never_negative(times) else (other, one)
    return None


def _resolve(gap: ir.Expr, expr: ir.Expr) -> ir.Expr:
    """A function with a kink replaced by the branch that applies to all gaps from 0 to 1."""
    match expr:
        case ir.Call("abs" | "relu" as name, (part,)):
            sign = _find_sign(part, gap)
            if sign:
                negative = ir.Mul((ir.MINUS_ONE, part)) if name == "abs" else ir.ZERO
                return part if sign > 0 else negative
        case ir.Call("max" | "min" as name, (one, other)):
            sign = _find_sign(ir.Add((one, ir.Mul((ir.MINUS_ONE, other)))), gap)
            if sign:
                return one if (sign > 0) == (name == "max") else other
        case ir.Call("clip", (part, low, high)):
            inner = _resolve(gap, ir.Call("max", (part, low)))
            return _resolve(gap, ir.Call("min", (inner, high)))
        case ir.Add() | ir.Mul():
            value = Polynomial.of(expr)
            return value.to_expr() if value.atoms in ((), (gap,)) else expr
    return expr


def _find_sign(expr: ir.Expr, gap: ir.Expr) -> int:
    """The sign of a linear function of the gap on [0, 1]; 0 where it is mixed or unknown."""
    halves = Polynomial.of(expr).split_linear(gap)
    if halves is None or halves[0].constant is None or halves[1].constant is None:
        return 0
    ends = halves[1].constant, halves[0].constant + halves[1].constant
    return 1 if min(ends) >= 0 else -1 if max(ends) <= 0 else 0


def _find_numbers(system: ir.System) -> dict[ir.Expr, ir.Expr]:
    """The values of a system's scalar equations, by their targets."""
    numbers: dict[ir.Expr, ir.Expr] = {}
    for equation in system.equations:
        value = substitute(equation.value, numbers)
        if not equation.target.places and is_number(value):
            numbers[equation.target] = value
    return numbers


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
    reader, numbers = _Reader(Names.of(system)), _find_numbers(system)
    equations: list[ir.Equation] = []
    for equation in system.equations:
        reader.target, count = equation.target.tensor.name, len(reader.made)
        value = reader.rewrite_sums(substitute(equation.value, numbers))
        made = [each for group in [*reader.made.values()][count:] for each in group]
        value = value if made else equation.value
        equations += [*made, ir.Equation(equation.target, value)]
    if reader.made:
        yield replace(system, equations=tuple(equations))
