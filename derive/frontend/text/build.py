"""Constructors of SymPy expressions without evaluation, so that they stay as written.

Laws:
- A product or a sum keeps its parts in the order of the text; one level is one n-ary node.
- A quotient is a product with a power of -1; a difference is a sum with a negated term.
- Numbers are exact; a power of numbers is not evaluated, and refused if its value is too large.
"""

import ast
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from math import prod
from typing import Any

import sympy
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanAtom

from derive.errors import DeriveError
from derive.frontend.text import lines, tokens
from derive.ir.functions import FUNCTIONS, NAMED, ROWS
from derive.notation import words

# Words with `[..](..)`: BINDING ones bind their indices, KEEPING ones leave their index free.
BINDING = tuple(word for word, row in ROWS.items() if not row.keeps and word != "sample_var")
KEEPING = (*(word for word, row in ROWS.items() if row.keeps), "solve")


def is_matrix(word: str) -> bool:
    """Whether the word is a function of a matrix, with indices of rows and columns."""
    return word == "solve" or (word in ROWS and ROWS[word].is_matrix)


def to_size(name: str) -> Any:
    """Return the symbol of a size, equal to that of `notation.words.sizes`."""
    return sympy.Symbol(name, integer=True, positive=True)


@lru_cache(maxsize=1 << 12)
def to_index(name: str, extent: Any) -> Any:
    """Return the index with values 0 .. extent - 1."""
    return sympy.Idx(sympy.Symbol(name, integer=True), (sympy.S.Zero, extent - 1))


def invert(base: Any) -> Any:
    """Return 1 / base, unevaluated."""
    return sympy.Pow(base, sympy.S.NegativeOne, evaluate=False)


def negate(term: Any) -> Any:
    """Return the negated term: -2*x of 2*x, else with a factor of -1."""
    if term.is_Rational or term in (sympy.S.Infinity, sympy.S.NegativeInfinity):
        return -term
    if not isinstance(term, sympy.Mul):
        return sympy.Mul(sympy.S.NegativeOne, term, evaluate=False)
    first, *rest = term.args
    if first.is_Rational and first > 0 and first is not sympy.S.One:
        return sympy.Mul(-first, *rest, evaluate=False)
    return sympy.Mul(sympy.S.NegativeOne, *term.args, evaluate=False)


def join_conditions(kind: type[sympy.And | sympy.Or], parts: Sequence[Any]) -> Any:
    """Return the conjunction or disjunction in the order of the text; SymPy's own sorts."""
    if len(parts) == 1:
        return parts[0]
    made = Basic.__new__(kind, *parts)
    made._argset = frozenset(parts)
    return made


def is_condition(value: Any) -> bool:
    """Whether the value is a condition; by SymPy's own test every Symbol would be one."""
    kinds = (sympy.And, sympy.Or, sympy.Not, Relational, BooleanAtom, words.BooleanElement)
    return isinstance(value, kinds)


# name: (fewest arguments, most arguments, builder); `//` and `%` are no words
ELEMENTWISE: dict[str, tuple[int, int, Callable[..., Any]]] = {
    name: (
        max(row.counts[0], 2 if name in {"max", "min"} else 1),
        row.counts[1],
        partial(words.call_function, name),
    )
    for name, row in FUNCTIONS.items()
    if name in NAMED and name not in {"pi", "I"}
} | {"delta": (2, 2, lambda *places: sympy.KroneckerDelta(*places, evaluate=False))}

MOST_TERMS = 256  # terms of an expanded extent or place
LARGEST_POWER = 1024  # the largest exponent; and a quarter of the bits of a power of numbers


def is_arithmetic(node: ast.expr) -> bool:
    """Whether the node is a number, a sign or an arithmetic operator."""
    match node:
        case ast.UnaryOp(ast.USub() | ast.UAdd()):
            return True
        case ast.Constant(value):
            return not isinstance(value, bool)
    return isinstance(node, ast.BinOp)


def read_arithmetic(source: tokens.Source, node: ast.expr, read: Callable[[ast.expr], Any]) -> Any:
    """Return the SymPy expression of an arithmetic node; `read` translates its operands."""
    match node:
        case ast.Constant():
            start, end = lines.span(node)
            text = source.text[start:end].replace("_", "")
            if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
                raise source.refuse("syntax", f"{text} is no number of the notation", (start, end))
            return words.to_rational(Fraction(text))
        case ast.UnaryOp(ast.UAdd(), operand):
            return read(operand)
        case ast.UnaryOp(ast.USub(), operand):
            return negate(read(operand))
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            first, rest = _find_spine(node, (ast.Add, ast.Sub))
            terms = [(isinstance(op, ast.Sub), read(right)) for op, right in rest]
            return words.add(read(first), *(negate(t) if minus else t for minus, t in terms))
        case ast.BinOp(op=ast.Mult() | ast.Div()):
            return _read_product(source, node, read)
        case ast.BinOp(left, ast.FloorDiv(), right):
            quotient = words.multiply(read(left), invert(_read_divisor(source, right, read)))
            return sympy.floor(quotient, evaluate=False)
        case ast.BinOp(left, ast.Mod(), right):
            return sympy.Mod(read(left), _read_divisor(source, right, read), evaluate=False)
        case ast.BinOp(left, ast.Pow(), right):
            return _read_power(source, node, read(left), read(right))
        case _:
            raise source.refuse("syntax", "this is no operator of the notation", lines.span(node))


def find_value(expr: Any) -> Fraction | None:
    """Return the exact value of an expression of numbers; None if it has symbols or roots."""
    match expr:
        case sympy.Rational():
            return Fraction(int(expr.p), int(expr.q))
        case sympy.Add() | sympy.Mul():
            values = [value for part in expr.args if (value := find_value(part)) is not None]
            if len(values) < len(expr.args):
                return None
            whole = sum(values) if isinstance(expr, sympy.Add) else prod(values)
            return Fraction(whole)
        case sympy.Pow(args=(base, exponent)):
            under, over = find_value(base), find_value(exponent)
            if under is None or over is None or over.denominator != 1 or (not under and over < 0):
                return None
            return under ** int(over) if _is_small(under, over) else None
    return None


def check_expandable(source: tokens.Source, node: ast.expr, expr: Any) -> None:
    """Raise DeriveError for an extent or place that multiplies out to too many terms."""
    if _count_terms(expr) > MOST_TERMS:
        raise source.refuse(
            "too-deep",
            f"multiplied out this has more than {MOST_TERMS} terms",
            lines.span(node),
            help="make it a size of its own: size W",
        )


def _count_terms(expr: Any) -> int:
    """Return the number of terms when multiplied out, at most MOST_TERMS + 1."""
    counts = [_count_terms(part) for part in expr.args]
    match expr:
        case sympy.Add():
            total = sum(counts)
        case sympy.Mul():
            total = prod(counts)
        case sympy.Pow(args=(_, sympy.Rational(p=power, q=1))) if power > 1 and counts[0] > 1:
            total = counts[0] ** min(int(power), MOST_TERMS)
        case _:
            total = max(counts, default=1)
    return min(total, MOST_TERMS + 1)


def _find_spine(
    node: ast.expr, kinds: tuple[type, ...]
) -> tuple[ast.expr, list[tuple[ast.operator, ast.expr]]]:
    """Return (a, [(+, b), (-, c)]) of a + b - c, so that a chain is one level."""
    rest: list[tuple[ast.operator, ast.expr]] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, kinds):
        rest.append((node.op, node.right))
        node = node.left
    return node, rest[::-1]


def _read_product(source: tokens.Source, node: ast.expr, read: Callable[[ast.expr], Any]) -> Any:
    first, rest = _find_spine(node, (ast.Mult, ast.Div))
    minus = False
    match first:
        case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
            first, minus = operand, True
    start = read(first)
    factors = list(start.args) if minus and isinstance(start, sympy.Mul) else [start]
    for op, right in rest:
        if isinstance(op, ast.Div):
            factors.append(invert(_read_divisor(source, right, read)))
        else:
            factors.append(read(right))
    product = words.multiply(*factors)
    return negate(product) if minus else product


def _read_divisor(source: tokens.Source, node: ast.expr, read: Callable[[ast.expr], Any]) -> Any:
    divisor = read(node)
    if find_value(divisor) == 0:
        raise _divides_by_zero(source, node)
    return divisor


def _divides_by_zero(source: tokens.Source, node: ast.expr) -> DeriveError:
    advice = "take the division out"
    return source.refuse("division-by-zero", "this divides by 0", lines.span(node), help=advice)


def _read_power(source: tokens.Source, node: ast.expr, base: Any, exponent: Any) -> Any:
    under, over = find_value(base), find_value(exponent)
    if over is not None and not _is_small(under, over):
        raise source.refuse(
            "number-too-large",
            "numbers are kept exactly, and this power is too large for that",
            lines.span(node),
            help="make it a scalar: scalar c",
        )
    if under == 0 and over is not None and over < 0:
        raise _divides_by_zero(source, node)
    return words.power(base, exponent if over is None else words.to_rational(over))


def _is_small(base: Fraction | None, exponent: Fraction) -> bool:
    if abs(exponent) > LARGEST_POWER:
        return False
    if base is None or base in {-1, 0, 1}:
        return True
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    return bits * abs(exponent) <= 4 * LARGEST_POWER
