"""Recognition of torch's functions in formulas that write them out: x / (1 + exp(-x)) is silu(x).

The parts of a sum, product, choice or power that depend on one argument are compared with every
smooth function that the table defines by others, up to a factor and an added number. Candidates are
found by values at a few points and proved by normal forms. Functions that are not smooth are not
recognised, because torch's derivative at an edge may differ from the formula's.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from derive.analysis.integers import is_counted
from derive.ir import nodes as ir
from derive.ir.definitions import unfold
from derive.ir.functions import FUNCTIONS, find_call
from derive.ir.walk import exchange, is_number, map_children, walk
from derive.judge.constants import fold_number
from derive.prove import prove

_SIZE = ir.Size("@n")
_INDEX = ir.Index("@i", _SIZE)
_ARGUMENT = ir.Access(ir.Tensor("@x", (_SIZE,)), (_INDEX,))
_RESULT = ir.Access(ir.Tensor("@y", (_SIZE,)), (_INDEX,))
_POINTS = (-3.1, -1.7, -0.6, -0.2, 0.3, 0.9, 1.4, 2.3)
_ANY = 1.37  # value of a scalar
_NEAR = 1e-9  # tolerance at a point, for candidates; the normal forms decide
SAVED = 2  # operations that a call must save, since it takes the time of more than one
LOSSY = 1  # operations to save where the formula loses digits, overflows, or has bad gradients
_LARGEST = 8  # largest numerator and denominator of factors and added numbers
_NAMES = tuple(
    row.name
    for row in FUNCTIONS.values()
    if row.is_smooth and row.definition and len(row.tensors) == 1 and find_call(row.name)
)


def _find_shifted() -> Iterator[tuple[tuple[str, bool, ir.Expr], str]]:
    """Yield ((f, True, c), g) for functions g(x) = f(x + c), ((f, False, c), g) for f(x) + c."""
    for row in FUNCTIONS.values():
        if row.definition and len(row.tensors) == 1 and find_call(row.name):
            match unfold(ir.Call(row.name, (_ARGUMENT,))):
                case ir.Call(function, (ir.Add(terms),)) if {*terms} == {terms[0], _ARGUMENT}:
                    yield (function, True, terms[0]), row.name
                case ir.Add((ir.Call(function, (value,)), number)) if value is _ARGUMENT:
                    yield (function, False, number), row.name


_SHIFTED = dict(_find_shifted())


def fold_shifted(expr: ir.Expr, system: ir.System) -> ir.Expr:
    """Return log(1 + x) as log1p(x), exp(x) - 1 as expm1(x): one pass, and exact for small values.

    At a million entries they take .56 and 1.0 of the time (.8 in float64). Not if the sum or the
    exponential has other readers, for which it is computed anyway.
    """
    match expr:
        case ir.Call(function, (ir.Add(terms) as shared,)) if not is_number(expr):
            for n, number in enumerate(terms):
                if (name := _SHIFTED.get((function, True, number))) and _has_one_reader(
                    shared, system
                ):
                    return ir.Call(name, (ir.sum_of(terms[:n] + terms[n + 1 :]),))
        case ir.Add(terms) if not is_number(expr):
            for call in (t for t in terms if isinstance(t, ir.Call) and not is_number(t)):
                for number in terms:
                    name = _SHIFTED.get((call.function, False, number))
                    if name and _has_one_reader(call, system):
                        others = list(terms)
                        others.remove(call)
                        others.remove(number)
                        return ir.sum_of((ir.Call(name, call.arguments), *others))
    return expr


def _has_one_reader(part: ir.Expr, system: ir.System) -> bool:
    values = (equation.value for equation in system.equations)
    readers = {here for value in values for here in walk(value) if part in here.children}
    return len(readers) == 1


def fold_sums(system: ir.System) -> ir.System:
    """Replace products, calls and powers of a system by torch's functions that they write out."""
    done: dict[ir.Expr, ir.Expr] = {}

    def fold_factors(here: ir.Expr) -> ir.Expr:
        """The expression with functions in place of their definitions, outer ones first.

        So x / (1 + exp(-x)) becomes silu(x), not x times a sigmoid.
        """
        if here not in done:
            flat: tuple[ir.Expr, ...] = ()
            if isinstance(here, ir.Mul):
                inner = (ir.split_product(f) for f in here.factors)
                flat = tuple(factor for each in inner for factor in each)
            elif isinstance(here, (ir.Call, ir.Pow)):
                flat = (here,)
            found = fold_parts(flat, is_sum=False)
            whole = ir.product_of(found)
            done[here] = map_children(here if found == flat else whole, fold_factors)
        return done[here]

    equations = (ir.Equation(each.target, fold_factors(each.value)) for each in system.equations)
    return replace(system, equations=tuple(equations))


@lru_cache(maxsize=1 << 12)
def fold_parts(parts: tuple[ir.Expr, ...], *, is_sum: bool) -> tuple[ir.Expr, ...]:
    """Return terms, or factors, with a function in place of those that write it out."""
    atoms = dict.fromkeys(atom for part in parts for atom in _find_atoms(part))
    if not any(isinstance(atom, ir.Call) for atom in atoms):
        return parts
    arguments = dict.fromkeys(a.arguments[0] if isinstance(a, ir.Call) else a for a in atoms)
    for argument in arguments:
        match argument:
            case ir.Mul((sign, value)) if sign is ir.MINUS_ONE and value in atoms:
                continue  # x is tried as the argument instead of -x
        put = {part: exchange(part, argument, _ARGUMENT) for part in parts}
        for others in ((), *((scalar,) for scalar in _find_scalars(parts))):
            own = [part for part in parts if _is_made_of(put[part], others)]
            if not own or all(map(is_number, own)) or is_counted(argument):
                continue
            kind = ir.Add if is_sum else ir.Mul
            whole = put[own[0]] if len(own) == 1 else kind(tuple(put[part] for part in own))
            found = _find_call(whole)
            if found is not None:
                found = exchange(found, ir.Mul((ir.MINUS_ONE, _ARGUMENT)), ir.change_sign(argument))
                found = exchange(found, _ARGUMENT, argument)
                rest = (part for part in parts if part not in own)
                return (*rest, *(found.children if isinstance(found, kind) else (found,)))
    return parts


def _find_scalars(parts: tuple[ir.Expr, ...]) -> dict[ir.Scalar, None]:
    """Return the scalars of the parts, candidates for a second argument."""
    return dict.fromkeys(p for part in parts for p in walk(part) if isinstance(p, ir.Scalar))


def fold_call(expr: ir.Expr) -> ir.Expr | None:
    """Return the function that a power, a call or a choice writes out; None if it writes none."""
    found = fold_parts((expr,), is_sum=False)
    if found[0] is expr:
        return None
    return ir.product_of(found)


def _find_atoms(expr: ir.Expr) -> Iterator[ir.Expr]:
    """Yield candidates for x in f(x): reads, sums, functions and their arguments."""
    match expr:
        case ir.Access() | ir.Reduce() | ir.Along():
            yield expr
        case ir.Add(terms):
            yield expr
            for term in terms:
                yield from _find_atoms(term)
        case ir.Call(_, (argument,)):
            yield expr
            yield from _find_atoms(argument)
        case ir.Mul() | ir.Pow() | ir.Where() | ir.Compare() | ir.Call():
            for part in expr.children:
                yield from _find_atoms(part)


def _is_made_of(expr: ir.Expr, others: tuple[ir.Expr, ...] = ()) -> bool:
    """Whether an expression consists of numbers, the argument and `others`."""
    match expr:
        case ir.Number():
            return True
        case ir.Add() | ir.Mul() | ir.Pow() | ir.Where() | ir.Compare() | ir.Call():
            return all(_is_made_of(part, others) for part in expr.children)
    return expr is _ARGUMENT or expr in others


@lru_cache(maxsize=1 << 12)
def _find_call(expr: ir.Expr) -> ir.Expr | None:
    """Return an equal a * f(x) + b with a function f, if that saves operations, or None."""
    values = _evaluate_all(expr)
    if values is None or len({*values}) < len(_POINTS) // 2:
        return None
    least = _count_operations(expr)
    found: list[tuple[int, bool, ir.Expr]] = []
    scalars: tuple[ir.Expr, ...] = tuple(_find_scalars((expr,)))
    numbers = (n for n in walk(expr) if isinstance(n, ir.Number) and n.value > 0)
    ways = [scalars] if scalars else [(), *((number,) for number in dict.fromkeys(numbers))]
    for name, others in itertools.product(_NAMES, ways):
        if len(others) > len(FUNCTIONS[name].defaults):
            continue
        for argument in (_ARGUMENT, ir.Mul((ir.MINUS_ONE, _ARGUMENT))):
            call = ir.Call(name, (argument, *others))
            fit = _fit_affine(values, _evaluate_all(call))
            if fit is not None:
                scale, more = fit
                scaled = call if scale == 1 else ir.Mul((ir.Number(scale), call))
                whole = ir.Add((scaled, ir.Number(more))) if more else scaled
                found.append((_count_operations(whole), argument is not _ARGUMENT, whole))
    found.sort(key=lambda each: each[:2])
    match expr:
        case ir.Call("log", (value,)) if any(isinstance(part, ir.Call) for part in walk(value)):
            most = least - LOSSY
        case ir.Pow(base) if any(isinstance(part, ir.Call) for part in walk(base)):
            most = least - LOSSY
        case _:
            most = least - SAVED
    return next((w for n, _, w in found if n <= most and _is_proved(expr, w)), None)


def _count_operations(expr: ir.Expr) -> int:
    own = isinstance(
        expr, (ir.Add, ir.Mul, ir.Pow, ir.Call, ir.Where, ir.Compare)
    ) and not is_number(expr)
    return own + sum(map(_count_operations, expr.children)) if expr is not _ARGUMENT else 0


def _fit_affine(
    values: tuple[float, ...], others: tuple[float, ...] | None
) -> tuple[Fraction, Fraction] | None:
    """Return small rationals (a, b) with values = a * others + b, or None."""
    if others is None:
        return None
    low, high = others.index(min(others)), others.index(max(others))
    scale = (values[high] - values[low]) / (others[high] - others[low])
    found = []
    for number in (scale, values[low] - scale * others[low]):
        near = Fraction(number).limit_denominator(_LARGEST)
        if abs(near.numerator) > _LARGEST:
            return None
        found.append(near)
    scale, more = map(float, found)
    pairs = zip(values, others, strict=True)
    if not scale or any(abs(a - scale * b - more) > _NEAR * (1 + abs(a)) for a, b in pairs):
        return None
    return found[0], found[1]


@lru_cache(maxsize=1 << 12)
def _evaluate_all(expr: ir.Expr) -> tuple[float, ...] | None:
    try:
        values = tuple(float(_evaluate(expr, at)) for at in _POINTS)
    except (ValueError, ZeroDivisionError, OverflowError, TypeError):
        return None
    return values if all(map(math.isfinite, values)) else None


def _evaluate(expr: ir.Expr, at: float) -> Fraction | float:
    """Evaluate an expression, its reads as `at`, scalars as `_ANY`; TypeError for other parts."""
    match expr:
        case ir.Number(value):
            return float(value)
        case ir.Access():
            return at
        case ir.Scalar():
            return _ANY
        case ir.Where(ir.Compare(relation, left, right), then, other):
            holds = ir.DECIDING[relation](_evaluate(left, at), _evaluate(right, at))
            return _evaluate(then if holds else other, at)
        case ir.Add() | ir.Mul() | ir.Pow() | ir.Call():
            found = fold_number(expr, [_evaluate(part, at) for part in expr.children])
            if found is not None:
                return found
            opened = unfold(expr) if isinstance(expr, ir.Call) else None
            if opened is not None:
                return _evaluate(opened, at)
    raise TypeError(f"{type(expr).__name__} has no number")


def _is_proved(one: ir.Expr, other: ir.Expr) -> bool:
    """Whether both have one normal form, or exp of both if one is a logarithm."""
    match one:
        case ir.Call("log", (value,)) if value is not _ARGUMENT:
            if _is_proved(value, ir.Call("exp", (other,))):
                return True
    scalars = (ir.ScalarInput(each.name) for each in _find_scalars((one, other)))
    inputs: tuple[ir.Tensor | ir.ScalarInput, ...] = (_ARGUMENT.tensor, *scalars)
    ours, theirs = (
        ir.System("y", inputs, (), (ir.Equation(_RESULT, each),), (_RESULT.tensor,))
        for each in (one, other)
    )
    return prove(ours, theirs) is not None
