"""Contraction orders of many operands: binary trees, improved in a fixed number of steps.

Index sets are bit masks; an index may be in any number of operands. A contraction costs the
product of the extents that it spans. Three laws keep every change local:
- A node keeps the indices that occur both inside and outside of it.
- ((a b) c) may become ((a c) b): the new inner node keeps what a and c have and b or the node has.
- The cost of the rest does not depend on the inside of a subtree, so subtrees are replanned alone.
A chain, in which each operand shares indices with its neighbours alone, is planned exactly.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, count
from math import inf
from operator import or_
from random import Random
from typing import TypeAlias

Pairs: TypeAlias = list[tuple[int, int]]  # numbers of nodes: the operands, then each pair made

SWEEPS = 512  # passes over all nodes in the first annealing; doubled for each next one
MOST_MOVES = 1_500_000  # exchanges tried by all annealings: one to two seconds
HOT, COLD = 1.0, 0.02  # the temperatures, in natural logarithms of a cost
SAME = 1.001  # ratio of costs at which two annealings count as equal
LEAVES = 8  # leaves of a subtree that is replanned
MOST_REPLANS = 6  # passes over all subtrees
MOST_LINKS = 200  # operands up to which a chain is planned exactly, in cubic time


class Sizes(dict[int, float]):
    """The number of elements over each set of indices."""

    def __init__(self, extents: Sequence[int]) -> None:
        super().__init__()
        self.extents = extents

    def __missing__(self, mask: int) -> float:
        size, left = 1.0, mask
        while left:
            low = left & -left
            size *= self.extents[low.bit_length() - 1]
            left ^= low
        self[mask] = size
        return size


def find_pairs(
    inputs: Sequence[int], output: int, extents: Sequence[int], start: Iterable[tuple[int, int]]
) -> Pairs:
    """The pairs of the best tree found from a first one; deterministic."""
    size, pairs = Sizes(extents), list(start)
    chain = find_chain(inputs)
    if chain is not None and len(chain) <= MOST_LINKS:
        return plan_chain(chain, inputs, output, size)
    best, left = Tree.grow(inputs, output, size, pairs), MOST_MOVES // len(inputs)
    for seed in count():
        sweeps = min(SWEEPS << seed, left)
        left -= sweeps
        if sweeps < SWEEPS:
            break
        tree = Tree.grow(inputs, output, size, pairs)
        tree.anneal(Random(seed), sweeps)
        less, more = sorted((tree, best), key=Tree.count_operations)
        best = less
        if more.count_operations() <= SAME * less.count_operations():
            break
    for _ in range(MOST_REPLANS):
        if not best.replan():
            break
    return best.list_pairs()


@dataclass
class Tree:
    """A binary tree over operands: the children and the kept indices of each node."""

    left: list[int]
    right: list[int]
    kept: list[int]
    leaves: int
    size: Sizes

    @classmethod
    def grow(cls, inputs: Sequence[int], output: int, size: Sizes, pairs: Pairs) -> "Tree":
        """The tree of a list of pairs."""
        leaves, below = len(inputs), list(inputs)
        for one, other in pairs:
            below.append(below[one] | below[other])
        outside, kept = [output] * len(below), list(below)
        for node in reversed(range(leaves, len(below))):
            one, other = pairs[node - leaves]
            outside[one] = outside[node] | below[other]
            outside[other] = outside[node] | below[one]
            kept[node] &= outside[node]
        none = [-1] * leaves
        return cls(
            [*none, *(p[0] for p in pairs)], [*none, *(p[1] for p in pairs)], kept, leaves, size
        )

    @property
    def root(self) -> int:
        """The root node."""
        return len(self.kept) - 1

    def list_nodes(self) -> Iterator[int]:
        """The inner nodes in preorder, the smaller child first."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            if node >= self.leaves:
                yield node
                children = (self.left[node], self.right[node])
                waiting += sorted(children, key=lambda each: (-self.size[self.kept[each]], each))

    def list_pairs(self) -> Pairs:
        """The pairs of nodes, children before parents."""
        number: dict[int, int] = {leaf: leaf for leaf in range(self.leaves)}
        pairs: Pairs = []
        for node in reversed(list(self.list_nodes())):
            pairs.append((number[self.left[node]], number[self.right[node]]))
            number[node] = self.leaves + len(pairs) - 1
        return pairs

    def count_operations(self) -> float:
        """The multiplications of all contractions."""
        kept, inner = self.kept, range(self.leaves, len(self.kept))
        return sum(self.size[kept[self.left[n]] | kept[self.right[n]]] for n in inner)

    def anneal(self, dice: Random, sweeps: int) -> None:
        """Simulated annealing: exchange operands of neighbouring nodes while cooling."""
        left, right, kept, size, leaves = self.left, self.right, self.kept, self.size, self.leaves
        draw, cooling = dice.random, (COLD / HOT) ** (1 / (sweeps - 1))
        power = 1 / HOT
        for _ in range(sweeps):
            for node in range(leaves, len(kept)):
                inner, c = left[node], right[node]
                chance = draw()
                if inner < leaves or (c >= leaves and chance < 0.5):
                    inner, c = c, inner
                    if inner < leaves:
                        continue
                a, b = left[inner], right[inner]
                if 0.25 <= chance < 0.75:
                    a, b = b, a
                with_a, with_b, with_c = kept[a], kept[b], kept[c]
                made = (with_a | with_c) & (with_b | kept[node])
                old = size[with_a | with_b] + size[kept[inner] | with_c]
                new = size[with_a | with_c] + size[made | with_b]
                if new <= old or draw() < (old / new) ** power:
                    left[inner], right[inner], kept[inner] = a, c, made
                    left[node], right[node] = inner, b
            power /= cooling

    def replan(self) -> bool:
        """Replan each subtree of few leaves; return whether any became cheaper."""
        return sum(map(self._replan_below, reversed(list(self.list_nodes())))) > 0

    def _replan_below(self, top: int) -> bool:
        leaves, inner = [top], list[int]()
        while len(leaves) < LEAVES:
            able = [each for each in leaves if each >= self.leaves]
            if not able:
                break
            node = max(able, key=lambda each: (self.size[self.kept[each]], each))
            leaves.remove(node)
            inner.append(node)
            leaves += (self.left[node], self.right[node])
        kept = self.kept
        old = sum(self.size[kept[self.left[n]] | kept[self.right[n]]] for n in inner)
        cost, cuts, made = split_best([kept[leaf] for leaf in leaves], kept[top], self.size)
        if not cost < old * (1 - 1e-9):
            return False
        free, waiting = inner[1:], [((1 << len(leaves)) - 1, top)]
        while waiting:
            part, node = waiting.pop()
            for children, half in ((self.left, cuts[part]), (self.right, part ^ cuts[part])):
                if half & (half - 1):
                    children[node] = free.pop()
                    kept[children[node]] = made[half]
                    waiting.append((half, children[node]))
                else:
                    children[node] = leaves[half.bit_length() - 1]
        return True


def split_best(
    operands: Sequence[int], output: int, size: Sizes
) -> tuple[float, list[int], list[int]]:
    """(least operations, one half of the best split of each set, kept indices of each set)."""
    full = (1 << len(operands)) - 1
    below, kept, cuts = [0] * (full + 1), [0] * (full + 1), [0] * (full + 1)
    costs = [0.0] * (full + 1)
    for part in range(1, full + 1):
        below[part] = below[part & (part - 1)] | operands[(part & -part).bit_length() - 1]
    for part in range(1, full + 1):
        rest = part & (part - 1)
        if not rest:
            kept[part] = below[part]
            continue
        kept[part] = below[part] & (below[full ^ part] | output)
        least, other = inf, rest
        while other:  # each half without the lowest operand, which is in the other
            half = part ^ other
            cost = costs[half] + costs[other]
            if cost < least:
                cost += size[kept[half] | kept[other]]
                if cost < least:
                    least, cuts[part] = cost, half
            other = (other - 1) & rest
        costs[part] = least
    return costs[full], cuts, kept


def find_chain(inputs: Sequence[int]) -> list[int] | None:
    """The operands as a chain in which only neighbours share indices; None for others."""
    everywhere = inputs[0]
    for each in inputs:
        everywhere &= each
    places: dict[int, list[int]] = {}
    for place, each in enumerate(inputs):
        left = each & ~everywhere
        while left:
            places.setdefault(left & -left, []).append(place)
            left &= left - 1
    if any(len(each) > 2 for each in places.values()):
        return None
    beside: list[dict[int, None]] = [{} for _ in inputs]
    for pair in places.values():
        for one, other in combinations(pair, 2):
            beside[one][other] = beside[other][one] = None
    ends = [place for place, each in enumerate(beside) if len(each) == 1]
    if len(ends) != 2 or any(len(each) > 2 for each in beside):
        return None
    chain, before = [ends[0]], -1
    while len(chain) == 1 or chain[-1] != ends[1]:
        here = chain[-1]
        chain.append(next(each for each in beside[here] if each != before))
        before = here
    return chain if len(chain) == len(inputs) else None


def plan_chain(chain: Sequence[int], inputs: Sequence[int], output: int, size: Sizes) -> Pairs:
    """The pairs of fewest operations that contract only neighbours."""
    links = [inputs[place] for place in chain]
    after = list(accumulate(reversed(links), or_, initial=output))[::-1]
    before = list(accumulate(links, or_, initial=0))
    kept: list[list[int]] = []  # kept[first][k]: the indices of links first to first + k
    costs: list[list[float]] = []
    cuts: dict[tuple[int, int], int] = {}
    for last, link in enumerate(links):
        kept.append([])
        costs.append([])
        below, kept_here, costs_here = link, [link], [0.0]
        for first in reversed(range(last)):
            below |= links[first]
            ways = zip(kept[first], kept_here[::-1], costs[first], costs_here[::-1], strict=True)
            tried = [size[one | other] + mine + its for one, other, mine, its in ways]
            least = min(tried)
            cuts[first, last] = first + tried.index(least)
            kept_here.append(below & (before[first] | after[last + 1]))
            costs_here.append(least)
        for first, mine, its in zip(range(last, -1, -1), kept_here, costs_here, strict=True):
            kept[first].append(mine)
            costs[first].append(its)
    parts, waiting = list[tuple[int, int]](), [(0, len(links) - 1)]
    while waiting:
        first, last = waiting.pop()
        if first < last:
            parts.append((first, last))
            waiting += [(first, cuts[first, last]), (cuts[first, last] + 1, last)]
    number = {(k, k): place for k, place in enumerate(chain)}
    pairs: Pairs = []
    for first, last in reversed(parts):
        cut = cuts[first, last]
        pairs.append((number[first, cut], number[cut + 1, last]))
        number[first, last] = len(links) + len(pairs) - 1
    return pairs
