"""Orders of contraction of many operands: exact where that is known, else no worse than others."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import opt_einsum
import pytest
from opt_einsum.paths import linear_to_ssa

from derive.plan.networks.trees import Pairs, Sizes, Tree, find_chain, find_pairs, split_best

if TYPE_CHECKING:
    from collections.abc import Sequence

Network = tuple[list[int], int, list[int]]  # operands and output as bit masks, and the extents


def find_start(inputs: Sequence[int], output: int, extents: Sequence[int]) -> Pairs:
    """The greedy order."""
    sets = [frozenset(k for k in range(len(extents)) if m >> k & 1) for m in (*inputs, output)]
    path = opt_einsum.paths.greedy(sets[:-1], sets[-1], dict(enumerate(extents)))
    return [tuple(pair) for pair in linear_to_ssa(path)]


def count(pairs: Pairs, network: Network) -> float:
    """The operations, each node's indices found from what is below and outside of it."""
    inputs, output, extents = network
    members, total = [{k} for k in range(len(inputs))], 0.0
    for one, other in pairs:
        kept = []
        for node in (one, other):
            inside, outside = 0, output
            for k, mask in enumerate(inputs):
                inside |= mask if k in members[node] else 0
                outside |= 0 if k in members[node] else mask
            kept.append(inputs[node] if node < len(inputs) else inside & outside)
        members.append(members[one] | members[other])
        total += Sizes(extents)[kept[0] | kept[1]]
    assert members[-1] == {*range(len(inputs))}
    return total


def make_graph(seed: int, operands: int, extra: int, most: int = 2) -> Network:
    """A connected network; `most` operands may share an index."""
    dice = Random(seed)
    places = [[dice.randrange(k), k] for k in range(1, operands)]
    places += [dice.sample(range(operands), dice.randint(2, most)) for _ in range(extra)]
    inputs = [sum(1 << n for n, at in enumerate(places) if k in at) for k in range(operands)]
    return inputs, 1 << dice.randrange(len(places)), [dice.randint(2, 9) for _ in places]


def make_grid(rows: int, columns: int, extent: int) -> Network:
    """A lattice whose neighbours share an index."""
    at = {(r, c): r * columns + c for r in range(rows) for c in range(columns)}
    bonds = [(p, q) for p in at for q in ((p[0] + 1, p[1]), (p[0], p[1] + 1)) if q in at]
    inputs = [sum(1 << n for n, bond in enumerate(bonds) if p in bond) for p in at]
    return inputs, 0, [extent] * len(bonds)


def make_model(seed: int, variables: int, factors: int) -> Network:
    """A graphical model: factors over two variables each, which have many factors."""
    dice = Random(seed)
    inputs = [sum(1 << k for k in dice.sample(range(variables), 2)) for _ in range(factors)]
    return inputs, 0, [3] * variables


@pytest.mark.parametrize("most", [2, 4])
@pytest.mark.parametrize("seed", range(6))
def test_of_some_operands_the_best_order_is_found(seed: int, most: int) -> None:
    network = make_graph(seed, 10, 8, most)
    least = split_best(network[0], network[1], Sizes(network[2]))[0]
    pairs = find_pairs(*network, find_start(*network))
    assert count(pairs, network) <= 1.001 * least


@pytest.mark.parametrize("seed", range(4))
def test_of_a_dozen_and_more_no_order_without_outer_products_is_better(seed: int) -> None:
    network = make_graph(seed, 15, 9)
    sets = [frozenset(k for k in range(len(network[2])) if m >> k & 1) for m in network[0]]
    output = frozenset(k for k in range(len(network[2])) if network[1] >> k & 1)
    best = opt_einsum.DynamicProgramming(minimize="flops")(
        sets, output, dict(enumerate(network[2]))
    )
    pairs = find_pairs(*network, find_start(*network))
    assert count(pairs, network) <= count([tuple(p) for p in linear_to_ssa(best)], network)


@pytest.mark.parametrize("batch", [False, True])
def test_a_chain_of_matrices_is_planned_exactly(batch: bool) -> None:
    dice = Random(7)
    extents = [dice.randint(2, 99) for _ in range(31)]
    order = dice.sample(range(30), 30)
    inputs = [3 << k | batch << 31 for k in order]
    costs = [[0] * 30 for _ in range(30)]
    for length in range(1, 30):
        for first in range(30 - length):
            last = first + length
            costs[first][last] = min(
                costs[first][cut]
                + costs[cut + 1][last]
                + extents[first] * extents[cut + 1] * extents[last + 1]
                for cut in range(first, last)
            )
    network = inputs, 1 | 1 << 30 | batch << 31, [*extents, 5]
    chain = find_chain(inputs)
    assert chain is not None
    assert all(abs(order[one] - order[other]) == 1 for one, other in pairwise(chain))
    pairs = find_pairs(*network, [])
    assert count(pairs, network) == costs[0][29] * (5 if batch else 1)


def test_only_what_lies_in_one_line_is_a_chain() -> None:
    assert find_chain([0b001, 0b011, 0b110, 0b100]) is not None
    assert find_chain([0b001, 0b011, 0b011, 0b010, 0b1]) is None  # an index in three
    assert find_chain([0b001, 0b111, 0b010, 0b100]) is None  # a star
    assert find_chain([0b101, 0b011, 0b110]) is None  # a ring
    assert find_chain([0b01, 0b01, 0b10, 0b10]) is None  # two of them


@pytest.mark.parametrize("most", [2, 5])
def test_a_changed_tree_keeps_the_indices_that_its_pairs_leave(most: int) -> None:
    network = make_graph(3, 24, 12, most)
    size = Sizes(network[2])
    tree = Tree.grow(network[0], network[1], size, find_start(*network))
    for seed in range(3):
        tree.anneal(Random(seed), 20)
        assert tree.count_operations() == count(tree.list_pairs(), network)
        tree.replan()
        assert tree.count_operations() == count(tree.list_pairs(), network)


# The operations of the best orders found in many times as many steps.
LARGE = [
    pytest.param(make_grid(6, 6, 2), 4_548, id="lattice"),
    pytest.param(make_model(1, 24, 90), 348_381, id="model", marks=pytest.mark.slow),
    pytest.param(make_grid(14, 14, 2), 6_648_388, id="large-lattice", marks=pytest.mark.slow),
    pytest.param(make_graph(2, 200, 30, 4), 4_468_622_041_371, id="many", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("network", "least"), LARGE)
def test_large_networks_are_planned_near_the_best_known(network: Network, least: float) -> None:
    pairs = find_pairs(*network, find_start(*network))
    assert count(pairs, network) <= 10**0.1 * least
    assert pairs == find_pairs(*network, find_start(*network))
