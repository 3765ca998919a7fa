"""Contraction orders at given sizes, found by opt_einsum."""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import prod
from typing import TypeVar

from derive.ir import nodes as ir
from derive.ir.polynomial import evaluate_extent
from derive.plan import ops

EXHAUSTIVE = 7  # operands up to which the optimal search takes milliseconds
OUTER = 12  # operands up to which outer products are tried too
MOST_LINKS = 100  # operands of a chain that is planned exactly, within seconds
FLOPS = "flops"
FEW = "combo"  # operations plus 64 times the elements written: fewer, larger products

Path = tuple[tuple[int, ...], ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Order:
    """A contraction of more than two operands, and the pairs that are contracted in turn.

    A pair is two positions in the list of remaining operands; the result is appended.
    """

    operands: tuple[ops.Op, ...]
    axes: tuple[ir.Index, ...]
    minimize: str
    path: Path

    def find_gain(self, sizes: Mapping[str, int]) -> int:
        """The operations of the best order at these sizes minus those of this order."""
        operands = [op.axes for op in self.operands]
        extents = {i: evaluate_extent(i.extent, sizes) for axes in operands for i in axes}
        best = find_path(operands, self.axes, extents, self.minimize)
        own, least = (
            count_operations(path, operands, self.axes, extents) for path in (self.path, best)
        )
        return least - own


def count_operations(
    path: Path, operands: Sequence[Iterable[T]], output: Iterable[T], extents: Mapping[T, int]
) -> int:
    """The multiplications of all pairs, and the additions of pairs that sum an index."""
    left, kept, total = [set(axes) for axes in operands], set(output), 0
    for pair in path:
        spanned = set[T]().union(*(left[k] for k in pair))
        left = [axes for k, axes in enumerate(left) if k not in pair]
        needed = spanned & kept.union(*left)
        total += prod(extents[i] for i in spanned) * (1 if needed == spanned else 2)
        left.append(needed)
    return total


def find_path(
    operands: Sequence[Sequence[ir.Index]],
    output: Sequence[ir.Index],
    extents: Mapping[ir.Index, int],
    minimize: str = FLOPS,
) -> Path:
    """The pairs of positions to contract, in order; each result is appended to the list.

    The order is optimal for few operands, and a good one where that search takes too long.
    """
    if len(operands) < 3:
        return (tuple(range(len(operands))),)
    indices: dict[ir.Index, int] = {}
    for index in (*(i for axes in operands for i in axes), *output):
        indices.setdefault(index, len(indices))
    inputs = tuple(frozenset(indices[i] for i in axes) for axes in operands)
    shape = tuple(max(1, extents[i]) for i in indices)
    minimize = minimize if len(operands) <= EXHAUSTIVE else FLOPS
    return _search_numbered(inputs, frozenset(indices[i] for i in output), shape, minimize)


@lru_cache(maxsize=1 << 10)
def _search_numbered(
    inputs: tuple[frozenset[int], ...],
    output: frozenset[int],
    shape: tuple[int, ...],
    minimize: str,
) -> Path:
    """The order with numbers for indices, so that no hash of a string decides a tie."""
    import opt_einsum

    problem = (list(inputs), output, dict(enumerate(shape)))
    if minimize != FLOPS or EXHAUSTIVE < len(inputs) <= OUTER:
        path = opt_einsum.DynamicProgramming(minimize=minimize, search_outer=True)(*problem)
    elif len(inputs) <= EXHAUSTIVE:
        path = opt_einsum.paths.optimal(*problem)
        if len(set(inputs)) > 2:  # `optimal` misses orders among operands with equal indices
            other = opt_einsum.DynamicProgramming(minimize=minimize, search_outer=True)(*problem)
            path = min(
                path, other, key=lambda each: count_operations(each, inputs, output, problem[2])
            )
    else:
        path = search_many(*problem)
    return tuple(tuple(sorted(step)) for step in path)


def search_many(
    inputs: Sequence[frozenset[int]], output: frozenset[int], extents: Mapping[int, int]
) -> Path:
    """The exact order of a chain or a ring; of other operands the best of random greedy orders."""
    from opt_einsum import DynamicProgramming
    from opt_einsum.path_random import RandomGreedy

    own = [each - frozenset.intersection(*inputs) for each in inputs]
    met = Counter(index for each in own for index in sorted(each))
    if max(map(len, own)) <= 2 >= max(met.values(), default=0) and len(inputs) <= MOST_LINKS:
        return tuple(
            DynamicProgramming("flops")(own, output & frozenset().union(*own), dict(extents))
        )
    state = random.getstate()  # RandomGreedy seeds each order by its number
    try:
        return tuple(RandomGreedy()(list(inputs), output, dict(extents)))
    finally:
        random.setstate(state)


def has_smaller_product(
    operands: Sequence[Sequence[ir.Index]],
    own: Collection[ir.Index],
    kept: Collection[ir.Index],
    size: Callable[[Collection[ir.Index]], int],
) -> bool:
    """Whether two operands have a product with all `own` indices, smaller than any that has them.

    The product sums an index, so a tensor over `own` is multiplied with it at less cost.
    """
    spans = [{*axes} for axes in operands]
    least = min((size(span) for span in spans if {*own} <= span), default=0)
    for one, other in combinations(range(len(spans)), 2) if len(spans) > 2 else ():
        both = spans[one] | spans[other]
        rest = (span for place, span in enumerate(spans) if place not in (one, other))
        met = both & {*kept}.union(own, *rest)
        if {*own} <= met and len(met) < len(both) and size(met) < least:
            return True
    return False
