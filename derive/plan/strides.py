"""Where the elements of each operation's result lie in memory, and what torch copies on the way.

torch.einsum brings two operands into the form of a batched matrix product: indices that both have
and the result keeps (batch), those of one operand alone, and those summed, each group merged into
one. A group whose indices cannot be merged as a view makes it copy the whole operand. A softmax and
a flatten copy what does not lie in order. A copy of a large operand costs more than the product.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from derive.ir.polynomial import evaluate_extent
from derive.plan.costs import find_true_axes
from derive.plan.ops import (
    Along,
    Arrange,
    Diagonal,
    Einsum,
    Expand,
    Fill,
    Flatten,
    Op,
    Reduction,
    Select,
    Slice,
    Source,
    Unflatten,
    args_of,
    axes_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from derive.ir.nodes import Index

Strides: TypeAlias = tuple[int, ...]  # in elements, one for each of the axes


@dataclass
class Memory:
    """What is known at the sizes of a plan: extents, and the strides of every named tensor."""

    sizes: Mapping[str, int]
    strides: dict[str, Strides] = field(default_factory=dict)
    _extents: dict[Index, int] = field(default_factory=dict)

    def extent(self, index: Index) -> int:
        """The number of positions."""
        if index not in self._extents:
            self._extents[index] = evaluate_extent(index.extent, self.sizes)
        return self._extents[index]

    def count(self, axes: Iterable[Index]) -> int:
        """How many elements these axes span."""
        return prod(self.extent(i) for i in axes)

    def lie(self, axes: Sequence[Index], order: Sequence[Index] | None = None) -> Strides:
        """The strides of a dense tensor whose axes are stored in an order, the last one closest."""
        step, found = 1, {}
        for index in reversed(order or axes):
            found[index] = step
            step *= max(1, self.extent(index))
        return tuple(found[i] for i in axes)

    def note(self, made: Iterable[tuple[str, Op]]) -> None:
        """Where the results of some operations, by name, lie."""
        for name, op in made:
            self.strides[name] = find_strides(op, self)


def find_strides(op: Op, memory: Memory) -> Strides:
    """The strides of the result, one for each of its axes."""
    axes = axes_of(op)
    match op:
        case Source(name):
            return memory.strides.get(name) or memory.lie(axes)
        case Arrange(arg) | Expand(arg):
            known = dict(zip(axes_of(arg), find_strides(arg, memory), strict=True))
            return tuple(known.get(i, 0) for i in axes)
        case Select(arg, place):
            strides = find_strides(arg, memory)
            return strides[:place] + strides[place + 1 :]
        case Slice(arg):
            return find_strides(arg, memory)
        case Unflatten(arg, place, parts):
            strides = find_strides(arg, memory)
            inner = tuple(s * strides[place] for s in memory.lie(parts))
            return strides[:place] + inner + strides[place + 1 :]
        case Diagonal(arg, first, second):
            strides = find_strides(arg, memory)
            kept = tuple(s for k, s in enumerate(strides) if k not in (first, second))
            return (*kept, strides[first] + strides[second])
        case Flatten(arg, start, end):
            if find_copies(op, memory):
                return memory.lie(axes)
            strides = find_strides(arg, memory)
            return strides[:start] + strides[end:]
        case Einsum(args):
            return memory.lie(axes, _order_product(args, axes))
        case Along():
            return memory.lie(axes)
        case _:
            return _follow(op, memory)


def _follow(op: Op, memory: Memory) -> Strides:
    """An elementwise result lies like the first operand with all its indices, if there is one."""
    axes, real = axes_of(op), set(find_true_axes(op))
    whole = next((arg for arg in args_of(op) if real == set(find_true_axes(arg))), None)
    if whole is None or isinstance(op, Reduction):
        return memory.lie(axes)
    strides = dict(zip(axes_of(whole), find_strides(whole, memory), strict=True))
    return memory.lie(axes, sorted(axes, key=lambda i: -strides.get(i, 0)))


def find_copied(op: Op, memory: Memory) -> tuple[Op, ...]:
    """The operands of a product that torch copies."""
    match op:
        case Einsum((one, other), axes):
            groups = zip((one, other), _group(one, other, axes), strict=True)
            return tuple(arg for arg, each in groups if _copied(arg, each, memory))
        case _:
            return ()


def find_copies(op: Op, memory: Memory) -> int:
    """Elements that torch copies before it computes this operation, its operands' own aside."""
    return sum(map(memory.count, list_copies(op, memory)))


def list_copies(op: Op, memory: Memory) -> tuple[tuple[Index, ...], ...]:
    """The indices of each tensor that torch copies for this operation."""
    match op:
        case Einsum():
            return tuple(axes_of(arg) for arg in find_copied(op, memory))
        case Flatten(arg, start, end):
            merged = axes_of(arg)[start : end + 1]
            return (axes_of(arg),) if _copied(arg, (merged,), memory) else ()
        case Along(_, arg) if find_strides(arg, memory) != memory.lie(axes_of(arg)):
            return (axes_of(arg),)
        case Fill(Expand() as arg):
            return (axes_of(arg),)
        case _:
            return ()


Groups: TypeAlias = tuple[tuple["Index", ...], ...]


def _group(one: Op, other: Op, axes: tuple[Index, ...]) -> tuple[Groups, Groups]:
    """The indices that each operand has to merge: batch, its own, summed."""
    first, second = axes_of(one), axes_of(other)
    batch = tuple(i for i in axes if i in first and i in second)
    shared = (i for i in first if i in second and i not in axes)
    summed = tuple(sorted(shared, key=lambda i: i.name))  # as torch merges them: by letter
    left = tuple(i for i in axes if i in first and i not in second)
    right = tuple(i for i in axes if i in second and i not in first)
    return (batch, left, summed), (batch, right, summed)


def _order_product(args: tuple[Op, ...], axes: tuple[Index, ...]) -> tuple[Index, ...]:
    """How a product is stored: batch, then the first operand's own indices, then the second's."""
    if len(args) != 2:
        return axes
    (batch, left, _), (_, right, _) = _group(args[0], args[1], axes)
    rest = tuple(i for i in axes if i not in (*batch, *left, *right))
    return (*batch, *left, *right, *rest)


def _copied(op: Op, groups: Groups, memory: Memory) -> int:
    """Its elements, if some group cannot be merged as a view."""
    strides = dict(zip(axes_of(op), find_strides(op, memory), strict=True))
    if all(_is_mergeable(group, strides, memory) for group in groups):
        return 0
    return memory.count(axes_of(op))


def _is_mergeable(group: tuple[Index, ...], strides: Mapping[Index, int], memory: Memory) -> bool:
    """Do its indices, in this order, walk through memory in even steps?"""
    real = [i for i in group if memory.extent(i) > 1]
    return all(strides[a] == strides[b] * memory.extent(b) for a, b in pairwise(real))
