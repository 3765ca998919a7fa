"""Lowering of products, their sums, and sums of terms.

    sum over `bound`, where `condition` holds, of number * operand * ... / divisor / ...

The number and each part of the condition are applied to the smallest operand with their indices.
Divisors without bound indices divide the result. The operands are then contracted in pairs. In a
sum of terms, negative terms become differences, numbers remain Python numbers, and axes are
aligned.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from derive.analysis.integers import is_counted
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_free, is_bracket, is_number, is_whole, walk
from derive.plan import ops
from derive.plan.lower.calls import fold_parts
from derive.plan.lower.condition import fill, lower_condition
from derive.plan.lower.context import Context
from derive.plan.lower.contraction import contract, negate_op, order_operand
from derive.plan.lower.number import divide, divide_number, is_python_safe, lower_number
from derive.plan.lower.places import drop_padded
from derive.plan.path import has_smaller_product
from derive.rewrite.guards import is_variable
from derive.rewrite.needs import find_need
from derive.rewrite.rules.products import is_negative


def lower_sum(terms: Sequence[ir.Expr], context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Lower a sum of terms from left to right, starting with one that is not negative."""
    terms = fold_parts(_join_integers(terms), is_sum=True)
    numbers = [t for t in terms if is_number(t)]
    signed = [split_sign(t) for t in terms if not is_number(t)]
    signed.sort(key=lambda pair: pair[0])
    lowered = [(negative, context.lower(term, order)) for negative, term in signed]
    lowered, numbers = add_small(lowered, numbers, context, order)
    if all(negative for negative, _ in lowered) and not numbers:  # negate the smallest term
        lowered = sorted(lowered, key=lambda pair: context.count(pair[1].axes))
    parts = ops.align([op for _, op in lowered], order)
    result: ops.Op | None = None
    for (negative, _), op in zip(lowered, parts, strict=True):
        if result is not None:
            result = ops.combine("-" if negative else "+", (result, op), order)
        elif negative and numbers:  # number - op saves a pass over -op + number
            whole = lower_number(ir.Add(tuple(numbers)))
            result, numbers = ops.Apply("-", (whole, op), op.axes), []
        else:
            result = negate_op(op) if negative else op
    if result is None:
        return lower_number(ir.Add(tuple(numbers)))
    return _add_numbers(result, numbers)


def _join_integers(terms: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
    """Join the integer terms into one, computed exactly; unchanged if none reads a tensor."""
    counted = [t for t in terms if is_counted(t) or (is_number(t) and is_whole(t))]
    rest = tuple(t for t in terms if t not in counted)
    is_read = any(isinstance(part, ir.Access) for term in counted for part in walk(term))
    return (*rest, ir.sum_of(counted)) if rest and is_read else tuple(terms)


def _add_numbers(op: ops.Op, numbers: Sequence[ir.Expr]) -> ops.Op:
    for number in numbers:
        negative, size = split_sign(number)
        op = ops.Apply("-" if negative else "+", (op, lower_number(size)), op.axes)
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
    whole = {i for _, op in found for i in op.axes}
    small = [pair for pair in found if {*pair[1].axes} < whole]
    small.sort(key=lambda pair: context.count(pair[1].axes))
    for place, (negative, op) in enumerate(small):
        later = range(place + 1, len(small))  # by place, as terms may be equal
        at = next((k for k in later if {*op.axes} <= {*small[k][1].axes}), None)
        if at is not None:
            fits = small[at]
            sign = "+" if fits[0] == negative else "-"
            small[at] = (fits[0], ops.combine(sign, (fits[1], op), order))
            found = [
                small[at] if pair is fits else pair for pair in found if pair is not small[place]
            ]
    least = min((p for p in found if p in small), key=small.index, default=None)
    if least is None or not numbers:
        return found, numbers
    negative, op = least
    if negative:
        op = ops.Apply("-", (lower_number(ir.Add(tuple(numbers))), op), op.axes)
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
        case ir.Where(condition, then, other) if other is ir.ZERO and is_number(then):
            negative, number = split_sign(then)
            return negative, ir.Where(condition, number, other) if negative else term
    return False, term


FINITE = "mask_factor: 0 * x = 0, so entries that a condition leaves out must be finite"
MOVED = 2  # ratio of elements that may be flipped to avoid copying windows, which grow faster
ORDINARY = 3  # the most operations of an operand that is no step of its own
MOST_POWER = 64  # the largest power that is written as a product
ROOTS = [Fraction(k, 2) for k in range(3, 2 * MOST_POWER, 2)]  # x**-k is faster by rsqrt


@dataclass
class Product:
    """The factors of one product by role: numbers, operands, divisors, and all its brackets."""

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


def _protect_operands(product: Product, context: Context, *, is_summed: bool) -> list[ir.Expr]:
    """Make factors and divisors finite where the condition is false; return factors' conditions."""
    conditions = [drop_padded(product.condition, factor, context) for factor in product.over]
    needed = [
        find_need(each, f)
        if is_summed and isinstance(f, ir.Access) and f.tensor.name in context.singular
        else each
        for each, f in zip(conditions, product.over, strict=True)
    ]
    found = list(map(context.protect, product.over, needed))
    is_single = sum(map(is_variable, found)) < 2  # with all indices of the mask, that replaces it
    product.over = [
        factor
        if is_single and {*find_free(need)} <= {*find_free(factor)}
        else context.protector.guard_unless_finite(factor, need)
        for factor, need in zip(found, needed, strict=True)
    ]
    product.under = [context.protect(f, product.condition, as_divisor=True) for f in product.under]
    return conditions


def flip_axis(op: ops.Op, index: ir.Index) -> ops.Op:
    """Return the operation with the axis of an index in reverse order."""
    counted = ir.Index(f"{index.name}-", index.extent)
    at = op.axes.index(index)
    return ops.Flip(ops.rename_indices(op, {index: counted}), at, index)


def lower_product(
    bound: tuple[ir.Index, ...],
    condition: ir.Expr,
    factors: Sequence[ir.Expr],
    context: Context,
    order: tuple[ir.Index, ...],
) -> ops.Op:
    """Lower a (masked) sum of a product; contractions before the last become steps."""
    product = Product(condition=condition)
    for factor in fold_parts(tuple(factors), is_sum=False):
        sort_factor(factor, product)
    _guard_numbers(product, context)
    if not bound and product.condition is ir.TRUE:
        scaled = push_number(product, context)
        if scaled:
            return lower_sum(scaled, context, order)
    conditions = _protect_operands(product, context, is_summed=bool(bound))
    inner = (*(i for i in order if i not in bound), *bound)
    late = [f for f in product.under if not set(find_free(f)) & set(bound)]
    operands = [
        lower_operand(factor, context, _choose_order(k, product.over, bound, inner))
        for k, factor in enumerate(product.over)
    ]
    kept = (
        p for p in ir.split_and(product.condition) if all(p in ir.split_and(u) for u in conditions)
    )
    product.condition = ir.all_of(*kept)
    for divisor in product.under:
        if divisor not in late:
            under, spans = lower_operand(divisor, context, inner), (each.axes for each in operands)
            if has_smaller_product([*spans], under.axes, {*inner} - {*bound}, context.count):
                operands.append(ops.Apply("/", (ops.Num(ir.ONE), under), under.axes))
            else:
                divide_operand(operands, under, context)
    if bound:
        operands += mask_operands(operands, product.condition, context, inner)
    made = {i for op in operands for i in op.axes} - set(bound)
    left = [context.lower(f, order) for f in late]
    if len(operands) > 1:
        left = [op for op in left if not divide_early(operands, op, context.count(made), context)]
    operands, back = move_flips(operands, bound, made, context)
    number, share = divide_number(product.number, operands, left, context.count(made), context)
    result = contract(operands, bound, number, context, order)
    for index in back:
        result = flip_axis(context.add_step(result), index)
    if share is not None:
        result = ops.combine("*", (result, share), order)
    for quotient in left:
        result = divide(result, quotient, context, order)
    if not bound and product.condition is not ir.TRUE:
        mask = lower_condition(product.condition, context, order)
        is_one = isinstance(result, ops.Num) and result.value is ir.ONE
        result = ops.Cast(mask) if is_one else fill(result, mask, ops.Num(ir.ZERO), False, order)
    return result


def _choose_order(
    place: int, factors: Sequence[ir.Expr], bound: Sequence[ir.Index], order: tuple[ir.Index, ...]
) -> tuple[ir.Index, ...]:
    """Return the order of axes in which the factor at `place` is lowered; () for any order."""
    if not bound or len(factors) < 2:
        return order
    factor, own = factors[place], find_free(factors[place])
    others = {i for k, f in enumerate(factors) if k != place for i in find_free(f)}
    is_ordered = any(
        isinstance(part, (ir.Access, ir.Reduce, ir.Along)) and {*own} <= {*find_free(part)}
        for part in walk(factor)
    )
    return () if others <= {*bound} or is_ordered else order_operand(order, own, others, bound)


def sort_factor(factor: ir.Expr, product: Product) -> None:
    """Add a factor to the numbers, operands, divisors or condition of a product."""
    match factor:
        case _ if is_number(factor) and is_python_safe(factor):
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
    """Return the terms of a product number * (a + b), each scaled in a smaller tensor, else None.

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

    [c_i] * sum_d q_id * k_jd = sum_d ([c_i] * q_id) * k_jd, if that masks fewer elements.
    """
    factors = ir.split_product(expr)
    sums = [f for f in factors if isinstance(f, ir.Reduce) and isinstance(f.body, ir.Mul)]
    if len(sums) != 1 or sums[0].kind != "sum" or not context.is_finite(expr):
        return condition, expr
    (total,) = sums
    inside, size = total.body.children, context.count(find_free(expr))
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
        case ir.Mul(factors) if sum(not is_number(f) for f in factors) == 1:
            (inner,) = (f for f in factors if not is_number(f))
            others = (*numbers, *(f for f in factors if is_number(f)))
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


def divide_operand(operands: list[ops.Op], divisor: ops.Op, context: Context) -> None:
    """Divide the smallest operand with the divisor's indices, else append the inverse."""
    k = find_carrier(operands, divisor, context)
    if k is None:
        operands.append(ops.Apply("/", (ops.Num(ir.ONE), divisor), divisor.axes))
        return
    operands[k] = divide(operands[k], divisor, context, operands[k].axes)


def divide_early(operands: list[ops.Op], divisor: ops.Op, size: int, context: Context) -> bool:
    """Divide the smallest operand with all the divisor's indices; False if none is below `size`."""
    k = find_carrier(operands, divisor, context)
    if k is None or context.count(operands[k].axes) >= size:
        return False
    operands[k] = divide(operands[k], divisor, context, operands[k].axes)
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
        small = [op for op in operands if index in op.axes and op not in large]
        moved = sum(context.count(op.axes) for op in small)
        moved += context.count(made) if index not in bound else 0
        if moved > MOVED * sum(context.count(op.axes) for op in large):
            continue
        for k, op in enumerate(operands):
            if op in large:
                assert isinstance(op, ops.Flip)
                operands[k] = ops.rename_indices(op.arg, {op.arg.axes[op.place]: index})
            elif op in small:
                counted = ir.Index(f"{index.name}-", index.extent)
                arg = ops.rename_indices(op, {index: counted})
                operands[k] = ops.Flip(arg, arg.axes.index(counted), index)
        back += [index] if index not in bound else []
    return operands, back


def find_carrier(operands: Sequence[ops.Op], part: ops.Op, context: Context) -> int | None:
    """Return the position of the smallest operand with all indices of `part`, or None."""
    able = [k for k, o in enumerate(operands) if set(part.axes) <= set(o.axes)]
    return min(able, key=lambda k: context.count(operands[k].axes), default=None)


def mask_operands(
    operands: list[ops.Op], condition: ir.Expr, context: Context, order: tuple[ir.Index, ...]
) -> list[ops.Op]:
    """Apply each part of the condition to an operand; return the other parts as new operands.

    An operand can carry a mask if one of them has all indices of the other. Excluded values are
    then replaced, or finite (by `_protect_operands`). A mask as a factor only multiplies by 0.
    """
    left: list[ops.Op] = []
    for part in ir.split_and(condition):
        if part is ir.TRUE:
            continue
        mask = lower_condition(part, context, order)
        k = find_carrier(operands, mask, context)
        if k is None:
            k = find_covered(operands, mask)
        if k is None:
            left.append(ops.Cast(mask))
            context.notes[FINITE] = None
        else:
            operands[k] = fill(operands[k], mask, ops.Num(ir.ZERO), False, order)
    return left


def find_covered(operands: Sequence[ops.Op], mask: ops.Op) -> int | None:
    """Return the position of the largest operand with fewer axes, all of the mask, or None."""
    able = [k for k, o in enumerate(operands) if set(o.axes) < set(mask.axes)]
    return max(able, key=lambda k: len(operands[k].axes), default=None)
