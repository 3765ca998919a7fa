"""The tensors defined by equations that hold integers, and their upper bounds.

    k[n] = sum[j]([g[j] < x[n]])     integers, 0 <= k[n] < K + 1
    y[n] = v[clip(floor(x[n]), 0, K - 1)]    becomes    y_clip[n] = clip(floor(x[n]), ..)
                                                        y[n] = v[y_clip[n]]

The parts of a position other than indices, sizes and integers become equations of their own. The
bound of an integer tensor is the upper bound of its values. For a recurrence it is proved by
induction: the values are below the bound if the values that they are computed from are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm

from derive.analysis.extents import find_sides
from derive.analysis.facts import find_range, is_integer, is_whole
from derive.analysis.safety import find_reads, is_readable
from derive.ir import nodes as ir
from derive.ir.polynomial import NOTHING, Polynomial
from derive.ir.walk import (
    Names,
    exchange,
    exchange_tensors,
    find_accesses,
    find_free,
    rewrite_bottom_up,
    walk,
)

_ROUNDING = {"floor", "sign"}  # functions with integer values for all arguments


def is_counted(expr: ir.Expr) -> bool:
    """Whether a value is an integer that depends on indices, int tensors or argmax.

    Such values are computed in integers, as bfloat16 cannot hold all integers above 256.
    """
    return any(map(_is_declared, _find_values(expr))) and _is_exact(expr)


def _is_declared(part: ir.Expr, *, brackets: bool = False) -> bool:
    """Whether a part is an index, an int tensor's element or an argmax; `brackets`: or a sum."""
    match part:
        case ir.Index() | ir.Reduce("argmax"):
            return True
        case ir.Access(tensor):
            return tensor.kind == "int"
    return brackets and getattr(part, "kind", "") in {"sum", "cumsum"}


def _is_exact(expr: ir.Expr) -> bool:
    """Whether a value is computed from integers without division and rounding."""
    for part in _find_values(expr):
        match part:
            case ir.Pow(_, ir.Number(power)) if power < 0:
                return False
            case ir.Call("floor" | "sign", (argument,)) if not is_whole(Polynomial.of(argument)):
                return False
    return is_whole(Polynomial.of(expr))


def _divide_floors(expr: ir.Expr) -> ir.Expr:
    """The expression; p // n for a floor(p / n) of integers, which stays exact under rules."""
    match expr:
        case ir.Call("floor", (argument,)) if is_integer(value := Polynomial.of(argument)):
            under = lcm(*(number.denominator for number in value.terms.values()))
            if all(power > 0 for monomial in value.terms for _, power in monomial):
                over = (value * Polynomial.of(under)).to_expr()
                whole = ir.Call("floordiv", (over, ir.Number(Fraction(under))))
                return over if under == 1 else whole
    return expr


def _find_values(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The subexpressions that the value is computed from, without conditions and positions."""
    yield expr
    match expr:
        case ir.Access() | ir.Reduce("argmax"):
            return
        case ir.Where(_, then, other):
            parts: Sequence[ir.Expr] = (then, other)
        case ir.Reduce(_, _, _, body) | ir.Along(_, _, _, body):
            parts = (body,)
        case _:
            parts = expr.children
    for part in parts:
        yield from _find_values(part)


def mark_integers(system: ir.System) -> ir.System:
    """The system with kind int for tensors of integer values, and with bounds of their values.

    A tensor is a candidate by `_is_declared`, or if it is used as a position. For a recurrence the
    proof is by induction: its values are integers if the values that it reads of itself are.
    """
    values = (rewrite_bottom_up(e.value, _divide_floors) for e in system.equations)
    equations = tuple(map(ir.Equation, (e.target for e in system.equations), values))
    system = _lift_places(replace(system, equations=equations))
    parts: dict[ir.Tensor, list[ir.Expr]] = {}
    for equation in system.equations:
        if equation.target.tensor.kind == "real":
            parts.setdefault(equation.target.tensor, []).extend(_find_values(equation.value))
    positions: dict[ir.Tensor, None] = {}
    waiting = [a.tensor for place in _find_places(system) for a in find_accesses(place)]
    while waiting:
        here = waiting.pop()
        if here in parts and here not in positions:
            positions[here] = None
            waiting += [part.tensor for part in parts[here] if isinstance(part, ir.Access)]
    found = dict(positions)
    for tensor, own in (*parts.items(), *parts.items()):  # twice, for mutual recurrences
        reads = (part.tensor for part in own if isinstance(part, ir.Access))
        if any(_is_declared(part, brackets=True) for part in own) or any(
            map(found.__contains__, reads)
        ):
            found[tensor] = None
    while found:
        marked = _exchange_tensors(system, {t: replace(t, kind="int") for t in found})
        wrong = {
            old.target.tensor
            for old, new in zip(system.equations, marked.equations, strict=True)
            if not is_whole(Polynomial.of(new.value))
            or (old.target.tensor not in positions and not _is_exact(new.value))
        }
        if not wrong & {*found}:
            return _find_bounds(marked)
        found = {tensor: None for tensor in found if tensor not in wrong}
    return system


def _find_places(system: ir.System) -> Iterator[ir.Expr]:
    """The places of accesses, and the values that `==` or `!=` compares with indices."""
    rounded = {
        e.target.tensor for e in system.equations if getattr(e.value, "function", "") == "floor"
    }
    for part in (part for equation in system.equations for part in walk(equation.value)):
        match part:
            case ir.Access(_, places):
                yield from places
            case ir.Compare("==" | "!=", one, other):
                for side, index in ((one, other), (other, one)):
                    is_counted = not any(a.tensor in rounded for a in find_accesses(side))
                    if is_counted and is_whole(Polynomial.of(index)) and find_free(index):
                        yield side


def _lift_places(system: ir.System) -> ir.System:
    names, made = Names.of(system), list[ir.Equation]()
    for equation in system.equations:
        value = equation.value
        while (found := next(_find_lifted(value), None)) is not None:
            part, guards = found
            word = getattr(part, "function", getattr(part, "kind", "place"))
            axes = find_free(part)
            name = names.take(f"{equation.target.tensor.name}_{word}")
            known = [guard for guard in guards if {*find_free(guard)} <= {*axes}]
            own = part if is_readable(part) else ir.Where(ir.all_of(*known), part, ir.ZERO)
            made.append(ir.Equation(ir.name_axes(name, axes), own))
            value = exchange(value, part, made[-1].target)
        made.append(equation if value is equation.value else ir.Equation(equation.target, value))
    if len(made) == len(system.equations):
        return system
    return replace(system, equations=tuple(made), written=system.written or system.equations)


def _find_lifted(value: ir.Expr) -> Iterator[tuple[ir.Expr, Sequence[ir.Expr]]]:
    """Pairs (place or part of a place to move to an equation of its own, guards of the read)."""
    reads = find_reads(value)
    for place, guards in ((place, guards) for access, guards in reads for place in access.places):
        if part := next(filter(_is_lifted, walk(place)), None):
            is_sure = is_whole(Polynomial.of(place)) and _find_high(place) is not None
            yield place if is_sure else part, guards


def _is_lifted(part: ir.Expr) -> bool:
    """Whether a part is whole by a choice, rounding or reduction, and so gets its own equation."""
    is_made = isinstance(part, ir.Where) or (
        isinstance(part, ir.Call) and part.function in _ROUNDING
    )
    is_made = is_made and any(access.tensor.kind != "int" for access in find_accesses(part))
    is_made = is_made or isinstance(part, (ir.Reduce, ir.Along))
    return is_made and is_whole(Polynomial.of(part))


def _exchange_tensors(system: ir.System, new: Mapping[ir.Tensor, ir.Tensor]) -> ir.System:
    """The system with some tensors replaced, also in its results."""
    equations = exchange_tensors(system.equations, new)
    results = tuple(new.get(tensor, tensor) for tensor in system.results)
    return replace(system, equations=equations, results=results)


def _find_bounds(system: ir.System) -> ir.System:
    """The system with upper bounds of integer tensors, from ranges of values or by induction."""
    bounded: dict[ir.Tensor, ir.Tensor] = {}
    for tensor in _find_unbounded(system):
        highs = [_find_high(e.value) for e in system.equations if e.target.tensor is tensor]
        if len(highs) == 1 and highs[0] is not None:
            bounded[tensor] = replace(tensor, below=(highs[0] + Polynomial.of(1)).to_expr())
    system = _exchange_tensors(system, bounded) if bounded else system
    guess: dict[ir.Tensor, ir.Expr | None] = dict.fromkeys(_find_unbounded(system))
    for equation in system.equations:
        for access in find_accesses(equation.value):
            for place, extent in zip(access.places, access.tensor.shape, strict=True):
                for read in find_accesses(place):
                    if guess.get(read.tensor, extent) is None:
                        guess[read.tensor] = extent
    while guess:
        bounded = {t: replace(t, below=below, lower=ir.ZERO) for t, below in guess.items()}
        tried = _exchange_tensors(system, bounded)
        pairs = zip(system.equations, tried.equations, strict=True)
        wrong = {
            old.target.tensor
            for old, new in pairs
            if old.target.tensor in guess and not _is_below(new.value, guess[old.target.tensor])
        }
        if not wrong:
            return tried
        guess = {
            t: None if t in wrong else below
            for t, below in guess.items()
            if t not in wrong or below is not None
        }
    return system


def _find_unbounded(system: ir.System) -> tuple[ir.Tensor, ...]:
    """The integer tensors defined by equations that have no bound yet."""
    made = (e.target.tensor for e in system.equations)
    return tuple(dict.fromkeys(t for t in made if t.kind == "int" and t.below is None))


def _find_high(value: ir.Expr) -> Polynomial | None:
    """The upper bound, over sizes, of a value shown to be never negative; None if not shown."""
    high, (starts, _) = find_range(value).high, find_sides(value, NOTHING, ())
    is_plain = high is not None and all(isinstance(a, ir.Size) for a in high.atoms)
    return high if is_plain and starts else None


def _is_below(value: ir.Expr, below: ir.Expr | None) -> bool:
    """Whether a value is shown to be >= 0, and below the bound if there is one."""
    length = Polynomial.of(below) if below is not None else NOTHING
    starts, ends = find_sides(value, length, ())
    return starts and (ends or below is None)
