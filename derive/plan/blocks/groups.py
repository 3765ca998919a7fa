"""Groups of steps that all keep an index, and what they read and leave: the body of a loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from derive.ir.nodes import ONE, Index
from derive.plan.cost import Memory, find_copies, find_strides, find_true_axes
from derive.plan.naming import free_name, name_op
from derive.plan.ops import (
    VIEWS,
    Along,
    Arrange,
    Cell,
    Diagonal,
    Op,
    Source,
    args_of,
    axes_of,
    exchange,
    find_reads,
    rename_indices,
    walk_ops,
)
from derive.plan.steps import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from derive.plan.steps import Running

LARGE = 1 << 19  # elements from which a tensor is worth a loop: 2 MiB of float32
_ANY = Index("_", ONE)


@dataclass(frozen=True)
class Scope:
    """Steps among which a loop is looked for: those of a plan, or those of a loop."""

    steps: tuple[Step, ...]
    read: Set[str]  # what is read after them
    taken: Set[str]  # names
    sizes: Mapping[str, int]
    empty_row: str  # what a softmax of nothing is: zeros, nan

    @cached_property
    def work(self) -> dict[str, tuple[int, int]]:
        """Of each step the elements that it copies, and those of the largest tensor it makes."""
        memory, found = Memory(self.sizes), {}
        for step in self.steps:
            parts = list(walk_ops(step.op))
            copied = max(find_copies(op, memory) for op in parts)
            made = [op for op in parts if not isinstance(op, VIEWS)]
            most = max((memory.count(find_true_axes(op)) for op in made), default=0)
            found[step.name] = copied, most
            memory.strides[step.name] = find_strides(step.op, memory)
        return found


class BoundError(Exception):
    """An operation sums over the index, normalises along it, or reads it under another letter."""


@dataclass(frozen=True, slots=True)
class Group:
    """Steps of a loop over blocks of `index`, those before and after it, and what crosses over."""

    index: Index
    before: tuple[Step, ...]
    inside: tuple[Step, ...]
    after: tuple[Step, ...]
    sliced: tuple[tuple[str, Op], ...]  # the name in the loop, and what it is a block of
    joined: tuple[str, ...]  # steps that are read after the loop

    running: tuple[Running, ...] = ()  # values carried from block to block
    wide: str = ""  # what their dtype is called

    @property
    def names(self) -> set[str]:
        """All names of its own: of blocks, steps and running values."""
        steps = {step.name for step in (*self.before, *self.inside, *self.after)}
        return {self.wide, *steps, *(name for name, _ in self.sliced)}

    def cut(self, short: Index) -> tuple[Step, ...]:
        """The steps on blocks: the index is exchanged for one of a block's extent."""
        names = {_to_leaf_key(op, self.index): name for name, op in self.sliced}
        inside = find_places(self.inside, self.index)

        def cut_step(step: Step) -> Step:
            leaves = find_blocks(step.op, self.index, inside)
            new = {leaf: _to_block(leaf, names[_to_leaf_key(leaf, self.index)]) for leaf in leaves}
            return Step(step.name, rename_indices(exchange(step.op, new), {self.index: short}))

        return tuple(map(cut_step, self.inside))


def find_places(steps: Iterable[Step], index: Index) -> dict[str, int]:
    """The steps that keep an index, by name, and the place in which they have it."""
    return {step.name: step.axes.index(index) for step in steps if index in step.axes}


def _to_block(leaf: Op, name: str) -> Source:
    return Source(name, axes_of(leaf), leaf.kind if isinstance(leaf, Source) else "real")


def _to_leaf_key(op: Op, index: Index) -> Op:
    """The leaf; a tensor cut at the same place is the same under whatever letters."""
    if not isinstance(op, Source):
        return op
    return Source(op.name, tuple(i if i is index else _ANY for i in op.axes), op.kind)


def find_group(scope: Scope, index: Index, *, whole: bool = False) -> Group | None:
    """The steps worth a loop over this index, or with `whole` all that can be in one; else None."""
    steps = scope.steps
    inside, after = _find_members(steps, index, set())
    core = find_core(scope, inside)
    shared = _find_shared(steps, inside, after)
    if shared:  # these before the loop may let more of the others into it
        others = _find_members(steps, index, shared)
        wider = find_core(scope, others[0])
        if len(wider) > len(core):
            (inside, after), core = others, wider
    if not inside or not (core or whole):
        return None
    if not whole:
        inside, after = _trim(steps, inside, after, core)
    group = tuple(step for step in steps if step.name in inside)
    later = tuple(step for step in steps if step.name in after)
    read = {*scope.read, *(name for step in later for name in find_reads(step.op))}
    return Group(
        index,
        tuple(s for s in steps if s.name not in inside and s.name not in after),
        group,
        later,
        name_leaves(group, index, scope.taken),
        tuple(s.name for s in group if s.name in read),
    )


def _find_shared(steps: Sequence[Step], inside: set[str], after: set[str]) -> set[str]:
    """The members that steps after them read, and what those members read in turn."""
    shared = {name for s in steps if s.name in after for name in find_reads(s.op)} & inside
    for step in reversed(steps):
        if step.name in shared:
            shared |= find_reads(step.op) & inside
    return shared


def _find_members(
    steps: Sequence[Step], index: Index, banned: set[str]
) -> tuple[set[str], set[str]]:
    """(steps that keep the index throughout, steps that need those and do not)."""
    inside: dict[str, int] = {}
    after: set[str] = set()
    for step in steps:
        read = find_reads(step.op)
        if not read & after and index in step.axes and step.name not in banned:
            try:
                leaves = find_leaves(step.op, index, inside)
            except BoundError:
                pass
            else:
                if step.op not in leaves:
                    inside |= find_places((step,), index)
                    continue
        if read & (inside.keys() | after):
            after.add(step.name)
    return set(inside), after


def find_blocks(op: Op, index: Index, inside: Mapping[str, int]) -> tuple[Op, ...]:
    """The leaves of an operation that may also sum over the index; see `find_leaves`."""
    if index in axes_of(op) or not is_reading(op, index):
        return find_leaves(op, index, inside)
    return tuple(leaf for arg in args_of(op) for leaf in find_blocks(arg, index, inside))


def is_reading(op: Op, index: Index) -> bool:
    """Has any part of it the index?"""
    return index in _find_inside(op)


@lru_cache(maxsize=1 << 14)
def _find_inside(op: Op) -> frozenset[Index]:
    return frozenset(index for part in walk_ops(op) for index in axes_of(part))


def find_leaves(op: Op, index: Index, inside: Mapping[str, int]) -> tuple[Op, ...]:
    """What of an operation is a block of something outside; BoundError where it is not pointwise.

    A leaf is a tensor from outside, or a view of one, whose axes have the index. `inside` are the
    tensors that exist in blocks alone, and the place in which each has the index.
    """
    if not is_reading(op, index):
        if find_reads(op) & inside.keys():
            raise BoundError
        return ()
    axes = axes_of(op)
    if axes.count(index) != 1 or (isinstance(op, Along) and op.index is index):
        raise BoundError
    if isinstance(op, Source) and op.name in inside:
        if axes.index(index) != inside[op.name]:
            raise BoundError  # its rows are asked for, and its columns are at hand
        return ()
    if isinstance(op, Cell):
        return _find_given(op, index, inside)
    is_made_here = all(index not in axes_of(arg) for arg in args_of(op))
    if isinstance(op, Arrange) and is_made_here:
        return find_leaves(op.arg, index, inside)  # size 1 along the index, whatever the block
    if isinstance(op, (Source, Diagonal)) or is_made_here:
        if find_reads(op) & inside.keys():
            raise BoundError
        return (op,)
    return tuple(leaf for arg in args_of(op) for leaf in find_leaves(arg, index, inside))


def _find_given(cell: Cell, index: Index, inside: Mapping[str, int]) -> tuple[Op, ...]:
    """The leaves of a call, whose operations have to be pointwise and to make nothing."""
    given = tuple(leaf for arg in cell.args for leaf in find_leaves(arg, index, inside))
    if not set(find_leaves(cell.whole, index, inside)) <= set(given):
        raise BoundError
    return given


def find_core(scope: Scope, inside: set[str]) -> set[str]:
    """The members that copy something large, or make or read one of the largest tensors."""
    work = scope.work
    least = max(LARGE, max(work[name][1] for name in inside) // 2) if inside else LARGE
    large = {name for name, (_, made) in work.items() if made >= least}
    return {
        step.name
        for step in scope.steps
        if step.name in inside
        and (step.name in large or work[step.name][0] >= LARGE or find_reads(step.op) & large)
    }


def _trim(
    steps: Sequence[Step], inside: set[str], after: set[str], core: set[str]
) -> tuple[set[str], set[str]]:
    """Without the members at either end that have nothing to do with what is large."""
    inside, after = set(inside), set(after)
    for step in steps:
        if step.name in inside - core and not find_reads(step.op) & inside:
            inside.discard(step.name)
    for step in reversed(steps):
        is_read = any(step.name in find_reads(s.op) for s in steps if s.name in inside)
        if step.name in inside - core and not is_read and len(find_reads(step.op) & inside) == 1:
            inside.discard(step.name)
            after.add(step.name)
    return inside, after


def name_leaves(group: Sequence[Step], index: Index, taken: Set[str]) -> tuple[tuple[str, Op], ...]:
    """A name for each leaf in the loop: `q_h` for the blocks of q along h."""
    found: dict[Op, tuple[str, Op]] = {}
    inside = find_places(group, index)
    for step in group:
        for leaf in find_blocks(step.op, index, inside):
            key = _to_leaf_key(leaf, index)
            if key not in found:
                name = free_name(f"{name_op(leaf, group[-1].name)}_{index.name}", taken)
                found[key] = name, leaf
                taken = taken | {name}
    return tuple(found.values())
