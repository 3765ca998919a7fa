"""Elementwise functions of torch that do in one pass what several operations do.

where(x > 0, x, slope x) is leaky_relu (Maas, Hannun, Ng 2013); torch takes a number as slope and no
tensor, and a scalar may be either. d_i [i = j] is the diagonal that diag_embed makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import ZERO, Scalar
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import walk
from derive.plan.cells.matching import CellRule, is_same, strip
from derive.plan.ops import (
    Apply,
    Cell,
    Choose,
    Expand,
    Given,
    Iota,
    Num,
    Op,
    TorchCall,
    arrange,
    axes_of,
)

if TYPE_CHECKING:
    from derive.plan.cells.matching import Definitions

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


def match_diagonal(op: Op, definitions: Definitions) -> Op | None:
    """What has one of two indices, or none, where they are equal, and else 0."""
    match op:
        case Choose(mask, then, Num(other), axes) if other is ZERO and not isinstance(then, Num):
            compared, then = strip(definitions.look(strip(mask))), strip(then)
        case _:
            return None
    match compared:
        case Apply("==", (left, right)):
            row, column = (definitions.look(strip(side)) for side in (left, right))
        case _:
            return None
    if not isinstance(row, Iota) or not isinstance(column, Iota) or row.index is column.index:
        return None
    ends = (row.index, column.index)
    own = [i for i in ends if i in axes_of(then)]
    if len(own) > 1 or not is_same_extent(*(index.extent for index in ends)):
        return None
    kept = own[0] if own else ends[0]
    rest = tuple(i for i in axes if i not in ends)
    arg = arrange(then, (*(i for i in rest if i in axes_of(then)), *own))
    if axes_of(arg) != (*rest, kept):
        arg = Expand(arg, (*rest, kept))
    call = TorchCall("torch.diag_embed", (Given(0),))
    return arrange(Cell(call, (arg,), op, (*rest, *ends)), axes)


CELLS = (
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
