"""Which expressions and operations are plain Python numbers, integers or truth values."""

from __future__ import annotations

from derive.ir.nodes import (
    Access,
    Add,
    Call,
    Expr,
    Index,
    Infinity,
    Mul,
    Number,
    Pow,
    Scalar,
    Size,
)
from derive.ir.walk import find_free, walk
from derive.plan.ops import (
    Apply,
    Arrange,
    Cast,
    Iota,
    Num,
    NumTensor,
    Op,
    Reduction,
    Source,
    Triangle,
    args_of,
    with_args,
)

TRUTHS = ("<", "<=", ">", ">=", "==", "!=", "and", "or", "not")
WHOLE = {"floordiv", "mod", "abs", "sign", "min", "max", "clip"}


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


def is_integer(expr: Expr) -> bool:
    """Is it index arithmetic: whole numbers that depend on indices?

    It is computed in integers throughout, since positions above 256 have no bfloat16.
    """
    return bool(find_free(expr)) and all(_is_whole(part) for part in walk(expr))


def _is_whole(part: Expr) -> bool:
    match part:
        case Index() | Size() | Add() | Mul():
            return True
        case Number(value):
            return value.denominator == 1
        case Access(tensor, _):
            return tensor.kind == "int"
        case Pow(_, Number(value)):
            return value.denominator == 1 and value >= 0
        case Call(function, _):
            return function in WHOLE
        case _:
            return False


def strip_casts(op: Op) -> Op:
    """The operation on integers as they are."""
    if isinstance(op, Cast):
        return strip_casts(op.arg)
    args = args_of(op)
    return with_args(op, tuple(map(strip_casts, args))) if args else op


def is_truth(op: Op) -> bool:
    """Does it hold truth values?"""
    match op:
        case Source(_, _, kind):
            return kind == "bool"
        case Triangle():
            return True
        case Apply(function, _, _):
            return function in TRUTHS
        case Cast() | Reduction():
            return False
        case Arrange(arg, _):
            return is_truth(arg)
        case _:
            return any(is_truth(a) for a in args_of(op)) if len(args_of(op)) == 1 else False


def is_whole(op: Op) -> bool:
    """Does it hold integers: places, index arithmetic, integer tensors?"""
    match op:
        case Source(_, _, kind):
            return kind == "int"
        case Iota() | Reduction("argmax"):
            return True
        case Apply(function) if function in TRUTHS or function == "/":
            return False
        case Num(value):
            return isinstance(value, (Size, Number))
        case Cast() | NumTensor():
            return False
        case _:
            return bool(args_of(op)) and all(map(is_whole, args_of(op)))
