"""Values that must not round to the other side of zero.

A root, a logarithm or a quotient of a difference that is known to be positive is nan, or of another
sign, where rounding makes it negative. Through sums, products and names such a value is made of
others; exp and its like forgive what is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import Access, Along, Call, Expr, Pow, System
from derive.ir.walk import find_children
from derive.rewrite.protect import is_natural

if TYPE_CHECKING:
    from collections.abc import Iterator

CALM = {"exp", "sigmoid", "softplus", "silu", "gelu", "elu", "sin", "cos", "tanh", "erf"}


def find_steep_names(system: System) -> set[str]:
    """The tensors that are read, at any remove, under such a function."""
    names: set[str] = set()
    for equation in reversed(system.equations):
        is_steep = equation.target.tensor.name in names
        found = find_steep(equation.value, is_steep=is_steep)
        names |= {site.tensor.name for site in found if isinstance(site, Access)}
    return names


def find_steep(value: Expr, *, is_steep: bool) -> set[Expr]:
    """The parts of a value that stand under such a function, or all if the value does."""
    found: set[Expr] = set()
    seen: set[tuple[Expr, bool]] = set()
    stack = [(value, is_steep)]
    while stack:
        here = stack.pop()
        if here not in seen:
            seen.add(here)
            found |= {here[0]} if here[1] else set()
            stack.extend(_walk_parts(*here))
    return found


def _walk_parts(expr: Expr, is_steep: bool) -> Iterator[tuple[Expr, bool]]:
    """The parts, and whether they are steep."""
    match expr:
        case Pow(base, exponent):
            yield base, is_steep or not is_natural(exponent)
            yield exponent, is_steep
        case Call(function, arguments):
            inner = function == "log" or (is_steep and function not in CALM)
            yield from ((argument, inner) for argument in arguments)
        case Along("softmax" | "log_softmax"):
            yield from ((part, False) for part in find_children(expr))
        case _:
            yield from ((part, is_steep) for part in find_children(expr))
