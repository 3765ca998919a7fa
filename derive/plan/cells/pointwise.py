"""Elementwise functions of torch that do in one pass what several operations do.

where(x > 0, x, slope x) is leaky_relu (Maas, Hannun, Ng 2013); torch takes a number as slope and no
tensor, and a scalar may be either. d_i [i = j] is the diagonal that diag_embed makes, x_ij where
i != j and else d_i what diagonal_scatter does, x_ij [j <= i + c] a triangle, x y + z an addcmul.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from derive.ir.nodes import ONE, ZERO, Index, Number, Scalar
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import walk
from derive.plan.cells.matching import CellRule, is_same, strip
from derive.plan.cost import find_strides, find_true_axes
from derive.plan.ops import (
    Apply,
    Arrange,
    Cast,
    Cell,
    Choose,
    Diagonal,
    Expand,
    Fill,
    Given,
    Iota,
    Num,
    NumTensor,
    Op,
    Source,
    TorchCall,
    Triangle,
    arrange,
    axes_of,
    combine,
    is_boolean,
    is_integral,
    rename_indices,
)

if TYPE_CHECKING:
    from derive.plan.cells.matching import Definitions

GIVEN = tuple(map(Given, range(4)))
LEAKY = "torch.nn.functional.leaky_relu"


def match_leaky_relu(op: Op, definitions: Definitions) -> Op | None:
    """The choice between a tensor and its multiple by a number, by its sign."""
    match op:
        case Choose(condition, then, Apply("*", (one, other)), axes):
            pass
        case _:
            return None
    match definitions.unwrap(condition):
        case Apply(">" | ">=", (tested, Num(bound))) if bound is ZERO:
            pass
        case _:
            return None
    for slope, scaled in ((one, other), (other, one)):
        if isinstance(slope, Num) and is_same(tested, then) and is_same(scaled, then):
            arg = strip(then)
            has_scalar = any(isinstance(part, Scalar) for part in walk(slope.value))
            call = TorchCall(LEAKY, (Given(0), Given(1)))
            when = (Given(1),) if has_scalar else ()
            return arrange(Cell(call, (arg, slope), op, axes_of(arg), when), axes)
    return None


def match_triangle(op: Op, definitions: Definitions) -> Op | None:
    """What is 0 beyond a line along the diagonal of two indices."""
    match op:
        case Fill(arg, mask, Num(value), where) if value is ZERO:
            pass
        case Apply("*", (Cast(mask) | Arrange(Cast(mask)), arg)):
            where = False
        case Apply("*", (arg, Cast(mask) | Arrange(Cast(mask)))):
            where = False
        case _:
            return None
    triangle, axes = definitions.look(strip(mask)), axes_of(op)
    if not isinstance(triangle, Triangle) or is_boolean(arg) or is_integral(arg):
        return None
    ends, offset, upper = (triangle.rows, triangle.columns), triangle.offset, triangle.upper
    if not set(ends) <= set(find_true_axes(arg)) or set(axes_of(arg)) != set(axes):
        return None
    if where:  # what is beyond the line is kept
        offset = (Polynomial.of(offset) + Polynomial.of(-1 if upper else 1)).to_expr()
        upper = not upper
    strides = dict(zip(axes_of(arg), find_strides(arg, definitions.memory), strict=True))
    if strides[ends[0]] < strides[ends[1]]:
        offset = (Polynomial.of(offset) * Polynomial.of(-1)).to_expr()
        ends, upper = ends[::-1], not upper
    inner = (*(i for i in axes if i not in ends), *ends)
    at = () if offset == ZERO else (Num(offset),)
    call = TorchCall("torch.triu" if upper else "torch.tril", GIVEN[: 1 + len(at)])
    arg, mask = arrange(arg, inner), arrange(Triangle(*ends, offset, upper), inner)
    whole = Fill(arg, mask, Num(ZERO), False)
    step = 1
    scratch: tuple[tuple[Index, ...], ...] = ()
    for index in reversed(inner):  # torch makes a copy of what does not lie in this order
        if strides[index] != step and definitions.memory.extent(index) > 1:
            scratch = (inner,)
        step *= definitions.memory.extent(index)
    cell = Cell(call, (arg, *at), whole, inner, volume=inner, scratch=scratch)
    return arrange(cell, axes)


def find_equal(mask: Op, definitions: Definitions) -> tuple[str, Index, Index] | None:
    """The relation, == or !=, between two indices of one extent."""
    match definitions.look(strip(mask)):
        case Apply("==" | "!=" as relation, (left, right)):
            row, column = (definitions.look(strip(side)) for side in (left, right))
        case _:
            return None
    if not isinstance(row, Iota) or not isinstance(column, Iota) or row.index is column.index:
        return None
    if not is_same_extent(row.index.extent, column.index.extent):
        return None
    return relation, row.index, column.index


def match_diagonal(op: Op, definitions: Definitions) -> Op | None:
    """What has one of two indices, or none, where they are equal, and else 0."""
    match op:
        case Choose(mask, then, Num(other), axes) if other is ZERO and not isinstance(then, Num):
            found, then = find_equal(mask, definitions), strip(then)
        case _:
            return None
    if found is None or found[0] == "!=":
        return None
    ends = found[1:]
    own = [i for i in ends if i in axes_of(then)]
    if len(own) > 1:
        return None
    kept = own[0] if own else ends[0]
    rest = tuple(i for i in axes if i not in ends)
    arg = arrange(then, (*(i for i in rest if i in axes_of(then)), *own))
    if axes_of(arg) != (*rest, kept):
        arg = Expand(arg, (*rest, kept))
    call = TorchCall("torch.diag_embed", (Given(0),))
    return arrange(Cell(call, (arg,), op, (*rest, *ends)), axes)


def match_exchanged(op: Op, definitions: Definitions) -> Op | None:
    """What has another value where two of its indices are equal."""
    match op:
        case Fill(arg, mask, value, where):
            pieces: tuple[Op, Op] = (value, arg) if where else (arg, value)
        case Choose(mask, then, other):
            pieces = then, other
        case _:
            return None
    found, axes = find_equal(mask, definitions), axes_of(op)
    if found is None:
        return None
    other, arg = pieces if found[0] == "==" else pieces[::-1]
    row, column = ends = found[1:]
    if is_boolean(arg) or is_integral(arg) or not set(ends) <= set(find_true_axes(arg)):
        return None
    kept = (*(i for i in axes if i not in ends), row)
    given = _read_diagonal(other, ends, kept)
    if given is None or axes_of(arg) != axes:
        return None
    given = arrange(given, kept) if set(axes_of(given)) == set(kept) else Expand(given, kept)
    dims = tuple((f"dim{k}", axes.index(end)) for k, end in enumerate(ends, 1))
    call = TorchCall("torch.diagonal_scatter", GIVEN[:2], dims if len(axes) > 2 else ())
    equal = Apply("==", (Arrange(Iota(row), ends), Arrange(Iota(column), ends)), ends)
    chosen = other if isinstance(other, Num) else arrange(other, axes)
    whole = Choose(arrange(equal, axes), chosen, arg, axes)
    return Cell(call, (arg, given), whole, axes, volume=axes)


def _read_diagonal(op: Op, ends: tuple[Index, Index], kept: tuple[Index, ...]) -> Op | None:
    """An elementwise value where two indices are equal, read there alone."""
    row, column = ends
    match op:
        case Num(value):
            has_scalar = any(isinstance(part, Scalar) for part in walk(value))
            return None if has_scalar else NumTensor(value)
        case Arrange(arg):
            return _read_diagonal(arg, ends, kept)
        case Source(_, own) if {row, column} <= set(own):
            return rename_indices(Diagonal(op, own.index(row), own.index(column)), {column: row})
        case Source():
            return rename_indices(op, {column: row})
        case Apply(function, args):
            parts = [a if isinstance(a, Num) else _read_diagonal(a, ends, kept) for a in args]
            found = [part for part in parts if part is not None]
            return combine(function, found, kept) if len(found) == len(parts) else None
        case _:
            return None


def match_sum_of_product(op: Op, definitions: Definitions) -> Op | None:
    """A product of two tensors added to a third, all of which have the last index."""
    match op:
        case Apply("+", (one, other), axes) if axes:
            pairs = [(one, other, 1), (other, one, 1)]
        case Apply("-", (one, other), axes) if axes:
            pairs = [(one, other, -1)]
        case _:
            return None
    for added, product, sign in pairs:
        match product:
            case Apply("*", (Apply("*", (left, right)), Num(Number(value)))):
                pass
            case Apply("*", (left, right)):
                value = Fraction(1)
            case _:
                continue
        parts = (added, left, right)
        if any(axes[-1] not in find_true_axes(part) for part in parts):
            continue
        if any(is_boolean(part) or is_integral(part) for part in parts):
            continue
        if set(find_true_axes(product)) != set(axes):
            continue
        scale = Num(Number(sign * value))
        if scale.value is ONE:
            return Cell(TorchCall("torch.addcmul", GIVEN[:3]), parts, op, axes)
        call = TorchCall("torch.addcmul", GIVEN[:3], (("value", GIVEN[3]),))
        return Cell(call, (*parts, scale), op, axes)
    return None


CELLS = (
    CellRule(
        call="torch.tril",
        computes="A[B, N, N]\nz[b,i,j] = A[b,i,j] * [j <= i + 1]",
        refuses="A[B, N, N]\nz[b,i,j] = A[b,i,j] * [j <= i + b]",
        match=match_triangle,
    ),
    CellRule(
        call="torch.diagonal_scatter",
        computes="A[B, N, N]\nz[b,i,j] = where(i == j, A[b,i,j] - sum[k](A[b,i,k]), A[b,i,j])",
        refuses="A[B, N, N]\nz[b,i,j] = where(i == b, 1, A[b,i,j])",
        match=match_exchanged,
    ),
    CellRule(
        call="torch.addcmul",
        computes="x[B, N, D]; w, c[D]\nz[b,n,d] = x[b,n,d] * (1 + w[d]) - 2 * c[d] * exp(x[b,n,d])",
        refuses="x[B, N, D]; w, c[N]\nz[b,n,d] = x[b,n,d] * (1 + w[n]) + c[n]",
        match=match_sum_of_product,
    ),
    CellRule(
        call="torch.diag_embed",
        computes="x[M, N]; y[M, N, N]; index j < N\nz[m,i,j] = x[m,i] * [i == j] + y[m,i,j]",
        refuses="x[M, N]; y[M, N, N]; index j < N\nz[m,i,j] = x[m,i] * [i <= j] + y[m,i,j]",
        match=match_diagonal,
    ),
    CellRule(
        call=LEAKY,
        computes="x[N]; y[M]; scalar c = 0.1\nz[n,m] = leaky_relu(x[n] + y[m], c)",
        refuses="x[N, M]; scalar c\nz[n,m] = where(x[n,m] < 0, x[n,m], c * x[n,m])",
        match=match_leaky_relu,
    ),
)
