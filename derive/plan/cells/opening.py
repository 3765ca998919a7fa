"""Looking through names: a step that only one other reads may become part of a cell."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from derive.ir.nodes import Index
from derive.ir.walk import rename_apart
from derive.plan.ops import Arrange, Op, Source, axes_of, rename_indices
from derive.plan.steps import walk_ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.plan.steps import Step
    from derive.plan.strides import Memory


class Opener:
    """The steps by name, and how often each is read."""

    def __init__(self, steps: Sequence[Step], results: Sequence[Op], memory: Memory) -> None:
        self.steps = {step.name: step for step in steps}
        self.memory = memory
        whole = (*(step.op for step in steps), *results)
        self._reads = Counter(
            part.name for op in whole for part in walk_ops(op) if isinstance(part, Source)
        )

    def open(self, op: Op) -> Op:
        """What a name stands for, under the letters of its reader, if nothing else reads it."""
        while isinstance(op, Source) and self._reads[op.name] == 1 and op.name in self.steps:
            op = self.look(op)
        return op

    def look(self, op: Op) -> Op:
        """What a name stands for, whoever reads it."""
        if not isinstance(op, Source) or op.name not in self.steps:
            return op
        step = self.steps[op.name]
        return rename(step.op, dict(zip(step.axes, op.axes, strict=True)))

    def peel(self, op: Op) -> Op:
        """The same, without the order of its axes."""
        op = self.open(op)
        while isinstance(op, Arrange):
            op = self.open(op.arg)
        return op


def rename(op: Op, new: dict[Index, Index]) -> Op:
    """The operation under other free letters; its bound ones give way."""
    coming = {index.name for index in new.values()}
    inner = {i for part in walk_ops(op) for i in axes_of(part)} - {*new}
    taken = coming | {i.name for i in inner} | {i.name for i in new}
    for index in sorted(inner, key=lambda i: i.name):
        if index.name in coming:
            new[index] = rename_apart(index, taken)
            taken.add(new[index].name)
    return rename_indices(op, new)
