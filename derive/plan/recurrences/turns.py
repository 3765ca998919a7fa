"""Analyses of recurrences: slopes of linear ones, initial values, conditions, bounds.

h[t] = where(t - 1 < 0, h0, h[t - 1])*a[t] + x[t]     slope a[t], rest x[t], initial value h0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import exp, inf

from derive.analysis.extents import is_always
from derive.analysis.names import is_condition
from derive.analysis.safety import is_safe
from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS
from derive.ir.polynomial import Polynomial
from derive.ir.recurrences import Recurrence
from derive.ir.walk import (
    find_accesses,
    find_free,
    is_bracket,
    is_reading,
    rewrite_bottom_up,
    rewrite_top_down,
    substitute,
    walk,
)
from derive.plan.lower.condition import fold_conditions


def find_slope(expr: ir.Expr, recurrence: Recurrence) -> tuple[ir.Expr, ir.Expr] | None:
    """(slope, rest) of an expression slope * h[t - 1] + rest; None if it is not linear.

    h is the tensor of the recurrence's only equation.
    """
    target = recurrence.equations[0].target
    find = partial(find_slope, recurrence=recurrence)
    if not is_reading(expr, target.tensor):
        return ir.ZERO, expr
    match expr:
        case ir.Access(_, places):
            axis = target.places.index(recurrence.index)
            others = (*places[:axis], *places[axis + 1 :])
            is_diagonal = others == (*target.places[:axis], *target.places[axis + 1 :])
            return (ir.ONE, ir.ZERO) if is_diagonal and recurrence.find_lag(expr) == 1 else None
        case ir.Add(terms):
            found = [part for part in map(find, terms) if part is not None]
            if len(found) < len(terms):
                return None
            slopes, rests = zip(*found, strict=True)
            return add_terms(*slopes), add_terms(*rests)
        case ir.Mul(factors):
            first, *more = (k for k, each in enumerate(factors) if is_reading(each, target.tensor))
            inner = find(factors[first])
            if inner is None or more:
                return None
            before, after = factors[:first], factors[first + 1 :]
            slope, rest = (multiply(*before, part, *after) for part in inner)
            return slope, rest
        case ir.Where(condition, then, other) if not is_reading(condition, target.tensor):
            one, two = find(then), find(other)
            if one is None or two is None:
                return None
            slope, rest = (ir.Where(condition, a, b) for a, b in zip(one, two, strict=True))
            return slope, rest if one[1] is not two[1] else one[1]
    return None


def read_linear(
    recurrence: Recurrence,
) -> tuple[ir.Expr, tuple[ir.Expr, ir.Expr] | None, ir.Expr | None]:
    """(the value without the initial value, its slope and rest, the initial value) of an equation.

    None for a slope and rest if it is not linear, and for an initial value that it lacks.
    """
    (equation,) = recurrence.equations
    (value,), starts = strip_starts(recurrence) or ([equation.value], {})
    return value, find_slope(value, recurrence), starts.get((equation.target.tensor, 1))


def multiply(*factors: ir.Expr) -> ir.Expr:
    """The product of the factors, simplified for factors 1 and 0."""
    left = [each for each in factors if each is not ir.ONE]
    return ir.ZERO if ir.ZERO in left else ir.product_of(left)


def strip_starts(
    recurrence: Recurrence, *, is_guarded: bool = False
) -> tuple[list[ir.Expr], dict[tuple[ir.Tensor, int], ir.Expr]] | None:
    """The values of the equations without initial values, and the initial values by lag.

    where(t - 1 < 0, h0[f], h[t - 1,f])  becomes  h[t - 1,f], with the initial value h0[f] at lag 1.
    None if a read has no initial value. With `is_guarded`, conditions on the index may remain.
    """
    index, starts = recurrence.index, dict[tuple[ir.Tensor, int], ir.Expr]()
    targets = recurrence.targets

    def strip_start(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Where(condition, ir.Access(tensor, places) as read, start) if (
                tensor in targets
                and recurrence.find_lag(read) == 1
                and not recurrence.reads(start)
                and excludes_first(condition, index)
            ):
                before = ir.Compare("<", places[recurrence.find_axis(tensor)], ir.ZERO)
                return strip_start(ir.Where(before, start, read))
            case ir.Where(
                ir.Compare("<", place, bound), start, ir.Access(tensor, places) as read
            ) if bound is ir.ZERO and tensor in targets:
                lag, axis = recurrence.find_lag(read), recurrence.find_axis(tensor)
                others, own, lengths = (
                    [*each[:axis], *each[axis + 1 :]]
                    for each in (places, targets[tensor].places, tensor.shape)
                )
                marks = tuple(ir.Index(f"@{k}", length) for k, length in enumerate(lengths))
                start = substitute(start, dict(zip(others, marks, strict=True)))
                is_plain = {*find_free(start)} <= {*marks, index} and len({*others}) == len(own)
                if not lag or not is_plain or places[axis] is not place:
                    return expr
                for turn in range(lag):
                    at: dict[ir.Expr, ir.Expr] = {index: ir.Number(Fraction(turn))}
                    value = rewrite_bottom_up(substitute(start, at), fold_choices)
                    value = substitute(value, dict(zip(marks, own, strict=True)))
                    if starts.setdefault((tensor, lag - turn), value) is not value:
                        return expr
                return read
        return expr

    values = [
        rewrite_top_down(e.value, partial(push_guard, reads=recurrence.reads, first=index))
        for e in recurrence.equations
    ]
    values = [rewrite_top_down(value, strip_start) for value in values]
    lags = {(a.tensor, recurrence.find_lag(a) or 0) for a in recurrence.find_reads(*values)}
    if any(lag and (tensor, lag) not in starts for tensor, lag in lags):
        return None
    is_free = is_guarded or not any(find_conditions(values, index))
    return (values, starts) if is_free else None


def push_guard(
    expr: ir.Expr, reads: Callable[[ir.Expr], bool], first: ir.Index | None = None
) -> ir.Expr:
    """Move the condition of a choice to the reads of a recurrence in it.

    where(c, 2*h[t - 1] + x, 0) becomes 2*where(c, h[t - 1], 0) + where(c, x, 0). With an index,
    `first`, only conditions that exclude its first position are moved.
    """

    def applies(condition: ir.Expr) -> bool:
        return excludes_first(condition, first) if first else not find_accesses(condition)

    def push(condition: ir.Expr, then: ir.Expr, other: ir.Expr) -> ir.Expr:
        own = [part for part in then.children if reads(part)]
        is_one = isinstance(other, (ir.Number, ir.Infinity)) and len(own) == 1

        def guard(part: ir.Expr) -> ir.Expr:
            is_kept = is_safe(part) if first else not find_accesses(part)
            if part in own:
                return push(condition, part, other)
            is_factor = is_kept and isinstance(then, ir.Mul)
            return part if is_factor else ir.Where(condition, part, ir.ZERO)

        match then:
            case ir.Add(terms) if is_one or (first and other is ir.ZERO):
                return ir.Add(tuple(map(guard, terms)))
            case ir.Mul(factors) if is_one and other is ir.ZERO:
                return ir.Mul(tuple(map(guard, factors)))
            case ir.Reduce("sum", bound, within, body) if first and other is ir.ZERO:
                if not reads(within):
                    return ir.Reduce("sum", bound, within, push(condition, body, other))
        return ir.Where(condition, then, other)

    match expr:
        case ir.Mul(factors):
            conditions = {f: f.condition if first and is_bracket(f) else f for f in factors}
            guards = {f: c for f, c in conditions.items() if is_condition(c) and applies(c)}
            rest = [factor for factor in factors if factor not in guards]
            if guards and any(map(reads, rest)):
                return push(ir.all_of(*guards.values()), ir.product_of(rest), ir.ZERO)
        case ir.Where(condition, then, other):
            for sides in ((condition, then, other), (ir.negate(condition), other, then)):
                if reads(sides[1]) and not reads(sides[2]) and applies(sides[0]):
                    return push(*sides)
    return expr


def excludes_first(condition: ir.Expr, index: ir.Index) -> bool:
    """Whether the condition holds at all positions of the index but the first one."""
    later = ir.Index(index.name, (Polynomial.of(index.extent) - Polynomial.of(1)).to_expr())
    behind: dict[ir.Expr, ir.Expr] = {index: ir.Add((later, ir.ONE))}
    at_first = ir.Not(substitute(condition, {index: ir.ZERO}))
    return is_always(at_first) and is_always(substitute(condition, behind))


def find_conditions(values: Sequence[ir.Expr], index: ir.Index) -> Iterator[ir.Expr]:
    """The conditions on the index itself, not on entries at it."""
    for part in (part for value in values for part in walk(value)):
        if isinstance(part, (ir.Compare, ir.And, ir.Or, ir.Not)) and index in _walk_values(part):
            yield part


def _walk_values(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The parts of an expression, without the positions of accesses."""
    yield expr
    for part in () if isinstance(expr, ir.Access) else expr.children:
        yield from _walk_values(part)


def add_terms(*terms: ir.Expr) -> ir.Expr:
    """The sum of the terms, without zeros."""
    return ir.sum_of([term for term in terms if term is not ir.ZERO])


def fold_choices(expr: ir.Expr) -> ir.Expr:
    """Simplify the top node of an expression: positions, decided choices, products with 0 or 1."""
    folded = fold_conditions(expr, ())
    is_product = isinstance(folded, ir.Mul) and {ir.ZERO, ir.ONE} & {*folded.factors}
    return multiply(*ir.split_product(folded)) if is_product else folded


LARGEST = 700.0  # the largest power for which exp is a float


def find_interval(expr: ir.Expr, system: ir.System) -> tuple[float, float]:
    """The bounds of an expression; a tensor has those of its equation, or else declared ones."""
    values = {e.target.tensor: e.value for e in system.equations}
    return _find_interval(expr, values)


def _find_interval(expr: ir.Expr, values: Mapping[ir.Tensor, ir.Expr]) -> tuple[float, float]:
    find = partial(_find_interval, values=values)
    low: float | None
    high: float | None
    match expr:
        case ir.Number(value):
            return float(value), float(value)
        case ir.Access(tensor) if tensor in values:
            others = {t: value for t, value in values.items() if t is not tensor}
            return _find_interval(values[tensor], others)
        case ir.Access(tensor):
            bounds = (tensor.lower, tensor.upper)
            low, high = (float(n.value) if isinstance(n, ir.Number) else None for n in bounds)
        case ir.Compare() | ir.And() | ir.Or() | ir.Not():
            low, high = 0.0, 1.0
        case ir.Add(terms):
            lows, highs = zip(*map(find, terms), strict=True)
            low, high = sum(lows), sum(highs)
        case ir.Mul(factors):
            low, high = 1.0, 1.0
            for ends in map(find, factors):
                corners = [x * y if x and y else 0.0 for x in (low, high) for y in ends]
                low, high = min(corners), max(corners)
        case ir.Pow(base, ir.Number(power)) if (ends := find(base))[0] > 0:
            low, high = sorted(end ** float(power) for end in ends)
        case ir.Where(_, then, other):
            a, b = find(then), find(other)
            low, high = min(a[0], b[0]), max(a[1], b[1])
        case ir.Call("exp", (power,)):
            low, high = (exp(end) if end < LARGEST else inf for end in find(power))
        case ir.Call(function):
            low, high = FUNCTIONS[function].range
        case _:
            low, high = None, None
    return -inf if low is None else low, inf if high is None else high
