"""Orders of axes: sorting indices by a preference, and bringing operands over one order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.plan.ops import Arrange, Op, axes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from derive.ir.nodes import Index


def sort_axes(indices: Iterable[Index], order: tuple[Index, ...]) -> tuple[Index, ...]:
    """The indices in a preferred order; those it does not name come first, as they stand."""
    each = tuple(dict.fromkeys(indices))
    return tuple(sorted(each, key=lambda i: order.index(i) if i in order else -1))


def arrange(op: Op, axes: tuple[Index, ...]) -> Op:
    """The operation's result with these axes in this order (those it lacks broadcast)."""
    here = axes_of(op)
    return op if not here or axes[len(axes) - len(here) :] == here else Arrange(op, axes)


def find_union(ops: Sequence[Op], order: tuple[Index, ...]) -> tuple[Index, ...]:
    """All their axes, the widest operand's first where the order leaves it open."""
    widest = sorted(ops, key=lambda op: -len(axes_of(op)))
    return sort_axes((i for op in widest for i in axes_of(op)), order)


def align(ops: Sequence[Op], order: tuple[Index, ...]) -> tuple[Op, ...]:
    """The operands over one order of axes, so that they broadcast."""
    axes = find_union(ops, order)
    return tuple(arrange(op, axes) for op in ops)
