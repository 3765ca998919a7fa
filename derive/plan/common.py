"""Common subexpression elimination over the steps of a plan.

Operations are compared by keys that ignore the names of indices, the order of axes, or the order of
the operands of a product.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from dataclasses import replace
from functools import lru_cache

from derive.ir import nodes as ir
from derive.plan import ops
from derive.plan.cells.matching import rename_free_indices
from derive.plan.steps import Step, free_name, name_op


def eliminate_common(
    steps: tuple[Step, ...], kept: Collection[str], names: Collection[str]
) -> tuple[Step, ...]:
    """Compute an operation that occurs more than once in a step of its own, whose name is new.

    A step that becomes an alias of another is dropped, unless it is among `kept`.
    """
    taken = {*names, *(step.name for step in steps)}
    while True:
        found = [op for step in steps for op in _find_shareable(step.op)]
        alike = Counter(map(_outline, found))
        found = [op for op in found if alike[_outline(op)] > 1]
        counts = Counter(map(to_canonical, found))
        twice = [op for op in found if counts[to_canonical(op)] > 1]
        if not twice:
            return _drop_aliases(steps, frozenset(kept))
        op = max(twice, key=lambda op: sum(1 for _ in ops.walk_ops(op)))
        word = "_strided" if isinstance(op, ops.Slice) else ""
        name = free_name(name_op(op, steps[-1].name) + word, taken)
        taken.add(name)
        steps = _extract(op, name, steps)


def strip_permutes(op: ops.Op) -> ops.Op:
    """The operand below any permutations of axes."""
    while isinstance(op, ops.Arrange) and {*op.axes} == {*op.arg.axes}:
        op = op.arg
    return op


def to_product(op: ops.Einsum) -> tuple[frozenset[object], frozenset[ir.Index]]:
    """(operands with counts, indices): a key of a product that ignores the orders of both."""
    return frozenset(Counter(op.args).items()), frozenset(op.axes)


def to_product_key(op: ops.Einsum) -> tuple[Hashable, tuple[ir.Index, ...]]:
    """(a key of a product that also ignores the names of indices, these indices in order)."""
    args = sorted(op.args, key=lambda arg: name_op(arg, ""))
    names = tuple(dict.fromkeys(i for arg in args for i in arg.axes))
    new = {i: ir.Index(f"@{place}", i.extent) for place, i in enumerate(names)}
    return (
        tuple(ops.rename_indices(arg, new) for arg in args),
        frozenset(new[i] for i in op.axes),
    ), names


def share_orders(steps: tuple[Step, ...], kept: Collection[str]) -> tuple[Step, ...]:
    """Replace values that differ only in axis order by one value and permutations.

    A step that permutes another is dropped, unless it is among `kept`.
    """
    first: dict[Hashable, ops.Op] = {}
    renamed: dict[Hashable, tuple[tuple[ir.Index, ...], ops.Op]] = {}
    meant: dict[str, tuple[tuple[ir.Index, ...], ops.Op]] = {}
    out: list[Step] = []

    def share_order(op: ops.Op) -> ops.Op:
        if isinstance(op, ops.Source) and op.name in meant:
            axes, same = meant[op.name]
            return ops.arrange(
                rename_free_indices(same, dict(zip(axes, op.axes, strict=True))), op.axes
            )
        args = tuple(map(share_order, op.args))
        match op:
            case ops.Einsum():
                made = ops.Einsum(tuple(map(strip_permutes, args)), op.axes)
                if to_product(made) in first:
                    return ops.arrange(first[to_product(made)], op.axes)
                key, names = to_product_key(made)
                axes, same = renamed.setdefault(key, (names, made))
                first[to_product(made)] = rename_free_indices(
                    same, dict(zip(axes, names, strict=True))
                )
                return ops.arrange(first[to_product(made)], op.axes)
            case ops.Arrange(_, axes):
                return ops.arrange(strip_permutes(args[0]), axes)
            case ops.Apply(function, _, axes):
                inner = tuple(map(strip_permutes, args))
                order = inner[0].axes if inner else axes
                is_one = all(arg.axes == order for arg in inner)
                if is_one and order != axes and {*order} == {*axes}:
                    return ops.arrange(ops.Apply(function, inner, order), axes)
                whole = ops.with_args(op, args)
                return ops.arrange(first.setdefault(_to_values(whole), whole), axes)
        return ops.with_args(op, args)

    for step in steps:
        op = share_order(step.op)
        if isinstance(op, ops.Einsum):
            first[to_product(op)] = ops.to_source(step.name, op)
            key, names = to_product_key(op)
            renamed[key] = names, first[to_product(op)]
        same = strip_permutes(op)
        if isinstance(same, ops.Source) and step.name not in kept:
            meant[step.name] = op.axes, same
        else:
            out.append(Step(step.name, op))
    return tuple(out)


@lru_cache(maxsize=1 << 14)
def _to_values(op: ops.Op) -> Hashable:
    """A key of an elementwise operation that ignores the order of axes."""
    match strip_permutes(op):
        case ops.Arrange(arg):
            return _to_values(arg)
        case ops.Apply(function, args, axes):
            return function, tuple(map(_to_values, args)), frozenset(axes)
        case same:
            return same


def _drop_aliases(steps: tuple[Step, ...], kept: frozenset[str]) -> tuple[Step, ...]:
    out: list[Step] = []
    meant: dict[str, ops.Source] = {}
    for step in steps:
        parts = [part for part in ops.walk_ops(step.op) if isinstance(part, ops.Source)]
        new: dict[ops.Op, ops.Op] = {
            part: replace(part, name=meant[part.name].name) for part in parts if part.name in meant
        }
        whole = ops.exchange(step.op, new)
        if isinstance(whole, ops.Source) and step.name not in kept:
            meant[step.name] = whole
        else:
            out.append(Step(step.name, whole))
    return tuple(out)


@lru_cache(maxsize=1 << 16)
def to_canonical(op: ops.Op) -> ops.Op:
    """The operation under canonical indices, so that renamed copies are equal."""
    parts = list(ops.walk_ops(op))
    inner = [each for p in parts if isinstance(p, ops.Cell) for each in ops.walk_ops(p.whole)]
    indices = dict.fromkeys(i for part in (*parts, *inner) for i in part.axes)
    return ops.rename_indices(op, {i: ir.Index(f"@{k}", i.extent) for k, i in enumerate(indices)})


@lru_cache(maxsize=1 << 14)
def _outline(op: ops.Op) -> int:
    """A hash that is equal for operations with equal `to_canonical`, and cheaper."""
    name = op.name if isinstance(op, ops.Source) else ""
    return hash((type(op).__name__, name, *map(_outline, op.args)))


def _extract(op: ops.Op, name: str, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Add the operation as a step before its first use, and read that step everywhere."""
    key, outline = to_canonical(op), _outline(op)
    copies = [
        [
            part
            for part in ops.walk_ops(s.op)
            if _outline(part) == outline and to_canonical(part) is key
        ]
        for s in steps
    ]
    first = next(k for k, found in enumerate(copies) if found)
    if to_canonical(steps[first].op) is key:
        name = steps[first].name
        before, after = steps[: first + 1], first + 1
    else:
        before, after = (*steps[:first], Step(name, copies[first][0])), first
    out = [*before]
    for step, found in zip(steps[after:], copies[after:], strict=True):
        whole = step.op
        for part in found:
            whole = ops.exchange(whole, {part: ops.to_source(name, part)})
        out.append(Step(step.name, whole))
    return tuple(out)


def _find_shareable(op: ops.Op) -> Iterator[ops.Op]:
    """The parts that store a tensor when computed, or whose gradient does.

    The gradient of a slice that skips entries fills a tensor as large as its operand.
    """
    parts = list(ops.walk_ops(op))
    inner = {p.arg for p in parts if isinstance(p, ops.Slice)}
    for part in parts:
        is_strided = isinstance(part, ops.Slice) and part.step is not ir.ONE
        if is_work(part) or (is_strided and part not in inner):
            yield part


def is_work(op: ops.Op) -> bool:
    """Whether an operation computes a tensor: it is neither a view nor a number."""
    return not isinstance(op, (*ops.VIEWS, ops.Num, ops.NumTensor))
