"""Numbers over sizes: in Python where its arithmetic is the formula's, else as 0-d tensors.

To Python 1 / 0 is an error, a root of -1 complex, and a whole number of any length an int, which
torch takes up to 64 bits only. Where some sizes could lead there, the part is computed by torch,
which says inf or nan as the formula does.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import reduce
from operator import itemgetter

from derive.analysis.extents import is_above_zero
from derive.analysis.facts import is_never_negative, is_positive
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_all_indices, find_children, find_size_names, walk
from derive.plan import ops
from derive.plan.cost import find_inner
from derive.plan.lower.context import Context
from derive.plan.plan import Plan

SIZE_BITS = 16  # that a size is taken to have in a product of sizes
INTEGER_BITS = 64
FLOAT_BITS = 1000
ROOTS = {Fraction(1, 2): "sqrt", Fraction(-1, 2): "rsqrt"}


def lower_number(expr: ir.Expr) -> ops.Op:
    """The number as an operation without axes."""
    op = _lower(expr)
    return op if isinstance(op, ops.Num) else ops.Cast(op)


def _lower(expr: ir.Expr) -> ops.Op:
    """The number in Python, else in wide tensors."""
    if is_steady(expr):
        return ops.Num(expr)
    match expr:
        case ir.Add(terms):
            return reduce(lambda one, other: ops.Apply("+", (one, other), ()), map(_lower, terms))
        case ir.Mul(factors):
            return _lower_factors(factors)
        case ir.Pow(base, ir.Number(power)) if power == -1:
            return ops.Apply("/", (ops.Num(ir.ONE), _to_tensor(base)), ())
        case ir.Pow(base, ir.Number(power)) if power in ROOTS:
            return ops.Apply(ROOTS[power], (_to_tensor(base),), ())
        case ir.Pow(base, exponent):
            return ops.Apply("pow", (_to_tensor(base), _lower(exponent)), ())
        case ir.Call(function, (left, right)):
            return ops.Apply(function, (_to_tensor(left), _lower(right)), ())
        case _:
            raise TypeError(f"{type(expr).__name__} is no number")


def scale_operand(
    operands: list[ops.Op], number: ir.Expr, axes: tuple[ir.Index, ...], context: Context
) -> ir.Expr | None:
    """The number on the smallest operand, or given back where the result is smaller than all."""
    smallest = min(range(len(operands)), key=lambda k: context.count(ops.axes_of(operands[k])))
    if context.count(axes) < context.count(ops.axes_of(operands[smallest])):
        return number
    op = operands[smallest]
    operands[smallest] = scale(op, number)
    return None


def scale(op: ops.Op, number: ir.Expr) -> ops.Op:
    """The operation times a number, by a division where the number is an inverse."""
    match number:
        case ir.Pow(base, ir.Number(power)) if power == -1 and not isinstance(base, ir.Pow):
            return ops.Apply("/", (op, lower_number(base)), ops.axes_of(op))
    return ops.Apply("*", (op, lower_number(number)), ops.axes_of(op))


def divide_number(
    number: ir.Expr, operands: Sequence[ops.Op], divisors: list[ops.Op], size: int, context: Context
) -> tuple[ir.Expr, ops.Op | None]:
    """(the number of a product of `size` elements, its quotient by a smaller divisor, if any).

    It meets fewer elements there. A quotient of sizes stays, which may be one by 0.
    """
    tensors = [op for op in divisors if not isinstance(op, ops.Num)]
    small = [op for op in tensors if context.count(ops.axes_of(op)) < size]
    least = min((context.count(ops.axes_of(op)) for op in operands), default=0)
    is_plain = number not in (ir.ONE, ir.MINUS_ONE) and not any(
        isinstance(part, ir.Pow) for part in walk(number)
    )
    if not small or not is_plain or least < size:
        return number, None
    divisors.remove(small[0])
    axes = ops.axes_of(small[0])
    return ir.ONE, ops.Apply("/", (lower_number(number), small[0]), axes)


def divide(op: ops.Op, divisor: ops.Op, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """The quotient; by what is smaller, a product with its inverse, whose gradient is cheaper."""
    own = ops.axes_of(divisor)
    if own and context.count(own) < context.count(ops.axes_of(op)):
        match divisor:
            case ops.Apply("sqrt", args, axes):
                inverse = ops.Apply("rsqrt", args, axes)
            case _:
                inverse = ops.Apply("/", (ops.Num(ir.ONE), divisor), ops.axes_of(divisor))
        return ops.combine("*", (op, inverse), order)
    return ops.combine("/", (op, divisor), order)


def is_wide(op: ops.Op) -> bool:
    """Does it hold wide numbers, which a result does not?"""
    return any(
        ops.is_complex(part)
        or (isinstance(part, ops.NumTensor) and part.wide)
        or (isinstance(part, ops.Cast) and part.kind == "single")
        for part in ops.walk_ops(op)
    )


def _to_tensor(expr: ir.Expr) -> ops.Op:
    op = _lower(expr)
    return ops.NumTensor(op.value, True) if isinstance(op, ops.Num) else op


def _lower_factors(factors: Sequence[ir.Expr]) -> ops.Op:
    """The factors that are steady together, times and over the others one by one."""
    steady: list[ir.Expr] = []
    others: list[ir.Expr] = []
    for factor in factors:
        fits = is_steady(factor) and is_steady(ir.Mul((*steady, factor)))
        (steady if fits else others).append(factor)
    first = ir.product_of(steady)
    # What is steady by itself, but not beside the rest, is too long for one Python number.
    result: ops.Op = ops.NumTensor(first, True) if all(map(is_steady, others)) else ops.Num(first)
    for factor in others:
        match factor:
            case ir.Pow(base, ir.Number(power)) if power == -1:
                result = ops.Apply("/", (result, _to_tensor(base)), ())
            case _ if result == ops.Num(ir.ONE):
                result = _lower(factor)
            case _:
                result = ops.Apply("*", (result, _lower(factor)), ())
    return result


def is_steady(expr: ir.Expr) -> bool:
    """Does Python compute it as the formula says, at whatever sizes, and short enough for torch?"""
    return _is_safe(expr) and _count_bits(expr) <= INTEGER_BITS


def _is_safe(expr: ir.Expr) -> bool:
    if not all(map(_is_safe, find_children(expr))):
        return False
    match expr:
        case ir.Pow(base, exponent) if _is_tensor(base) or _is_tensor(exponent):
            return True
        case ir.Pow(base, ir.Number(power)) if power.denominator != 1 or power < 0:
            return is_positive(base)
        case ir.Mul() | ir.Pow(_, ir.Number()):
            return _count_bits(expr) <= FLOAT_BITS
        case ir.Pow():
            return False
        case ir.Call("floordiv" | "mod", (_, under)):
            return _is_tensor(under) or is_positive(under)
    return True


def _is_tensor(expr: ir.Expr) -> bool:
    """Is it a tensor in the generated code, as every scalar inside powers is made?"""
    return any(isinstance(part, ir.Scalar) for part in walk(expr))


def _count_bits(expr: ir.Expr) -> int:
    """How long it is as a whole number; 0 for what is a float."""
    match expr:
        case ir.Number(value):
            bits = value.numerator.bit_length()
            return bits if value.denominator == 1 and bits < INTEGER_BITS else 0
        case ir.Size():
            return SIZE_BITS
        case ir.Add(terms):
            counts = list(map(_count_bits, terms))
            return max(counts) if all(counts) else 0
        case ir.Mul(factors):
            counts = list(map(_count_bits, factors))
            return sum(counts) if all(counts) else 0
        case ir.Pow(base, ir.Number(power)) if power.denominator == 1 and power >= 0:
            return _count_bits(base) * int(power)
        case ir.Call("floordiv" | "mod", (left, _)):
            return _count_bits(left)
    return 0


def find_positive(plan: Plan) -> tuple[str, ...]:
    """The sizes that must not be 0: a number over them divides, or an extreme is taken over them.

    An extent may divide, too. A quotient of sizes is a Python number, and torch has no largest
    entry of none, and no step of 0.
    """
    found: dict[str, None] = {}
    parts = (op for step in plan.steps for part in ops.walk_ops(step.op) for op in _open(part))
    extents = (ops.Num(index.extent) for index in find_all_indices(plan.system))
    for number in (each for op in (*parts, *extents) for each in _find_divisors(op)):
        if not is_above_zero(number):
            found |= dict.fromkeys(find_size_names(number))
    return tuple(size for size in plan.sizes if size in found)


def find_counted(plans: Sequence[Plan]) -> tuple[tuple[ir.Index, int], ...]:
    """The indices whose extents may be too small, L - K + 1, and what they are at least.

    No extent is below 0, and torch has no windows but where there is one.
    """
    found: dict[Polynomial, tuple[ir.Index, int]] = {}
    every = [(index, 0) for index in find_all_indices(plans[0].system)]
    made = [step.op for plan in plans for step in plan.steps]
    made += [op for plan in plans for tile in plan.tiles for _, op in tile.sliced]
    parts = (part for each in made for op in ops.walk_ops(each) for part in _open(op))
    every += [(part.outer, 1) for part in parts if isinstance(part, ops.Unfold)]
    for index, least in every:
        extent = Polynomial.of(index.extent)
        is_enough = is_above_zero(index.extent) if least else is_never_negative(extent)
        if not is_enough:
            found[extent] = max(found.get(extent, (index, 0)), (index, least), key=itemgetter(1))
    return tuple(found.values())


def _open(op: ops.Op) -> Sequence[ops.Op]:
    if isinstance(op, ops.Cell) and not op.volume:  # others walk over windows themselves
        return (op, *find_inner(op.whole, op.args))
    return (op,)


def _find_divisors(op: ops.Op) -> Iterator[ir.Expr]:
    """The numbers over sizes by which it divides or steps, and the extents of its extremes."""
    match op:
        case ops.Unfold(step=step) | ops.Slice(step=step):
            yield step
        case ops.Cell(filled=filled):
            yield from (index.extent for index in filled)
        case ops.Reduction("max" | "min" | "argmax", _, over) if not ops.is_boolean(op):
            yield from (index.extent for index in over)
        case ops.Apply("/", (_, ops.Num(ir.Call("max")))):
            pass  # a tensor over no entries
        case ops.Apply("/" | "floordiv" | "mod", (_, ops.Num(under))) if not _is_tensor(under):
            yield under
    values = [
        part.value for part in (op, *ops.args_of(op)) if isinstance(part, (ops.Num, ops.NumTensor))
    ]
    values += [op.value.value] if isinstance(op, ops.Fill) else []
    for part in (part for value in values for part in walk(value)):
        match part:
            case ir.Pow(base, ir.Number(power)) if power < 0 or power.denominator != 1:
                yield from () if _is_tensor(base) else (base,)
            case ir.Call("floordiv" | "mod", (_, under)) if not _is_tensor(under):
                yield under
