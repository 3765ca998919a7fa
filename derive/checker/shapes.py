"""Parameters of a module and tensors that a script makes have shapes: what they say of the sizes.

A parameter holds a formula's tensor in some order of its indices, neighbours perhaps merged: the
weight of a torch linear layer holds W[h, e, d] as [h*d, e], output first. What is found is a source
such as `W.permute(0, 2, 1).reshape(H*D, E)`, and the numbers of the sizes.
"""

from __future__ import annotations

from itertools import islice, permutations, product
from math import prod
from typing import TYPE_CHECKING, Any

from derive.checker.bind import is_layout, write_order
from derive.checker.slots import USUAL_NAMES, Slot, rank_sizes
from derive.checker.sources import evaluate_source, find_tensors
from derive.checker.ties import compare_shapes, read_clashes
from derive.ir.nodes import Size, System, Tensor
from derive.ir.polynomial import Polynomial, evaluate_extent
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, find_free, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.checker.program import Program

MOST_TRIES = 20_000


def find_sources(
    system: System, given: Mapping[str, str], slots: Sequence[Slot], sizes: Mapping[str, int]
) -> dict[str, str] | None:
    """The source of every slot at these sizes; None where a shape cannot be had."""
    by_name = {tensor.name: tensor for tensor in find_tensors(system)}
    found: dict[str, str] = {}
    for slot in slots:
        tensor = by_name.get(given.get(slot.name, ""))
        if tensor is None or slot.shape is None:
            continue
        source = find_source(system, tensor, slot, sizes)
        if source is None:
            return None
        found[slot.name] = source
    return found


def find_misfits(
    program: Program, slots: Sequence[Slot], values: Mapping[str, Any], sizes: Mapping[str, int]
) -> Iterator[tuple[int, int]]:
    """The numbers that clash where a slot has not as many elements as what it is given."""
    for slot in slots:
        source = program.parameters.get(slot.name)
        if source is None or slot.shape is None:
            continue
        try:
            value = evaluate_source(source, values, sizes, program.letters)
        except (RuntimeError, ValueError, IndexError) as error:  # a reshape that does not fit
            yield from list(read_clashes(str(error))) or [(0, 1)]
            continue
        yield from compare_shapes(slot.shape, tuple(getattr(value, "shape", ())))


def find_source(system: System, tensor: Tensor, slot: Slot, sizes: Mapping[str, int]) -> str | None:
    """How the tensor's elements lie in a slot of this shape."""
    assert slot.shape is not None
    numbers = [evaluate_extent(extent, sizes) for extent in tensor.shape]
    for order in _find_orders(system, tensor, slot):
        groups = _group([numbers[place] for place in order], slot.shape)
        if groups is None:
            continue
        source = write_order(tensor.name, order)
        if len(slot.shape) == len(order):
            return source
        extents = [
            "*".join(write_extent(tensor.shape[order[at]]) for at in group) for group in groups
        ]
        return f"{source}.reshape({', '.join(extent or '1' for extent in extents)})"
    return None


def write_extent(extent: object) -> str:
    """An extent as a source, in parentheses where it is no name and no number."""
    text = to_text(extent)  # type: ignore[arg-type]
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _find_orders(system: System, tensor: Tensor, slot: Slot) -> Iterator[tuple[int, ...]]:
    """Orders of the indices, the natural one first; a linear layer has its output first."""
    rank = range(len(tensor.shape))
    if slot.linear:
        contracted = find_contracted(system, tensor)
        yield (*(p for p in rank if p not in contracted), *(p for p in rank if p in contracted))
    for order in islice(permutations(rank), 120):
        if is_layout(tensor.shape, order):
            yield order


def find_contracted(system: System, tensor: Tensor) -> tuple[int, ...]:
    """The places of a tensor whose indices are summed over where the tensor is read first."""
    for equation in system.equations:
        kept = {i.name for place in equation.target.places for i in find_free(place)}
        for access in find_accesses(equation.value):
            if access.tensor is tensor:
                letters = [[index.name for index in find_free(p)] for p in access.places]
                return tuple(at for at, names in enumerate(letters) if not kept & {*names})
    return ()


def _group(numbers: Sequence[int], shape: tuple[int, ...]) -> list[list[int]] | None:
    """Neighbours put together so that their products are the shape."""
    if prod(numbers) != prod(shape):
        return None
    groups: list[list[int]] = []
    at = 0
    for length in shape:
        group: list[int] = []
        have = 1
        while at < len(numbers) and (have < length or (not group and numbers[at] == length)):
            have *= numbers[at]
            group.append(at)
            at += 1
        if have != length:
            return None
        groups.append(group)
    while at < len(numbers) and numbers[at] == 1 and groups:
        groups[-1].append(at)
        at += 1
    return groups if at == len(numbers) else None


def solve_sizes(
    system: System,
    given: Mapping[str, str],
    slots: Sequence[Slot],
    numbers: Mapping[str, int],
    known: Mapping[str, int],
) -> Iterator[dict[str, int]]:
    """Sizes at which every slot can hold its tensor; `numbers` are those that the code names."""
    by_name = {tensor.name: tensor for tensor in find_tensors(system)}
    pairs = [(by_name[given[s.name]], s) for s in slots if given.get(s.name) in by_name]
    pairs = [(tensor, slot) for tensor, slot in pairs if slot.shape is not None]
    names = _find_sizes(tensor for tensor, _ in pairs)
    free = [name for name in names if name not in known]
    values = {*(n for _, slot in pairs for n in slot.shape or ()), *numbers.values()}
    values |= {a // b for a in values for b in values if b and a % b == 0}
    values |= {found for tensor, slot in pairs for found in _solve_extents(tensor, slot)}
    pool = sorted(value for value in values if value >= 1)
    choices = [_rank(name, pool, numbers) for name in free]
    for picks in islice(product(*choices), MOST_TRIES):
        sizes = {**known, **dict(zip(free, picks, strict=True))}
        if all(_can_hold(tensor, slot, sizes) for tensor, slot in pairs):
            yield sizes


def _solve_extents(tensor: Tensor, slot: Slot) -> Iterator[int]:
    """What a size is where an extent of it alone, `2*O` or `2*R + 1`, is one of the slot's."""
    for extent in tensor.shape:
        form = Polynomial.of(extent)
        split = form.split(form.atoms[0]) if len(form.atoms) == 1 else None
        slope, rest = (None, None) if split is None else (each.constant for each in split)
        if slope and rest is not None:
            solved = ((n - rest) / slope for n in slot.shape or ())
            yield from (int(each) for each in solved if each >= 1 and each.denominator == 1)


def _can_hold(tensor: Tensor, slot: Slot, sizes: Mapping[str, int]) -> bool:
    numbers = [evaluate_extent(extent, sizes) for extent in tensor.shape]
    shape = slot.shape or ()
    if prod(numbers) != prod(shape) or any(n < 0 for n in numbers):
        return False
    if len(numbers) == len(shape):
        return sorted(numbers) == sorted(shape)
    return any(_group(order, shape) is not None for order in islice(permutations(numbers), 120))


def _rank(name: str, pool: Sequence[int], numbers: Mapping[str, int]) -> list[int]:
    """The numbers that a size may be; first those that the code calls by one of its names."""
    likely = [value for called, value in numbers.items() if _is_likely(called, name)]
    return list(dict.fromkeys([*likely, *pool]))


def _is_likely(called: str, name: str) -> bool:
    return rank_sizes(called, [name, f"{name}*{name}"])[0] == name and called.lower() in {
        name.lower(),
        *USUAL_NAMES.get(name, "").split(),
    }


def _find_sizes(tensors: Iterator[Tensor]) -> list[str]:
    return list(
        dict.fromkeys(
            part.name
            for tensor in tensors
            for extent in tensor.shape
            for part in walk(extent)
            if isinstance(part, Size)
        )
    )
