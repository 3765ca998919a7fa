"""The definitions of functions, converted to expressions of the language or to other objects.

    text = number | name | -text | text (+ - * / **) text | function(text, ...)
         | where(text < text, text, text) | word[j](text)

`read_definition` parses the text, and a `Maker` constructs an object for each part: a node, a SymPy
expression, a number. `unfold` replaces a call by the function's definition at its arguments.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any

from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS, Function
from derive.ir.walk import walk

RELATIONS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


def _no_rows(word: str, body: Any) -> Any:
    raise TypeError(f"no row for {word}")


@dataclass(frozen=True, slots=True)
class Maker:
    """The constructors of the objects that stand for the parts of a definition."""

    number: Callable[[Fraction], Any]
    add: Callable[..., Any]
    multiply: Callable[..., Any]
    power: Callable[[Any, Any], Any]
    compare: Callable[[str, Any, Any], Any]
    choose: Callable[[Any, Any, Any], Any]
    call: Callable[[str, tuple[Any, ...]], Any]
    reduce: Callable[[str, Any], Any] = _no_rows


def read_definition(text: str, values: Mapping[str, Any], make: Maker) -> Any:
    """The object that a maker constructs for a definition; `values`: those of its parameters."""

    def convert(node: ast.expr) -> Any:
        match node:
            case ast.Name(name):
                return values[name] if name in values else make.call(name, ())
            case ast.Constant(number):
                return make.number(Fraction(str(number)))
            case ast.UnaryOp(ast.USub(), ast.Constant(number)):
                return make.number(-Fraction(str(number)))
            case ast.UnaryOp(ast.USub(), part):
                return make.multiply(make.number(Fraction(-1)), convert(part))
            case ast.BinOp(left, ast.Add(), right):
                return make.add(convert(left), convert(right))
            case ast.BinOp(left, ast.Sub(), ast.Constant(number)):
                return make.add(convert(left), make.number(-Fraction(str(number))))
            case ast.BinOp(left, ast.Sub(), right):
                return make.add(
                    convert(left), make.multiply(make.number(Fraction(-1)), convert(right))
                )
            case ast.BinOp(left, ast.Mult(), right):
                return make.multiply(convert(left), convert(right))
            case ast.BinOp(ast.Constant(over), ast.Div(), ast.Constant(under)):
                return make.number(Fraction(str(over)) / Fraction(str(under)))
            case ast.BinOp(ast.Constant(1), ast.Div(), right):
                return make.power(convert(right), make.number(Fraction(-1)))
            case ast.BinOp(left, ast.Div(), ast.Constant(under)):
                return make.multiply(make.number(1 / Fraction(str(under))), convert(left))
            case ast.BinOp(left, ast.Div(), right):
                return make.multiply(
                    convert(left), make.power(convert(right), make.number(Fraction(-1)))
                )
            case ast.BinOp(left, ast.Pow(), right):
                return make.power(convert(left), convert(right))
            case ast.Compare(left, [relation], [right]):
                return make.compare(RELATIONS[type(relation)], convert(left), convert(right))
            case ast.Call(ast.Name("where"), parts):
                return make.choose(*map(convert, parts))
            case ast.Call(ast.Name(name), parts):
                return make.call(name, tuple(map(convert, parts)))
            case ast.Call(ast.Subscript(ast.Name(word)), [body]):
                return make.reduce(word, convert(body))
        raise TypeError(f"no part of a definition: {ast.unparse(node)}")

    return convert(parse_text(text))


@cache
def parse_text(text: str) -> ast.expr:
    """Python's syntax tree of a definition."""
    return ast.parse(text, mode="eval").body


def bind(row: Function, arguments: Sequence[Any], make: Maker) -> dict[str, Any]:
    """Each parameter of a function with its argument or its default."""
    defaults = {name: read_definition(text, {}, make) for name, text in row.defaults.items()}
    return defaults | dict(zip((*row.tensors, *row.defaults), arguments, strict=False))


def expand_call(name: str, arguments: Sequence[Any], make: Maker) -> Any:
    """The object that a maker constructs for a function's definition at these arguments."""
    row = FUNCTIONS[name]
    return read_definition(row.definition, bind(row, arguments, make), make)


def _add_flat(*terms: ir.Expr) -> ir.Expr:
    flat = [part for term in terms for part in ir.split_sum(term)]
    return ir.Add(tuple(flat))


def multiply(*factors: ir.Expr) -> ir.Expr:
    """The flat product with all numbers multiplied into one leading factor, omitted if 1."""
    flat = [p for f in factors for p in ir.split_product(f)]
    number = prod((f.value for f in flat if isinstance(f, ir.Number)), start=Fraction(1))
    others: list[ir.Expr] = [factor for factor in flat if not isinstance(factor, ir.Number)]
    if number != 1 or not others:
        others.insert(0, ir.Number(number))
    return ir.product_of(others)


def _power(base: ir.Expr, exponent: ir.Expr) -> ir.Expr:
    if isinstance(base, ir.Number) and exponent is ir.MINUS_ONE and base.value:
        return ir.Number(1 / base.value)
    return base if exponent is ir.ONE else ir.Pow(base, exponent)


def make_call(name: str, arguments: tuple[ir.Expr, ...]) -> ir.Expr:
    """The call of a function as a node; for one that is not kept, such as sqrt, its definition."""
    if FUNCTIONS[name].is_kept:
        return ir.Call(name, arguments)
    return unfold_call(name, arguments)


PLAIN = Maker(ir.Number, _add_flat, multiply, _power, ir.Compare, ir.Where, make_call)


def unfold(call: ir.Call) -> ir.Expr | None:
    """The definition of a call at its arguments, one level deep; None for a primitive."""
    row = FUNCTIONS.get(call.function)
    if row is None or not row.definition:
        return None
    return unfold_call(call.function, call.arguments)


_STEPS = {"sign", "floor", "max", "min", "floordiv", "mod"}  # primitives with flat pieces


@cache
def is_flat(name: str) -> bool:
    """Whether a function may be constant on an interval, as relu is below 0."""
    row = FUNCTIONS.get(name)
    if row is None or not row.definition:
        return name in _STEPS
    parts = [*walk(unfold_call(name, [ir.Scalar(each) for each in row.tensors]))]
    calls = (part.function for part in parts if isinstance(part, ir.Call))
    return any(isinstance(part, ir.Where) for part in parts) or any(map(is_flat, calls))


def unfold_call(name: str, arguments: Sequence[ir.Expr]) -> ir.Expr:
    """The definition of a function at these arguments, as an expression."""
    found: ir.Expr = expand_call(name, arguments, PLAIN)
    return found
