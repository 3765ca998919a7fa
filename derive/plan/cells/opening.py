"""Looking through names: a step that only one other reads may become part of a cell."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from derive.ir.nodes import Index, Tensor
from derive.ir.walk import rename_apart
from derive.plan.ops import (
    Apply,
    Arrange,
    Cast,
    Einsum,
    Expand,
    Num,
    Op,
    Reduction,
    Source,
    args_of,
    axes_of,
    rename_indices,
    with_args,
)
from derive.plan.steps import walk_ops

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from derive.ir.nodes import Expr, ScalarInput
    from derive.plan.steps import Step
    from derive.plan.strides import Memory

MOST_SPELLED = 1000  # operations of a step, written out with all it reads, that are looked through
PLAIN = (Source, Num, Arrange, Expand, Cast, Apply, Reduction)  # what the algebra looks into


class Opener:
    """The steps by name, how often each is read, and what is known of the arguments."""

    def __init__(
        self,
        steps: Sequence[Step],
        results: Sequence[Op],
        memory: Memory,
        inputs: Sequence[Tensor | ScalarInput] = (),
    ) -> None:
        self.steps = {step.name: step for step in steps}
        self.memory = memory
        self.bounds: dict[str, Expr] = {
            each.name: each.below for each in inputs if isinstance(each, Tensor) and each.below
        }
        self._reads = count_reads(steps, results)
        self.refused: set[Op] = set()  # sums that are known to hold no call
        self._opened: dict[Op, Op] = {}
        self._spelled: dict[str, int] = {}  # the operations of each step with all it reads
        for step in steps:
            self._spelled[step.name] = sum(
                self._spelled.get(part.name, 1) if isinstance(part, Source) else 1
                for part in walk_ops(step.op)
            )

    def open(self, op: Op) -> Op:
        """What a name stands for, under the letters of its reader, if nothing else reads it."""
        while isinstance(op, Source) and self._reads[op.name] == 1 and op.name in self.steps:
            op = self._read(op)
        return op

    def look(self, op: Op) -> Op:
        """What a name stands for, whoever reads it; of what is too much to write out, the name."""
        is_light = isinstance(op, Source) and self._spelled.get(op.name, 0) <= MOST_SPELLED
        return self._read(op) if is_light else op

    def _read(self, op: Op) -> Op:
        if not isinstance(op, Source) or op.name not in self.steps:
            return op
        if op not in self._opened:
            step = self.steps[op.name]
            self._opened[op] = rename(step.op, dict(zip(step.axes, op.axes, strict=True)))
        return self._opened[op]

    def walk(self, op: Op) -> Iterator[Op]:
        """The parts of an operation, and of the steps that it needs, each step once."""
        seen: set[str] = set()
        waiting = [op]
        while waiting:
            for part in walk_ops(waiting.pop()):
                yield part
                if isinstance(part, Source) and part.name in self.steps and part.name not in seen:
                    seen.add(part.name)
                    waiting.append(self.steps[part.name].op)

    def peel(self, op: Op) -> Op:
        """The same, without the order of its axes."""
        op = self.open(op)
        while isinstance(op, Arrange):
            op = self.open(op.arg)
        return op

    def peel_small(self, op: Op, wide: Collection[Index]) -> Op:
        """The same; of names with fewer indices than `wide`, whoever reads them."""
        while True:
            opened = self.peel(op)
            if isinstance(opened, Source) and not set(wide) <= set(opened.axes):
                opened = self.look(opened)
            if opened is op:
                return op
            op = opened

    def count_reads(self, name: str) -> int:
        """How often the results, and the steps that they need, read a name."""
        return self._reads[name]

    def has_any(self, is_meant: Callable[[Op], bool]) -> bool:
        """Is any operation of the plan such a one?"""
        return any(is_meant(part) for step in self.steps.values() for part in walk_ops(step.op))

    def spell(self, op: Op, kept: Collection[str] = ()) -> Op:
        """The operation with elementwise steps and reductions written out where they are read.

        Steps of other kinds stay names, and so do those that are `kept`.
        """
        opened = self._write_out(op)
        if isinstance(op, Source) and opened is not None and op.name not in kept:
            return self.spell(opened, kept)
        args = args_of(op)
        return with_args(op, tuple(self.spell(arg, kept) for arg in args)) if args else op

    def is_alone(self, op: Op, wide: Collection[Index] = ()) -> bool:
        """Does nothing else read what `spell` opens, as far as it has the indices `wide`?"""
        opened: dict[str, Op] = {}
        self._find_opened(op, opened)
        inside = Counter(name for part in (op, *opened.values()) for name in _find_names(part))
        return all(
            inside[name] == self._reads[name]
            for name, part in opened.items()
            if set(wide) <= set(axes_of(part))
        )

    def _find_opened(self, op: Op, opened: dict[str, Op]) -> None:
        for part in walk_ops(op):
            step = self._write_out(part)
            if isinstance(part, Source) and step is not None and opened.get(part.name) is not step:
                opened[part.name] = step
                self._find_opened(step, opened)

    def _write_out(self, op: Op) -> Op | None:
        """What a name stands for, if it is plain; a diagonal is read from what is there."""
        if not isinstance(op, Source) or op.name not in self.steps:
            return None
        opened = self.look(op)
        if opened is op:
            return None
        return opened if len({*op.axes}) == len(op.axes) and is_plain(opened) else None


def count_reads(steps: Sequence[Step], results: Sequence[Op]) -> Counter[str]:
    """How often each name is read by the results and by the steps that they need."""
    found = Counter(name for op in results for name in _find_names(op))
    for step in reversed(steps):
        if step.name in found:
            found.update(_find_names(step.op))
    return found


def _find_names(op: Op) -> list[str]:
    return [part.name for part in walk_ops(op) if isinstance(part, Source)]


def is_plain(op: Op) -> bool:
    """Is it made of elementwise operations, reductions and products of rows alone?"""
    return all(isinstance(part, PLAIN) or _is_row_product(part) for part in walk_ops(op))


def _is_row_product(op: Op) -> bool:
    return isinstance(op, Einsum) and len({frozenset(axes_of(arg)) for arg in op.args}) == 1


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
