"""Layouts that nobody has stated: what a tensor would have to be given as for the code to run.

    W.T   Q.permute(0, 2, 1, 3)   mask.unsqueeze(1)

They only serve to say what is missing, "the same if W is given as W.T": a guess is never the same.
First one index of extent 1 more for a truth value, then one tensor or all of one shape in another
order, then all tensors of one rank, the results along with them where batches change places.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, islice, permutations
from typing import TYPE_CHECKING, Any

from derive.checker.sources import find_tensors
from derive.ir.polynomial import Polynomial

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from derive.checker.program import Program
    from derive.ir.nodes import System, Tensor

MOST_ORDERS = 24


def find_layouts(program: Program, system: System, told: Collection[str]) -> Iterator[Program]:
    """The program with arguments laid anew; those that are told stay what they are."""
    by_name = {tensor.name: tensor for tensor in find_tensors(system)}
    plain = {
        name: by_name[source]
        for name, source in program.arguments.items()
        if source in by_name and name not in told
    }
    yield from _find_paddings(program, system, plain)
    groups: dict[tuple[object, ...], list[str]] = {}
    for argument, tensor in plain.items():
        groups.setdefault(tensor.shape, []).append(argument)
    for shape, arguments in groups.items():
        for order in find_orders(shape):
            yield _move(program, {arg: write_order(plain[arg].name, order) for arg in arguments})
    for rank in sorted({len(tensor.shape) for tensor in plain.values()}):
        same = {a: t for a, t in plain.items() if len(t.shape) == rank}
        for order in islice(permutations(range(rank)), 1, MOST_ORDERS):
            if all(is_layout(tensor.shape, order) for tensor in same.values()):
                moved = _move(program, {a: write_order(t.name, order) for a, t in same.items()})
                if rank > 2 and order[-1] == rank - 1:
                    yield from _move_results(moved, system, order)
                yield moved


def _move(program: Program, moved: Mapping[str, str]) -> Program:
    arguments = {**program.arguments, **moved}
    assumed = (*program.assumed, *(f"{name}={source}" for name, source in moved.items()))
    return replace(program, arguments=arguments, assumed=assumed)


def _move_results(program: Program, system: System, order: tuple[int, ...]) -> Iterator[Program]:
    """The results in the same order as the arguments, if they can be."""
    first = system.results[0]
    if program.results or len(first.shape) != len(order) or not is_layout(first.shape, order):
        return
    others = [t for t in system.results if len(t.shape) == len(order)]
    results = {t.name: write_order(t.name, order) for t in others if is_layout(t.shape, order)}
    assumed = (*program.assumed, f"return={results[first.name]}")
    yield replace(program, results=results, assumed=assumed)


def _find_paddings(
    program: Program, system: System, plain: Mapping[str, Tensor]
) -> Iterator[Program]:
    """A mask with an index of extent 1 where the others, or what is made of them, have one more."""
    made = (equation.target.tensor for equation in system.equations)
    most = max((len(tensor.shape) for tensor in (*find_tensors(system), *made)), default=0)
    for argument, tensor in plain.items():
        rank = len(tensor.shape)
        if tensor.kind == "bool" and rank < most:
            for places in combinations(range(most), most - rank):
                source = tensor.name + "".join(f".unsqueeze({place})" for place in places)
                yield _move(program, {argument: source})


def find_orders(shape: Sequence[Any]) -> Iterator[tuple[int, ...]]:
    """Other orders of the indices of a shape."""
    orders = islice(permutations(range(len(shape))), 1, MOST_ORDERS)
    return (order for order in orders if is_layout(shape, order))


def is_layout(shape: Sequence[Any], order: tuple[int, ...]) -> bool:
    """Does the order keep indices of one extent in their own order?

    To exchange two of them is a mistake, not a layout.
    """
    for one, first in enumerate(order):
        for second in order[one + 1 :]:
            if Polynomial.of(shape[first]) == Polynomial.of(shape[second]) and first > second:
                return False
    return True


def write_order(name: str, order: tuple[int, ...]) -> str:
    """The source of a tensor in another order of its indices."""
    if order == tuple(range(len(order))):
        return name
    if order == (1, 0):
        return f"{name}.T"
    return f"{name}.permute({', '.join(map(str, order))})"
