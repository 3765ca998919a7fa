"""Cells and operations from texts: `torch.addmm(c, a, b, beta=beta)`, `x - mean[over](x)`.

Both are Python text over the names of their operands. An operand that is None is absent: a keyword,
a term or a factor without it is left out, and an argument is `None`.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from derive.ir import nodes as ir
from derive.ir.definitions import parse_text
from derive.plan import ops
from derive.plan.calls import CellArgument, LocalName, Subscript, TorchCall

Given: TypeAlias = Mapping[str, Any]  # operations, operands of calls, or tuples of them
SIGNS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
SIGNS |= {ast.Pow: "**", ast.MatMult: "@"}


def make_cell(
    text: str, given: Given, whole: ops.Op, axes: tuple[ir.Index, ...] | None = None, **fields: Any
) -> ops.Cell:
    """Return the cell with this call, by default over the axes of the operations `whole`.

    Operations among the operands become arguments of the cell. Names that are not given are local
    variables of the generated function. The conditions `when` may name arguments.
    """
    args: list[ops.Op] = []

    def place(value: Any) -> Any:
        if isinstance(value, ops.Operation):
            args.append(value)  # type: ignore[arg-type]
            return CellArgument(len(args) - 1)
        return tuple(map(place, value)) if isinstance(value, tuple) else value

    named = {name: place(value) for name, value in given.items()}
    when = tuple(named.get(each, each) for each in fields.pop("when", ()))
    call = _read_operand(parse_text(text), named)
    return ops.Cell(call, tuple(args), whole, axes or whole.axes, when, **fields)


def _read_operand(node: ast.expr, given: Mapping[str, Any]) -> Any:
    def read(part: ast.expr) -> Any:
        return _read_operand(part, given)

    match node:
        case ast.Name(name) if name in given:
            return given[name]
        case ast.Name() | ast.Attribute():
            return LocalName(ast.unparse(node))
        case ast.BinOp(left, sign, right):
            one, other = read(left), read(right)
            if one is None or other is None:
                is_less = one is None and isinstance(sign, ast.Sub)
                return TorchCall("torch.neg", (other,)) if is_less else one or other
            return TorchCall(SIGNS[type(sign)], (one, other))
        case ast.Subscript(arg, at):
            whole, places = read(arg), at.elts if isinstance(at, ast.Tuple) else [at]
            found = tuple(each for place in places for each in _read_places(place, given))
            return Subscript(whole, found) if found and whole is not None else whole
        case ast.Call(function, parts, keywords):
            name, args = ast.unparse(function), [read(part) for part in parts]
            is_method = "(" in name or not name.startswith("torch.")
            if isinstance(function, ast.Attribute) and is_method:
                name, args = f".{function.attr}", [read(function.value), *args]
            taken = tuple(LocalName("None") if arg is None else arg for arg in args)
            pairs = [(word.arg or "", read(word.value)) for word in keywords]
            return TorchCall(name, taken, tuple(pair for pair in pairs if pair[1] is not None))
        case ast.Tuple(parts):
            return tuple(map(read, parts))
    return ast.literal_eval(node)


def _read_places(node: ast.expr, given: Mapping[str, Any]) -> Iterator[Any]:
    match node:
        case ast.Name(name):
            yield from given[name] if isinstance(given[name], tuple) else (given[name],)
        case ast.Constant(number) if number is not ...:
            yield number
        case _:
            yield ast.unparse(node)


def make_op(text: str, order: tuple[ir.Index, ...], **given: Any) -> Any:
    """Return the operations that a text describes, with their axes in the given order.

    A reduction names its indices: `mean[over](x)`, or one of them and all: `sum[over, n](x)`.
    """
    return _read_op(parse_text(text), order, given)


def _read_op(node: ast.expr, order: tuple[ir.Index, ...], given: Mapping[str, Any]) -> Any:
    def read(part: ast.expr) -> Any:
        return _read_op(part, order, given)

    match node:
        case ast.Name(name):
            return given[name]
        case ast.Constant(int(number)):
            return ops.Num(ir.Number(Fraction(number)))
        case ast.BinOp(left, sign, right):
            one, other, function = read(left), read(right), SIGNS[type(sign)]
            if one is None or other is None:
                is_less = one is None and function == "-"
                return ops.Apply("neg", (other,), other.axes) if is_less else one or other
            return ops.combine(function if function != "**" else "pow", (one, other), order)
        case ast.Call(ast.Subscript(ast.Name(kind), ast.Name(over)), [arg]):
            return ops.Reduction(kind, read(arg), given[over])
        case ast.Call(ast.Name(function), args):
            return ops.combine(function, [read(arg) for arg in args], order)
    raise NotImplementedError(ast.unparse(node))


def split_axes(op: ops.Op, groups: Sequence[tuple[ir.Index, ...]]) -> ops.Op:
    """Return the operation with each merged axis split into its group: undo `ops.merge`."""
    for place, group in reversed(list(enumerate(groups))):
        op = ops.Unflatten(op, place, group) if len(group) > 1 else op
    return op
