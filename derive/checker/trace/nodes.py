"""The nodes of a formula with their values, for the lines of the code to be found among them.

Beside the nodes as they are written there are those that code has for them: a condition and its
contrary, the argument of a softmax with -inf where the condition fails, the terms of a sum of
products that is distributed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from derive.checker.edits.sites import LONGEST
from derive.checker.trace.match import Node
from derive.ir.nodes import (
    MINUS_INFINITY,
    TRUE,
    Access,
    Add,
    Along,
    And,
    Compare,
    Expr,
    Index,
    Mul,
    Not,
    Or,
    Reduce,
    System,
    Tensor,
    Truth,
    Where,
)
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, find_free, walk

if TYPE_CHECKING:
    from derive.judge.evaluate import Evaluator

MOST_ELEMENTS = 1 << 18
_MOST_PARTS = 5


def find_nodes(system: System, evaluator: Evaluator) -> Iterator[Node]:
    """Every node of a formula that depends on a tensor: inputs, equations, then their parts."""
    for entry in system.inputs:
        if isinstance(entry, Tensor) and entry.kind in {"real", "bool"} and entry.shape:
            yield _make_input(system, entry, evaluator)
    for number, equation in enumerate(system.equations):
        target = equation.target
        value, name = evaluator.values[target.tensor.name], target.tensor.name
        if value.is_floating_point() and value.dim():
            indices = _find_indices(target)
            yield Node(equation.value, to_text(target), value, indices, number, True, name)
    for number, equation in enumerate(system.equations):
        target = equation.target
        seen = dict.fromkeys(walk(equation.value))
        for expr in dict.fromkeys(each for here in seen for each in find_forms(here)):
            node = find_node(expr, evaluator)
            if node is not None:
                text = to_text(expr)
                if len(text) > LONGEST and expr is not equation.value:
                    text = f"a part of {to_text(target)}"
                yield replace(node, name=text, equation=number, of=target.tensor.name)


def find_node(expr: Expr, evaluator: Evaluator) -> Node | None:
    """One node with its value, if it has indices and is not too large."""
    if _count(expr, evaluator) > MOST_ELEMENTS:
        return None
    grid = evaluator.find(expr)
    if not grid.tensor.dim() or not (grid.tensor.is_floating_point() or is_condition(expr)):
        return None
    value = grid.tensor.double()
    value = value.expand([evaluator.extent(index.extent) for index in grid.indices])
    return Node(expr, "", value, grid.indices, -1, False, "")


def find_forms(expr: Expr) -> Iterator[Expr]:
    """The node if its value tells anything, and what code may have for it."""
    match expr:
        case Access(tensor, places):  # that reads no more than a part
            pairs = zip(places, tensor.shape, strict=True)
            if not all(isinstance(at, Index) and at.extent == extent for at, extent in pairs):
                yield expr
        case Compare() | And() | Or() | Not():
            yield expr
            yield expr.part if isinstance(expr, Not) else Not(expr)
        case _ if find_accesses(expr):
            yield expr
    match expr:
        case Along(_, _, condition, body) if condition != TRUE:
            yield Where(condition, body, MINUS_INFINITY)
        case Mul(parts) | Add(parts) if 2 < len(parts) <= _MOST_PARTS:
            for count in range(2, len(parts)):
                for some in combinations(parts, count):
                    part = type(expr)(some)
                    if find_accesses(part):
                        yield part
        case Reduce("sum", bound, condition, Mul(factors)):
            for at, factor in enumerate(factors):
                for term in factor.terms if isinstance(factor, Add) else ():
                    product = Mul((*factors[:at], term, *factors[at + 1 :]))
                    yield Reduce("sum", bound, condition, product)


def _make_input(system: System, tensor: Tensor, evaluator: Evaluator) -> Node:
    """An input under the indices with which it is read first."""
    value = evaluator.values[tensor.name].double()
    for equation in system.equations:
        for access in find_accesses(equation.value):
            if access.tensor is tensor:
                indices = _find_indices(access)
                return Node(access, to_text(access), value, indices, -1, True, tensor.name)
    indices = tuple(Index("_", extent) for extent in tensor.shape)
    return Node(Access(tensor, indices), tensor.name, value, indices, -1, True, tensor.name)


def _find_indices(access: Access) -> tuple[Index, ...]:
    """An index for each place: a place that is no index stands for itself."""
    return tuple(
        place if isinstance(place, Index) else Index(to_text(place), extent)
        for place, extent in zip(access.places, access.tensor.shape, strict=True)
    )


def is_condition(expr: Expr) -> bool:
    """Is it true or false?"""
    return isinstance(expr, (Compare, And, Or, Not, Truth))


def _count(expr: Expr, evaluator: Evaluator) -> int:
    bound = expr.bound if isinstance(expr, Reduce) else ()
    return math.prod(evaluator.extent(i.extent) for i in (*find_free(expr), *bound))
