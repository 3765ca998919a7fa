"""Elementwise functions of torch that do in one pass what several operations do.

where(x > 0, x, slope x) is leaky_relu.

Maas, Hannun, Ng 2013. Torch takes a number as slope and no tensor, and a scalar may be either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import ZERO, Scalar
from derive.ir.walk import walk
from derive.plan.cells.matching import CellRule, is_same, strip
from derive.plan.ops import Apply, Cell, Choose, Given, Num, Op, TorchCall, arrange, axes_of

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


CELLS = (
    CellRule(
        call=LEAKY,
        computes="x[N]; y[M]; scalar c = 0.1\nz[n,m] = leaky_relu(x[n] + y[m], c)",
        refuses="x[N, M]; scalar c\nz[n,m] = where(x[n,m] < 0, x[n,m], c * x[n,m])",
        match=match_leaky_relu,
    ),
)
