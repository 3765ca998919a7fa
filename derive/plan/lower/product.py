"""Lowering of products, their sums, and sums of terms.

    sum over `bound`, where `condition` holds, of number * operand * ... / divisor / ...

The number and each part of the condition are applied to the smallest operand with their indices.
Divisors without bound indices divide the result. The operands are then contracted in pairs. In a
sum of terms, negative terms become differences, numbers remain Python numbers, and axes are
aligned.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce as fold

from derive.analysis.facts import is_never_negative
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_children, find_free, is_whole, walk
from derive.plan import ops
from derive.plan.lower.calls import fold_parts
from derive.plan.lower.condition import fill, lower_condition
from derive.plan.lower.context import Context
from derive.plan.lower.number import (
    divide,
    divide_number,
    is_steady,
    lower_number,
    scale,
    scale_operand,
)
from derive.plan.lower.places import drop_padded
from derive.plan.path import Order, Path, count, find_path, has_smaller_product
from derive.rewrite.needs import find_need
from derive.rewrite.rules.products import is_bracket, is_negative


def lower_sum(terms: Sequence[ir.Expr], context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Lower a sum of terms from left to right, starting with one that is not negative."""
    terms = fold_parts(_join_integers(terms), is_sum=True)
    numbers = [t for t in terms if ops.is_number(t)]
    signed = [split_sign(t) for t in terms if not ops.is_number(t)]
    signed.sort(key=lambda pair: pair[0])
    lowered = [(negative, context.lower(term, order)) for negative, term in signed]
    lowered, numbers = add_small(lowered, numbers, context, order)
    if all(negative for negative, _ in lowered) and not numbers:  # negate the smallest term
        lowered = sorted(lowered, key=lambda pair: context.count(ops.axes_of(pair[1])))
    parts = ops.align([op for _, op in lowered], order)
    result: ops.Op | None = None
    for (negative, _), op in zip(lowered, parts, strict=True):
        if result is not None:
            result = ops.combine("-" if negative else "+", (result, op), order)
        elif negative and numbers:  # number - op saves a pass over -op + number
            whole = lower_number(ir.Add(tuple(numbers)))
            result, numbers = ops.Apply("-", (whole, op), ops.axes_of(op)), []
        else:
            result = negate(op) if negative else op
    if result is None:
        return lower_number(ir.Add(tuple(numbers)))
    return _add_numbers(result, numbers)


def _join_integers(terms: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
    """Join the integer terms into one, which is computed exactly."""
    counted = [t for t in terms if ops.is_integer(t) or (ops.is_number(t) and is_whole(t))]
    rest = tuple(t for t in terms if t not in counted)
    is_read = any(isinstance(part, ir.Access) for term in counted for part in walk(term))
    return (*rest, ir.sum_of(counted)) if rest and is_read else tuple(terms)


def _add_numbers(op: ops.Op, numbers: Sequence[ir.Expr]) -> ops.Op:
    for number in numbers:
        negative, size = split_sign(number)
        op = ops.Apply("-" if negative else "+", (op, lower_number(size)), ops.axes_of(op))
    return op


def add_small(
    terms: Sequence[tuple[bool, ops.Op]],
    numbers: list[ir.Expr],
    context: Context,
    order: tuple[ir.Index, ...],
) -> tuple[list[tuple[bool, ops.Op]], list[ir.Expr]]:
    """Add small terms to each other before large ones; return (signed terms, remaining numbers).

    x[n,d] + b[d] + c[d] + 1 becomes x[n,d] + (b[d] + c[d] + 1), one pass over the large tensor.
    """
    found = list(terms)
    whole = {i for _, op in found for i in ops.axes_of(op)}
    small = [pair for pair in found if {*ops.axes_of(pair[1])} < whole]
    small.sort(key=lambda pair: context.count(ops.axes_of(pair[1])))
    for place, (negative, op) in enumerate(small):
        after = small[place + 1 :]
        fits = next((p for p in after if {*ops.axes_of(op)} <= {*ops.axes_of(p[1])}), None)
        if fits is not None:
            sign = "+" if fits[0] == negative else "-"
            both = (fits[0], ops.combine(sign, (fits[1], op), order))
            found = [both if pair is fits else pair for pair in found if pair is not small[place]]
            small[small.index(fits)] = both
    least = min((p for p in found if p in small), key=small.index, default=None)
    if least is None or not numbers:
        return found, numbers
    negative, op = least
    if negative:
        op = ops.Apply("-", (lower_number(ir.Add(tuple(numbers))), op), ops.axes_of(op))
        numbers = []
    op = _add_numbers(op, numbers)
    found = [(False, op) if pair is least else pair for pair in found]
    return sorted(found, key=lambda pair: pair[0]), []


def split_sign(term: ir.Expr) -> tuple[bool, ir.Expr]:
    """Return (whether a term is negative, the term without its sign)."""
    match term:
        case ir.Number(value) if value < 0:
            return True, ir.Number(-value)
        case ir.Mul(factors) if any(is_negative(f) for f in factors):
            k = next(k for k, f in enumerate(factors) if is_negative(f))
            _, size = split_sign(factors[k])
            left = [size] if size is not ir.ONE or len(factors) == 1 else []
            return True, ir.product_of([*factors[:k], *left, *factors[k + 1 :]])
        case ir.Reduce("sum", bound, condition, ir.Mul() as body):
            negative, inside = split_sign(body)
            return negative, ir.Reduce("sum", bound, condition, inside) if negative else term
        case ir.Where(condition, then, other) if other is ir.ZERO and ops.is_number(then):
            negative, number = split_sign(then)
            return negative, ir.Where(condition, number, other) if negative else term
    return False, term


FINITE = "mask_factor: 0 * x = 0, so entries that a condition leaves out must be finite"
WORTH = 1 << 18  # multiplications in a matrix product from which its orientation matters
THIN = 16  # rows below which the layout of its operands dominates a matrix product
MOVED = 2  # ratio of elements that may be flipped to avoid copying windows, which grow faster
ORDINARY = 3  # the most operations of an operand that is no step of its own
MOST_POWER = 64  # the largest power that is written as a product
ROOTS = [Fraction(k, 2) for k in range(3, 2 * MOST_POWER, 2)]  # x**-k is faster by rsqrt


@dataclass
class Product:
    """The factors of one product by role."""

    numbers: list[ir.Expr] = field(default_factory=list)
    over: list[ir.Expr] = field(default_factory=list)
    under: list[ir.Expr] = field(default_factory=list)
    condition: ir.Expr = ir.TRUE

    @property
    def number(self) -> ir.Expr:
        """Return the product of the numbers, the rational ones as one factor."""
        rational = Fraction(1)
        others: list[ir.Expr] = []
        for number in self.numbers:
            constant = Polynomial.of(number).constant
            if constant is None:
                others.append(number)
            else:
                rational *= constant
        if rational != 1 or not others:
            others.insert(0, ir.Number(rational))
        return ir.product_of(others)


def _guard_numbers(product: Product, context: Context) -> None:
    """Treat a number like 1/h as a divisor of tensors where the condition excludes h = 0."""
    numbers, product.numbers = product.numbers, []
    for number in numbers:
        if context.protect(number, product.condition) is number:
            product.numbers.append(number)
        elif isinstance(number, ir.Pow) and number.exponent is ir.MINUS_ONE:
            product.under.append(number.base)
        else:
            product.over.append(number)


def lower_product(
    bound: tuple[ir.Index, ...],
    condition: ir.Expr,
    factors: Sequence[ir.Expr],
    context: Context,
    order: tuple[ir.Index, ...],
) -> ops.Op:
    """Lower a sum of a product; contractions before the last become steps."""
    product = Product(condition=condition)
    for factor in fold_parts(tuple(factors), is_sum=False):
        sort_factor(factor, product)
    _guard_numbers(product, context)
    if not bound and product.condition is ir.TRUE:
        scaled = push_number(product, context)
        if scaled:
            return lower_sum(scaled, context, order)
    untold = [drop_padded(product.condition, factor, context) for factor in product.over]
    needed = [
        find_need(told, f) if bound and context.is_singular(f) else told
        for told, f in zip(untold, product.over, strict=True)
    ]
    product.over = context.protect_factors(product.over, needed)
    product.under = [context.protect(f, product.condition, whole=True) for f in product.under]
    inner = (*(i for i in order if i not in bound), *bound)
    late = [f for f in product.under if not set(find_free(f)) & set(bound)]
    operands = []
    for k, factor in enumerate(product.over):
        natural = inner
        if bound and len(product.over) > 1:
            own = find_free(factor)
            others = {i for n, f in enumerate(product.over) if n != k for i in find_free(f)}
            natural = order_operand(inner, own, others, bound)
            if others <= {*bound} or any(
                isinstance(part, (ir.Access, ir.Reduce, ir.Along)) and {*own} <= {*find_free(part)}
                for part in walk(factor)
            ):
                natural = ()  # any order will do, or a part determines the order
        operands.append(lower_operand(factor, context, natural))
    kept = (p for p in ir.split_and(product.condition) if all(p in ir.split_and(u) for u in untold))
    product.condition = ir.all_of(*kept)
    for divisor in product.under:
        if divisor not in late:
            under, spans = lower_operand(divisor, context, inner), map(ops.axes_of, operands)
            if has_smaller_product(
                [*spans], ops.axes_of(under), {*inner} - {*bound}, context.count
            ):
                operands.append(ops.Apply("/", (ops.Num(ir.ONE), under), ops.axes_of(under)))
            else:
                divide_operand(operands, under, context, inner)
    if bound:
        operands += mask_operands(operands, product.condition, context, inner)
    made = {i for op in operands for i in ops.axes_of(op)} - set(bound)
    left = [context.lower(f, order) for f in late]
    if len(operands) > 1:
        left = [op for op in left if not divide_early(operands, op, context.count(made), context)]
    operands, back = move_flips(operands, bound, made, context)
    number, share = divide_number(product.number, operands, left, context.count(made), context)
    result = contract(operands, bound, number, context, order)
    for index in back:
        counted = ir.Index(f"{index.name}-", index.extent)
        at = ops.axes_of(result).index(index)
        result = ops.Flip(ops.rename_indices(context.add_step(result), {index: counted}), at, index)
    if share is not None:
        result = ops.combine("*", (result, share), order)
    for quotient in left:
        result = divide(result, quotient, context, order)
    if not bound and product.condition is not ir.TRUE:
        result = mask_result(result, product.condition, context, order)
    return result


def order_operand(
    order: Sequence[ir.Index],
    own: Collection[ir.Index],
    others: Collection[ir.Index],
    bound: Sequence[ir.Index],
) -> tuple[ir.Index, ...]:
    """Return the axes of an operand that torch multiplies without a copy: batch, own, summed."""
    summed = sorted((i for i in own if i in bound), key=lambda i: i.name)
    kept = [i for i in dict.fromkeys((*order, *own)) if i in own and i not in bound]
    return (*sorted(kept, key=lambda i: i not in others), *summed)


def sort_factor(factor: ir.Expr, product: Product) -> None:
    """Add a factor to the numbers, operands, divisors or condition of a product."""
    match factor:
        case _ if ops.is_number(factor) and is_steady(factor):
            product.numbers.append(factor)
        case ir.Mul(inner):
            for part in inner:
                sort_factor(part, product)
        case ir.Where(condition) if is_bracket(factor):
            product.condition = ir.all_of(product.condition, condition)
        case ir.Pow(ir.Pow(base, ir.Number(inner)), ir.Number(power)) if (
            power == -1 and inner in ROOTS
        ):
            product.over.append(ir.Pow(base, ir.Number(-inner)))
        case ir.Pow(_, ir.Number(power)) if -power in ROOTS:
            product.over.append(factor)
        case ir.Pow(base, ir.Number(power)) if power < 0:
            product.under.append(base if power == -1 else ir.Pow(base, ir.Number(-power)))
        case _:
            product.over.append(factor)


def push_number(product: Product, context: Context) -> tuple[ir.Expr, ...] | None:
    """Distribute a number over a sum if every term can apply it to a smaller tensor, else None.

    In `(q.k + q.a) / sqrt(D)`, q is scaled instead of the scores.
    """
    match product.over:
        case [ir.Add(terms) as whole] if product.number is not ir.ONE and not product.under:
            size = context.count(find_free(whole))
        case _:
            return None
    negative, number = split_sign(product.number)
    numbers = ir.split_product(number)
    terms = tuple(map(ir.change_sign, terms)) if negative else terms
    scaled = [_scale_inside(term, numbers, size, context) for term in terms]
    return None if None in scaled else tuple(term for term in scaled if term is not None)


def push_mask(condition: ir.Expr, expr: ir.Expr, context: Context) -> tuple[ir.Expr, ir.Expr]:
    """Return (the remaining condition, the product with the rest moved into its contraction).

    [c_i] * sum_d q_id * k_jd = sum_d ([c_i] * q_id) * k_jd for finite values; useful if the masked
    operand has fewer elements.
    """
    factors = ir.split_product(expr)
    sums = [f for f in factors if isinstance(f, ir.Reduce) and isinstance(f.body, ir.Mul)]
    if len(sums) != 1 or sums[0].kind != "sum" or not context.is_finite(expr):
        return condition, expr
    (total,) = sums
    inside, size = find_children(total.body), context.count(find_free(expr))
    pushed, left = list[ir.Expr](), list[ir.Expr]()
    for part in ir.split_and(condition):
        free = {*find_free(part)}
        able = [f for f in inside if free <= {*find_free(f)}]
        is_less = free and any(2 * context.count(find_free(f)) <= size for f in able)
        (pushed if is_less else left).append(part)
    if not pushed:
        return condition, expr
    made = ir.Reduce("sum", total.bound, ir.all_of(total.condition, *pushed), total.body)
    return ir.all_of(*left), ir.product_of([made if f is total else f for f in factors])


def _scale_inside(
    term: ir.Expr, numbers: tuple[ir.Expr, ...], size: int, context: Context
) -> ir.Expr | None:
    """Apply numbers to fewer than `size` elements inside of a term, or return None."""
    match term:
        case ir.Mul(factors) if sum(not ops.is_number(f) for f in factors) == 1:
            (inner,) = (f for f in factors if not ops.is_number(f))
            others = (*numbers, *(f for f in factors if ops.is_number(f)))
            return _scale_inside(inner, others, size, context)
        case ir.Reduce("sum", bound, condition, body):
            inside = ir.split_product(body)
            counts = (context.count(find_free(f)) for f in inside if find_free(f))
            if min(counts, default=size) < size:
                return ir.Reduce("sum", bound, condition, ir.Mul((*numbers, *inside)))
    is_small = find_free(term) and context.count(find_free(term)) < size
    return ir.Mul((*numbers, term)) if is_small else None


def lower_operand(factor: ir.Expr, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Lower a factor; a long expression becomes a step."""
    op = context.lower(factor, order)
    if ops.is_boolean(op):
        op = ops.Cast(op)
    parts = [p for p in ops.walk_ops(op) if not isinstance(p, (*ops.VIEWS, ops.Num))]
    long = len(parts) > ORDINARY
    if long and isinstance(op, ops.Flip):
        return ops.Flip(context.add_step(op.arg), op.place, op.index)
    if long and isinstance(op, ops.Cast):  # the step holds integers, so that positions can use it
        return ops.Cast(context.add_step(op.arg), op.kind)
    return context.add_step(op) if long else op


def divide_operand(
    operands: list[ops.Op], divisor: ops.Op, context: Context, order: tuple[ir.Index, ...]
) -> None:
    """Divide the smallest operand with the divisor's indices, else append the inverse."""
    k = find_or_make_carrier(operands, divisor, context, order)
    if k is None:
        operands.append(ops.Apply("/", (ops.Num(ir.ONE), divisor), ops.axes_of(divisor)))
        return
    operands[k] = divide(operands[k], divisor, context, ops.axes_of(operands[k]))


def divide_early(operands: list[ops.Op], divisor: ops.Op, size: int, context: Context) -> bool:
    """Divide an operand with fewer than `size` elements; return whether there is one."""
    k = find_carrier(operands, divisor, context)
    if k is None or context.count(ops.axes_of(operands[k])) >= size:
        return False
    operands[k] = divide(operands[k], divisor, context, ops.axes_of(operands[k]))
    return True


def move_flips(
    operands: list[ops.Op], bound: tuple[ir.Index, ...], made: set[ir.Index], context: Context
) -> tuple[list[ops.Op], list[ir.Index]]:
    """Move flips from large operands to small ones; return (operands, indices to flip afterwards).

    sum_j w[N-1-i+j] x_j needs a copy of w, but its reverse in i is computed from a view.
    """
    back: list[ir.Index] = []
    for index in dict.fromkeys(op.index for op in operands if isinstance(op, ops.Flip)):
        large = [op for op in operands if isinstance(op, ops.Flip) and op.index is index]
        small = [op for op in operands if index in ops.axes_of(op) and op not in large]
        moved = sum(context.count(ops.axes_of(op)) for op in small)
        moved += context.count(made) if index not in bound else 0
        if moved > MOVED * sum(context.count(ops.axes_of(op)) for op in large):
            continue
        for k, op in enumerate(operands):
            if op in large:
                assert isinstance(op, ops.Flip)
                operands[k] = ops.rename_indices(op.arg, {ops.axes_of(op.arg)[op.place]: index})
            elif op in small:
                counted = ir.Index(f"{index.name}-", index.extent)
                arg = ops.rename_indices(op, {index: counted})
                operands[k] = ops.Flip(arg, ops.axes_of(arg).index(counted), index)
        back += [index] if index not in bound else []
    return operands, back


def find_carrier(operands: Sequence[ops.Op], part: ops.Op, context: Context) -> int | None:
    """Return the position of the smallest operand with all indices of `part`, or None."""
    able = [k for k, o in enumerate(operands) if set(ops.axes_of(part)) <= set(ops.axes_of(o))]
    return min(able, key=lambda k: context.count(ops.axes_of(operands[k])), default=None)


def find_or_make_carrier(
    operands: list[ops.Op], part: ops.Op, context: Context, order: tuple[ir.Index, ...]
) -> int | None:
    """Find a carrier; multiply the operands within the part's indices if they span all of them."""
    k, own = find_carrier(operands, part, context), {*ops.axes_of(part)}
    inside = [op for op in operands if ops.axes_of(op) and {*ops.axes_of(op)} <= own]
    spanned = {i for op in inside for i in ops.axes_of(op)}
    if k is None or not own or spanned != own or operands[k] in inside:
        return k
    axes = ops.sort_axes(spanned, order)
    operands[:] = [op for op in operands if op not in inside]
    operands.append(fold(lambda one, other: ops.combine("*", (one, other), axes), inside))
    return len(operands) - 1


def mask_operands(
    operands: list[ops.Op], condition: ir.Expr, context: Context, order: tuple[ir.Index, ...]
) -> list[ops.Op]:
    """Apply each part of the condition to an operand; return the other parts as new operands.

    An operand can carry a mask if one of them has all indices of the other. Excluded values are
    then replaced, or finite (by `protect_factors`). A mask as a factor only multiplies by 0.
    """
    left: list[ops.Op] = []
    for part in ir.split_and(condition):
        if part is ir.TRUE:
            continue
        mask = lower_condition(part, context, order)
        k = find_or_make_carrier(operands, mask, context, order)
        if k is None:
            k = find_inner(operands, mask)
        if k is None:
            left.append(ops.Cast(mask))
            context.notes[FINITE] = None
        else:
            operands[k] = fill(operands[k], mask, ops.Num(ir.ZERO), False, order)
    return left


def find_inner(operands: Sequence[ops.Op], mask: ops.Op) -> int | None:
    """Return the position of the operand with the most indices, all of the mask's, or None."""
    able = [k for k, o in enumerate(operands) if set(ops.axes_of(o)) < set(ops.axes_of(mask))]
    return max(able, key=lambda k: len(ops.axes_of(operands[k])), default=None)


def mask_result(
    op: ops.Op, condition: ir.Expr, context: Context, order: tuple[ir.Index, ...]
) -> ops.Op:
    """Return the product where the condition holds, else 0."""
    mask = lower_condition(condition, context, order)
    if isinstance(op, ops.Num) and op.value is ir.ONE:
        return ops.Cast(mask)
    return fill(op, mask, ops.Num(ir.ZERO), False, order)


def contract(
    operands: list[ops.Op],
    bound: tuple[ir.Index, ...],
    number: ir.Expr,
    context: Context,
    order: tuple[ir.Index, ...],
) -> ops.Op:
    """Contract the operands in pairs, and sum over the bound indices."""
    idle = [i.extent for i in bound if all(i not in ops.axes_of(op) for op in operands)]
    number = ir.Mul((number, *idle)) if idle else number
    if not operands:
        return lower_number(number)
    axes = ops.sort_axes((i for op in operands for i in ops.axes_of(op) if i not in bound), order)
    negative = number is ir.MINUS_ONE
    late = None if number is ir.ONE or negative else scale_operand(operands, number, axes, context)
    if len(operands) > 1:
        operands = [sum_private_indices(op, k, operands, axes) for k, op in enumerate(operands)]
    inverses = [op for op in operands if _is_inverse(op, context)]
    rows = {ops.axes_of(op)[-2] for op in inverses}  # solving from the left needs no transpose
    parts = sorted(
        operands, key=lambda op: op not in inverses and {*ops.axes_of(op)} & rows != set()
    )
    inner = (*(i for i in order if i not in bound), *bound)
    extents = {i: context.extent(i) for op in parts for i in ops.axes_of(op)}
    path = find_path([ops.axes_of(op) for op in parts], axes, extents, context.minimize)
    path = _prefer_row_sums(path, parts, axes, context) if len(parts) == 3 and bound else path
    if len(parts) > 2 and bound:
        context.orders.append(Order(context.target, tuple(parts), axes, context.minimize, path))
    for pair in path:
        met = [parts[k] for k in pair]
        parts = [op for k, op in enumerate(parts) if k not in pair]
        needed = {*axes, *(i for op in parts for i in ops.axes_of(op))}
        kept = ops.sort_axes((i for op in met for i in ops.axes_of(op) if i in needed), inner)
        if parts and set(kept) == {i for op in met for i in ops.axes_of(op)}:
            kept = order_operand(inner, kept, {i for op in parts for i in ops.axes_of(op)}, bound)
        result = multiply_and_sum(met, order_thin_product(met, kept, context), context)
        result = result if parts else ops.arrange(result, kept)
        parts.append(
            context.add_step(result) if parts and isinstance(result, ops.Einsum) else result
        )
    (result,) = parts
    if late is not None:
        result = scale(result, late)
    return negate(result) if negative else result


def _is_inverse(op: ops.Op, context: Context) -> bool:
    """Whether an operation is a matrix inverse, or the name of one."""
    if isinstance(op, ops.Source):
        op = next((step.op for step in context.steps if step.name == op.name), op)
    return isinstance(op, ops.Along) and op.kind == "inverse"


def negate(op: ops.Op) -> ops.Op:
    """Negate an operation: b - a for a - b, -2 * a for 2 * a."""
    match op:
        case ops.Apply("-", (one, other), axes):
            return ops.Apply("-", (other, one), axes)
        case ops.Apply("*" | "/" as function, (arg, ops.Num(ir.Number(value))), axes):
            return ops.Apply(function, (arg, ops.Num(ir.Number(-value))), axes)
    return ops.Apply("neg", (op,), ops.axes_of(op))


_NUMBERS: dict[str, ir.Expr] = {
    "0": ir.ZERO,
    "1": ir.ONE,
    "-oo": ir.MINUS_INFINITY,
    "oo": ir.Infinity(False),
}
NEUTRAL = {word: ops.Num(_NUMBERS[row.left_out]) for word, row in ROWS.items() if row.left_out}


def split_combined(reduce: ir.Reduce) -> tuple[str, tuple[ir.Expr, ...]] | None:
    """Return (the operator of the body, its operands) if the reduction distributes over it."""
    match reduce.body:
        case ir.Add(parts):
            function = "+"
        case ir.Mul(parts) if all(map(is_never_negative, parts)):
            function = "*"
        case ir.Call("max" | "min" as function, parts):
            parts = tuple(_flatten_calls(function, parts))
        case _:
            return None
    return (function, parts) if function in ROWS[reduce.kind].passes.split() else None


def _flatten_calls(function: str, parts: Sequence[ir.Expr]) -> Iterator[ir.Expr]:
    for part in parts:
        if isinstance(part, ir.Call) and part.function == function:
            yield from _flatten_calls(function, part.arguments)
        else:
            yield part


def eliminate(reduce: ir.Reduce, context: Context, order: tuple[ir.Index, ...]) -> ops.Op | None:
    """Lower a reduction by eliminating indices along a contraction path; None if not cheaper.

    Not for parts that may be infinite, because a different order may give oo - oo. Not for a
    conditional logsumexp, whose gradient is undefined for partial sums without entries.
    """
    split = split_combined(reduce)
    conditions = [part for part in ir.split_and(reduce.condition) if part is not ir.TRUE]
    if split is None or not all(map(context.is_finite, split[1])):
        return None
    if conditions and (split[0] == "*" or reduce.kind == "logsumexp"):
        return None
    function, bound = split[0], set(reduce.bound)
    groups: dict[frozenset[ir.Index], list[ir.Expr]] = {}
    for part in split[1]:
        groups.setdefault(frozenset(find_free(part)), []).append(part)
    spans = [set(axes) for axes in groups]
    carriers = []
    for condition in conditions:
        mask = set(find_free(condition))
        able = [k for k, axes in enumerate(spans) if mask <= axes or axes < mask]
        if not able:
            return None
        carriers.append(min(able, key=lambda k: context.count(spans[k] | mask)))
        spans[carriers[-1]] |= mask
    whole = set[ir.Index]().union(*spans)
    if not bound <= whole:
        return None
    kept = ops.sort_axes(whole - bound, order)
    inner = (*kept, *reduce.bound)
    others = [set[ir.Index]().union(*spans[:k], *spans[k + 1 :]) for k in range(len(spans))]
    alone = [axes & bound - other for axes, other in zip(spans, others, strict=True)]
    work = sum(context.count(axes) for axes, over in zip(spans, alone, strict=True) if over)
    left = [ops.sort_axes(axes - over, inner) for axes, over in zip(spans, alone, strict=True)]
    extents = {i: context.extent(i) for i in inner}
    path = find_path(left, kept, extents) if len(left) > 1 else ()
    if work + count(path, left, kept, extents) >= 2 * context.count(whole):
        return None

    def reduce_over(op: ops.Op, over: set[ir.Index]) -> ops.Op:
        last = tuple(i for i in inner if i in over)
        rows = (*(i for i in inner if i in ops.axes_of(op) and i not in over), *last)
        return ops.Reduction(reduce.kind, ops.arrange(op, rows), last) if over else op

    made = []
    for parts in groups.values():
        body = combine_parts(function, parts)
        made.append(context.lower(context.protect(body, reduce.condition), inner))
    for k, condition in zip(carriers, conditions, strict=True):
        mask_op = lower_condition(condition, context, inner)
        made[k] = fill(made[k], mask_op, NEUTRAL[reduce.kind], False, inner)
    made = [reduce_over(op, over) for op, over in zip(made, alone, strict=True)]
    for pair in path:
        result: ops.Op = ops.combine(function, [made[k] for k in pair], inner)
        made = [op for k, op in enumerate(made) if k not in pair]
        over = {*ops.axes_of(result)} - {*kept, *(i for op in made for i in ops.axes_of(op))}
        result = reduce_over(result, over)
        made.append(context.add_step(result) if made and over else result)
    return ops.arrange(made[0], kept)


def combine_parts(function: str, parts: Sequence[ir.Expr]) -> ir.Expr:
    """Return the sum, product, max or min of the parts."""
    if len(parts) == 1:
        return parts[0]
    if function in {"+", "*"}:
        return (ir.Add if function == "+" else ir.Mul)(tuple(parts))
    return fold(lambda one, other: ir.Call(function, (one, other)), parts)


def sum_private_indices(
    op: ops.Op, position: int, operands: Sequence[ops.Op], axes: tuple[ir.Index, ...]
) -> ops.Op:
    """Sum an operand over the indices that no other operand and no result has."""
    others = {i for k, o in enumerate(operands) if k != position for i in ops.axes_of(o)}
    alone = tuple(i for i in ops.axes_of(op) if i not in others and i not in axes)
    return sum_over(op, alone)


def sum_over(op: ops.Op, over: tuple[ir.Index, ...]) -> ops.Op:
    """Sum an operand over some of its indices; booleans are counted in integers."""
    if isinstance(op, ops.Cast) and op.kind == "real" and ops.is_boolean(op.arg) and over:
        return ops.Cast(ops.Reduction("sum", op.arg, over))
    return ops.Reduction("sum", op, over) if over else op


def multiply_and_sum(
    parts: Sequence[ops.Op], kept: tuple[ir.Index, ...], context: Context
) -> ops.Op:
    """Multiply one or two operands and sum over the indices that are not kept."""
    if len(parts) == 1:
        over = tuple(i for i in ops.axes_of(parts[0]) if i not in kept)
        return sum_over(parts[0], over)
    one, other = parts
    if set(ops.axes_of(one)) | set(ops.axes_of(other)) == set(kept):
        return ops.Apply("*", ops.align(parts, kept), kept)
    if not kept and min(map(len, map(ops.axes_of, parts))) == 1:
        return ops.Einsum((one, other), kept)
    if set(ops.axes_of(one)) == set(ops.axes_of(other)):
        # A sum of elementwise products beats a batched matmul with 1 x 1 results.
        rows = ops.combine("*", parts, ops.axes_of(one))
        over = tuple(i for i in rows.axes if i not in kept)
        return ops.arrange(ops.Reduction("sum", rows, over), kept)
    for vector, matrix in ((one, other), (other, one)):
        own, its = ({*ops.axes_of(vector)}, ops.axes_of(matrix))
        if own < {*its} and its[-1] not in kept:  # a matrix-vector product along contiguous rows
            made = tuple(i for i in its if i in kept) if own == {its[-1]} else kept
            return ops.arrange(ops.Einsum((matrix, vector), made), kept)
    # If the last index of the larger operand is kept, a matmul with it second needs no copy.
    is_kept = bool(ops.axes_of(one)) and ops.axes_of(one)[-1] in kept
    is_larger = context.count(ops.axes_of(other)) < context.count(ops.axes_of(one))
    return ops.Einsum((other, one) if is_kept and is_larger else (one, other), kept)


def _prefer_row_sums(
    path: Path, parts: Sequence[ops.Op], axes: tuple[ir.Index, ...], context: Context
) -> Path:
    """Among the cheapest orders, choose one that sums a large operand along its last index.

    Otherwise a product of 512 to 4096 rows with 16 to 256 columns takes 1.1 to 1.7 times as long.
    """
    operands = [ops.axes_of(op.arg if isinstance(op, ops.Arrange) else op) for op in parts]
    extents = {i: context.extent(i) for own in operands for i in own}

    def count_turned(order: Path) -> tuple[int, int]:
        met, (left,) = order[0], (own for k, own in enumerate(operands) if k not in order[0])
        own = max((operands[k] for k in met), key=context.count)
        made = {i for k in met for i in operands[k]} & {*left, *axes}
        is_turned = len(left) > 1 and made == {*left} and own[-1] in made
        return count(order, operands, axes, extents), is_turned * context.count(own)

    others: list[Path] = [((0, 1), (0, 1)), ((0, 2), (0, 1)), ((1, 2), (0, 1))]
    return min((path, *others), key=count_turned)


def order_thin_product(
    parts: Sequence[ops.Op], kept: tuple[ir.Index, ...], context: Context
) -> tuple[ir.Index, ...]:
    """Return the axes of a product, ordered so that torch multiplies a thin matrix from the left.

    Torch chooses the sides by the order of the result. A right operand with few columns is many
    times slower than its transpose on the left.
    """
    if len(parts) != 2:
        return kept
    one, other = (set(ops.axes_of(op)) for op in parts)
    first, second = (
        tuple(i for i in kept if i in mine - its) for mine, its in ((one, other), (other, one))
    )
    thin, wide = sorted((first, second), key=context.count)
    if not first or not second or not one & other - {*kept} or context.count(thin) >= THIN:
        return kept
    spanned = context.count(i for op in parts for i in ops.axes_of(op))
    if spanned < WORTH or kept[-1] not in thin:
        return kept
    return (*(i for i in kept if i in one & other), *thin, *wide)
