"""The values of constant nodes: exact as long as possible, else floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from math import prod

from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS

_NUMBERS: dict[str, Callable[..., float]] = {"exp": math.exp, "log": math.log} | {
    name: getattr(math, name) for name, row in FUNCTIONS.items() if row.value == name
}


def fold_number(expr: ir.Expr, numbers: list[Fraction | float]) -> Fraction | float | None:
    """The value of a node whose children are `numbers`; None where floats are needed."""
    match expr:
        case ir.Add():
            return sum(numbers)
        case ir.Mul():
            return prod(numbers)
        case ir.Pow():
            return _raise(*numbers)
        case ir.Call("pi"):
            return math.pi
        case ir.Call("I"):
            return None
        case ir.Call("max" | "min" as which):
            return max(numbers) if which == "max" else min(numbers)
        case ir.Call("abs"):
            return -numbers[0] if numbers[0] < 0 else numbers[0]
        case ir.Call("floordiv"):
            return Fraction(numbers[0] // numbers[1]) if numbers[1] else math.nan
        case ir.Call("mod"):
            return numbers[0] % numbers[1] if numbers[1] else math.nan
        case ir.Call("floor"):
            return Fraction(math.floor(numbers[0])) if math.isfinite(numbers[0]) else numbers[0]
        case ir.Call(function) if function in _NUMBERS:
            try:
                return _NUMBERS[function](*map(float, numbers))
            except (OverflowError, ValueError):
                return None
    return None


def _raise(base: Fraction | float, exponent: Fraction | float) -> Fraction | float | None:
    if base == 0 and exponent < 0:
        return math.inf
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        return base ** int(exponent) if abs(exponent) < 1000 else None
    if base < 0 and exponent != int(exponent):
        return math.nan
    if isinstance(base, Fraction) and exponent in (Fraction(1, 2), Fraction(-1, 2)):
        root = Fraction(math.isqrt(base.numerator), math.isqrt(base.denominator))
        if root * root == base:
            return root if exponent > 0 else 1 / root
    return float(math.pow(base, exponent))
