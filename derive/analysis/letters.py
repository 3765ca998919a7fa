"""The index letters of a system: all of them, and those that stand on a left side only."""

from __future__ import annotations

from derive.ir.nodes import Along, Equation, Expr, Index, Reduce, System
from derive.ir.walk import find_free, walk


def find_letters(system: System) -> tuple[Index, ...]:
    """Every index of the system, in order of appearance; a letter with two extents comes twice."""
    found: dict[Index, None] = {}
    for equation in system.equations:
        for place in equation.target.places:
            found |= dict.fromkeys(find_indices(place))
        found |= dict.fromkeys(find_indices(equation.value))
    return tuple(found)


def find_indices(expr: Expr) -> tuple[Index, ...]:
    """The indices of one expression, bound ones with them; some more than once."""
    found: list[Index] = []
    for here in walk(expr):
        match here:
            case Index():
                found.append(here)
            case Reduce(_, bound, _, _):
                found += bound
            case Along(_, index, _, _):
                found.append(index)
    return tuple(found)


def find_left(equation: Equation) -> tuple[Index, ...]:
    """The indices of the left side, in order, each once."""
    inside = (index for place in equation.target.places for index in find_free(place))
    return tuple(dict.fromkeys(inside))


def find_broadcast(equation: Equation) -> tuple[Index, ...]:
    """The indices that the left side holds and the right side does not."""
    free = find_free(equation.value)
    return tuple(index for index in find_left(equation) if index not in free)
