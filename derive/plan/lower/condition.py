"""Conditions and choices: truth values over indices, where."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from math import lcm
from typing import TYPE_CHECKING

from derive.analysis.affine import simplify_place
from derive.analysis.facts import find_facts, is_never_negative
from derive.analysis.reads import is_always, is_told
from derive.ir.nodes import (
    FALSE,
    MINUS_INFINITY,
    ONE,
    TRUE,
    ZERO,
    Access,
    And,
    Compare,
    Expr,
    Index,
    Not,
    Or,
    Scalar,
    Size,
    Truth,
    Where,
)
from derive.ir.polynomial import NOTHING, Polynomial
from derive.ir.walk import (
    find_all_indices,
    find_free,
    rename_apart,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.plan.ops import (
    Apply,
    Arrange,
    Cast,
    Cell,
    Choose,
    Expand,
    Fill,
    Given,
    Iota,
    Num,
    NumTensor,
    Op,
    Slice,
    TorchCall,
    Triangle,
    align,
    arrange,
    axes_of,
    combine,
    find_union,
    is_boolean,
    is_integer,
    is_number,
    sort_axes,
    strip_casts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.analysis.facts import Facts
    from derive.plan.lower.context import Context

_UNIT = Polynomial.of(1)
_ONE = _UNIT.terms
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def lower_condition(condition: Expr, context: Context, order: tuple[Index, ...]) -> Op:
    """Truth values over the condition's indices, as a step unless it is a tensor as it stands."""
    key = condition
    if key in context.known:
        return context.known[key][0]
    op = _lower_condition(condition, context, order)
    if not isinstance(op, (Triangle, Apply)):
        return op
    source = context.add_step(op)
    context.known[key] = (source, axes_of(op))
    return source


def _lower_condition(condition: Expr, context: Context, order: tuple[Index, ...]) -> Op:
    match condition:
        case Access():
            return context.lower(condition, order)
        case Compare(relation, left, right):
            return _lower_compare(relation, left, right, context, order)
        case And(parts):
            return _join_conditions(
                "and", [_lower_condition(p, context, order) for p in parts], order
            )
        case Or(parts):
            return _join_conditions(
                "or", [_lower_condition(p, context, order) for p in parts], order
            )
        case Not(part):
            arg = _lower_condition(part, context, order)
            return Apply("not", (arg,), axes_of(arg))
        case Truth():
            return Apply("==", (NumTensor(ONE if condition is TRUE else ZERO), Num(ONE)), ())
        case _:
            raise TypeError(f"{type(condition).__name__} is no condition")


def _join_conditions(function: str, ops: Sequence[Op], order: tuple[Index, ...]) -> Op:
    result = ops[0]
    for op in ops[1:]:
        result = combine(function, (result, op), order)
    return result


def _lower_compare(
    relation: str, left: Expr, right: Expr, context: Context, order: tuple[Index, ...]
) -> Op:
    triangle = find_triangle(relation, left, right, order)
    if triangle is not None:
        return triangle
    relation, left, right = clear_fractions(relation, *part_positions(left, right))
    ops = [_lower_side(side, context, order) for side in (left, right)]
    if isinstance(ops[0], Num) and isinstance(ops[1], Num):
        ops[0] = NumTensor(ops[0].value)
    elif isinstance(ops[0], Num):
        ops, relation = [ops[1], ops[0]], MIRRORED[relation]
    return combine(relation, ops, order)


def part_positions(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Two sides, `j` and `i + s`, with their positions on one and their scalars on the other.

    A difference of positions is exact, and their sum with a scalar is rounded as the scalar is.
    """
    difference = Polynomial.of(left) - Polynomial.of(right)
    scalars = Polynomial(
        {
            monomial: number
            for monomial, number in difference.terms.items()
            if any(isinstance(part, Scalar) for atom, _ in monomial for part in walk(atom))
        }
    )
    positions = (difference - scalars).to_expr()
    is_apart = is_integer(positions) and not find_free(scalars.to_expr())
    return (
        (positions, (scalars * Polynomial.of(-1)).to_expr())
        if scalars.terms and is_apart
        else (left, right)
    )


def clear_fractions(relation: str, left: Expr, right: Expr) -> tuple[str, Expr, Expr]:
    """A relation between positions with fractions, `(i + 1) / N <= 1/2`, between whole numbers.

    Positions are exact; in a tensor's own dtype, above all in bfloat16, they would be rounded.
    Sizes are positive, so multiplying by them keeps the relation.
    """
    difference = Polynomial.of(left) - Polynomial.of(right)
    powers = [power for monomial in difference.terms for _, power in monomial]
    is_whole = all(p > 0 for p in powers) and all(
        term.denominator == 1 for term in difference.terms.values()
    )
    is_plain = all(is_integer(side) or not find_free(side) for side in (left, right))
    if not all(isinstance(atom, (Index, Size)) for atom in difference.atoms):
        return relation, left, right
    if is_plain and is_whole:
        return relation, left, right
    divisors: dict[Expr, int] = {}
    for monomial in difference.terms:
        for atom, power in monomial:
            divisors[atom] = max(divisors.get(atom, 0), -power)
    if any(power and isinstance(atom, Index) for atom, power in divisors.items()):
        return relation, left, right
    for atom, power in divisors.items():
        difference = difference * Polynomial({((atom, power),): Fraction(1)} if power else _ONE)
    scale = lcm(*(term.denominator for term in difference.terms.values()))
    return relation, (difference * Polynomial.of(scale)).to_expr(), ZERO


def _lower_side(side: Expr, context: Context, order: tuple[Index, ...]) -> Op:
    """One side of a relation; index arithmetic and integer tensors stay integers."""
    op = context.lower(side, order)
    return strip_casts(op) if is_integer(side) else op


def lower_index(index: Index, context: Context) -> Op:
    """The values of an index, once, as a step by its name."""
    if index in context.known:
        return context.known[index][0]
    source = context.add_step(Iota(index))
    context.known[index] = (source, (index,))
    return source


def find_triangle(
    relation: str, left: Expr, right: Expr, order: tuple[Index, ...]
) -> Triangle | None:
    """`j <= i + c` between two indices as a triangle of ones: columns - rows <= offset."""
    difference = Polynomial.of(left) - Polynomial.of(right)
    indices = [a for a in difference.atoms if isinstance(a, Index)]
    if len(indices) != 2 or relation in {"==", "!="}:
        return None
    rows, columns = sorted(indices, key=lambda i: order.index(i) if i in order else -1)
    if (halves := difference.split(columns)) is None or halves[0].constant not in (1, -1):
        return None
    rest = halves[1].split(rows)
    if rest is None or rest[0].constant != -(halves[0].constant or 0):
        return None
    if halves[0].constant == -1:
        relation = MIRRORED[relation]
        offset = rest[1]
    else:
        offset = rest[1] * Polynomial.of(-1)
    shift = {"<": -1, ">": 1}.get(relation, 0)
    offset = offset + Polynomial.of(shift)
    if any(term.denominator != 1 for term in offset.terms.values()):
        return None
    if any(isinstance(part, (Access, Scalar)) for atom in offset.atoms for part in walk(atom)):
        return None  # torch takes whole numbers alone, and a scalar may be any
    return Triangle(rows, columns, offset.to_expr(), relation in {">", ">="})


def lower_choice(
    condition: Expr, then: Expr, other: Expr, context: Context, order: tuple[Index, ...]
) -> Op:
    """`then` where the condition holds, else `other`; the branch not taken cannot do harm."""
    if isinstance(condition, Not):
        condition, then, other = condition.part, other, then
    if condition in (TRUE, FALSE):
        return context.lower(then if condition is TRUE else other, order)
    joined = _lower_pieces(Where(condition, then, other), context, order)
    if joined is not None:
        return joined
    mask = lower_condition(condition, context, order)
    taken = context.lower(context.protect(then, condition), order)
    left = context.lower(context.protect(other, Not(condition)), order)
    if isinstance(left, Num):
        if isinstance(taken, Num):
            if (taken.value, left.value) == (ONE, ZERO):
                return Cast(mask)
            return Choose(mask, NumTensor(taken.value), left, axes_of(mask))
        return fill(taken, mask, left, False, order)
    if isinstance(taken, Num):
        return fill(left, mask, taken, True, order)
    taken, left = (Cast(op) if is_boolean(op) else op for op in (taken, left))
    mask, taken, left = align([mask, taken, left], order)
    return Choose(mask, taken, left, find_union([mask, taken, left], order))


def _lower_pieces(choice: Where, context: Context, order: tuple[Index, ...]) -> Op | None:
    """A choice by where an index is: each branch where it is taken, and one behind the other.

    None where no index alone decides, or where a branch is a number to be filled in.
    """
    for index in (i for i in order if i in find_free(choice.condition)):
        pieces = _cut(choice, index, (NOTHING, Polynomial.of(index.extent)), context.facts)
        if pieces is None or len(pieces) < 2 or any(is_number(value) for _, _, value in pieces):
            continue
        taken = {*context.names, *(i.name for i in find_all_indices(context.system))}
        taken |= {i.name for i in order}
        parts = []
        for low, high, value in pieces:
            own = rename_apart(Index(index.name, (high - low).to_expr()), taken)
            taken.add(own.name)
            position = simplify_place((Polynomial.of(own) + low).to_expr())
            try:
                placed = substitute(value, {index: position})
            except ValueError:  # a softmax along the index needs all of it
                return None
            settled = rewrite_bottom_up(placed, partial(settle, facts=context.facts))
            inner = tuple(own if i is index else i for i in order)
            parts.append((low, own, context.lower(settled, inner)))
        return _join(index, parts, order)
    return None


Piece = tuple[Polynomial, Polynomial, "Expr"]  # from a position up to another, and the value there


def _cut(
    expr: Expr, index: Index, ends: tuple[Polynomial, Polynomial], facts: Facts
) -> list[Piece] | None:
    """The values of a nested choice from one position of the index to another, in order."""
    if not isinstance(expr, Where) or index not in find_free(expr.condition):
        return [(*ends, expr)]
    inside = _find_interval(expr.condition, index, ends, facts)
    if inside is None:
        return None
    found: list[Piece] = []
    edges = (ends[0], *inside, ends[1])
    for low, high, value in zip(
        edges, edges[1:], (expr.other, expr.then, expr.other), strict=False
    ):
        piece = _cut(value, index, (low, high), facts) if low != high else []
        if piece is None:
            return None
        found += piece
    return found


def _find_interval(
    condition: Expr, index: Index, ends: tuple[Polynomial, Polynomial], facts: Facts
) -> tuple[Polynomial, Polynomial] | None:
    """From where to where a condition on the index alone holds, between two positions."""
    if not is_told(condition):
        return None
    low, high = ends
    for fact in find_facts(condition):  # each: slope * index + rest >= 0
        slope, rest = fact.split(index) or (NOTHING, NOTHING)
        if slope.constant not in {1, -1} or not all(isinstance(a, Size) for a in rest.atoms):
            return None
        if slope.constant == 1 and not is_never_negative(low + rest, facts):
            low = NOTHING - rest
        elif slope.constant == -1 and not is_never_negative(rest + _UNIT - high, facts):
            high = rest + _UNIT
    steps = (low - ends[0], high - low, ends[1] - high)
    return (low, high) if all(is_never_negative(step, facts) for step in steps) else None


def settle(expr: Expr, facts: Facts) -> Expr:
    """Places simplified, and choices taken that the ranges of their indices decide."""
    match expr:
        case Access(tensor, places):
            return Access(tensor, tuple(map(simplify_place, places)))
        case Where(condition, then, other):
            for value, told in ((then, condition), (other, Not(condition))):
                if is_always(told, facts):
                    return value
    return expr


def _join(
    index: Index, parts: Sequence[tuple[Polynomial, Index, Op]], order: tuple[Index, ...]
) -> Op:
    """The parts one behind the other, by one call of torch."""
    own = [each for _, each, _ in parts]
    others = find_union([op for _, _, op in parts], order)
    axes = sort_axes([i for i in (*others, index) if i not in own], order)
    at = axes.index(index)
    is_stack = all(i.extent == ONE and i not in axes_of(op) for _, i, op in parts)
    args: list[Op] = []
    whole: Op | None = None
    edge = parts[-1][0]
    for low, piece, op in reversed(parts):
        here = (*axes[:at], piece, *axes[at + 1 :])
        there = (*axes[:at], *axes[at + 1 :]) if is_stack else here
        part: Op = NumTensor(op.value) if isinstance(op, Num) else op
        part = arrange(part, there) if set(axes_of(part)) == set(there) else Expand(part, there)
        args.insert(0, part)
        # what is said of a column: it begins at its first position
        column: Op = Arrange(part, here) if is_stack else part
        column = Slice(column, at, index, (NOTHING - low).to_expr())
        if whole is None:
            whole = column
        else:
            mask = Apply("<", (Iota(index), Num(edge.to_expr())), (index,))
            whole = Choose(arrange(mask, axes), column, whole, axes)
        edge = low
    assert whole is not None
    dim = -1 if at == len(axes) - 1 else at
    given = tuple(Given(k) for k in range(len(args)))
    call = TorchCall("torch.stack" if is_stack else "torch.cat", (given,), (("dim", dim),))
    return Cell(call, tuple(args), whole, axes)


def fill(op: Op, mask: Op, value: Num, where: bool, order: tuple[Index, ...]) -> Op:
    """A number wherever the mask is `where`; a choice if the mask has indices the tensor lacks."""
    if isinstance(op, Num):
        op = NumTensor(op.value)
    if set(axes_of(mask)) <= set(axes_of(op)):
        mask = arrange(mask, axes_of(op))
        if isinstance(op, Fill) and op.mask is mask and op.where is where:
            op = op.arg  # a number that harms nowhere is not needed below this one
        match op:
            case Apply("exp", (Fill(arg, inner, _, at),), axes) if (inner, at) == (
                mask,
                where,
            ) and value.value is ZERO:
                return Apply("exp", (Fill(arg, mask, Num(MINUS_INFINITY), where),), axes)
        return Fill(op, mask, value, where)
    mask, op = align([mask, op], order)
    axes = find_union([mask, op], order)
    then, other = (value, op) if where else (op, value)
    return Choose(mask, then, other, axes)
