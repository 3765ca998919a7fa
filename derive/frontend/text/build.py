"""Constructors of SymPy expressions without evaluation, so that they stay as written.

Laws:
- A product or a sum keeps its parts in the order of the text; one level is one n-ary node.
- A quotient is a product with a power of -1; a difference is a sum with a negated term.
- Constructors of SymPy that sort, fold or compare are bypassed (Max, Piecewise, And, Sum).
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
from sympy.core.containers import Tuple
from sympy.core.expr import Expr
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import BooleanAtom

from derive.errors import DeriveError
from derive.frontend.text import lines, tokens
from derive.ir.definitions import Maker, open_call
from derive.ir.functions import FUNCTIONS, NAMED, ROWS
from derive.notation import words

RELATIONS: dict[str, Any] = {
    "<": sympy.Lt,
    "<=": sympy.Le,
    ">": sympy.Gt,
    ">=": sympy.Ge,
    "==": sympy.Eq,
    "!=": sympy.Ne,
}

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
    """Return the index over 0 .. extent - 1."""
    return sympy.Idx(sympy.Symbol(name, integer=True), (sympy.S.Zero, extent - 1))


def add(*terms: Any) -> Any:
    """Return the sum of the terms in their order."""
    return sympy.Add(*terms, evaluate=False) if len(terms) != 1 else terms[0]


def multiply(*factors: Any) -> Any:
    """Return the product of the factors in their order; `1 / x` is the power alone."""
    match factors:
        case [first, sympy.Pow(exp=exponent), *_] if (
            first is sympy.S.One and exponent is sympy.S.NegativeOne
        ):
            factors = factors[1:]
    return sympy.Mul(*factors, evaluate=False) if len(factors) != 1 else factors[0]


def invert(base: Any) -> Any:
    """Return one over the base."""
    return sympy.Pow(base, sympy.S.NegativeOne, evaluate=False)


def negate(term: Any) -> Any:
    """Negate the term: its leading number, or by a factor of -1."""
    if term.is_Rational or term in (sympy.S.Infinity, sympy.S.NegativeInfinity):
        return -term
    if not isinstance(term, sympy.Mul):
        return sympy.Mul(sympy.S.NegativeOne, term, evaluate=False)
    first, *rest = term.args
    if first.is_Rational and first > 0 and first is not sympy.S.One:
        return sympy.Mul(-first, *rest, evaluate=False)
    return sympy.Mul(sympy.S.NegativeOne, *term.args, evaluate=False)


def power(base: Any, exponent: Any) -> Any:
    """Return the base to the exponent."""
    return sympy.Pow(base, exponent, evaluate=False)


def compare(relation: str, left: Any, right: Any) -> Any:
    """Return a relation, unevaluated even if its sides decide it."""
    return RELATIONS[relation](left, right, evaluate=False)


def join_conditions(kind: type[sympy.And | sympy.Or], parts: Sequence[Any]) -> Any:
    """Return the conjunction or disjunction in the order of the text; SymPy's own sorts."""
    if len(parts) == 1:
        return parts[0]
    made = Basic.__new__(kind, *parts)
    made._argset = frozenset(parts)
    return made


def choose(condition: Any, then: Any, other: Any) -> Any:
    """Return `where(condition, then, other)`; SymPy's own constructor drops branches."""
    pairs = ((then, condition), (other, sympy.S.true))
    return Basic.__new__(sympy.Piecewise, *(Tuple.__new__(ExprCondPair, *pair) for pair in pairs))


def reduce_over(word: str, body: Any, bound: Sequence[Any], condition: Any | None) -> Any:
    """Return `word[bound, condition](body)` for any word of the notation."""
    if not ROWS[word].is_kept:
        return words.open_row(
            word, body, MAKER, lambda other, inner: reduce_over(other, inner, bound, condition)
        )
    if word not in {"sum", "prod"}:
        rest = () if condition is None else (condition,)
        return words.REDUCTIONS[word](body, *bound, *rest, evaluate=False)
    kind, other = (sympy.Sum, sympy.S.Zero) if word == "sum" else (sympy.Product, sympy.S.One)
    limits = [Tuple(index, index.lower, index.upper) for index in bound]
    if condition is not None:
        body = choose(condition, body, other)
    made = Expr.__new__(kind, body, *limits)
    made.is_commutative = True  # as the bypassed constructor does
    return made


def is_condition(value: Any) -> bool:
    """Whether the value is a condition; SymPy's own classes include every Symbol."""
    kinds = (sympy.And, sympy.Or, sympy.Not, Relational, BooleanAtom, words.BooleanElement)
    return isinstance(value, kinds)


def to_rational(value: Fraction | int) -> Any:
    """Return an exact number."""
    return sympy.Rational(value.numerator, value.denominator)


def _call(name: str, *arguments: Any) -> Any:
    """Return an elementwise function of the notation."""
    if name in CONSTANTS:
        return CONSTANTS[name]
    if not FUNCTIONS[name].is_kept:
        return open_call(name, arguments, MAKER)
    kind = words.ELEMENTWISE[name]
    if name in {"max", "min"}:  # in the order of the text
        made = Expr.__new__(kind, *arguments)
        made._argset = frozenset(arguments)
        return made
    return kind(*arguments, evaluate=False)


CONSTANTS: dict[str, Any] = {"pi": sympy.S.Pi, "I": sympy.S.ImaginaryUnit, "oo": sympy.S.Infinity}
MAKER = Maker(
    to_rational,
    add,
    multiply,
    power,
    compare,
    choose,
    lambda name, arguments: _call(name, *arguments),
)
# name: (fewest arguments, most arguments, builder); `//` and `%` are no words
ELEMENTWISE: dict[str, tuple[int, int, Callable[..., Any]]] = {
    name: (
        max(row.counts[0], 2 if name in {"max", "min"} else 1),
        row.counts[1],
        partial(_call, name),
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
            return to_rational(Fraction(text))
        case ast.UnaryOp(ast.UAdd(), operand):
            return read(operand)
        case ast.UnaryOp(ast.USub(), operand):
            return negate(read(operand))
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            first, rest = _find_spine(node, (ast.Add, ast.Sub))
            terms = [(isinstance(op, ast.Sub), read(right)) for op, right in rest]
            return add(read(first), *(negate(t) if minus else t for minus, t in terms))
        case ast.BinOp(op=ast.Mult() | ast.Div()):
            return _read_product(source, node, read)
        case ast.BinOp(left, ast.FloorDiv(), right):
            quotient = multiply(read(left), invert(_read_divisor(source, right, read)))
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
    """Refuse an extent or place with too many terms after expansion."""
    if _count_terms(expr) > MOST_TERMS:
        raise source.refuse(
            "too-deep",
            f"multiplied out this has more than {MOST_TERMS} terms",
            lines.span(node),
            help="make it a size of its own: size W",
        )


def _count_terms(expr: Any) -> int:
    """Return the number of terms after expansion, at most MOST_TERMS + 1."""
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
    """Split a + b - c into a and [(+, b), (-, c)], so that a chain is one level."""
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
    product = multiply(*factors)
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
    return power(base, exponent if over is None else to_rational(over))


def _is_small(base: Fraction | None, exponent: Fraction) -> bool:
    if abs(exponent) > LARGEST_POWER:
        return False
    if base is None or base in {-1, 0, 1}:
        return True
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    return bits * abs(exponent) <= 4 * LARGEST_POWER
