"""Numbers, `+ - * / // % **` of the text as SymPy; what stands between them is read by the caller.

Laws: numbers are exact; the terms of one level are one sum and its factors one product; a power of
numbers is never worked out, and refused where nobody could.
"""

from __future__ import annotations

import ast
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

from sympy import Add, Mul, Pow, Rational

from derive.frontend.text.build import (
    add,
    divide_floor,
    invert,
    multiply,
    negate,
    power,
    remainder,
    to_rational,
)
from derive.frontend.text.syntax import span

if TYPE_CHECKING:
    from collections.abc import Callable

    from derive.frontend.text.lines import Source

MOST_TERMS = 256  # of an extent or a place, multiplied out
LARGEST_POWER = 1024  # of anything; and bits of a power of numbers


def is_arithmetic(node: ast.expr) -> bool:
    """Is it a number, a sign or one of the operators?"""
    match node:
        case ast.UnaryOp(ast.USub() | ast.UAdd()):
            return True
        case ast.Constant(value):
            return not isinstance(value, bool)
        case _:
            return isinstance(node, ast.BinOp)


def read_arithmetic(source: Source, node: ast.expr, read: Callable[[ast.expr], Any]) -> Any:
    """The SymPy expression of an arithmetic node, its operands read by `read`."""
    match node:
        case ast.Constant():
            return _read_number(source, node)
        case ast.UnaryOp(ast.UAdd(), operand):
            return read(operand)
        case ast.UnaryOp(ast.USub(), operand):
            return negate(read(operand))
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            first, rest = _find_spine(node, (ast.Add, ast.Sub))
            terms = [(isinstance(op, ast.Sub), read(right)) for op, right in rest]
            return add([read(first), *(negate(t) if minus else t for minus, t in terms)])
        case ast.BinOp(op=ast.Mult() | ast.Div()):
            return _read_product(source, node, read)
        case ast.BinOp(left, ast.FloorDiv(), right):
            return divide_floor(read(left), _read_divisor(source, right, read))
        case ast.BinOp(left, ast.Mod(), right):
            return remainder(read(left), _read_divisor(source, right, read))
        case ast.BinOp(left, ast.Pow(), right):
            return _read_power(source, node, read(left), read(right))
        case _:
            raise source.refuse("syntax", "this is no operator of the notation", span(node))


def find_value(expr: Any) -> Fraction | None:
    """The exact value of an expression of numbers, where it has one."""
    match expr:
        case Rational():
            return Fraction(int(expr.p), int(expr.q))
        case Add() | Mul():
            values = [find_value(part) for part in expr.args]
            total = Fraction(int(isinstance(expr, Mul)))
            for value in values:
                if value is None:
                    return None
                total = total + value if isinstance(expr, Add) else total * value
            return total
        case Pow(args=(base, exponent)):
            under, over = find_value(base), find_value(exponent)
            if under is None or over is None or over.denominator != 1 or (not under and over < 0):
                return None
            return under ** int(over) if _is_small(under, over) else None
        case _:
            return None


def check_expandable(source: Source, node: ast.expr, expr: Any) -> None:
    """Refuse what has too many terms when multiplied out; extents and places are compared so."""
    if _count_terms(expr) > MOST_TERMS:
        raise source.refuse(
            "too-deep",
            f"multiplied out this has more than {MOST_TERMS} terms",
            span(node),
            help="make it a size of its own: size W",
        )


def _count_terms(expr: Any) -> int:
    """The number of terms after multiplying out, at most one more than is allowed."""
    counts = [_count_terms(part) for part in expr.args]
    match expr:
        case Add():
            total = sum(counts)
        case Mul():
            total = prod(counts)
        case Pow(args=(_, Rational(p=power, q=1))) if power > 1 and counts[0] > 1:
            total = counts[0] ** min(int(power), MOST_TERMS)
        case _:
            total = max(counts, default=1)
    return min(total, MOST_TERMS + 1)


def _find_spine(
    node: ast.expr, kinds: tuple[type, ...]
) -> tuple[ast.expr, list[tuple[ast.operator, ast.expr]]]:
    """Read a + b - c as a and [(+, b), (-, c)]: a chain is one level, however long."""
    rest: list[tuple[ast.operator, ast.expr]] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, kinds):
        rest.append((node.op, node.right))
        node = node.left
    return node, rest[::-1]


def _read_product(source: Source, node: ast.expr, read: Callable[[ast.expr], Any]) -> Any:
    first, rest = _find_spine(node, (ast.Mult, ast.Div))
    minus = False
    match first:
        case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
            first, minus = operand, True
    start = read(first)
    factors = list(start.args) if minus and isinstance(start, Mul) else [start]
    for op, right in rest:
        if isinstance(op, ast.Div):
            factors.append(invert(_read_divisor(source, right, read)))
        else:
            factors.append(read(right))
    product = multiply(factors)
    return negate(product) if minus else product


def _read_divisor(source: Source, node: ast.expr, read: Callable[[ast.expr], Any]) -> Any:
    divisor = read(node)
    if find_value(divisor) == 0:
        advice = "take the division out"
        raise source.refuse("division-by-zero", "this divides by 0", span(node), help=advice)
    return divisor


def _read_power(source: Source, node: ast.expr, base: Any, exponent: Any) -> Any:
    under, over = find_value(base), find_value(exponent)
    if over is not None and not _is_small(under, over):
        raise source.refuse(
            "number-too-large",
            "numbers are kept exactly, and this power is too large for that",
            span(node),
            help="make it a scalar: scalar c",
        )
    if under == 0 and over is not None and over < 0:
        advice = "take the division out"
        raise source.refuse("division-by-zero", "this divides by 0", span(node), help=advice)
    return power(base, exponent if over is None else to_rational(over))


def _is_small(base: Fraction | None, exponent: Fraction) -> bool:
    if abs(exponent) > LARGEST_POWER:
        return False
    if base is None or base in {-1, 0, 1}:
        return True
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    return bits * abs(exponent) <= 4 * LARGEST_POWER


def _read_number(source: Source, node: ast.Constant) -> Any:
    start, end = span(node)
    text = source.text[start:end].replace("_", "")
    if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        raise source.refuse("syntax", f"{text} is no number of the notation", (start, end))
    if text.isdigit():
        return to_rational(int(text))
    return to_rational(Fraction(text))
