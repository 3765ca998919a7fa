"""Conditions as masks, and choices between two values.

where(j <= i, x[i,j], 0)         a triangular mask, and a fill
where(i < 2, x[i], y[i - 2])     torch.cat; or a pad, if one branch is a number
where(m[i], x[i], y[i])          torch.where, if nothing else fits
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial, reduce
from math import lcm

from derive.analysis.affine import simplify_place, simplify_places
from derive.analysis.extents import take_decided
from derive.analysis.facts import (
    Facts,
    is_implied_by_facts,
    is_integer,
    is_never_negative,
    read_bounds,
)
from derive.analysis.integers import is_counted
from derive.ir import nodes as ir
from derive.ir.polynomial import NOTHING, ONE, Polynomial, clear_divisors, is_same_extent
from derive.ir.walk import (
    find_accesses,
    find_all_indices,
    find_free,
    is_number,
    is_whole,
    rename_apart,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.plan import ops
from derive.plan.lower.context import Context
from derive.plan.lower.patterns import make_cell
from derive.rewrite.guards import find_number
from derive.rewrite.needs import find_need


def lower_condition(condition: ir.Expr, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Lower a condition to a mask, a step unless it is a tensor of the formula."""
    if condition in context.known:
        return context.known[condition][0]
    op = _lower_condition(condition, context, order)
    if not isinstance(op, (ops.Triangle, ops.Apply, ops.Cell)):
        return op
    source = context.add_step(op)
    context.known[condition] = (source, op.axes)
    return source


def _lower_condition(condition: ir.Expr, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    match condition:
        case ir.Access():
            return context.lower(condition, order)
        case ir.Compare(relation, left, right):
            return _lower_compare(relation, left, right, context, order)
        case ir.And(parts) | ir.Or(parts):
            word = "and" if isinstance(condition, ir.And) else "or"
            found = [_lower_condition(part, context, order) for part in parts]
            return reduce(lambda one, other: ops.combine(word, (one, other), order), found)
        case ir.Not(part):
            arg = _lower_condition(part, context, order)
            return ops.Apply("not", (arg,), arg.axes)
        case ir.Truth():
            held = ops.NumTensor(ir.ONE if condition is ir.TRUE else ir.ZERO)
            return ops.Apply("==", (held, ops.Num(ir.ONE)), ())
        case _:
            raise TypeError(f"{type(condition).__name__} is no condition")


def _lower_compare(
    relation: str, left: ir.Expr, right: ir.Expr, context: Context, order: tuple[ir.Index, ...]
) -> ops.Op:
    found: ops.Op | None = find_triangle(relation, left, right, order)
    if found is None and context.compare is not None:
        found = context.compare(relation, left, right, context)
    if found is not None:
        return found
    relation, left, right = clear_fractions(relation, *separate_scalars(left, right))
    parts = lower_sides(left, right, context, order)
    if isinstance(parts[0], ops.Num) and isinstance(parts[1], ops.Num):
        parts = (ops.NumTensor(parts[0].value), parts[1])
    elif isinstance(parts[0], ops.Num):
        parts, relation = parts[::-1], ir.MIRRORED[relation]
    return ops.combine(relation, parts, order)


def lower_sides(
    left: ir.Expr, right: ir.Expr, context: Context, order: tuple[ir.Index, ...]
) -> tuple[ops.Op, ...]:
    """Lower both sides of a relation, in dtypes whose comparison is exact."""
    return tuple(_widen_sides([_lower_side(side, context, order) for side in (left, right)]))


def _widen_sides(parts: Sequence[ops.Op]) -> Sequence[ops.Op]:
    """Cast both sides of a relation to float64 if only one of them is an integer.

    Torch would round it to the other side's dtype. A cast 0-d tensor does not widen the other side.
    """
    exact = [part for part in parts if _is_exact(part)]
    if len(exact) != 1 or isinstance(exact[0], ops.Num) or any(map(ops.is_boolean, parts)):
        return parts
    return [
        part
        if isinstance(part, ops.Num)
        or (part in exact and not ops.is_integral(part))
        or (part not in exact and exact[0].axes)
        else ops.Cast(part, "wide")
        for part in parts
    ]


def _is_exact(op: ops.Op) -> bool:
    """Whether an operation is an integer, or a fraction of integers in float64."""
    if isinstance(op, ops.Num):
        return is_whole(op.value)
    inside = (part.kind for part in ops.walk_ops(op) if isinstance(part, ops.Cast))
    return ops.is_integral(op) or "wide" in inside


def separate_scalars(left: ir.Expr, right: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """Rewrite a relation between `j` and `i + s` with positions on one side, scalars on the other.

    A difference of positions is exact; a sum with a scalar is rounded.
    """
    difference = Polynomial.of(left) - Polynomial.of(right)
    scalars = Polynomial(
        {
            monomial: number
            for monomial, number in difference.terms.items()
            if any(isinstance(part, ir.Scalar) for atom, _ in monomial for part in walk(atom))
        }
    )
    positions = (difference - scalars).to_expr()
    is_apart = is_counted(positions) and not find_free(scalars.to_expr())
    return (positions, (-scalars).to_expr()) if scalars.terms and is_apart else (left, right)


def clear_fractions(relation: str, left: ir.Expr, right: ir.Expr) -> tuple[str, ir.Expr, ir.Expr]:
    """Multiply out the fractions of a relation between positions, `(i + 1) / N <= 1/2`.

    Integers are exact; fractions would be rounded in the tensors' dtype, above all in bfloat16.
    Sizes are positive, so multiplying by them preserves the relation.
    """
    difference = Polynomial.of(left) - Polynomial.of(right)
    powers = [power for monomial in difference.terms for _, power in monomial]
    is_whole = all(p > 0 for p in powers) and all(
        term.denominator == 1 for term in difference.terms.values()
    )
    is_plain = all(is_counted(side) or not find_free(side) for side in (left, right))
    if not all(isinstance(atom, (ir.Index, ir.Size)) for atom in difference.atoms):
        return relation, left, right
    if is_plain and is_whole:
        return relation, left, right
    difference = clear_divisors(difference)
    if any(power < 0 for monomial in difference.terms for _, power in monomial):
        return relation, left, right
    scale = lcm(*(term.denominator for term in difference.terms.values()))
    return relation, (difference * Polynomial.of(scale)).to_expr(), ir.ZERO


def _lower_side(side: ir.Expr, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Lower one side of a relation; integers remain integers, their fractions are float64."""
    op = context.lower(side, order)
    if is_counted(side) or (isinstance(op, ops.Cast) and ops.is_integral(op.arg)):
        return ops.strip_casts(op)
    return widen_casts(op, "wide") if is_integer(Polynomial.of(side)) else op


def widen_casts(op: ops.Op, kind: str = "single") -> ops.Op:
    """Cast integers to float32 at least, not to the formula's dtype: float16 ends at 65504."""
    if isinstance(op, ops.Cast) and ops.is_integral(op.arg):
        return ops.Cast(op.arg, kind)
    return ops.with_args(op, tuple(widen_casts(arg, kind) for arg in op.args))


def lower_index(index: ir.Index, context: Context) -> ops.Op:
    """Return the step that holds the positions 0, 1, .. of an index."""
    if index in context.known:
        return context.known[index][0]
    source = context.add_step(ops.Iota(index))
    context.known[index] = (source, (index,))
    return source


def find_triangle(
    relation: str, left: ir.Expr, right: ir.Expr, order: tuple[ir.Index, ...]
) -> ops.Triangle | None:
    """Return a relation `j <= i + c` between two indices as a triangular mask, or None."""
    difference = Polynomial.of(left) - Polynomial.of(right)
    indices = [a for a in difference.atoms if isinstance(a, ir.Index)]
    if len(indices) != 2 or relation in {"==", "!="}:
        return None
    rows, columns = sorted(indices, key=lambda i: order.index(i) if i in order else -1)
    bounds = read_bounds(ir.Compare(relation, left, right), columns)
    offset = (bounds[0][1] - Polynomial.of(rows)).to_expr() if len(bounds) == 1 else rows
    if any(part is rows or isinstance(part, (ir.Access, ir.Scalar)) for part in walk(offset)):
        return None  # torch requires an integer offset
    return ops.Triangle(rows, columns, offset, bounds[0][0])


def lower_choice(
    condition: ir.Expr, then: ir.Expr, other: ir.Expr, context: Context, order: tuple[ir.Index, ...]
) -> ops.Op:
    """Lower a choice; a branch that is not taken makes no value or gradient infinite or nan."""
    if isinstance(condition, ir.Not):
        condition, then, other = condition.part, other, then
    if condition in (ir.TRUE, ir.FALSE):
        return context.lower(then if condition is ir.TRUE else other, order)
    common, terms = ir.split_sum(other), ir.split_sum(then)
    if is_implied_by_facts(condition) and {*common} < {*terms} and not is_number(other):
        rest = ir.sum_of([term for term in terms if term not in common])
        return context.lower(ir.Add((*common, ir.Where(condition, rest, ir.ZERO))), order)
    joined = _lower_piecewise(ir.Where(condition, then, other), context, order)
    if joined is not None:
        return joined
    if not {*find_free(condition)} <= {*order}:  # no order is given: use that of the branch
        order = tuple(dict.fromkeys((*find_free(then), *order)))
    then = context.protect(then, condition)
    if isinstance(other, ir.Number) and find_number(then, condition) == other.value:
        return context.lower(then, order)
    mask = lower_condition(condition, context, order)
    taken = context.lower(then, order)
    left = context.lower(context.protect(other, ir.Not(condition)), order)
    if isinstance(left, ops.Num):
        if isinstance(taken, ops.Num):
            return _choose_number(mask, taken, left)
        return fill(taken, mask, left, False, order)
    if isinstance(taken, ops.Num):
        return fill(left, mask, taken, True, order)
    taken, left = (ops.Cast(op) if ops.is_boolean(op) else op for op in (taken, left))
    mask, taken, left = ops.align([mask, taken, left], order)
    return ops.Choose(mask, taken, left, ops.find_union([mask, taken, left], order))


EXACT = 1 << 10  # multiples of 1 / EXACT below EXACT are exact in float32


def _choose_number(mask: ops.Op, one: ops.Num, other: ops.Num) -> ops.Op:
    """Return a choice of two numbers, as arithmetic on the mask if that is exact: it is faster."""
    axes, numbers = mask.axes, [Polynomial.of(each.value).constant for each in (one, other)]
    match numbers:
        case (Fraction() as then, Fraction() as left) if not left or all(
            EXACT % number.denominator == 0 and abs(number) < EXACT for number in (then, left)
        ):
            made: ops.Op = ops.Cast(mask)
            if (step := abs(then - left) if left else then) != 1:
                made = ops.Apply("*", (made, ops.Num(ir.Number(step))), axes)
            if not left:
                return made
            if then < left:
                return ops.Apply("-", (other, made), axes)
            size = ops.Num(ir.Number(abs(left)))
            return ops.Apply("-" if left < 0 else "+", (made, size), axes)
    return ops.Choose(mask, ops.NumTensor(one.value), other, axes)


def push_into_exponential(
    condition: ir.Expr, expr: ir.Expr, context: Context
) -> tuple[ir.Expr, ir.Expr]:
    """Return (the remaining condition, the product with the condition moved into its exp).

    [c_ij] * exp(x_ij) * f_i = exp(where(c_ij, x_ij, -oo)) * f_i, which shares the exponential with
    a sum of it. The other factors must be finite, or not need the condition.
    """
    factors = ir.split_product(expr)
    able = [
        factor
        for factor in factors
        if isinstance(factor, ir.Call)
        and factor.function == "exp"
        and {*find_free(condition)} <= {*find_free(factor)}
        and not context.is_needed(factor)
    ]
    if len(able) != 1 or condition is ir.TRUE:
        return condition, expr
    (power,) = able
    rest = [factor for factor in factors if factor is not power]
    if not all(context.is_finite(f) or find_need(condition, f) is ir.TRUE for f in rest):
        return condition, expr
    masked = ir.Call("exp", (ir.Where(condition, power.arguments[0], ir.MINUS_INFINITY),))
    return ir.TRUE, ir.product_of([masked if f is power else f for f in factors])


def _lower_piecewise(
    choice: ir.Where, context: Context, order: tuple[ir.Index, ...]
) -> ops.Op | None:
    """Lower a choice by ranges of an index as a concatenation of its branches.

    If only one branch is not a number, and reads at shifted places, it is padded with the number.
    None if the condition is not a range of one index.
    """
    for index in (i for i in order if i in find_free(choice.condition)):
        ends = (NOTHING, Polynomial.of(index.extent))
        is_filled = is_number(choice.then) or is_number(choice.other)
        slack = ONE if is_filled and _is_elementwise_over(choice, index) else NOTHING
        pieces = _cut_pieces(
            _hoist_index_condition(choice, index), index, ends, (context.facts, slack)
        )
        if pieces is None or len(pieces) < 2:
            continue
        numbers = {value for _, _, value in pieces if is_number(value)}
        if numbers:
            pieces = [piece for piece in pieces if piece[-1] not in numbers]
            is_plain = all(isinstance(number, ir.Number | ir.Infinity) for number in numbers)
            if len(numbers) > 1 or len(pieces) != 1 or not is_plain:  # torch pads with a number
                continue
            if not _reads_shifted(pieces[0][-1], index):
                continue
        taken = {*context.names, *(i.name for i in find_all_indices(context.system))}
        taken |= {i.name for i in order}
        parts = []
        for low, high, value in pieces:
            own = rename_apart(ir.Index(index.name, (high - low).to_expr()), taken)
            taken.add(own.name)
            position = simplify_place((Polynomial.of(own) + low).to_expr())
            try:
                placed = substitute(value, {index: position})
            except ValueError:  # a function along the index needs the whole axis
                return None
            folded = rewrite_bottom_up(placed, partial(fold_conditions, facts=context.facts))
            inner = tuple(own if i is index else i for i in order)
            parts.append((low, own, context.lower(folded, inner)))
        if numbers:
            (low, own, op), (value,) = parts[0], numbers
            if own not in op.axes:  # an only position
                op = expand(op, (*op.axes, own))
            return ops.Pad(op, op.axes.index(own), index, low.to_expr(), value)
        return concatenate_parts(index, parts, order)
    return None


def _is_elementwise_over(choice: ir.Where, index: ir.Index) -> bool:
    """Whether a choice is elementwise, and everything it reads along the index has its extent.

    Then a slice like `x[:N - 2]` is empty for N = 1, as it should be.
    """
    reads = [
        extent
        for access in find_accesses(choice)
        for place, extent in zip(access.places, access.tensor.shape, strict=True)
        if index in find_free(place)
    ]
    is_elementwise = not any(isinstance(part, (ir.Reduce, ir.Along)) for part in walk(choice))
    return is_elementwise and all(is_same_extent(extent, index.extent) for extent in reads)


def _hoist_index_condition(choice: ir.Where, index: ir.Index) -> ir.Where:
    """Nest a choice so that conditions on the index alone are tested first."""
    parts = ir.split_and(choice.condition)
    own = [part for part in parts if find_free(part) == (index,)]
    rest = [part for part in parts if part not in own]
    if not own or not rest:
        return choice
    inner = ir.Where(ir.all_of(*rest), choice.then, choice.other)
    return ir.Where(ir.all_of(*own), inner, choice.other)


def _reads_shifted(expr: ir.Expr, index: ir.Index) -> bool:
    """Whether a tensor is read at a place that depends on the index alone and is not the index."""
    places = [place for access in find_accesses(expr) for place in access.places]
    own = [place for place in places if index in find_free(place)]
    is_alone = all(find_free(place) == (index,) for place in own)
    return is_alone and any(place is not index for place in own)


# (first position, end, value between them)
Piece = tuple[Polynomial, Polynomial, "ir.Expr"]


def _cut_pieces(
    expr: ir.Expr,
    index: ir.Index,
    ends: tuple[Polynomial, Polynomial],
    assumed: tuple[Facts, Polynomial],
) -> list[Piece] | None:
    """Return pieces (low, high, value) of a nested choice between `ends`; None if not by ranges."""
    if not isinstance(expr, ir.Where) or index not in find_free(expr.condition):
        return [(*ends, expr)]
    inside = _find_interval(expr.condition, index, ends, assumed)
    if inside is None:
        return None
    found: list[Piece] = []
    edges = (ends[0], *inside, ends[1])
    for low, high, value in zip(
        edges, edges[1:], (expr.other, expr.then, expr.other), strict=False
    ):
        piece = _cut_pieces(value, index, (low, high), assumed) if low != high else []
        if piece is None:
            return None
        found += piece
    return found


def _find_interval(
    condition: ir.Expr,
    index: ir.Index,
    ends: tuple[Polynomial, Polynomial],
    assumed: tuple[Facts, Polynomial],
) -> tuple[Polynomial, Polynomial] | None:
    """Return the range between two positions in which a condition on the index is true, or None.

    `assumed` is (facts, the amount by which the end may precede the start).
    """
    (low, high), (facts, slack) = ends, assumed
    bounds = read_bounds(condition, index)
    if not bounds or not all(isinstance(a, ir.Size) for _, end in bounds for a in end.atoms):
        return None
    for is_least, end in bounds:
        step = end - low if is_least else high - end - ONE
        if is_never_negative(step, facts):
            low, high = (end, high) if is_least else (low, end + ONE)
        elif not is_never_negative(NOTHING - step, facts):
            return None  # either of two bounds may be the tighter one
    steps = (low - ends[0], high - low + slack, ends[1] - high)
    return (low, high) if all(is_never_negative(step, facts) for step in steps) else None


def fold_conditions(expr: ir.Expr, facts: Facts) -> ir.Expr:
    """Simplify places, and replace choices that the ranges of indices decide by a branch."""
    return take_decided(simplify_places(expr), facts)


def concatenate_parts(
    index: ir.Index,
    parts: Sequence[tuple[Polynomial, ir.Index, ops.Op]],
    order: tuple[ir.Index, ...],
) -> ops.Op:
    """Concatenate parts (first position, own index, operation) along an index by one call."""
    own = [each for _, each, _ in parts]
    others = ops.find_union([op for _, _, op in parts], order)
    axes = ops.sort_axes([i for i in (*others, index) if i not in own], order)
    at = axes.index(index)
    is_stack = all(i.extent == ir.ONE and i not in op.axes for _, i, op in parts)
    args: list[ops.Op] = []
    whole: ops.Op | None = None
    edge = parts[-1][0]
    for low, piece, op in reversed(parts):
        here = (*axes[:at], piece, *axes[at + 1 :])
        there = (*axes[:at], *axes[at + 1 :]) if is_stack else here
        part: ops.Op = ops.NumTensor(op.value) if isinstance(op, ops.Num) else op
        part = expand(part, there)
        args.insert(0, part)
        # in terms of the whole axis, the column starts at its first position
        column: ops.Op = ops.Arrange(part, here) if is_stack else part
        column = ops.Slice(column, at, index, (NOTHING - low).to_expr())
        if whole is None:
            whole = column
        else:
            mask = ops.Apply("<", (ops.Iota(index), ops.Num(edge.to_expr())), (index,))
            whole = ops.Choose(ops.arrange(mask, axes), column, whole, axes)
        edge = low
    assert whole is not None
    dim = -1 if at == len(axes) - 1 else at
    text = f"torch.{'stack' if is_stack else 'cat'}(parts, dim={dim})"
    return make_cell(text, {"parts": tuple(args)}, whole, axes)


def expand(op: ops.Op, axes: tuple[ir.Index, ...]) -> ops.Op:
    """Return the operation over all of the axes, permuted or repeated along those it lacks."""
    return ops.arrange(op, axes) if {*op.axes} == {*axes} else ops.Expand(op, axes)


def expand_to_indices(
    op: ops.Op, indices: tuple[ir.Index, ...], order: tuple[ir.Index, ...]
) -> ops.Op:
    """Expand the operation along the indices that it lacks."""
    if isinstance(op, ops.Num):
        op = ops.NumTensor(op.value)
    lacking = [i for i in indices if i not in op.axes]
    return ops.Expand(op, ops.sort_axes((*op.axes, *lacking), order)) if lacking else op


def fill(
    op: ops.Op, mask: ops.Op, value: ops.Num, where: bool, order: tuple[ir.Index, ...]
) -> ops.Op:
    """Write a number where the mask is `where`; a choice if the mask has additional indices."""
    if isinstance(op, ops.Num):
        op = ops.NumTensor(op.value)
    if set(mask.axes) <= set(op.axes):
        mask = ops.arrange(mask, op.axes)
        if isinstance(op, ops.Fill) and op.mask is mask and op.where is where:
            op = op.arg  # the outer fill overwrites the inner one
        match op:
            case ops.Apply(
                "pow", (ops.Fill(arg, inner, _, at), ops.Num(ir.Number(power)) as exponent), axes
            ) if (inner, at, value.value) == (mask, where, ir.ZERO) and power > 0:
                return ops.Apply("pow", (ops.Fill(arg, mask, value, where), exponent), axes)
        return ops.Fill(op, mask, value, where)
    mask, op = ops.align([mask, op], order)
    axes = ops.find_union([mask, op], order)
    then, other = (value, op) if where else (op, value)
    return ops.Choose(mask, then, other, axes)
