"""Where in an equation's text a node stands, for the carets of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.errors import Mark
from derive.ir.nodes import Add, Mul, Number, Reduce
from derive.ir.pieces import OR, find_span, find_spans, join, tighten, to_text
from derive.ir.polynomial import Polynomial
from derive.ir.walk import walk

if TYPE_CHECKING:
    from derive.ir.nodes import Equation, Expr, Index


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


def find_free_marks(equation: Equation, use: Expr, index: Index) -> tuple[Mark, ...]:
    """The mark under the index in its first use that stands outside of what binds it."""
    binders = (
        here
        for here in walk(equation.value)
        if isinstance(here, Reduce) and any(bound.name == index.name for bound in here.bound)
    )
    closed = [span for binder in binders for span in find_spans(equation, binder)]
    for start, end in find_spans(equation, use):
        if not any(low <= start and end <= high for low, high in closed):
            within = find_span(use, index) or (0, end - start)
            return (Mark(to_text(equation), start + within[0], start + within[1]),)
    return find_marks(equation, use, index)


def write_extent(extent: Expr | Polynomial) -> str:
    """An extent or a position as declarations write it, what is taken off behind what is there."""
    expr = extent.to_expr() if isinstance(extent, Polynomial) else extent
    if isinstance(expr, Add) and isinstance(extent, Polynomial):
        expr = Add(tuple(sorted(expr.terms, key=lambda t: (isinstance(t, Number), _is_less(t)))))
    return "".join(piece for piece, _ in tighten(join((expr,), ", ", OR)))


def _is_less(term: Expr) -> bool:
    match term:
        case Mul((Number(value), *_)) | Number(value):
            return value < 0
    return False


def to_count(number: int, noun: str) -> str:
    """`1 place`, `2 places`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
