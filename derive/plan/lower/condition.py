"""Conditions and choices: truth values over indices, where."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial, reduce
from math import lcm

from derive.analysis.affine import simplify_place
from derive.analysis.extents import is_always, is_implied_by_facts
from derive.analysis.facts import Facts, find_facts, is_integer, is_never_negative, read_bound
from derive.ir import nodes as ir
from derive.ir.polynomial import NOTHING, ONE, Polynomial, clear_divisors, is_same_extent
from derive.ir.walk import (
    find_accesses,
    find_all_indices,
    find_free,
    is_whole,
    rename_apart,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.plan import ops
from derive.plan.lower.context import Context
from derive.rewrite.guards import find_need, find_number


def lower_condition(condition: ir.Expr, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    """Truth values over the condition's indices, as a step unless it is a tensor as it stands."""
    if condition in context.known:
        return context.known[condition][0]
    op = _lower_condition(condition, context, order)
    if not isinstance(op, (ops.Triangle, ops.Apply, ops.Cell)):
        return op
    source = context.add_step(op)
    context.known[condition] = (source, ops.axes_of(op))
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
            return ops.Apply("not", (arg,), ops.axes_of(arg))
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
    relation, left, right = clear_fractions(relation, *part_positions(left, right))
    parts = lower_sides(left, right, context, order)
    if isinstance(parts[0], ops.Num) and isinstance(parts[1], ops.Num):
        parts = (ops.NumTensor(parts[0].value), parts[1])
    elif isinstance(parts[0], ops.Num):
        parts, relation = parts[::-1], ir.MIRRORED[relation]
    return ops.combine(relation, parts, order)


def lower_sides(
    left: ir.Expr, right: ir.Expr, context: Context, order: tuple[ir.Index, ...]
) -> tuple[ops.Op, ...]:
    """The two sides of a relation, of dtypes that are compared exactly."""
    return tuple(_widen([_lower_side(side, context, order) for side in (left, right)]))


def _widen(parts: Sequence[ops.Op]) -> Sequence[ops.Op]:
    """The sides of a relation, in float64 where an integer meets a real.

    Torch would round the integer to the real's dtype. A tensor without axes does not widen another.
    """
    exact = [part for part in parts if _is_exact(part)]
    if len(exact) != 1 or isinstance(exact[0], ops.Num) or any(map(ops.is_boolean, parts)):
        return parts
    return [
        part
        if isinstance(part, ops.Num)
        or (part in exact and not ops.is_integral(part))
        or (part not in exact and ops.axes_of(exact[0]))
        else ops.Cast(part, "wide")
        for part in parts
    ]


def _is_exact(op: ops.Op) -> bool:
    """Is it an integer, or a fraction of integers in float64?"""
    if isinstance(op, ops.Num):
        return is_whole(op.value)
    inside = (part.kind for part in ops.walk_ops(op) if isinstance(part, ops.Cast))
    return ops.is_integral(op) or "wide" in inside


def part_positions(left: ir.Expr, right: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """Two sides, `j` and `i + s`, with their positions on one and their scalars on the other.

    A difference of positions is exact, and their sum with a scalar is rounded as the scalar is.
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
    is_apart = ops.is_integer(positions) and not find_free(scalars.to_expr())
    return (positions, (-scalars).to_expr()) if scalars.terms and is_apart else (left, right)


def clear_fractions(relation: str, left: ir.Expr, right: ir.Expr) -> tuple[str, ir.Expr, ir.Expr]:
    """A relation between positions with fractions, `(i + 1) / N <= 1/2`, between whole numbers.

    Positions are exact; in a tensor's own dtype, above all in bfloat16, they would be rounded.
    Sizes are positive, so multiplying by them keeps the relation.
    """
    difference = Polynomial.of(left) - Polynomial.of(right)
    powers = [power for monomial in difference.terms for _, power in monomial]
    is_whole = all(p > 0 for p in powers) and all(
        term.denominator == 1 for term in difference.terms.values()
    )
    is_plain = all(ops.is_integer(side) or not find_free(side) for side in (left, right))
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
    """One side of a relation; integers stay such, and fractions of them are in float64."""
    op = context.lower(side, order)
    if ops.is_integer(side) or (isinstance(op, ops.Cast) and ops.is_integral(op.arg)):
        return ops.strip_casts(op)
    return widen_casts(op, "wide") if is_integer(Polynomial.of(side)) else op


def widen_casts(op: ops.Op, kind: str = "single") -> ops.Op:
    """The operation on integers in float32 at least: half precision ends at 65504."""
    if isinstance(op, ops.Cast) and ops.is_integral(op.arg):
        return ops.Cast(op.arg, kind)
    return ops.with_args(op, tuple(widen_casts(arg, kind) for arg in ops.args_of(op)))


def lower_index(index: ir.Index, context: Context) -> ops.Op:
    """The values of an index, once, as a step by its name."""
    if index in context.known:
        return context.known[index][0]
    source = context.add_step(ops.Iota(index))
    context.known[index] = (source, (index,))
    return source


def find_triangle(
    relation: str, left: ir.Expr, right: ir.Expr, order: tuple[ir.Index, ...]
) -> ops.Triangle | None:
    """`j <= i + c` between two indices as a triangle of ones: columns - rows <= offset."""
    difference = Polynomial.of(left) - Polynomial.of(right)
    indices = [a for a in difference.atoms if isinstance(a, ir.Index)]
    if len(indices) != 2 or relation in {"==", "!="}:
        return None
    rows, columns = sorted(indices, key=lambda i: order.index(i) if i in order else -1)
    if (halves := difference.split_linear(columns)) is None or halves[0].constant not in (1, -1):
        return None
    rest = halves[1].split_linear(rows)
    if rest is None or rest[0].constant != -(halves[0].constant or 0):
        return None
    if halves[0].constant == -1:
        relation = ir.MIRRORED[relation]
        offset = rest[1]
    else:
        offset = -rest[1]
    shift = {"<": -1, ">": 1}.get(relation, 0)
    offset = offset + Polynomial.of(shift)
    if any(term.denominator != 1 for term in offset.terms.values()):
        return None
    if any(
        isinstance(part, (ir.Access, ir.Scalar)) for atom in offset.atoms for part in walk(atom)
    ):
        return None  # torch takes whole numbers alone, and a scalar may be any
    return ops.Triangle(rows, columns, offset.to_expr(), relation in {">", ">="})


def lower_choice(
    condition: ir.Expr, then: ir.Expr, other: ir.Expr, context: Context, order: tuple[ir.Index, ...]
) -> ops.Op:
    """`then` where the condition holds, else `other`; the branch not taken cannot do harm."""
    if isinstance(condition, ir.Not):
        condition, then, other = condition.part, other, then
    if condition in (ir.TRUE, ir.FALSE):
        return context.lower(then if condition is ir.TRUE else other, order)
    common, terms = ir.split_sum(other), ir.split_sum(then)
    if is_implied_by_facts(condition) and {*common} < {*terms} and not ops.is_number(other):
        rest = ir.sum_of([term for term in terms if term not in common])
        return context.lower(ir.Add((*common, ir.Where(condition, rest, ir.ZERO))), order)
    joined = _lower_padded(condition, then, other, context, order)
    joined = joined or _lower_pieces(ir.Where(condition, then, other), context, order)
    if joined is not None:
        return joined
    if not {*find_free(condition)} <= {*order}:  # any order does: that of what is chosen
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


EXACT = 1 << 10  # numbers of so many parts, and up to which their sums and products are exact


def _choose_number(mask: ops.Op, one: ops.Num, other: ops.Num) -> ops.Op:
    """The mask as a factor of a number, where that is exact: branches on data mispredict."""
    axes, numbers = ops.axes_of(mask), [Polynomial.of(each.value).constant for each in (one, other)]
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


def _lower_padded(
    condition: ir.Expr, then: ir.Expr, other: ir.Expr, context: Context, order: tuple[ir.Index, ...]
) -> ops.Op | None:
    """A read where its one place that is no index is there, else a number: padded with that."""
    if not isinstance(then, ir.Access) or not isinstance(other, (ir.Number, ir.Infinity)):
        return None
    moved = [place for place in then.places if not isinstance(place, ir.Index)]
    if len(moved) != 1 or not is_implied_by_facts(condition) or then.tensor.kind != "real":
        return None
    (place,) = map(Polynomial.of, moved)
    if [*find_facts(condition)] != [place] or place.constant is not None:
        return None
    op = context.lower(then, order)
    pads = [part for part in ops.walk_ops(op) if isinstance(part, ops.Pad)]
    views = all(isinstance(part, (*ops.VIEWS, ops.Pad)) for part in ops.walk_ops(op))
    if len(pads) != 1 or not views or pads[0].value is not ir.ZERO:
        return None
    return ops.exchange(op, {pads[0]: replace(pads[0], value=other)})


def push_into_exponential(
    condition: ir.Expr, expr: ir.Expr, context: Context
) -> tuple[ir.Expr, ir.Expr]:
    """(what is left of a condition, a product with the rest of it in the argument of its exp).

    [c_ij] * exp(x_ij) * f_i = exp(where(c_ij, x_ij, -oo)) * f_i, which is what a sum of the same
    masked exponentials is made of. A factor f may be infinite only where others of the product
    that are not left out are so too.
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


def _lower_pieces(choice: ir.Where, context: Context, order: tuple[ir.Index, ...]) -> ops.Op | None:
    """A choice by where an index is: each branch where it is taken, and one behind the other.

    Around the one branch that is no number, and reads at places beside the index, are the numbers.
    None where no index alone decides.
    """
    for index in (i for i in order if i in find_free(choice.condition)):
        ends = (NOTHING, Polynomial.of(index.extent))
        is_filled = ops.is_number(choice.then) or ops.is_number(choice.other)
        slack = ONE if is_filled and _is_plain(choice, index) else NOTHING
        pieces = _cut(_part_condition(choice, index), index, ends, (context.facts, slack))
        if pieces is None or len(pieces) < 2:
            continue
        numbers = {value for _, _, value in pieces if ops.is_number(value)}
        if numbers:
            pieces = [piece for piece in pieces if piece[-1] not in numbers]
            told = all(isinstance(number, ir.Number | ir.Infinity) for number in numbers)
            if len(numbers) > 1 or len(pieces) != 1 or not told:  # torch takes no tensor for one
                continue
            if not _is_moved(pieces[0][-1], index):
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
            except ValueError:  # a function along the index needs all of it
                return None
            settled = rewrite_bottom_up(placed, partial(settle, facts=context.facts))
            inner = tuple(own if i is index else i for i in order)
            parts.append((low, own, context.lower(settled, inner)))
        if numbers:
            (low, own, op), (value,) = parts[0], numbers
            return ops.Pad(op, ops.axes_of(op).index(own), index, low.to_expr(), value)
        return join_parts(index, parts, order)
    return None


def _is_plain(choice: ir.Where, index: ir.Index) -> bool:
    """Is it elementwise, and all that it reads along the index as long as that?

    Then `x[:N - 2]` has no entry where N is 1, as it should.
    """
    reads = [
        extent
        for access in find_accesses(choice)
        for place, extent in zip(access.places, access.tensor.shape, strict=True)
        if index in find_free(place)
    ]
    is_elementwise = not any(isinstance(part, (ir.Reduce, ir.Along)) for part in walk(choice))
    return is_elementwise and all(is_same_extent(extent, index.extent) for extent in reads)


def _part_condition(choice: ir.Where, index: ir.Index) -> ir.Where:
    """The choice with what is said of the index alone first."""
    parts = ir.split_and(choice.condition)
    own = [part for part in parts if find_free(part) == (index,)]
    rest = [part for part in parts if part not in own]
    if not own or not rest:
        return choice
    inner = ir.Where(ir.all_of(*rest), choice.then, choice.other)
    return ir.Where(ir.all_of(*own), inner, choice.other)


def _is_moved(expr: ir.Expr, index: ir.Index) -> bool:
    """Is something read beside the index, and nothing at places that others tell too?"""
    places = [place for access in find_accesses(expr) for place in access.places]
    own = [place for place in places if index in find_free(place)]
    is_alone = all(find_free(place) == (index,) for place in own)
    return is_alone and any(place is not index for place in own)


# From a position up to another, and the value there.
Piece = tuple[Polynomial, Polynomial, "ir.Expr"]


def _cut(
    expr: ir.Expr,
    index: ir.Index,
    ends: tuple[Polynomial, Polynomial],
    told: tuple[Facts, Polynomial],
) -> list[Piece] | None:
    """The values of a nested choice from one position of the index to another, in order."""
    if not isinstance(expr, ir.Where) or index not in find_free(expr.condition):
        return [(*ends, expr)]
    inside = _find_interval(expr.condition, index, ends, told)
    if inside is None:
        return None
    found: list[Piece] = []
    edges = (ends[0], *inside, ends[1])
    for low, high, value in zip(
        edges, edges[1:], (expr.other, expr.then, expr.other), strict=False
    ):
        piece = _cut(value, index, (low, high), told) if low != high else []
        if piece is None:
            return None
        found += piece
    return found


def _find_interval(
    condition: ir.Expr,
    index: ir.Index,
    ends: tuple[Polynomial, Polynomial],
    told: tuple[Facts, Polynomial],
) -> tuple[Polynomial, Polynomial] | None:
    """From where to where a condition on the index alone holds, between two positions.

    Known are facts, and by how much the end may be before the start.
    """
    if not is_implied_by_facts(condition):
        return None
    (low, high), (facts, slack) = ends, told
    for bound in (read_bound(fact, index) for fact in find_facts(condition)):
        if bound is None or not all(isinstance(atom, ir.Size) for atom in bound[1].atoms):
            return None
        is_least, end = bound
        if is_least and not is_never_negative(low - end, facts):
            low = end
        elif not is_least and not is_never_negative(end + ONE - high, facts):
            high = end + ONE
    steps = (low - ends[0], high - low + slack, ends[1] - high)
    return (low, high) if all(is_never_negative(step, facts) for step in steps) else None


def settle(expr: ir.Expr, facts: Facts) -> ir.Expr:
    """Places simplified, and choices and extremes that the ranges of their indices decide."""
    match expr:
        case ir.Access(tensor, places):
            return ir.Access(tensor, tuple(map(simplify_place, places)))
        case ir.Where(condition, then, other):
            for value, told in ((then, condition), (other, ir.Not(condition))):
                if is_always(told, facts):
                    return value
        case ir.Call("min" | "max" as word, (one, other)) if is_integer(Polynomial.of(expr)):
            relation = "<=" if word == "min" else ">="
            for value, beside in ((one, other), (other, one)):
                if is_always(ir.Compare(relation, value, beside), facts):
                    return value
    return expr


def join_parts(
    index: ir.Index,
    parts: Sequence[tuple[Polynomial, ir.Index, ops.Op]],
    order: tuple[ir.Index, ...],
) -> ops.Op:
    """The parts one behind the other, by one call of torch."""
    own = [each for _, each, _ in parts]
    others = ops.find_union([op for _, _, op in parts], order)
    axes = ops.sort_axes([i for i in (*others, index) if i not in own], order)
    at = axes.index(index)
    is_stack = all(i.extent == ir.ONE and i not in ops.axes_of(op) for _, i, op in parts)
    args: list[ops.Op] = []
    whole: ops.Op | None = None
    edge = parts[-1][0]
    for low, piece, op in reversed(parts):
        here = (*axes[:at], piece, *axes[at + 1 :])
        there = (*axes[:at], *axes[at + 1 :]) if is_stack else here
        part: ops.Op = ops.NumTensor(op.value) if isinstance(op, ops.Num) else op
        is_whole = set(ops.axes_of(part)) == set(there)
        part = ops.arrange(part, there) if is_whole else ops.Expand(part, there)
        args.insert(0, part)
        # what is said of a column: it begins at its first position
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
    given = tuple(ops.Given(k) for k in range(len(args)))
    call = ops.TorchCall("torch.stack" if is_stack else "torch.cat", (given,), (("dim", dim),))
    return ops.Cell(call, tuple(args), whole, axes)


def fill(
    op: ops.Op, mask: ops.Op, value: ops.Num, where: bool, order: tuple[ir.Index, ...]
) -> ops.Op:
    """A number wherever the mask is `where`; a choice if the mask has indices the tensor lacks."""
    if isinstance(op, ops.Num):
        op = ops.NumTensor(op.value)
    if set(ops.axes_of(mask)) <= set(ops.axes_of(op)):
        mask = ops.arrange(mask, ops.axes_of(op))
        if isinstance(op, ops.Fill) and op.mask is mask and op.where is where:
            op = op.arg  # a number that harms nowhere is not needed below this one
        match op:
            case ops.Apply("exp", (ops.Fill(arg, inner, _, at),), axes) if (inner, at) == (
                mask,
                where,
            ) and value.value is ir.ZERO:
                return ops.Apply(
                    "exp", (ops.Fill(arg, mask, ops.Num(ir.MINUS_INFINITY), where),), axes
                )
            case ops.Apply(
                "pow", (ops.Fill(arg, inner, _, at), ops.Num(ir.Number(power)) as exponent), axes
            ) if (inner, at, value.value) == (mask, where, ir.ZERO) and power > 0:
                return ops.Apply("pow", (ops.Fill(arg, mask, value, where), exponent), axes)
        return ops.Fill(op, mask, value, where)
    mask, op = ops.align([mask, op], order)
    axes = ops.find_union([mask, op], order)
    then, other = (value, op) if where else (op, value)
    return ops.Choose(mask, then, other, axes)
