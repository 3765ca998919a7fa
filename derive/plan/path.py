"""The order of a contraction: which two operands meet next, found by opt_einsum at given sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opt_einsum import DynamicProgramming

    from derive.ir.nodes import Index
    from derive.plan.ops import Op

EXHAUSTIVE = 8  # operands up to which the optimal search takes milliseconds
OUTER = 12  # operands up to which outer products are tried too
FLOPS = "flops"
FEW = "combo"  # operations and, 64 times as dear, elements that are written: fewer, larger products
CROWDED = 3  # neighbours of an operand beyond which dynamic programming grows without bound

Path = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Order:
    """A sum of a product of more than two operands, and the pairs that meet, one after the other.

    A pair is two places in the list of what is left; the result goes to its end.
    """

    equation: str
    operands: tuple[Op, ...]
    axes: tuple[Index, ...]
    path: Path


def find_path(
    operands: Sequence[Sequence[Index]],
    output: Sequence[Index],
    extents: Mapping[Index, int],
    minimize: str = FLOPS,
) -> Path:
    """Pairs of positions to contract, in order; the result of each goes to the end of the list."""
    if len(operands) < 3:
        return (tuple(range(len(operands))),)
    if minimize != FLOPS and len(operands) <= EXHAUSTIVE:
        return _search(operands, output, extents, minimize)
    if len(operands) > EXHAUSTIVE:
        twins = _find_twins(operands)
        if twins is not None:
            return _join_twins(twins, operands, output, extents)
    return _search(operands, output, extents)


def _find_twins(operands: Sequence[Sequence[Index]]) -> tuple[int, int] | None:
    """The first two operands with the same indices: their product is no larger than each."""
    seen: dict[frozenset[Index], int] = {}
    for place, axes in enumerate(operands):
        first = seen.setdefault(frozenset(axes), place)
        if first != place:
            return first, place
    return None


def _join_twins(
    twins: tuple[int, int],
    operands: Sequence[Sequence[Index]],
    output: Sequence[Index],
    extents: Mapping[Index, int],
) -> Path:
    rest = [axes for place, axes in enumerate(operands) if place not in twins]
    return (twins, *find_path([*rest, operands[twins[0]]], output, extents))


def _search(
    operands: Sequence[Sequence[Index]],
    output: Sequence[Index],
    extents: Mapping[Index, int],
    minimize: str = FLOPS,
) -> Path:
    """The order that opt_einsum finds: the best, or where that takes too long a good one."""
    import opt_einsum

    letters: dict[Index, str] = {}
    for index in (*(i for axes in operands for i in axes), *output):
        letters.setdefault(index, opt_einsum.get_symbol(len(letters)))
    inputs = ",".join("".join(letters[i] for i in axes) for axes in operands)
    shapes = [tuple(max(1, extents[i]) for i in axes) for axes in operands]
    path, _ = opt_einsum.contract_path(
        f"{inputs}->{''.join(letters[i] for i in output)}",
        *shapes,
        shapes=True,
        optimize=_choose_search(operands, minimize),
    )
    return tuple(tuple(sorted(step)) for step in path)


def _choose_search(operands: Sequence[Sequence[Index]], minimize: str) -> str | DynamicProgramming:
    import opt_einsum

    count = len(operands)
    if minimize != FLOPS:
        return opt_einsum.DynamicProgramming(minimize=minimize, search_outer=True)
    if count <= EXHAUSTIVE:
        return "optimal"
    if count <= OUTER:
        return opt_einsum.DynamicProgramming(minimize="flops", search_outer=True)
    sets = [frozenset(axes) for axes in operands]
    meetings = sum(bool(one & other) for at, one in enumerate(sets) for other in sets[at + 1 :])
    return "greedy" if meetings > CROWDED * count and count > 2 * EXHAUSTIVE else "dp"
