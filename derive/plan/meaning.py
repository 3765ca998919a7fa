"""The meaning of an operation in the index language: the comment over its line.

It is made from the operation itself, not from what the user wrote, so it says what the line does.
"""

from __future__ import annotations

from fractions import Fraction
from functools import singledispatch
from typing import TYPE_CHECKING

from derive.ir import nodes
from derive.ir.nodes import MINUS_ONE, ONE, TRUE, ZERO, Access, Equation, Expr, Number, Tensor
from derive.ir.walk import find_accesses, map_children, substitute
from derive.plan import ops
from derive.plan.ops import Op, axes_of
from derive.rewrite.rules.products import rename_bound

if TYPE_CHECKING:
    from derive.plan.steps import Step

HALF = Number(Fraction(1, 2))
RELATIONS = {"<", "<=", ">", ">=", "==", "!="}


def to_step_equation(step: Step) -> Equation:
    """The step as an equation between its named tensors."""
    tensor = Tensor(step.name, tuple(i.extent for i in step.axes))
    return Equation(Access(tensor, step.axes), to_expr(step.op))


@singledispatch
def to_expr(op: Op) -> Expr:
    """The value of an operation for each value of its axes."""
    raise TypeError(f"no meaning for {type(op).__name__}")


@to_expr.register
def _(op: ops.Source) -> Expr:
    tensor = Tensor(op.name, tuple(i.extent for i in op.axes), op.kind)
    return Access(tensor, op.axes)


@to_expr.register(ops.Num)
@to_expr.register(ops.NumTensor)
def _(op: ops.Num | ops.NumTensor) -> Expr:
    return op.value


@to_expr.register
def _(op: ops.Iota) -> Expr:
    return op.index


@to_expr.register
def _(op: ops.Triangle) -> Expr:
    relation = ">=" if op.upper else "<="
    shifted = op.rows if op.offset is ZERO else nodes.Add((op.rows, op.offset))
    return nodes.Compare(relation, op.columns, shifted)


@to_expr.register
def _(op: ops.Select) -> Expr:
    return substitute(to_expr(op.arg), {axes_of(op.arg)[op.place]: op.at})


@to_expr.register
def _(op: ops.Slice) -> Expr:
    return substitute(to_expr(op.arg), {axes_of(op.arg)[op.place]: op.index})


@to_expr.register
def _(op: ops.Unflatten) -> Expr:
    return substitute(to_expr(op.arg), {axes_of(op.arg)[op.place]: ops.to_place(op.parts)})


@to_expr.register
def _(op: ops.Diagonal) -> Expr:
    return to_expr(op.arg)


@to_expr.register(ops.Arrange)
@to_expr.register(ops.Expand)
@to_expr.register(ops.Cast)
def _(op: ops.Arrange | ops.Expand | ops.Cast) -> Expr:
    inside = to_expr(op.arg)
    if isinstance(op, ops.Cast) and isinstance(
        inside, (nodes.Compare, nodes.And, nodes.Or, nodes.Not)
    ):
        return nodes.Where(inside, ONE, ZERO)
    if isinstance(op, ops.Cast) and isinstance(inside, Access) and inside.tensor.kind == "bool":
        return nodes.Where(inside, ONE, ZERO)
    return inside


@to_expr.register
def _(op: ops.Flatten) -> Expr:
    return to_expr(op.arg)


@to_expr.register
def _(op: ops.Einsum) -> Expr:
    spanned = dict.fromkeys(i for arg in op.args for i in axes_of(arg))
    bound = tuple(i for i in spanned if i not in op.axes)
    factors = tuple(map(to_expr, op.args))
    body = factors[0] if len(factors) == 1 else nodes.Mul(factors)
    return nodes.Reduce("sum", bound, TRUE, body) if bound else body


@to_expr.register
def _(op: ops.Apply) -> Expr:
    args = tuple(map(to_expr, op.args))
    match op.function:
        case "+":
            return nodes.Add((*_terms(args[0]), args[1]))
        case "-":
            return nodes.Add((*_terms(args[0]), nodes.Mul((MINUS_ONE, args[1]))))
        case "*":
            return nodes.Mul((*_factors(args[0]), args[1]))
        case "/":
            return nodes.Mul((*_factors(args[0]), nodes.Pow(args[1], MINUS_ONE)))
        case "neg":
            return nodes.Mul((MINUS_ONE, args[0]))
        case "pow":
            return nodes.Pow(*args)
        case "sqrt":
            return nodes.Pow(args[0], HALF)
        case "rsqrt":
            return nodes.Pow(args[0], Number(Fraction(-1, 2)))
        case "and":
            return nodes.And(args)
        case "or":
            return nodes.Or(args)
        case "not":
            return nodes.Not(args[0])
        case relation if relation in RELATIONS:
            return nodes.Compare(relation, *args)
        case function:
            return nodes.Call(function, args)


def _terms(expr: Expr) -> tuple[Expr, ...]:
    return expr.terms if isinstance(expr, nodes.Add) else (expr,)


def _factors(expr: Expr) -> tuple[Expr, ...]:
    return expr.factors if isinstance(expr, nodes.Mul) else (expr,)


@to_expr.register
def _(op: ops.Reduction) -> Expr:
    return nodes.Reduce(op.kind, op.over, TRUE, to_expr(op.arg))


@to_expr.register
def _(op: ops.Along) -> Expr:
    return nodes.Along(op.kind, op.index, TRUE, to_expr(op.arg))


@to_expr.register
def _(op: ops.Fill) -> Expr:
    arg, mask = to_expr(op.arg), to_expr(op.mask)
    return (
        nodes.Where(mask, op.value.value, arg)
        if op.where
        else nodes.Where(mask, arg, op.value.value)
    )


@to_expr.register
def _(op: ops.Choose) -> Expr:
    return nodes.Where(to_expr(op.condition), to_expr(op.then), to_expr(op.other))


@to_expr.register
def _(op: ops.Cell) -> Expr:
    whole = to_expr(op.whole)
    tensors = {access.tensor.name for access in find_accesses(whole)}
    return _rename_apart(whole, tensors | {index.name for index in op.axes})


def _rename_apart(expr: Expr, taken: set[str]) -> Expr:
    """The same with each bound letter other than those around it."""
    if isinstance(expr, nodes.Reduce):
        bound, condition, body = rename_bound(expr, taken)
        body = _rename_apart(body, taken | {index.name for index in bound})
        return nodes.Reduce(expr.kind, bound, condition, body)
    return map_children(expr, lambda child: _rename_apart(child, taken))
