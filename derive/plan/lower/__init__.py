"""Lowering: each equation of a prepared system becomes steps on tensors, inner parts first.

One function per kind of expression; contractions, sums, reductions and masks each have a room:
lower_product, lower_sum, lower_reduce, lower_mask.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from derive.ir.nodes import (
    TRUE,
    ZERO,
    Access,
    Add,
    Along,
    And,
    Call,
    Compare,
    Equation,
    Expr,
    Index,
    Infinity,
    Mul,
    Not,
    Number,
    Or,
    Pow,
    Reduce,
    Scalar,
    Size,
    Truth,
    Where,
)
from derive.ir.walk import find_free, map_children, substitute, walk
from derive.plan.align import align, arrange, find_union
from derive.plan.context import Context, layout_of
from derive.plan.lower.mask import lower_choice, lower_condition, lower_index
from derive.plan.lower.number import is_steady, is_wide, lower_number
from derive.plan.lower.product import lower_product
from derive.plan.lower.reduce import lower_along, lower_reduce
from derive.plan.lower.sum import lower_sum
from derive.plan.numbers import is_integer, is_number, is_truth, is_whole, strip_casts
from derive.plan.ops import Along as AlongOp
from derive.plan.ops import (
    Apply,
    Cast,
    Choose,
    Einsum,
    Expand,
    Num,
    NumTensor,
    Op,
    Reduction,
    Source,
    axes_of,
)
from derive.plan.reads import read, split_merged
from derive.rewrite.tame import is_finite, is_positive

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAVY = (Einsum, Reduction, AlongOp)  # worth a line of their own wherever they stand
HALF = Fraction(1, 2)


def lower_equation(equation: Equation, context: Context) -> Source:
    """The steps of one equation; the last one carries the name that the user gave."""
    target = equation.target
    context.target = target.tensor.name
    places = [_parts(target, k) for k in range(len(target.places))]
    flat = tuple(i for parts in places for i in parts)
    layout = layout_of(target.tensor, context)
    order = tuple(i for k in layout for i in places[k])
    op = lower_inside(equation.value, context, order)
    if not axes_of(op) and isinstance(op, Num):
        op = NumTensor(op.value)
    if isinstance(op, Cast) and not is_truth(op.arg) and not is_wide(op.arg):
        op = op.arg
    if is_whole(op):
        context.integers.add(target.tensor.name)
    op = Expand(op, order) if set(axes_of(op)) != set(flat) else arrange(op, order)
    context.stored[target.tensor.name] = tuple(places)
    return context.add_step(op, target.tensor.name)


def _parts(target: Access, position: int) -> tuple[Index, ...]:
    """The letters that fill one place of a left side."""
    place = target.places[position]
    return split_merged(place, target.tensor.shape[position])


def lower(expr: Expr, context: Context, order: tuple[Index, ...]) -> Op:
    """The expression as an operation; what is heavy becomes a step, and is found again later."""
    key, letters = to_key(expr)
    if key in context.known:
        source, names = context.known[key]
        again = dict(zip(names, letters, strict=True))
        found = Source(source.name, tuple(again[i] for i in source.axes), source.kind)
        return Cast(found) if source.kind == "int" else found
    op = lower_inside(expr, context, order)
    if not isinstance(op, HEAVY):
        return op
    source = context.add_step(op)
    context.known[key] = (source, letters)
    return Cast(source) if source.kind == "int" else source


def to_key(expr: Expr) -> tuple[Expr, tuple[Index, ...]]:
    """The expression under letters of no one's, so that renamed copies are found to be equal."""
    letters = find_free(expr)
    plain = {i: Index(f"@{k}", i.extent) for k, i in enumerate(letters)}
    return substitute(_settle_bound(expr), plain), letters  # type: ignore[arg-type]


def _settle_bound(expr: Expr, depth: int = 0) -> Expr:
    """Bound letters by their depth."""
    match expr:
        case Reduce(kind, bound, condition, body):
            new: dict[Expr, Expr] = {
                i: Index(f"@b{depth}.{k}", i.extent) for k, i in enumerate(bound)
            }
            return Reduce(
                kind,
                tuple(new[i] for i in bound),  # type: ignore[misc]
                _settle_bound(substitute(condition, new), depth + 1),
                _settle_bound(substitute(body, new), depth + 1),
            )
        case _:
            return map_children(expr, lambda child: _settle_bound(child, depth))


def lower_inside(expr: Expr, context: Context, order: tuple[Index, ...]) -> Op:
    """The expression as one operation, its heavy parts in steps before it."""
    if is_number(expr):
        return lower_number(expr)
    if is_integer(expr) and not isinstance(expr, (Index, Access)):
        return Cast(strip_casts(lower_node(expr, context, order)))
    return lower_node(expr, context, order)


def lower_node(expr: Expr, context: Context, order: tuple[Index, ...]) -> Op:
    """One node, by its kind."""
    match expr:
        case Access():
            return lower_access(expr, context)
        case Index():
            return Cast(lower_index(expr, context))
        case Add(terms):
            return lower_sum(terms, context, order)
        case Mul(factors):
            return lower_product((), TRUE, factors, context, order)
        case Pow(base, exponent):
            return lower_power(base, exponent, context, order)
        case Call(function, arguments):
            return lower_call(function, arguments, context, order)
        case Where(condition, then, other):
            return lower_choice(condition, then, other, context, order)
        case Reduce("sum", bound, condition, Mul(factors)):
            return lower_product(bound, condition, factors, context, order)
        case Reduce("sum", bound, condition, body):
            return lower_product(bound, condition, (body,), context, order)
        case Reduce():
            return lower_reduce(expr, context, order)
        case Along():
            return lower_along(expr, context, order)
        case Truth() | Compare() | And() | Or() | Not():
            return lower_condition(expr, context, order)
        case Number() | Infinity() | Size() | Scalar():
            return Num(expr)


def lower_access(access: Access, context: Context) -> Op:
    """A tensor read through its places, from the order and the letters in which it is stored."""
    layout = layout_of(access.tensor, context)
    stored = context.stored.get(access.tensor.name)
    op = read(access, layout, stored)
    name = access.tensor.name
    return Cast(op) if access.tensor.kind == "int" or name in context.integers else op


def lower_power(base: Expr, exponent: Expr, context: Context, order: tuple[Index, ...]) -> Op:
    """A power; negative ones are quotients."""
    match exponent:
        case Number(value) if value == -1:
            under = lower(base, context, order)
            return Apply("/", (Num(Number(Fraction(1))), under), axes_of(under))
        case Number(value) if value in (HALF, -HALF):
            arg = lower(base, context, order)
            return Apply("sqrt" if value > 0 else "rsqrt", (arg,), axes_of(arg))
        case _:
            args = align([lower(base, context, order), lower(exponent, context, order)], order)
            return Apply("pow", args, find_union(args, order))


def lower_call(
    function: str, arguments: Sequence[Expr], context: Context, order: tuple[Index, ...]
) -> Op:
    """An elementwise function; numbers among its arguments stay numbers where torch takes them."""
    ops = [lower(a, context, order) for a in arguments]
    if function in {"max", "min"}:
        ops.sort(key=lambda op: isinstance(op, Num))  # a tensor first: numbers are bounds to it
    if isinstance(ops[0], Num):
        ops[0] = NumTensor(ops[0].value)
    match function, ops:
        case "floordiv" | "mod", [_, Num(under)] if not is_positive(arguments[1]):
            ops[1] = NumTensor(under)  # torch divides whole numbers by 0 with an error
    args = align(ops, order)
    axes = find_union(args, order)
    if function == "sign" and not is_finite(arguments[0]):
        source = context.add_step(args[0])
        is_nan = Apply("!=", (source, source), axes)  # whose sign is 0 to torch
        return Choose(is_nan, source, Apply(function, (source,), axes), axes)
    if function == "leaky_relu" and not all(map(is_python_number, arguments[1:])):
        arg, slope = args  # torch takes no tensor as slope, and a scalar may be one
        scaled = Apply("*", (slope, arg), axes)
        return Choose(Apply(">", (arg, Num(ZERO)), axes_of(arg)), arg, scaled, axes)
    return Apply(function, args, axes)


def is_python_number(expr: Expr) -> bool:
    """Is it a number for sure? A scalar may be given as a tensor."""
    known = not any(isinstance(part, (Scalar, Access, Index)) for part in walk(expr))
    return known and is_steady(expr)
