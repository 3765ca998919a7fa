"""The sizes of a system, in order of appearance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import Along, Expr, Index, Reduce, Size, System, Tensor
from derive.ir.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterator


def find_sizes(system: System) -> tuple[str, ...]:
    """The names of all sizes: of arguments' shapes, of indices, and those in expressions."""
    return tuple(dict.fromkeys(size.name for size in _walk_sizes(system)))


def _walk_sizes(system: System) -> Iterator[Size]:
    for entry in system.inputs:
        if isinstance(entry, Tensor):
            for extent in entry.shape:
                yield from _sizes_in(extent)
    yield from (Size(entry.name) for entry in system.sizes)
    for equation in system.equations:
        yield from _sizes_in(equation.target)
        yield from _sizes_in(equation.value)


def _sizes_in(expr: Expr) -> Iterator[Size]:
    """Sizes in an expression, and in the extents of the indices it binds or reads."""
    for part in walk(expr):
        match part:
            case Size():
                yield part
            case Index(_, extent):
                yield from _sizes_in(extent)
            case Reduce(_, bound, _, _):
                yield from (size for index in bound for size in _sizes_in(index.extent))
            case Along(_, index, _, _):
                yield from _sizes_in(index.extent)
            case _:
                continue
