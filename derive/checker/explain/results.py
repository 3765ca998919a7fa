"""Differences that the results show by themselves: shapes, a transposed result, an index too many.

These edits are confirmed on the results: what has to be done is done to them, and gives what the
formula says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

from derive.checker.edits.judge import is_close
from derive.checker.trace.match import Node, find_match
from derive.ir.nodes import Index
from derive.ir.polynomial import evaluate_extent
from derive.ir.text import to_text
from derive.ir.walk import walk
from derive.judge.compare import compare_values

if TYPE_CHECKING:
    from derive.checker.edits.judge import Judge, Keeping
    from derive.checker.explain.lines import Lines
    from derive.checker.trace import Event
    from derive.ir.nodes import System


def find_difference(
    system: System, base: Keeping, results: Sequence[Any], sizes: Mapping[str, int]
) -> str:
    """The first element that differs, with both values, or the shapes with the indices."""
    if len(results) < len(system.results):
        return f"the code returns {len(results)} tensors, the formula has {len(system.results)}"
    for tensor, found in zip(system.results, results, strict=False):
        wanted = base.values[tensor.name]
        if tuple(found.shape) != tuple(wanted.shape):
            indices = find_indices(system, tensor.name)
            told = ", ".join(f"{n}={s}" for n, s in zip(indices, wanted.shape, strict=True))
            formula = f"{tensor.name}[{told}]" if indices else f"{tensor.name}, a number"
            return f"{tensor.name} has shape {list(found.shape)}, the formula has {formula}"
        _, where = compare_values(tensor.name, found, wanted)
        if where:
            return where
    return ""


def find_indices(system: System, name: str) -> tuple[str, ...]:
    """The indices of an equation's target."""
    for equation in system.equations:
        if equation.target.tensor.name == name:
            return tuple(to_text(place) for place in equation.target.places)
    return ()


def find_result_edit(system: System, judge: Judge) -> str:
    """The words of an edit that only concerns the shape of a result; none: nothing."""
    for at, tensor in enumerate(system.results):
        pairs = [
            (run.results[at], base.values[tensor.name])
            for run, base in zip(judge.runs, judge.bases, strict=True)
            if at < len(run.results)
        ]
        if not pairs or all(is_close(found, wanted) for found, wanted in pairs):
            continue
        indices = find_indices(system, tensor.name)
        words = _find_order(pairs, indices) or _find_survivor(pairs, judge, indices)
        if words:
            return words
    return ""


def _find_order(pairs: Sequence[tuple[Any, Any]], indices: tuple[str, ...]) -> str:
    """The order of its axes that makes each result right."""
    found, wanted = pairs[0]
    if found.dim() != wanted.dim() or found.dim() > 5:
        return ""
    for order in permutations(range(found.dim())):
        if all(is_close(one.permute(order), other) for one, other in pairs):
            inverse = [order.index(k) for k in range(len(order))]
            now = ", ".join(indices[k] for k in inverse)
            spelt = f".permute({', '.join(map(str, order))})"
            if len(order) == 2:
                spelt = ".T"
            return f"TRANSPOSE the result: {spelt}, since it is [{now}]"
    return ""


def _find_survivor(pairs: Sequence[tuple[Any, Any]], judge: Judge, indices: tuple[str, ...]) -> str:
    """The axis that has to be summed, averaged, or dropped from each result."""
    found, wanted = pairs[0]
    if found.dim() != wanted.dim() + 1:
        return ""
    for axis in range(found.dim()):
        back = axis - found.dim()
        index = find_lost(judge.system, found.shape[axis], judge.runs[0].sizes, indices)
        for act, word in (("sum", "SUM"), ("mean", "MEAN")):
            if all(is_close(getattr(one, act)(axis), other) for one, other in pairs):
                says = f"index {index} SURVIVES: {word} over it is missing"
                return f"{says}, .{act}({back})"
        if all(is_close(one.select(axis, 0), other) for one, other in pairs):
            return f"a place of length {found.shape[axis]} is too many: .squeeze({back})"
    return ""


def find_inner_survivor(lines: Lines) -> tuple[str, int | None]:
    """What to do to a tensor on the way that has an index too many, and its line, if there is one.

    A sum or a diagonal of it is a node.
    """
    for event in lines.told:
        if event.number in lines.good or not all(n in lines.good for n in event.reads):
            continue
        return _find_inner_words(event, lines), event.line
    return "", None


def _find_inner_words(event: Event, lines: Lines) -> str:
    value = event.value
    for axis in range(value.dim()):
        node = _find_node(value.sum(axis), lines)
        if node is not None:
            kept = tuple(index.name for index in node.indices)
            name = find_lost(lines.system, value.shape[axis], lines.sizes, kept)
            says = f"index {name} SURVIVES: SUM over it is missing"
            return f"{says} in {node.name}, .sum({axis - value.dim()})"
    for one, two in combinations(range(value.dim()), 2):
        if value.shape[one] != value.shape[two] or value.shape[one] == 1:
            continue
        node = _find_node(value.diagonal(dim1=one, dim2=two), lines)
        if node is not None:
            indices = [i.name for i in node.indices if _extent(i, lines) == value.shape[one]]
            name = indices[0] if indices else "?"
            bound = (index.name for n in walk(node.expr) for index in getattr(n, "bound", ()))
            summed = ", ".join(dict.fromkeys(bound)) or "the last"
            return (
                f"index {name} SURVIVES twice: each {name} is paired with each other one, "
                f"where the formula has {node.name}: multiply elementwise, then SUM over {summed}"
            )
    return ""


def _find_node(value: Any, lines: Lines) -> Node | None:
    """The node that a tensor is, if no line computes it."""
    met = {match.node for match in lines.matches.values()}
    left = [node for node in lines.nodes if node not in met]
    found = find_match(value, left, lines.sizes)
    return found.node if found is not None else None


def find_lost(system: System, number: int, sizes: Mapping[str, int], kept: tuple[str, ...]) -> str:
    """The index of this extent that a sum of the formula binds, last ones first."""
    for equation in reversed(system.equations):
        for expr in walk(equation.value):
            for index in getattr(expr, "bound", ()):
                if evaluate_extent(index.extent, sizes) == number and index.name not in kept:
                    return str(index.name)
    names = [name for name, size in sizes.items() if size == number]
    return f"of extent {names[0] if names else number}"


def _extent(index: Index, lines: Lines) -> int:
    return evaluate_extent(index.extent, lines.sizes)
