"""Lowering: each equation of a prepared system becomes steps on tensors, innermost parts first.

One function per kind of expression. Sums of products, conditions, numbers, integers and structures
of guards have modules of their own. `order` has the indices of an expression, and more, in the
order in which the axes of new tensors are stored.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from derive.analysis.facts import is_positive
from derive.analysis.integers import is_counted
from derive.analysis.places import find_reversed, split_merged
from derive.analysis.safety import is_finite
from derive.ir import nodes as ir
from derive.ir.definitions import PLAIN, Maker, bind, read_definition
from derive.ir.functions import FUNCTIONS, ROWS, find_call, holds_complex
from derive.ir.walk import find_free, is_number, is_whole, walk
from derive.plan import ops
from derive.plan.calls import CellArgument, TorchCall
from derive.plan.lower.calls import fold_call, fold_shifted
from derive.plan.lower.condition import (
    expand,
    expand_to_indices,
    fill,
    lower_choice,
    lower_condition,
    lower_index,
    push_into_exponential,
    widen_casts,
)
from derive.plan.lower.context import Context, layout_of
from derive.plan.lower.contraction import NEUTRAL, eliminate_indices
from derive.plan.lower.fourier import lower_transformed, reduce_angle
from derive.plan.lower.guarded import Wanted
from derive.plan.lower.integers import lower_integers
from derive.plan.lower.number import is_kept_wide, is_python_safe, lower_number
from derive.plan.lower.places import drop_padded, read_tensor, take_places
from derive.plan.lower.product import (
    MOST_POWER,
    ROOTS,
    flip_axis,
    lower_product,
    lower_sum,
    push_mask,
    split_sign,
)
from derive.plan.lower.structures import lower_guarded
from derive.rewrite.rules.products import rename_bound

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

HEAVY = (ops.Einsum, ops.Reduction, ops.Along)  # always steps of their own
HALF = Fraction(1, 2)


def lower_equation(equation: ir.Equation, context: Context) -> ops.Source:
    """Add the steps of one equation; return a read of the last, named like the left side."""
    target = equation.target
    context.target = target.tensor.name
    pairs = list(zip(target.places, target.tensor.shape, strict=True))
    backs = [find_reversed(*pair) for pair in pairs]  # i in y[N - 1 - i]
    places = [
        split_merged(*pair) if back is None else (back,)
        for pair, back in zip(pairs, backs, strict=True)
    ]
    layout = layout_of(target.tensor, context)
    order = tuple(i for k in layout for i in places[k])
    is_place = isinstance(equation.value, ir.Reduce) and equation.value.kind == "argmax"
    has_integers = target.tensor.kind == "int" and not is_place
    op = (lower_integers if has_integers else lower_inside)(equation.value, context, order)
    op = _to_number_tensor(op)
    is_kept = isinstance(op, ops.Cast) and (ops.is_boolean(op.arg) or is_kept_wide(op.arg))
    if isinstance(op, ops.Cast) and op.kind == "real" and not is_kept:
        op = op.arg
    if target.tensor.kind == "int" and not ops.is_integral(op):
        op = ops.Cast(op, "int")
    if ops.is_integral(op):
        context.integers.add(target.tensor.name)
    op = expand(op, order)
    for back in filter(None, backs):
        op = flip_axis(op if isinstance(op, ops.VIEWS) else context.add_step(op), back)
    context.stored[target.tensor.name] = tuple(places)
    return context.add_step(op, target.tensor.name)


def lower(expr: ir.Expr, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Lower an expression; an expensive one becomes a step, which is reused later."""
    found = context.recall(expr)
    if found is None:
        op = lower_inside(expr, context, order)
        if not isinstance(op, HEAVY) and not (isinstance(op, ops.Cell) and op.when):
            return op
        found = context.name_step(expr, op)
    return ops.Cast(found) if found.kind == "int" else found


def lower_inside(expr: ir.Expr, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Lower an expression to one operation, after steps for its expensive parts."""
    if is_number(expr):
        return lower_number(expr)
    is_simple = isinstance(expr, (ir.Index, ir.Access)) or getattr(expr, "kind", "") == "argmax"
    if not is_simple and is_counted(expr):
        if is_whole(expr):
            return ops.Cast(ops.strip_casts(lower_node(expr, context, order), False))
        return ops.Cast(lower_integers(expr, context, order))
    return lower_node(expr, context, order)


def lower_node(expr: ir.Expr, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Lower an expression by a transform or structure that fits, else by its kind."""
    reduced = reduce_angle(expr, context.system.equations)
    if reduced is not expr:
        op = widen_casts(lower_node(reduced, context, order))
        return ops.Cast(op, "complex" if ops.is_complex(op) else "real")
    if isinstance(expr, (ir.Pow, ir.Call, ir.Where, ir.Add)) and not holds_complex(expr):
        folded = None if isinstance(expr, ir.Add) else fold_call(expr)
        expr = folded or fold_shifted(expr, context.system)
    if context.transforms and isinstance(expr, ir.Reduce) and expr.kind == "sum":
        found = lower_transformed(expr, context, order)
        if found is not None:
            return found
    if isinstance(expr, ir.Reduce):
        make = partial(context.lower, order=order)
        guarded = lower_guarded(expr, Wanted(context, order, False, make))
        if guarded is not None:
            return ops.Cast(guarded) if ops.is_integral(guarded) else guarded
    match expr:
        case ir.Access():
            return lower_access(expr, context, order)
        case ir.Index():
            return ops.Cast(lower_index(expr, context))
        case ir.Add(terms):
            return lower_sum(terms, context, order)
        case ir.Mul(factors):
            turned = _negate_extreme(expr)
            if turned is not None:
                return lower_node(turned, context, order)
            return lower_product((), ir.TRUE, factors, context, order)
        case ir.Pow(base, exponent):
            return lower_power(base, exponent, context, order)
        case ir.Call(function, arguments):
            return lower_call(function, arguments, context, order)
        case ir.Where(condition, then, other):
            if other is ir.ZERO:
                condition, then = push_mask(condition, then, context)
                condition = drop_padded(condition, then, context)
                condition, then = push_into_exponential(condition, then, context)
            if condition is ir.TRUE:
                return lower_node(then, context, order)
            return lower_choice(condition, then, other, context, order)
        case ir.Reduce("sum", bound, condition, body):
            condition, body = push_into_exponential(condition, body, context)
            return lower_product(bound, condition, ir.split_product(body), context, order)
        case ir.Reduce():
            return lower_reduce(expr, context, order)
        case ir.Along():
            return lower_along(expr, context, order)
        case ir.Truth() | ir.Compare() | ir.And() | ir.Or() | ir.Not():
            return lower_condition(expr, context, order)
        case ir.Number() | ir.Infinity() | ir.Size() | ir.Scalar():
            return ops.Num(expr)


def _negate_extreme(product: ir.Mul) -> ir.Expr | None:
    """Return -max(a - b, 1) as min(b - a, -1), which saves a pass; None for other products."""
    match split_sign(product):
        case True, ir.Call("max" | "min" as function, (ir.Add(terms), bound)) if is_number(
            bound
        ) and any(split_sign(term)[0] for term in terms):
            each, last = [_negate(term) for term in terms], _negate(bound)
            return ir.Call("min" if function == "max" else "max", (ir.Add(tuple(each)), last))
    return None


def _negate(expr: ir.Expr) -> ir.Expr:
    is_negative, size = split_sign(expr)
    if is_negative or expr is ir.ZERO:
        return size
    return ir.Number(-expr.value) if isinstance(expr, ir.Number) else ir.Mul((ir.MINUS_ONE, expr))


def lower_access(access: ir.Access, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Lower a read of a tensor to views of its storage, and gathers."""
    layout = layout_of(access.tensor, context)
    stored = context.stored.get(access.tensor.name)
    op, left = read_tensor(access, layout, stored)
    if left:
        op = take_places(op, dict(left), context, order)
    name = access.tensor.name
    return ops.Cast(op) if access.tensor.kind == "int" or name in context.integers else op


def lower_power(
    base: ir.Expr, exponent: ir.Expr, context: Context, order: tuple[ir.Index, ...]
) -> ops.Op:
    """Lower a power: negative ones to quotients, those without a fast power in torch to products.

    Torch is fast for squares, cubes, roots and inverse squares. Other powers take 20 to 40 times
    as long on a million entries. A product with a root may be used for x**-1.5, which like the root
    has no derivative at 0, but not for x**1.5.
    """
    match base, exponent:
        case ir.Pow(inner, ir.Number(power)), ir.Number(value) if value == -1 and power in ROOTS:
            return lower_power(inner, ir.Number(-power), context, order)
    arg = lower(base, context, order)
    axes = arg.axes
    match arg, exponent:
        case ops.Apply("neg", (positive,)), ir.Number(value) if value % 2 == 0:
            arg = positive
    match exponent:
        case ir.Number(value) if value == -1:
            return ops.Apply("/", (ops.Num(ir.ONE), arg), axes)
        case ir.Number(value) if value in (HALF, -HALF):
            return ops.Apply("sqrt" if value > 0 else "rsqrt", (arg,), axes)
        case ir.Number(value) if (
            value in (-2, 2, 3) or isinstance(arg, ops.Num) or ops.is_integral(arg)
        ):
            pass
        case ir.Number(value) if value.denominator == 1 and 1 < abs(value) <= MOST_POWER:
            product = _write_power(arg, int(abs(value)))
            return product if value > 0 else ops.Apply("/", (ops.Num(ir.ONE), product), axes)
        case ir.Number(value) if value.denominator == 2 and 1 < abs(value) <= MOST_POWER:
            if value < 0 or is_positive(base):
                product = _write_power(arg, int(abs(value)))
                name, root = ("*", "sqrt") if value > 0 else ("/", "rsqrt")
                return ops.Apply(name, (ops.Apply(root, (arg,), axes), product), axes)
    return ops.combine("pow", [arg, lower(exponent, context, order)], order)


def _write_power(arg: ops.Op, power: int) -> ops.Op:
    """Return a positive integer power as squares, cubes and products."""
    if power == 1:
        return arg
    for part in (2, 3):
        if power % part == 0:
            inner, exponent = _write_power(arg, power // part), ops.Num(ir.Number(Fraction(part)))
            return ops.Apply("pow", (inner, exponent), arg.axes)
    return ops.Apply("*", (_write_power(arg, power - 1), arg), arg.axes)


def lower_call(
    function: str, arguments: Sequence[ir.Expr], context: Context, order: tuple[ir.Index, ...]
) -> ops.Op:
    """Lower an elementwise function; Python numbers stay Python numbers where torch accepts them.

    A function without a call in torch is lowered by its definition.
    """
    row, call = FUNCTIONS[function], find_call(function)
    numbers = arguments[len(row.tensors) :] if row.defaults else ()
    taken = function == "clip" or (call is not None and len(arguments) <= len(call.parameters))
    if row.definition and not (taken and all(map(is_python_number, numbers))):
        make = _make_ops(order)
        given = [lower(a, context, order) for a in arguments]
        if not (taken and row.is_smooth and call) or call.keywords or not _is_tensor_first(given):
            whole: ops.Op = read_definition(
                row.text or row.definition, bind(row, given, make), make
            )
            return whole
        given[0] = given[0] if isinstance(given[0], ops.VIEWS) else context.add_step(given[0])
        whole = read_definition(row.definition, bind(row, given, make), make)
        places = tuple(map(CellArgument, range(len(given))))
        when = (p for p, a in zip(places, arguments, strict=True) if not is_python_number(a))
        axes = given[0].axes
        made = TorchCall(call.path, places)
        return ops.Cell(made, tuple(given), ops.arrange(whole, axes), axes, tuple(when)[1:])
    parts = [lower(a, context, order) for a in arguments]
    if function in {"max", "min"}:
        if all(isinstance(op, ops.Num) for op in parts) and all(map(is_python_number, arguments)):
            return ops.Num(ir.Call(function, tuple(arguments)))
        parts.sort(key=lambda op: isinstance(op, ops.Num))  # tensors first: numbers become bounds
    wanted = len(row.tensors) if call else 1  # leading arguments that must be tensors
    parts[:wanted] = map(_to_number_tensor, parts[:wanted])
    match function, parts:
        case "floordiv" | "mod", [_, ops.Num(under)] if not any(
            map(is_positive, (arguments[1], _negate(arguments[1])))
        ):
            parts[1] = ops.NumTensor(under)  # torch raises for a Python number 0
    args = ops.align(parts, order)
    axes = ops.find_union(args, order)
    if function == "sign" and not is_finite(arguments[0]):
        source = context.add_step(args[0])
        is_nan = ops.Apply("!=", (source, source), axes)  # torch's sign of nan is 0
        return ops.Choose(is_nan, source, ops.Apply(function, (source,), axes), axes)
    if function == "logaddexp" and not any(map(context.is_above, arguments)):
        one, other = map(context.add_step, args)  # torch's gradient is nan where both are -oo
        least = ops.Num(ir.MINUS_INFINITY)
        is_least = ops.Apply("==", (one, least), one.axes)
        none = ops.Choose(is_least, ops.Num(ir.ZERO), one, one.axes)
        return ops.Choose(is_least, other, ops.Apply(function, (none, other), axes), axes)
    return ops.Apply(function, args, axes)


def _is_tensor_first(arguments: Sequence[ops.Op]) -> bool:
    """Whether the first argument is a tensor and the others are numbers."""
    first, *others = (isinstance(argument, ops.Num) for argument in arguments)
    return not first and all(others)


def is_python_number(expr: ir.Expr) -> bool:
    """Whether generated code has the value as a Python number; a scalar may be a tensor."""
    known = not any(isinstance(part, (ir.Scalar, ir.Access, ir.Index)) for part in walk(expr))
    return known and is_python_safe(expr)


def _make_ops(order: tuple[ir.Index, ...]) -> Maker:
    """Return the constructors by which `read_definition` writes a definition as operations."""

    def apply(function: str, *args: ops.Op) -> ops.Op:
        values = [arg.value for arg in args if isinstance(arg, ops.Num)]
        if function in {"+", "*"} and len(values) == len(args):
            return ops.Num((PLAIN.add if function == "+" else PLAIN.multiply)(*values))
        match function, args:
            case ("*", (ops.Num(number), arg)) if number is ir.ONE:
                return arg
            case ("*", (ops.Num(number), arg)) if number is ir.MINUS_ONE:
                return ops.Apply("neg", (arg,), arg.axes)
            case "*", (arg, ops.Num(ir.Pow(under, exponent))) if exponent is ir.MINUS_ONE:
                return apply("/", arg, ops.Num(under))
            case "+", (arg, ops.Apply("neg", (other,))):
                return apply("-", arg, other)
        return ops.combine(function, args, order)

    def power(base: ops.Op, exponent: ops.Op) -> ops.Op:
        if isinstance(base, ops.Num) and isinstance(exponent, ops.Num):
            return ops.Num(PLAIN.power(base.value, exponent.value))
        if isinstance(exponent, ops.Num) and exponent.value is ir.MINUS_ONE:
            return apply("/", ops.Num(ir.ONE), base)
        return apply("pow", base, exponent)

    def choose(condition: ops.Op, then: ops.Op, other: ops.Op) -> ops.Op:
        condition, then, other = ops.align((condition, then, other), order)
        return ops.Choose(condition, then, other, ops.find_union((condition, then, other), order))

    def call(function: str, args: tuple[ops.Op, ...]) -> ops.Op:
        row, known = FUNCTIONS[function], find_call(function)
        if not row.definition or (known and len(args) <= len(known.parameters)):
            return apply(function, *args)
        found: ops.Op = read_definition(row.text or row.definition, bind(row, args, make), make)
        return found

    make = Maker(
        lambda value: ops.Num(ir.Number(value)),
        partial(apply, "+"),
        partial(apply, "*"),
        power,
        apply,
        choose,
        call,
    )
    return make


TWO = ir.Number(Fraction(2))
LEAST = ops.Num(ir.Number(Fraction(1 - 2**63)))  # int64's least value but one


def lower_reduce(reduce: ir.Reduce, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Lower a reduction; excluded entries are filled with its neutral element.

    A variance is written as sums: torch's is an online algorithm, 10 to 30 times slower.
    """
    is_spread = reduce.kind in {"var", "sample_var"}
    is_spread |= reduce.kind == "mean" and is_counted(reduce.body)
    if is_spread or (reduce.condition is not ir.TRUE and reduce.kind not in NEUTRAL):
        return lower_node(write_as_sums(reduce, context.names), context, order)
    parted = eliminate_indices(reduce, context, order)
    if parted is not None:
        return parted
    inner = (*(i for i in order if i not in reduce.bound), *reduce.bound)
    arg, _ = _fill_excluded(reduce, context, inner)
    arg = expand_to_indices(arg, reduce.bound, inner)
    if ROWS[reduce.kind].is_matrix:
        arg = ops.arrange(arg, ops.sort_axes(arg.axes, inner))
    return ops.Reduction(reduce.kind, arg, reduce.bound)


def _fill_excluded(
    row: ir.Reduce | ir.Along, context: Context, order: tuple[ir.Index, ...]
) -> tuple[ops.Op, ops.Op | None]:
    """Return (the body filled with the neutral element where the condition is false, the mask).

    Where the condition only excludes padding, the padding gets that value and the mask is None.
    """
    arg = context.lower(context.protect(row.body, row.condition), order)
    has_integers = row.kind == "argmax" and is_counted(row.body)
    arg = ops.strip_casts(arg) if has_integers else arg
    if row.condition is ir.TRUE:
        return arg, None
    neutral = LEAST if has_integers else NEUTRAL[row.kind]
    condition = drop_padded(row.condition, row.body, context)
    if condition is not row.condition:
        arg = _set_padding(arg, neutral.value)
    if condition is ir.TRUE:
        return arg, None
    mask = lower_condition(condition, context, order)
    return fill(arg, mask, neutral, False, order), mask


def _set_padding(op: ops.Op, value: ir.Expr) -> ops.Op:
    op = ops.with_args(op, tuple(_set_padding(arg, value) for arg in op.args))
    return replace(op, value=value) if isinstance(op, ops.Pad) else op


def _to_number_tensor(op: ops.Op) -> ops.Op:
    """Return a number, or arithmetic on numbers, as a 0-d tensor; any other operation unchanged."""
    match op:
        case ops.Num(value):
            return ops.NumTensor(value)
        case ops.Apply("+" | "-" | "*" | "/", (first, *rest), ()):
            if all(isinstance(part, (ops.Num, ops.Apply)) for part in ops.walk_ops(op)):
                return replace(op, args=(_to_number_tensor(first), *rest))
    return op


def write_as_sums(reduce: ir.Reduce, names: Collection[str]) -> ir.Expr:
    """Return a conditional mean, or a variance, in terms of sums."""
    count: ir.Expr = ir.Reduce("sum", reduce.bound, reduce.condition, ir.ONE)
    if reduce.condition is ir.TRUE:
        count = ir.Mul(tuple(index.extent for index in reduce.bound))
    total = ir.Reduce("sum", reduce.bound, reduce.condition, reduce.body)
    average: ir.Expr = ir.Mul((total, ir.Pow(count, ir.MINUS_ONE)))
    if reduce.condition is ir.TRUE and not is_counted(reduce.body):
        average = ir.Reduce("mean", reduce.bound, ir.TRUE, reduce.body)
    if reduce.kind == "mean":
        return average
    taken = {*names, *(i.name for i in reduce.bound)}
    bound, condition, body = rename_bound(reduce, taken)
    spread_out = ir.Pow(ir.Add((body, ir.Mul((ir.MINUS_ONE, average)))), TWO)
    if reduce.kind == "var" and condition is ir.TRUE:
        return ir.Reduce("mean", bound, ir.TRUE, spread_out)
    if reduce.kind == "sample_var":
        less = ir.Add((count, ir.MINUS_ONE))
        count = ir.Call("max", (less, ir.ZERO))  # 0 / 0 = nan for no entries, as for one
    return ir.Mul((ir.Reduce("sum", bound, condition, spread_out), ir.Pow(count, ir.MINUS_ONE)))


def lower_along(along: ir.Along, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Lower a function along an index, or of a matrix, with these axes last for speed."""
    index = along.index
    inner = (*(i for i in order if i not in along.indices), *along.indices)
    arg, mask = _fill_excluded(along, context, inner)
    arg = expand_to_indices(arg, along.indices, inner)
    arg = ops.arrange(arg, ops.sort_axes(arg.axes, inner))
    result: ops.Op = ops.Along(along.kind, arg, index, along.columns)
    if ROWS[along.kind].normalizes and context.system.empty_row == "zeros":
        result = zero_empty_rows(along, arg, result, mask, context)
    return result


def zero_empty_rows(
    along: ir.Along, arg: ops.Op, result: ops.Op, mask: ops.Op | None, context: Context
) -> ops.Op:
    """Replace the nan of a softmax over no entries by 0, where masked or where logits are -oo."""
    if mask is not None:
        return fill(result, mask, ops.Num(ir.ZERO), False, result.axes)
    if not find_free(along.body):
        return result
    logits = context.add_step(arg)
    gone = ops.Apply("==", (logits, ops.Num(ir.MINUS_INFINITY)), logits.axes)
    soft = ops.Along(along.kind, logits, along.index)
    return fill(soft, gone, ops.Num(ir.ZERO), True, soft.axes)
