"""The loops of a system: the tensors of each recurrence, or one operation in its place."""

from __future__ import annotations

from dataclasses import dataclass, field

from derive.ir import nodes as ir
from derive.plan import ops
from derive.plan.recurrences.gates import GatedCall


@dataclass
class Loop:
    """The tensors of one recurrence in the system without recurrences."""

    index: ir.Index
    # The slice of a tensor along an axis, at the position of the turn.
    sliced: dict[tuple[ir.Tensor, int], ir.Tensor] = field(default_factory=dict)
    made: dict[ir.Tensor, ir.Tensor] = field(default_factory=dict)  # the state after a turn
    # The state by its lag in turns, and the states before the loop.
    before: dict[tuple[ir.Tensor, int], ir.Tensor] = field(default_factory=dict)
    first: dict[ir.Tensor, list[ir.Tensor]] = field(default_factory=dict)
    skips: bool = False  # whether the states before the loop are not part of the tensor
    axes: dict[ir.Tensor, int] = field(default_factory=dict)  # the axis of the loop
    lists: dict[ir.Tensor, str] = field(default_factory=dict)  # the name of the list of states
    turn: str = ""  # the name of the turn's number; "" if no position reads it
    dropped: set[ir.Tensor] = field(default_factory=set)  # states whose list is not kept
    last: dict[ir.Tensor, ir.Tensor] = field(default_factory=dict)  # last values of dropped states
    whole: Linear | View | GatedCall | None = None  # one operation in place of turns


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear recurrence h[t,..] = decay[t,..] * h[t - 1,..] + added[t,..], with h[-1] = first."""

    target: ir.Access
    decay: ir.Access
    added: ir.Access
    first: ir.Access
    chunk: str
    is_bounded: bool

    @property
    def parts(self) -> tuple[ir.Access, ...]:
        """The reads of decay, summand and initial value."""
        return self.decay, self.added, self.first

    def to_op(self, index: ir.Index, decay: ops.Op, added: ops.Op, first: ops.Op) -> ops.Op:
        """The recurrence as an operation on the operands."""
        axes = find_indices_of(self.target)
        first = ops.arrange(first, tuple(i for i in axes if i is not index))
        return ops.Recur(decay, added, first, axes, index, self.chunk, self.is_bounded)


@dataclass(frozen=True, slots=True)
class View:
    """A tensor cut into chunks, k_chunks[n,c,i] = k[n*C + c,i], or the inverse."""

    target: ir.Access
    source: ir.Access
    axis: int

    @property
    def parts(self) -> tuple[ir.Access, ...]:
        """The read of the source."""
        return (self.source,)

    def to_op(self, _: ir.Index, source: ops.Op) -> ops.Op:
        """The view as an operation on its operand; the last chunk is padded."""
        axes, axis = find_indices_of(self.target), self.axis
        if len(axes) < len(source.axes):
            whole = ops.Flatten(
                source, axis, axis + 1, ops.merge_indices(source.axes[axis : axis + 2])
            )
            return ops.Slice(whole, axis, axes[axis])
        parts = axes[axis : axis + 2]
        padded = ops.Pad(source, axis, ops.merge_indices(parts), ir.ZERO, ir.ZERO)
        return ops.Unflatten(padded, axis, parts)


def find_indices_of(access: ir.Access) -> tuple[ir.Index, ...]:
    """The positions of an access that are plain indices."""
    return tuple(place for place in access.places if isinstance(place, ir.Index))
