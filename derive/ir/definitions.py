"""The definitions of functions, read: as expressions of the language, or as whatever a room makes.

    text = number | name | -text | text (+ - * / **) text | function(text, ...)
         | where(text < text, text, text) | word[j](text)

`read` knows the grammar, a `Maker` says what comes of each part; `unfold` puts arguments in.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS, Function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RELATIONS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


def _no_rows(word: str, body: Any) -> Any:
    raise TypeError(f"no row for {word}")


@dataclass(frozen=True, slots=True)
class Maker:
    """What the parts of a definition become."""

    number: Callable[[Fraction], Any]
    add: Callable[..., Any]
    multiply: Callable[..., Any]
    power: Callable[[Any, Any], Any]
    compare: Callable[[str, Any, Any], Any]
    choose: Callable[[Any, Any, Any], Any]
    call: Callable[[str, tuple[Any, ...]], Any]
    reduce: Callable[[str, Any], Any] = _no_rows


def read(text: str, values: Mapping[str, Any], make: Maker) -> Any:
    """The definition with values for its parameters."""

    def go(node: ast.expr) -> Any:
        match node:
            case ast.Name(name):
                return values[name] if name in values else make.call(name, ())
            case ast.Constant(number):
                return make.number(Fraction(str(number)))
            case ast.UnaryOp(ast.USub(), ast.Constant(number)):
                return make.number(-Fraction(str(number)))
            case ast.UnaryOp(ast.USub(), part):
                return make.multiply(make.number(Fraction(-1)), go(part))
            case ast.BinOp(left, ast.Add(), right):
                return make.add(go(left), go(right))
            case ast.BinOp(left, ast.Sub(), ast.Constant(number)):
                return make.add(go(left), make.number(-Fraction(str(number))))
            case ast.BinOp(left, ast.Sub(), right):
                return make.add(go(left), make.multiply(make.number(Fraction(-1)), go(right)))
            case ast.BinOp(left, ast.Mult(), right):
                return make.multiply(go(left), go(right))
            case ast.BinOp(ast.Constant(over), ast.Div(), ast.Constant(under)):
                return make.number(Fraction(str(over)) / Fraction(str(under)))
            case ast.BinOp(ast.Constant(1), ast.Div(), right):
                return make.power(go(right), make.number(Fraction(-1)))
            case ast.BinOp(left, ast.Div(), ast.Constant(under)):
                return make.multiply(make.number(1 / Fraction(str(under))), go(left))
            case ast.BinOp(left, ast.Div(), right):
                return make.multiply(go(left), make.power(go(right), make.number(Fraction(-1))))
            case ast.BinOp(left, ast.Pow(), right):
                return make.power(go(left), go(right))
            case ast.Compare(left, [relation], [right]):
                return make.compare(_RELATIONS[type(relation)], go(left), go(right))
            case ast.Call(ast.Name("where"), parts):
                return make.choose(*map(go, parts))
            case ast.Call(ast.Name(name), parts):
                return make.call(name, tuple(map(go, parts)))
            case ast.Call(ast.Subscript(ast.Name(word)), [body]):
                return make.reduce(word, go(body))
        raise TypeError(f"no part of a definition: {ast.unparse(node)}")

    return go(_parse(text))


@cache
def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def bind(row: Function, arguments: Sequence[Any], make: Maker) -> dict[str, Any]:
    """The parameters and what is given for them, or their defaults."""
    defaults = {name: read(text, {}, make) for name, text in row.defaults.items()}
    return defaults | dict(zip((*row.tensors, *row.defaults), arguments, strict=False))


def open_call(name: str, arguments: Sequence[Any], make: Maker) -> Any:
    """The definition of a function at arguments."""
    row = FUNCTIONS[name]
    return read(row.definition, bind(row, arguments, make), make)


def _add(*terms: ir.Expr) -> ir.Expr:
    flat = [
        part for term in terms for part in (term.terms if isinstance(term, ir.Add) else (term,))
    ]
    return ir.Add(tuple(flat))


def _multiply(*factors: ir.Expr) -> ir.Expr:
    """The product; numbers are multiplied and go first, a factor 1 is let go."""
    flat = [p for f in factors for p in (f.factors if isinstance(f, ir.Mul) else (f,))]
    number = prod((f.value for f in flat if isinstance(f, ir.Number)), start=Fraction(1))
    others: list[ir.Expr] = [factor for factor in flat if not isinstance(factor, ir.Number)]
    if number != 1 or not others:
        others.insert(0, ir.Number(number))
    return others[0] if len(others) == 1 else ir.Mul(tuple(others))


def _power(base: ir.Expr, exponent: ir.Expr) -> ir.Expr:
    if isinstance(base, ir.Number) and exponent is ir.MINUS_ONE and base.value:
        return ir.Number(1 / base.value)
    return base if exponent is ir.ONE else ir.Pow(base, exponent)


def make_call(name: str, arguments: tuple[ir.Expr, ...]) -> ir.Expr:
    """A call as the language keeps it: a function by its name, another way to write as it means."""
    if FUNCTIONS[name].is_kept:
        return ir.Call(name, arguments)
    return unfold_call(name, arguments)


PLAIN = Maker(ir.Number, _add, _multiply, _power, ir.Compare, ir.Where, make_call)


def unfold(call: ir.Call) -> ir.Expr | None:
    """What a call means by its definition, one level deep; None of a primitive."""
    row = FUNCTIONS.get(call.function)
    if row is None or not row.definition:
        return None
    return unfold_call(call.function, call.arguments)


def unfold_call(name: str, arguments: Sequence[ir.Expr]) -> ir.Expr:
    """The definition of a function at arguments, in the language."""
    found: ir.Expr = open_call(name, arguments, PLAIN)
    return found
