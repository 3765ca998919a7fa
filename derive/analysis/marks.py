"""Where in an equation's text a node stands, for the carets of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.errors import Mark
from derive.ir.text import find_span, to_text

if TYPE_CHECKING:
    from derive.ir.nodes import Equation, Expr


def find_marks(equation: Equation, *path: Expr) -> tuple[Mark, ...]:
    """The mark under the last node of a path that leads to it: an access, then its place."""
    whole: Equation | Expr = equation
    column, end = 0, 0
    for part in path:
        span = find_span(whole, part)
        if span is None:
            return ()
        column, end = column + span[0], column + span[1]
        whole = part
    return (Mark(to_text(equation), column, end),)


def to_count(number: int, noun: str) -> str:
    """`1 place`, `2 places`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
