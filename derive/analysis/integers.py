"""Integers that equations make: tensors of whole numbers that tell positions of others.

    k[n] = sum[j]([g[j] < x[n]])     integers, 0 <= k[n] < K + 1
    y[n] = v[clip(floor(x[n]), 0, K - 1)]    becomes    y_clip[n] = clip(floor(x[n]), ..)
                                                        y[n] = v[y_clip[n]]

What a position is made of beside indices, sizes and integers gets an equation of its own. A bound
is found from what the equations say, of a recurrence by induction: where all that it reads of
itself is below the bound, so is what it makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm

from derive.analysis.extents import find_sides
from derive.analysis.facts import find_range, find_reads, is_integer, is_readable, is_whole
from derive.ir import nodes as ir
from derive.ir.polynomial import NOTHING, Polynomial
from derive.ir.walk import (
    Names,
    exchange,
    exchange_tensors,
    find_accesses,
    find_children,
    find_free,
    rewrite_bottom_up,
    walk,
)

_ROUNDING = {"floor", "sign"}  # whole numbers of any


def is_counted(expr: ir.Expr, *, brackets: bool = True) -> bool:
    """Is it an integer by its declaration: of indices, integers, argmax and counts of `brackets`?

    A bracket and a number by themselves are as real as what they stand beside.
    """
    return any(_is_declared(part, brackets) for part in _find_values(expr)) and _is_exact(expr)


def _is_declared(part: ir.Expr, brackets: bool) -> bool:
    match part:
        case ir.Index() | ir.Reduce("argmax"):
            return True
        case ir.Access(tensor):
            return tensor.kind == "int"
    return brackets and getattr(part, "kind", "") in {"sum", "cumsum"}


def _is_exact(expr: ir.Expr) -> bool:
    """Is it a whole number that integers alone make, with no quotient and nothing rounded?"""
    for part in _find_values(expr):
        match part:
            case ir.Pow(_, ir.Number(power)) if power < 0:
                return False
            case ir.Call("floor" | "sign", (argument,)) if not is_whole(Polynomial.of(argument)):
                return False
    return is_whole(Polynomial.of(expr))


def _divide_floors(expr: ir.Expr) -> ir.Expr:
    """floor(p / n) of integers is p // n: no rule takes the number apart from it."""
    match expr:
        case ir.Call("floor", (argument,)) if is_integer(value := Polynomial.of(argument)):
            under = lcm(*(number.denominator for number in value.terms.values()))
            if all(power > 0 for monomial in value.terms for _, power in monomial):
                over = (value * Polynomial.of(under)).to_expr()
                whole = ir.Call("floordiv", (over, ir.Number(Fraction(under))))
                return over if under == 1 else whole
    return expr


def _find_values(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The parts that make the value, not those that only decide or tell a position."""
    yield expr
    match expr:
        case ir.Access() | ir.Reduce("argmax"):
            return
        case ir.Where(_, then, other):
            parts: Sequence[ir.Expr] = (then, other)
        case ir.Reduce(_, _, _, body) | ir.Along(_, _, _, body):
            parts = (body,)
        case _:
            parts = find_children(expr)
    for part in parts:
        yield from _find_values(part)


def mark_integers(system: ir.System) -> ir.System:
    """The system whose tensors of integers are such: by declaration, or since they tell positions.

    A recurrence is one by induction: of itself as integers it makes integers.
    """
    values = (rewrite_bottom_up(e.value, _divide_floors) for e in system.equations)
    equations = tuple(map(ir.Equation, (e.target for e in system.equations), values))
    system = _lift_places(replace(system, equations=equations))
    parts: dict[ir.Tensor, list[ir.Expr]] = {}
    for equation in system.equations:
        if equation.target.tensor.kind == "real":
            parts.setdefault(equation.target.tensor, []).extend(_find_values(equation.value))
    told: dict[ir.Tensor, None] = {}
    waiting = [a.tensor for place in _find_places(system) for a in find_accesses(place)]
    while waiting:
        here = waiting.pop()
        if here in parts and here not in told:
            told[here] = None
            waiting += [part.tensor for part in parts[here] if isinstance(part, ir.Access)]
    found = dict(told)
    for tensor, own in (*parts.items(), *parts.items()):  # again, for those that recur together
        reads = (part.tensor for part in own if isinstance(part, ir.Access))
        if any(_is_declared(part, True) for part in own) or any(map(found.__contains__, reads)):
            found[tensor] = None
    while found:
        marked = _exchange(system, {t: replace(t, kind="int") for t in found})
        wrong = {
            old.target.tensor
            for old, new in zip(system.equations, marked.equations, strict=True)
            if not is_whole(Polynomial.of(new.value))
            or (old.target.tensor not in told and not _is_exact(new.value))
        }
        if not wrong & {*found}:
            return _find_bounds(marked)
        found = {tensor: None for tensor in found if tensor not in wrong}
    return system


def _find_places(system: ir.System) -> Iterator[ir.Expr]:
    """What tells positions: places, and what is compared with them and is more than rounded."""
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
            told = [guard for guard in guards if {*find_free(guard)} <= {*axes}]
            own = part if is_readable(part) else ir.Where(ir.all_of(*told), part, ir.ZERO)
            made.append(ir.Equation(ir.name_axes(name, axes), own))
            value = exchange(value, part, made[-1].target)
        made.append(equation if value is equation.value else ir.Equation(equation.target, value))
    if len(made) == len(system.equations):
        return system
    return replace(system, equations=tuple(made), written=system.written or system.equations)


def _find_lifted(value: ir.Expr) -> Iterator[tuple[ir.Expr, Sequence[ir.Expr]]]:
    """The places, or the parts of places, that get equations of their own, and their guards."""
    reads = find_reads(value)
    for place, guards in ((place, guards) for access, guards in reads for place in access.places):
        if part := next(filter(_is_lifted, walk(place)), None):
            is_sure = is_whole(Polynomial.of(place)) and _find_high(place) is not None
            yield place if is_sure else part, guards


def _is_lifted(part: ir.Expr) -> bool:
    """Is it a whole number that no arithmetic of positions makes?"""
    is_made = isinstance(part, ir.Where) or (
        isinstance(part, ir.Call) and part.function in _ROUNDING
    )
    is_told = is_made and any(access.tensor.kind != "int" for access in find_accesses(part))
    is_told = is_told or isinstance(part, (ir.Reduce, ir.Along))
    return is_told and is_whole(Polynomial.of(part))


def _exchange(system: ir.System, new: Mapping[ir.Tensor, ir.Tensor]) -> ir.System:
    """The system with other tensors in place of some."""
    equations = exchange_tensors(system.equations, new)
    results = tuple(new.get(tensor, tensor) for tensor in system.results)
    return replace(system, equations=equations, results=results)


def _find_bounds(system: ir.System) -> ir.System:
    """The system whose integers have the bounds that the equations tell."""
    open_ones = _find_open(system)
    told: dict[ir.Tensor, ir.Tensor] = {}
    for tensor in open_ones:
        highs = [_find_high(e.value) for e in system.equations if e.target.tensor is tensor]
        if len(highs) == 1 and highs[0] is not None:
            told[tensor] = replace(tensor, below=(highs[0] + Polynomial.of(1)).to_expr())
    system = _exchange(system, told) if told else system
    guess: dict[ir.Tensor, ir.Expr | None] = dict.fromkeys(_find_open(system))
    for equation in system.equations:
        for access in find_accesses(equation.value):
            for place, extent in zip(access.places, access.tensor.shape, strict=True):
                for read in find_accesses(place):
                    if guess.get(read.tensor, extent) is None:
                        guess[read.tensor] = extent
    while guess:
        bounded = {t: replace(t, below=below, lower=ir.ZERO) for t, below in guess.items()}
        tried = _exchange(system, bounded)
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


def _find_open(system: ir.System) -> tuple[ir.Tensor, ...]:
    """The integers that equations make and that have no bound yet."""
    made = (e.target.tensor for e in system.equations)
    return tuple(dict.fromkeys(t for t in made if t.kind == "int" and t.below is None))


def _find_high(value: ir.Expr) -> Polynomial | None:
    """The largest that values from 0 on may be, over sizes; None where that is not told."""
    high, (starts, _) = find_range(value).high, find_sides(value, NOTHING, ())
    is_plain = high is not None and all(isinstance(a, ir.Size) for a in high.atoms)
    return high if is_plain and starts else None


def _is_below(value: ir.Expr, below: ir.Expr | None) -> bool:
    """Is it from 0 on, and below the bound if there is one?"""
    length = Polynomial.of(below) if below is not None else NOTHING
    starts, ends = find_sides(value, length, ())
    return starts and (ends or below is None)
