"""Which size comes from which shape, and which extent an index has in each place it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import Expr, Size, System, Tensor
from derive.ir.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterator


def find_open_sizes(system: System) -> tuple[str, ...]:
    """The sizes that no shape of an argument tells, in order of appearance."""
    told = {
        size.name
        for tensor in system.inputs
        if isinstance(tensor, Tensor)
        for extent in tensor.shape
        for size in find_sizes(extent)
    }
    return tuple(name for name in _find_all_sizes(system) if name not in told)


def find_sizes(expr: Expr) -> tuple[Size, ...]:
    """The size symbols in an expression."""
    return tuple(here for here in walk(expr) if isinstance(here, Size))


def _find_all_sizes(system: System) -> Iterator[str]:
    return iter(())
