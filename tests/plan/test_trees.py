"""Orders of contraction of many operands: exact for a chain, else no worse than greedy ones."""

from __future__ import annotations

import random
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import opt_einsum
import pytest

from derive.plan.path import count_operations, find_chain, search_many

if TYPE_CHECKING:
    from collections.abc import Sequence

Network = tuple[list[frozenset[int]], frozenset[int], dict[int, int]]


def make_graph(seed: int, operands: int, extra: int) -> Network:
    """A connected network; two to four operands share an index."""
    dice = Random(seed)
    places = [[dice.randrange(k), k] for k in range(1, operands)]
    places += [dice.sample(range(operands), dice.randint(2, 4)) for _ in range(extra)]
    inputs = [frozenset(n for n, at in enumerate(places) if k in at) for k in range(operands)]
    extents = {n: dice.randint(2, 9) for n in range(len(places))}
    return inputs, frozenset([dice.randrange(len(places))]), extents


@pytest.mark.parametrize("operands", [14, 60, 200])
def test_orders_of_many_operands_are_no_worse_than_greedy(operands: int) -> None:
    inputs, output, extents = make_graph(operands, operands, operands // 8)
    random.seed(3)
    path = search_many(inputs, output, extents)
    drawn = random.random()
    greedy = opt_einsum.paths.greedy(inputs, output, extents)
    counts = [count_operations(each, inputs, output, extents) for each in (path, greedy)]
    assert counts[0] <= counts[1]
    assert path == search_many(inputs, output, extents)
    assert drawn == Random(3).random()  # the numbers of others are as they were


@pytest.mark.parametrize("batch", [False, True])
def test_a_chain_of_matrices_is_planned_exactly(batch: bool) -> None:
    dice = Random(7)
    extents = [dice.randint(2, 99) for _ in range(31)]
    order = dice.sample(range(30), 30)
    shared = {31} if batch else set()
    inputs = [frozenset({k, k + 1} | shared) for k in order]
    costs = [[0] * 30 for _ in range(30)]
    for length in range(1, 30):
        for first in range(30 - length):
            last = first + length
            costs[first][last] = min(
                costs[first][cut]
                + costs[cut + 1][last]
                + 2 * extents[first] * extents[cut + 1] * extents[last + 1]
                for cut in range(first, last)
            )
    output, sizes = frozenset({0, 30} | shared), dict(enumerate([*extents, 5]))
    chain = find_chain(inputs)
    assert chain is not None
    assert all(abs(order[one] - order[other]) == 1 for one, other in pairwise(chain))
    path = search_many(inputs, output, sizes)
    assert count_operations(path, inputs, output, sizes) == costs[0][29] * (5 if batch else 1)


def find_sets(*texts: str) -> Sequence[frozenset[int]]:
    return [frozenset(map(int, text)) for text in texts]


def test_only_what_lies_in_one_line_is_a_chain() -> None:
    assert find_chain(find_sets("0", "01", "12", "2")) is not None
    assert find_chain(find_sets("0", "01", "01", "1", "0")) is None  # an index in three
    assert find_chain(find_sets("0", "012", "1", "2")) is None  # a star
    assert find_chain(find_sets("02", "01", "12")) is None  # a ring
    assert find_chain(find_sets("0", "0", "1", "1")) is None  # two of them
