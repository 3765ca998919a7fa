"""Numbers computed from sizes: in Python if its arithmetic agrees with the formula, else in torch.

In Python 1 / 0 raises, a root of -1 is complex, and integers may exceed torch's 64 bits. A number
that could get there at some sizes is computed in 0-d tensors, which give inf or nan like the
formula.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import itemgetter

from derive.analysis.extents import is_above_zero
from derive.analysis.facts import is_never_negative, is_positive
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_all_indices, find_size_names, walk
from derive.plan import ops
from derive.plan.cost import find_inner
from derive.plan.lower.context import Context
from derive.plan.plan import Plan

SIZE_BITS = 16  # assumed bits of a size in a product of sizes
INTEGER_BITS = 64
FLOAT_BITS = 1000


def lower_number(expr: ir.Expr) -> ops.Op:
    """Lower a number to an operation without axes."""
    op = _lower(expr)
    return op if isinstance(op, ops.Num) else ops.Cast(op)


def _lower(expr: ir.Expr) -> ops.Op:
    """Lower a number to Python arithmetic, else to float64 tensors."""
    if is_python_safe(expr):
        return ops.Num(expr)
    match expr:
        case ir.Add(parts) | ir.Mul(parts):
            sign = "+" if isinstance(expr, ir.Add) else "*"
            return reduce(lambda a, b: ops.Apply(sign, (a, b), ()), map(_to_tensor, parts))
        case ir.Pow(base, exponent):
            return ops.Apply("pow", (_to_tensor(base), _lower(exponent)), ())
        case ir.Call(function, (left, right)):
            return ops.Apply(function, (_to_tensor(left), _lower(right)), ())
        case _:
            raise TypeError(f"{type(expr).__name__} is no number")


def scale(op: ops.Op, number: ir.Expr) -> ops.Op:
    """Return the operation times a number, as a quotient if the number is an inverse."""
    match number:
        case ir.Pow(base, ir.Number(power)) if power == -1 and not isinstance(base, ir.Pow):
            return ops.Apply("/", (op, lower_number(base)), op.axes)
    return ops.Apply("*", (op, lower_number(number)), op.axes)


def divide_number(
    number: ir.Expr, operands: Sequence[ops.Op], divisors: list[ops.Op], size: int, context: Context
) -> tuple[ir.Expr, ops.Op | None]:
    """Return (1, the number over a divisor with fewer than `size` elements), else (number, None).

    The division then runs on fewer elements. Quotients of sizes are not moved: they may be 1 / 0.
    """
    tensors = [op for op in divisors if not isinstance(op, ops.Num)]
    small = [op for op in tensors if context.count(op.axes) < size]
    least = min((context.count(op.axes) for op in operands), default=0)
    is_plain = number not in (ir.ONE, ir.MINUS_ONE) and not any(
        isinstance(part, ir.Pow) for part in walk(number)
    )
    if not small or not is_plain or least < size:
        return number, None
    divisors.remove(small[0])
    axes = small[0].axes
    return ir.ONE, ops.Apply("/", (lower_number(number), small[0]), axes)


def divide(op: ops.Op, divisor: ops.Op, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Return a quotient; for a smaller divisor, a product with its inverse: cheaper gradients."""
    own = divisor.axes
    if own and context.count(own) < context.count(op.axes):
        match divisor:
            case ops.Apply("sqrt", args, axes):
                inverse = ops.Apply("rsqrt", args, axes)
            case _:
                inverse = ops.Apply("/", (ops.Num(ir.ONE), divisor), divisor.axes)
        return ops.combine("*", (op, inverse), order)
    return ops.combine("/", (op, divisor), order)


def is_kept_wide(op: ops.Op) -> bool:
    """Whether any part of the operation is complex, or kept wider than the formula's dtype."""
    return any(
        ops.is_complex(part)
        or (isinstance(part, ops.NumTensor) and part.wide)
        or (isinstance(part, ops.Cast) and part.kind == "single")
        for part in ops.walk_ops(op)
    )


def _to_tensor(expr: ir.Expr) -> ops.Op:
    op = _lower(expr)
    return ops.NumTensor(op.value, True) if isinstance(op, ops.Num) else op


def is_python_safe(expr: ir.Expr) -> bool:
    """Whether Python computes the number like the formula at all sizes, within 64 bits."""
    return _is_safe(expr) and _count_bits(expr) <= INTEGER_BITS


def _is_safe(expr: ir.Expr) -> bool:
    if not all(map(_is_safe, expr.children)):
        return False
    match expr:
        case ir.Pow(base, exponent) if _has_scalar(base) or _has_scalar(exponent):
            return True
        case ir.Pow(base, ir.Number(power)) if power.denominator != 1 or power < 0:
            return is_positive(base)
        case ir.Mul() | ir.Pow(_, ir.Number()):
            return _count_bits(expr) <= FLOAT_BITS
        case ir.Pow():
            return False
        case ir.Call("floordiv" | "mod", (_, under)):
            return _has_scalar(under) or is_positive(under)
    return True


def _has_scalar(expr: ir.Expr) -> bool:
    """Whether the number contains a scalar, which generated code makes a tensor inside powers."""
    return any(isinstance(part, ir.Scalar) for part in walk(expr))


def _count_bits(expr: ir.Expr) -> int:
    """Estimate the bits of a number as an integer; 0 if it is a float."""
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
    """Return the sizes that must not be 0: in divisors, steps, extents of max, min and argmax."""
    found: dict[str, None] = {}
    parts = (
        op for step in plan.steps for part in ops.walk_ops(step.op) for op in _find_parts(part)
    )
    extents = (ops.Num(index.extent) for index in find_all_indices(plan.system))
    for number in (each for op in (*parts, *extents) for each in _find_divisors(op)):
        if not is_above_zero(number):
            found |= dict.fromkeys(find_size_names(number))
    return tuple(size for size in plan.sizes if size in found)


def find_small_extents(plan: Plan) -> tuple[tuple[ir.Index, int], ...]:
    """Return pairs (index, its least extent) for extents that may be too small, as L - K + 1 is.

    The least extent is 0, or 1 for the number of windows of torch's unfold.
    """
    found: dict[Polynomial, tuple[ir.Index, int]] = {}
    every = [(index, 0) for index in find_all_indices(plan.system)]
    made = [step.op for step in plan.steps]
    made += [op for tile in plan.tiles for _, op in tile.sliced]
    parts = (part for each in made for op in ops.walk_ops(each) for part in _find_parts(op))
    every += [(part.outer, 1) for part in parts if isinstance(part, ops.Unfold)]
    for index, least in every:
        extent = Polynomial.of(index.extent)
        is_enough = is_above_zero(index.extent) if least else is_never_negative(extent)
        if not is_enough:
            found[extent] = max(found.get(extent, (index, 0)), (index, least), key=itemgetter(1))
    return tuple(found.values())


def _find_parts(op: ops.Op) -> Sequence[ops.Op]:
    if isinstance(op, ops.Cell) and not op.volume:  # calls with a volume handle windows themselves
        return (op, *find_inner(op.whole, op.args))
    return (op,)


def _find_divisors(op: ops.Op) -> Iterator[ir.Expr]:
    """Yield the divisors and steps of an operation, and the extents of its max, min and argmax."""
    match op:
        case ops.Unfold(step=step) | ops.Slice(step=step):
            yield step
        case ops.Cell(filled=filled):
            yield from (index.extent for index in filled)
        case ops.Reduction("max" | "min" | "argmax", _, over) if not ops.is_boolean(op):
            yield from (index.extent for index in over)
        case ops.Apply("/", (_, ops.Num(ir.Call("max")))):
            pass  # the division is by a tensor
        case ops.Apply("/" | "floordiv" | "mod", (_, ops.Num(under))) if not _has_scalar(under):
            yield under
    values = [part.value for part in (op, *op.args) if isinstance(part, (ops.Num, ops.NumTensor))]
    values += [op.value.value] if isinstance(op, ops.Fill) else []
    for part in (part for value in values for part in walk(value)):
        match part:
            case ir.Pow(base, ir.Number(power)) if power < 0 or power.denominator != 1:
                yield from () if _has_scalar(base) else (base,)
            case ir.Call("floordiv" | "mod", (_, under)) if not _has_scalar(under):
                yield under
