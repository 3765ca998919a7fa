"""How long the operations of a plan take, as far as a few constants of the machine can tell.

Roofline: the operations at the machine's rate or the bytes at that of the memory they lie in,
whichever is longer; besides, the copies that torch makes of operands, and a launch for each
operation. Williams, Waterman, Patterson 2009.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import Number
from derive.plan.costs import find_inner, find_true_axes
from derive.plan.machine import WIDTH, Machine
from derive.plan.ops import (
    VIEWS,
    Along,
    Apply,
    Cell,
    Einsum,
    Flatten,
    Num,
    Op,
    Reduction,
    Triangle,
    args_of,
    axes_of,
)
from derive.plan.steps import walk_ops
from derive.plan.strides import Memory, find_copies, find_strides

if TYPE_CHECKING:
    from collections.abc import Iterable

    from derive.plan.steps import Step

EACH = 2  # bytes of nearby memory in whose time a call does one operation on an element
NARROW = 16  # rows or columns below which a matrix product does not reach the full rate
SLOW = {"exp", "log", "tanh", "sigmoid", "erf", "gelu", "silu", "softplus", "elu", "sin", "cos"}
SLOW |= {"pow", "logsumexp", "softmax", "log_softmax"}


def find_seconds(steps: Iterable[Step], memory: Memory, machine: Machine) -> float:
    """The time of all steps, one after the other; `memory` learns where their results lie."""
    total = 0.0
    for step in steps:
        total += sum(time_op(op, memory, machine) for op in walk_ops(step.op))
        memory.strides[step.name] = find_strides(step.op, memory)
    return total


def time_op(op: Op, memory: Memory, machine: Machine) -> float:
    """The time of one operation, that of its operands aside."""
    if isinstance(op, Num):
        return 0.0
    copied = find_copies(op, memory)
    if isinstance(op, VIEWS) and not copied:
        return 0.0
    sizes = [memory.count(find_true_axes(arg)) for arg in args_of(op)]
    made = memory.count(find_true_axes(op))
    moved = WIDTH * (sum(sizes) + made)
    if isinstance(op, Along):
        moved += 2 * WIDTH * made
    rate = machine.near if moved <= machine.cache else machine.memory
    work = 0.0 if isinstance(op, Flatten) else _find_work(op, memory, machine)
    copies = 2 * WIDTH * copied / (machine.near if WIDTH * copied <= machine.cache else rate)
    return machine.launch + max(work, moved / rate) + copies


def _find_work(op: Op, memory: Memory, machine: Machine) -> float:
    """The arithmetic alone."""
    match op:
        case Einsum((one, other), axes):
            return _time_product(one, other, axes, memory, machine)
        case Apply("pow", (_, Num(Number(power)))) if power.denominator == 1:
            return 0.0
        case Apply(kind) | Along(kind) if kind in SLOW:
            return memory.count(find_true_axes(op)) / machine.exponentials
        case Reduction(kind, arg) if kind in SLOW:
            return memory.count(axes_of(arg)) / machine.exponentials
        case Triangle():
            return memory.count(axes_of(op)) / machine.exponentials
        case Cell(volume=volume) if volume:
            return memory.count(volume) / (machine.near / EACH)
        case Cell(_, args, whole):
            return sum(_time_inner(inner, memory, machine) for inner in find_inner(whole, args))
        case _:
            return 0.0


def _time_inner(op: Op, memory: Memory, machine: Machine) -> float:
    """The time of an operation inside a call, whose results stay near."""
    if isinstance(op, (*VIEWS, Num)):
        return 0.0
    spanned = axes_of(op.arg) if isinstance(op, Reduction) else find_true_axes(op)
    return max(_find_work(op, memory, machine), memory.count(spanned) / (machine.near / EACH))


def _time_product(
    one: Op, other: Op, axes: tuple[object, ...], memory: Memory, machine: Machine
) -> float:
    """Twice the product of all extents over the rate, which thin matrices do not reach."""
    first, second = axes_of(one), axes_of(other)
    spanned = dict.fromkeys((*first, *second))
    batch = memory.count(i for i in first if i in second and i in axes)
    rows = memory.count(i for i in first if i not in second)
    columns = memory.count(i for i in second if i not in first)
    thin = min(rows, columns)
    rate = machine.flops * min(1.0, (thin + 1) / NARROW)
    return 2 * memory.count(spanned) / rate + batch * machine.product
