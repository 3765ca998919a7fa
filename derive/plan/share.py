"""Sharing: what stands more than once in a plan, under whatever letters, is computed once.

And the contrary of sharing: a line too long to read is parted, the part nearest to half of it gets
a name.
"""

from __future__ import annotations

from collections import Counter
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from derive.ir.nodes import Index
from derive.plan.naming import free_name, name_op, name_part
from derive.plan.numbers import is_truth
from derive.plan.ops import (
    VIEWS,
    Along,
    Arrange,
    Cast,
    Einsum,
    Fill,
    Num,
    NumTensor,
    Op,
    Reduction,
    Source,
    Unflatten,
    args_of,
    axes_of,
    exchange,
    rename_indices,
)
from derive.plan.steps import Step, walk_ops

if TYPE_CHECKING:
    from collections.abc import Collection

LINE = 78  # columns of an expression that still reads at a glance
SHORTEST = 12  # columns below which a part needs no name
COLUMNS = {Einsum: 34, Along: 23, Fill: 23, Reduction: 9, Cast: 14, Arrange: 9, Unflatten: 21}


def share_ops(
    steps: tuple[Step, ...], kept: Collection[str], names: Collection[str]
) -> tuple[Step, ...]:
    """Operations that stand more than once, each computed in a step of its own.

    A step that is left with nothing but another step goes too, unless it is among `kept`. No new
    step takes one of the `names`.
    """
    taken = {*names, *(step.name for step in steps)}
    while True:
        found = [op for step in steps for op in walk_ops(step.op) if _is_work(op)]
        alike = Counter(map(_outline, found))
        found = [op for op in found if alike[_outline(op)] > 1]
        counts = Counter(map(to_key, found))
        twice = [op for op in found if counts[to_key(op)] > 1]
        if not twice:
            return _drop_aliases(steps, frozenset(kept))
        op = max(twice, key=lambda op: sum(1 for _ in walk_ops(op)))
        name = free_name(name_op(op, steps[-1].name), taken)
        taken.add(name)
        steps = _extract(op, name, steps)


def _drop_aliases(steps: tuple[Step, ...], kept: frozenset[str]) -> tuple[Step, ...]:
    out: list[Step] = []
    meant: dict[str, Source] = {}
    for step in steps:
        whole = step.op
        for part in list(walk_ops(whole)):
            if isinstance(part, Source) and part.name in meant:
                same = meant[part.name]
                whole = exchange(whole, {part: Source(same.name, part.axes, part.kind)})
        if isinstance(whole, Source) and step.name not in kept:
            meant[step.name] = whole
        else:
            out.append(Step(step.name, whole))
    return tuple(out)


@cache
def to_key(op: Op) -> Op:
    """The operation under letters of no one's, so that copies with other letters are equal."""
    indices = dict.fromkeys(i for part in walk_ops(op) for i in axes_of(part))
    return rename_indices(op, {i: Index(f"@{k}", i.extent) for k, i in enumerate(indices)})


@lru_cache(maxsize=1 << 14)
def _outline(op: Op) -> int:
    """A number that operations with one key have in common; it costs less than the key."""
    name = op.name if isinstance(op, Source) else ""
    return hash((type(op).__name__, name, *map(_outline, args_of(op))))


def _extract(op: Op, name: str, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The operation as a step before its first use, and its name in its place everywhere."""
    key, outline = to_key(op), _outline(op)
    copies = [
        [part for part in walk_ops(s.op) if _outline(part) == outline and to_key(part) is key]
        for s in steps
    ]
    first = next(k for k, found in enumerate(copies) if found)
    if to_key(steps[first].op) is key:
        name = steps[first].name
        before, after = steps[: first + 1], first + 1
    else:
        before, after = (*steps[:first], Step(name, copies[first][0])), first
    out = [*before]
    for step, found in zip(steps[after:], copies[after:], strict=True):
        whole = step.op
        for part in found:
            kind = "bool" if is_truth(part) else "real"
            whole = exchange(whole, {part: Source(name, axes_of(part), kind)})
        out.append(Step(step.name, whole))
    return tuple(out)


def split_long(steps: tuple[Step, ...], taken: set[str]) -> tuple[Step, ...]:
    """Lines too long to read, in two: the part nearest to half of it gets a name."""
    taken |= {step.name for step in steps}
    out: list[Step] = []
    for step in steps:
        whole = step.op
        while _length(whole) > LINE and (part := _find_half(whole)) is not None:
            name = free_name(name_part(part, whole, step.name), taken)
            taken.add(name)
            out += split_long((Step(name, part),), taken)
            source = Source(name, axes_of(part), "bool" if is_truth(part) else "real")
            whole = exchange(whole, {part: source})
        out.append(Step(step.name, whole))
    return tuple(out)


def _length(op: Op) -> int:
    """About how many columns its text takes."""
    own = len(op.name) if isinstance(op, Source) else COLUMNS.get(type(op), 4)
    return own + sum(map(_length, args_of(op)))


def _find_half(whole: Op) -> Op | None:
    parts = [part for part in walk_ops(whole) if part is not whole and _is_work(part)]
    half = _length(whole) / 2
    best = min(parts, key=lambda part: abs(_length(part) - half), default=None)
    return best if best is not None and _length(best) >= SHORTEST else None


def _is_work(op: Op) -> bool:
    return not isinstance(op, (*VIEWS, Num, NumTensor))
