"""What each index does in which equation: the data behind the index table.

free        the left side has it; `alpha (softmax)` where something is taken along it
summed      the right side adds up over it; `y (max)` where it is reduced otherwise
shared      several tensors on the right are read by it
broadcast   a term of a sum, or the whole right side, is repeated along it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.analysis.extents import find_broadcast, find_left
from derive.ir.nodes import Add, Along, Equation, Index, Reduce
from derive.ir.walk import find_accesses, find_all_indices, find_free, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from derive.ir.nodes import System


@dataclass(frozen=True, slots=True)
class Roles:
    """One index, and the names of the equations in which it has each role."""

    index: Index
    free: tuple[str, ...]
    summed: tuple[str, ...]
    shared: tuple[str, ...]
    broadcast: tuple[str, ...]


def find_roles(system: System) -> tuple[Roles, ...]:
    """The roles of every index, in order of appearance."""
    return tuple(
        Roles(
            index,
            _collect(_find_along(index, e) for e in system.equations if index in find_left(e)),
            _collect(name for e in system.equations for name in _find_reduced(index, e)),
            _collect(_name(e) for e in system.equations if _is_shared(index, e)),
            _collect(_name(e) for e in system.equations if _is_broadcast(index, e)),
        )
        for index in find_all_indices(system)
    )


def _collect(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _name(equation: Equation) -> str:
    return equation.target.tensor.name


def _find_along(index: Index, equation: Equation) -> str:
    """The equation's name, and what it takes along the index."""
    kinds = _collect(
        here.kind
        for here in walk(equation.value)
        if isinstance(here, Along) and here.index is index
    )
    return f"{_name(equation)} ({', '.join(kinds)})" if kinds else _name(equation)


def _find_reduced(index: Index, equation: Equation) -> Iterator[str]:
    for here in walk(equation.value):
        if isinstance(here, Reduce) and index in here.bound:
            yield _name(equation) + ("" if here.kind == "sum" else f" ({here.kind})")


def _is_shared(index: Index, equation: Equation) -> bool:
    """Do two tensors, or two places of one, read by the index?"""
    reading = [access for access in find_accesses(equation.value) if index in find_free(access)]
    return len(reading) > 1


def _is_broadcast(index: Index, equation: Equation) -> bool:
    """Does the right side lack an index of the left, or a term one of the others?"""
    if index in find_broadcast(equation):
        return True
    for here in walk(equation.value):
        if isinstance(here, Add):
            terms = [find_free(term) for term in here.terms if find_accesses(term)]
            if any(index in free for free in terms) and any(index not in f for f in terms):
                return True
    return False
