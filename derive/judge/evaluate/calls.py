"""Elementwise functions and powers; what is a number alone stays exact as long as it can."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from operator import attrgetter
from typing import TYPE_CHECKING

from derive.ir.definitions import unfold_call
from derive.ir.functions import FUNCTIONS, find_call
from derive.ir.nodes import Add, Call, Expr, Mul, Pow
from derive.judge.evaluate import places
from derive.judge.evaluate.grid import Grid, align

if TYPE_CHECKING:
    from collections.abc import Callable

    from derive.judge.evaluate.grid import Evaluator

_NUMBERS: dict[str, Callable[..., float]] = {"exp": math.exp, "log": math.log} | {
    name: getattr(math, name) for name, row in FUNCTIONS.items() if row.value == name
}


def power(evaluator: Evaluator, base: Expr, exponent: Expr) -> Grid:
    """A power; whole and half ones by multiplication, division and square root.

    An exponent of indices and whole numbers is counted in integers, as code counts it.
    """
    import torch

    under, number = evaluator.find(base), evaluator.number(exponent)
    if isinstance(number, Fraction) and (2 * number).denominator == 1 and abs(number) <= 8:
        found, whole = under.tensor, abs(number) // 1
        made = None if not whole else found if whole == 1 else torch.pow(found, int(whole))
        if abs(number).denominator == 2:
            root = torch.sqrt(found)
            made = root if made is None else made * root
        if made is None:
            made = torch.ones_like(found)
        return Grid(torch.reciprocal(made) if number < 0 else made, under.indices)
    if isinstance(number, Fraction):
        return Grid(torch.pow(under.tensor, float(number)), under.indices)
    powers, base_number = places.integers(evaluator, exponent), evaluator.number(base)
    if isinstance(base_number, Fraction) and powers.tensor.is_floating_point():
        return Grid(torch.pow(float(base_number), powers.tensor), powers.indices)
    (one, two), indices = align([under, powers])
    return Grid(torch.pow(one, two), indices)


def call(evaluator: Evaluator, function: str, arguments: tuple[Expr, ...]) -> Grid:
    """An elementwise function of the notation."""
    import torch

    if function in {"floordiv", "mod"}:
        whole = places.integers(evaluator, Call(function, arguments))
        return Grid(whole.tensor.double(), whole.indices)
    row, known = FUNCTIONS[function], find_call(function)
    count = len(arguments) if row.is_variadic else len(row.tensors)
    numbers = [evaluator.number(argument) for argument in arguments[count:]]
    told = [float(number) for number in numbers if number is not None]
    if known is None or len(told) < len(numbers) or len(told) > len(known.parameters) - 1:
        return evaluator.find(unfold_call(function, arguments))
    parts, indices = align([evaluator.find(argument) for argument in arguments[:count]])
    act = attrgetter(known.path.removeprefix("torch."))(torch)
    if row.is_variadic:
        return Grid(reduce(act, parts), indices)
    return Grid(act(*parts, *told, **known.keywords), indices)


def fold_number(evaluator: Evaluator, expr: Expr) -> Fraction | float | None:
    """The number that a sum, product, power or function of numbers is."""
    match expr:
        case Add(parts) | Mul(parts):
            numbers = _find_all(evaluator, parts)
            if numbers is None:
                return None
            return _add(numbers) if isinstance(expr, Add) else _multiply(numbers)
        case Pow(base, exponent):
            both = _find_all(evaluator, (base, exponent))
            return None if both is None else _raise(*both)
        case Call(function, arguments):
            numbers = _find_all(evaluator, arguments)
            return None if numbers is None else _call(function, numbers)
    return None


def _find_all(evaluator: Evaluator, parts: tuple[Expr, ...]) -> list[Fraction | float] | None:
    found: list[Fraction | float] = []
    for part in parts:
        number = evaluator.number(part)
        if number is None:
            return None
        found.append(number)
    return found


def _add(numbers: list[Fraction | float]) -> Fraction | float:
    found: Fraction | float = Fraction(0)
    for number in numbers:
        found = found + number
    return found


def _multiply(numbers: list[Fraction | float]) -> Fraction | float:
    found: Fraction | float = Fraction(1)
    for number in numbers:
        found = found * number
    return found


def _raise(base: Fraction | float, exponent: Fraction | float) -> Fraction | float | None:
    if base == 0 and exponent < 0:
        return math.inf
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        return base ** int(exponent) if abs(exponent) < 1000 else None
    if base < 0 and exponent != int(exponent):
        return math.nan
    if isinstance(base, Fraction) and exponent in (Fraction(1, 2), Fraction(-1, 2)):
        over, under = math.isqrt(base.numerator), math.isqrt(base.denominator)
        if over * over == base.numerator and under * under == base.denominator:
            root = Fraction(over, under)
            return root if exponent > 0 else 1 / root
    return float(math.pow(base, exponent))


def _call(function: str, numbers: list[Fraction | float]) -> Fraction | float | None:
    match function:
        case "pi":
            return math.pi
        case "max":
            return max(numbers)
        case "min":
            return min(numbers)
        case "abs":
            return -numbers[0] if numbers[0] < 0 else numbers[0]
        case "floordiv":
            return Fraction(numbers[0] // numbers[1]) if numbers[1] else math.nan
        case "mod":
            return numbers[0] % numbers[1] if numbers[1] else math.nan
        case "floor":
            return Fraction(math.floor(numbers[0])) if math.isfinite(numbers[0]) else numbers[0]
        case _ if function in _NUMBERS:
            try:
                return _NUMBERS[function](*map(float, numbers))
            except (OverflowError, ValueError):
                return None
    return None
