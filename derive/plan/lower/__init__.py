"""Lowering: each equation of a prepared system becomes steps on tensors, inner parts first.

One function per kind of expression; products with their sums, conditions and numbers have modules
of their own.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from derive.analysis.places import find_reversed, split_merged
from derive.ir.definitions import PLAIN, Maker, bind
from derive.ir.definitions import read as read_definition
from derive.ir.functions import FUNCTIONS, ROWS, find_call
from derive.ir.nodes import (
    MINUS_INFINITY,
    MINUS_ONE,
    ONE,
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
from derive.plan.lower.calls import fold_call
from derive.plan.lower.condition import fill, lower_choice, lower_condition, lower_index
from derive.plan.lower.context import Context, layout_of
from derive.plan.lower.number import is_steady, is_wide, lower_number
from derive.plan.lower.places import read, take_places
from derive.plan.lower.product import (
    MOST_POWER,
    NEUTRAL,
    ROOTS,
    eliminate,
    lower_product,
    lower_sum,
)
from derive.plan.ops import (
    VIEWS,
    Apply,
    Cast,
    Choose,
    Einsum,
    Expand,
    Flip,
    Num,
    NumTensor,
    Op,
    Reduction,
    Source,
    align,
    arrange,
    axes_of,
    combine,
    find_union,
    is_boolean,
    is_integer,
    is_integral,
    is_number,
    rename_indices,
    sort_axes,
    strip_casts,
)
from derive.plan.ops import Along as AlongOp
from derive.rewrite.finite import is_finite, is_positive
from derive.rewrite.rules.products import rename_bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.plan.lower.context import Context

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
    if isinstance(op, Cast) and not is_boolean(op.arg) and not is_wide(op.arg):
        op = op.arg
    if is_integral(op):
        context.integers.add(target.tensor.name)
    op = Expand(op, order) if set(axes_of(op)) != set(flat) else arrange(op, order)
    for place, extent in zip(target.places, target.tensor.shape, strict=True):
        back = find_reversed(place, extent)
        if back is not None:
            counted = Index(f"{back.name}-", back.extent)
            op = op if isinstance(op, VIEWS) else context.add_step(op)
            op = Flip(rename_indices(op, {back: counted}), axes_of(op).index(back), back)
    context.stored[target.tensor.name] = tuple(places)
    return context.add_step(op, target.tensor.name)


def _parts(target: Access, position: int) -> tuple[Index, ...]:
    """The indices that fill one place of a left side."""
    place, extent = target.places[position], target.tensor.shape[position]
    back = find_reversed(place, extent)
    return split_merged(place, extent) if back is None else (back,)


def lower(expr: Expr, context: Context, order: tuple[Index, ...]) -> Op:
    """The expression as an operation; what is heavy becomes a step, and is found again later."""
    key, indices = to_key(expr)
    if key in context.known:
        source, names = context.known[key]
        again = dict(zip(names, indices, strict=True))
        found = Source(source.name, tuple(again[i] for i in source.axes), source.kind)
        return Cast(found) if source.kind == "int" else found
    op = lower_inside(expr, context, order)
    if not isinstance(op, HEAVY):
        return op
    source = context.add_step(op)
    context.known[key] = (source, indices)
    return Cast(source) if source.kind == "int" else source


@lru_cache(maxsize=1 << 14)
def to_key(expr: Expr) -> tuple[Expr, tuple[Index, ...]]:
    """The expression under indices that no formula has, so that renamed copies are equal."""
    indices = find_free(expr)
    plain = {i: Index(f"@{k}", i.extent) for k, i in enumerate(indices)}
    return substitute(_number_bound(expr), plain), indices  # type: ignore[arg-type]


def _number_bound(expr: Expr, depth: int = 0) -> Expr:
    """Bound indices by their depth."""
    match expr:
        case Reduce(kind, bound, condition, body):
            new: dict[Expr, Expr] = {
                i: Index(f"@b{depth}.{k}", i.extent) for k, i in enumerate(bound)
            }
            return Reduce(
                kind,
                tuple(new[i] for i in bound),  # type: ignore[misc]
                _number_bound(substitute(condition, new), depth + 1),
                _number_bound(substitute(body, new), depth + 1),
            )
        case _:
            return map_children(expr, lambda child: _number_bound(child, depth))


def lower_inside(expr: Expr, context: Context, order: tuple[Index, ...]) -> Op:
    """The expression as one operation, its heavy parts in steps before it."""
    if is_number(expr):
        return lower_number(expr)
    if is_integer(expr) and not isinstance(expr, (Index, Access)):
        return Cast(strip_casts(lower_node(expr, context, order)))
    return lower_node(expr, context, order)


def lower_node(expr: Expr, context: Context, order: tuple[Index, ...]) -> Op:
    """One node, by its kind."""
    if isinstance(expr, (Pow, Call, Where)):
        expr = fold_call(expr) or expr
    match expr:
        case Access():
            return lower_access(expr, context, order)
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


def lower_access(access: Access, context: Context, order: tuple[Index, ...]) -> Op:
    """A tensor read through its places, from the order and the indices in which it is stored."""
    layout = layout_of(access.tensor, context)
    stored = context.stored.get(access.tensor.name)
    op, left = read(access, layout, stored)
    if left:
        op = take_places(op, dict(left), context, order)
    name = access.tensor.name
    return Cast(op) if access.tensor.kind == "int" or name in context.integers else op


def lower_power(base: Expr, exponent: Expr, context: Context, order: tuple[Index, ...]) -> Op:
    """A power; negative ones are quotients, and what torch has no fast power for is a product.

    That are all but squares, cubes, roots and what is one over a square: 20 to 40 times slower on a
    million entries. At 0 a root has no slope, where x**1.5 has one and x**-1.5 has none.
    """
    match base, exponent:
        case Pow(inner, Number(power)), Number(value) if value == -1 and power in ROOTS:
            return lower_power(inner, Number(-power), context, order)
    arg = lower(base, context, order)
    axes = axes_of(arg)
    match exponent:
        case Number(value) if value == -1:
            return Apply("/", (Num(ONE), arg), axes)
        case Number(value) if value in (HALF, -HALF):
            return Apply("sqrt" if value > 0 else "rsqrt", (arg,), axes)
        case Number(value) if value in (-2, 2, 3) or isinstance(arg, Num) or is_integral(arg):
            pass
        case Number(value) if value.denominator == 1 and 1 < abs(value) <= MOST_POWER:
            product = _multiply_up(arg, int(abs(value)))
            return product if value > 0 else Apply("/", (Num(ONE), product), axes)
        case Number(value) if value.denominator == 2 and 1 < abs(value) <= MOST_POWER:
            if value < 0 or is_positive(base):
                product = _multiply_up(arg, int(abs(value)))
                name, root = ("*", "sqrt") if value > 0 else ("/", "rsqrt")
                return Apply(name, (Apply(root, (arg,), axes), product), axes)
    return combine("pow", [arg, lower(exponent, context, order)], order)


def _multiply_up(arg: Op, power: int) -> Op:
    """A whole power from 1 on, by squares and cubes."""
    if power == 1:
        return arg
    for part in (2, 3):
        if power % part == 0:
            return Apply(
                "pow", (_multiply_up(arg, power // part), Num(Number(Fraction(part)))), axes_of(arg)
            )
    return Apply("*", (_multiply_up(arg, power - 1), arg), axes_of(arg))


def lower_call(
    function: str, arguments: Sequence[Expr], context: Context, order: tuple[Index, ...]
) -> Op:
    """An elementwise function; numbers among its arguments stay numbers where torch takes them.

    One that torch has no call for is lowered by its definition.
    """
    row, call = FUNCTIONS[function], find_call(function)
    numbers = arguments[len(row.tensors) :] if row.defaults else ()
    taken = function == "clip" or (call is not None and len(arguments) <= len(call.parameters))
    if row.definition and not (taken and all(map(is_python_number, numbers))):
        make = _make_ops(order)
        values = bind(row, [lower(a, context, order) for a in arguments], make)
        found: Op = read_definition(
            row.text or row.definition, values, make
        )  # a value keeps the digits
        return found
    ops = [lower(a, context, order) for a in arguments]
    if function in {"max", "min"}:
        ops.sort(key=lambda op: isinstance(op, Num))  # a tensor first: numbers are bounds to it
    wanted = len(row.tensors) if call else 1  # as tensors: that of a bound is a number as well
    ops[:wanted] = [NumTensor(op.value) if isinstance(op, Num) else op for op in ops[:wanted]]
    match function, ops:
        case "floordiv" | "mod", [_, Num(under)] if not is_positive(arguments[1]):
            ops[1] = NumTensor(under)  # torch divides whole numbers by 0 with an error
    args = align(ops, order)
    axes = find_union(args, order)
    if function == "sign" and not is_finite(arguments[0]):
        source = context.add_step(args[0])
        is_nan = Apply("!=", (source, source), axes)  # whose sign is 0 to torch
        return Choose(is_nan, source, Apply(function, (source,), axes), axes)
    return Apply(function, args, axes)


def is_python_number(expr: Expr) -> bool:
    """Is it a number for sure? A scalar may be given as a tensor."""
    known = not any(isinstance(part, (Scalar, Access, Index)) for part in walk(expr))
    return known and is_steady(expr)


def _make_ops(order: tuple[Index, ...]) -> Maker:
    """The parts of a definition as operations on what is lowered already."""

    def apply(function: str, *args: Op) -> Op:
        values = [arg.value for arg in args if isinstance(arg, Num)]
        if function in {"+", "*"} and len(values) == len(args):
            return Num((PLAIN.add if function == "+" else PLAIN.multiply)(*values))
        match function, args:
            case ("*", (Num(number), arg)) if number is ONE:
                return arg
            case ("*", (Num(number), arg)) if number is MINUS_ONE:
                return Apply("neg", (arg,), axes_of(arg))
            case "*", (arg, Num(Pow(under, exponent))) if exponent is MINUS_ONE:
                return apply("/", arg, Num(under))
            case "+", (arg, Apply("neg", (other,))):
                return apply("-", arg, other)
        return combine(function, args, order)

    def power(base: Op, exponent: Op) -> Op:
        if isinstance(base, Num) and isinstance(exponent, Num):
            return Num(PLAIN.power(base.value, exponent.value))
        if isinstance(exponent, Num) and exponent.value is MINUS_ONE:
            return apply("/", Num(ONE), base)
        return apply("pow", base, exponent)

    def choose(condition: Op, then: Op, other: Op) -> Op:
        condition, then, other = align((condition, then, other), order)
        return Choose(condition, then, other, find_union((condition, then, other), order))

    def call(function: str, args: tuple[Op, ...]) -> Op:
        row, known = FUNCTIONS[function], find_call(function)
        if not row.definition or (known and len(args) <= len(known.parameters)):
            return apply(function, *args)
        found: Op = read_definition(row.text or row.definition, bind(row, args, make), make)
        return found

    make = Maker(
        lambda value: Num(Number(value)),
        partial(apply, "+"),
        partial(apply, "*"),
        power,
        apply,
        choose,
        call,
    )
    return make


TWO = Number(Fraction(2))


def lower_reduce(reduce: Reduce, context: Context, order: tuple[Index, ...]) -> Op:
    """A reduction over its bound indices; entries left out count as its neutral element."""
    if reduce.condition is not TRUE and reduce.kind not in NEUTRAL:
        return context.lower(spell_out(reduce), order)
    parted = eliminate(reduce, context, order)
    if parted is not None:
        return parted
    inner = (*(i for i in order if i not in reduce.bound), *reduce.bound)
    arg = context.lower(context.protect(reduce.body, reduce.condition), inner)
    if reduce.condition is not TRUE:
        mask = lower_condition(reduce.condition, context, inner)
        arg = fill(arg, mask, NEUTRAL[reduce.kind], False, inner)
    arg = spread(arg, reduce.bound, inner)
    if ROWS[reduce.kind].is_matrix:
        arg = arrange(arg, sort_axes(axes_of(arg), inner))
    return Reduction(reduce.kind, arg, reduce.bound)


def spread(op: Op, indices: tuple[Index, ...], order: tuple[Index, ...]) -> Op:
    """The operation with these indices among its axes, repeated along those it lacks."""
    if isinstance(op, Num):
        op = NumTensor(op.value)
    lacking = [i for i in indices if i not in axes_of(op)]
    return Expand(op, sort_axes((*axes_of(op), *lacking), order)) if lacking else op


def spell_out(reduce: Reduce) -> Expr:
    """A mean or a variance over some of the entries, by sums over those entries."""
    total = Reduce("sum", reduce.bound, reduce.condition, reduce.body)
    count: Expr = Reduce("sum", reduce.bound, reduce.condition, ONE)
    average = Mul((total, Pow(count, MINUS_ONE)))
    if reduce.kind == "mean":
        return average
    taken = {i.name for i in reduce.bound}
    bound, condition, body = rename_bound(reduce, taken)
    spread_out = Pow(Add((body, Mul((MINUS_ONE, average)))), TWO)
    if reduce.kind == "sample_var":
        count = Call("max", (Add((count, MINUS_ONE)), ZERO))  # of nothing 0 / 0, as of one entry
    return Mul((Reduce("sum", bound, condition, spread_out), Pow(count, MINUS_ONE)))


def lower_along(along: Along, context: Context, order: tuple[Index, ...]) -> Op:
    """A function along an index with that last, where torch is fastest; of a matrix with both."""
    index = along.index
    inner = (*(i for i in order if i not in along.indices), *along.indices)
    arg = context.lower(context.protect(along.body, along.condition), inner)
    mask = None
    if along.condition is not TRUE:
        mask = lower_condition(along.condition, context, inner)
        arg = fill(arg, mask, NEUTRAL[along.kind], False, inner)
    arg = spread(arg, along.indices, inner)
    arg = arrange(arg, sort_axes(axes_of(arg), inner))
    result: Op = AlongOp(along.kind, arg, index, along.columns)
    if along.kind == "softmax" and context.system.empty_row == "zeros":
        result = empty_rows(along, arg, result, mask, context)
    return result


def empty_rows(along: Along, arg: Op, result: Op, mask: Op | None, context: Context) -> Op:
    """Zeros where nothing is left in a row, by the mask or else by the logits themselves."""
    if mask is not None:
        return fill(result, mask, Num(ZERO), False, axes_of(result))
    if not find_free(along.body):
        return result
    logits = context.add_step(arg)
    gone = Apply("==", (logits, Num(MINUS_INFINITY)), axes_of(logits))
    soft = AlongOp(along.kind, logits, along.index)
    return fill(soft, gone, Num(ZERO), True, axes_of(soft))
