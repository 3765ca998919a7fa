"""Which expressions are plain Python numbers in a generated function."""

from __future__ import annotations

from derive.ir.nodes import Add, Call, Expr, Infinity, Mul, Number, Pow, Scalar, Size
from derive.ir.walk import walk


def is_number(expr: Expr) -> bool:
    """Is it made of sizes, scalars and constants by arithmetic alone?"""
    return all(_is_arithmetic(part) for part in walk(expr))


def _is_arithmetic(part: Expr) -> bool:
    match part:
        case Number() | Infinity() | Size() | Scalar() | Add() | Mul() | Pow():
            return True
        case Call(function, _):
            return function in {"pi", "floordiv", "mod"}
        case _:
            return False
