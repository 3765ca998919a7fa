"""Grids: tensors whose axes are named by indices, and how several are brought to one order.

`Evaluator` is what the functions that evaluate one kind of node ask of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from derive.ir.nodes import Expr, Index


@dataclass(frozen=True, slots=True)
class Grid:
    """A tensor with one axis for each index, in this order."""

    tensor: Any
    indices: tuple[Index, ...]


class Evaluator(Protocol):
    """The values of nodes for one set of inputs."""

    values: dict[str, Any]
    sizes: dict[str, int]
    empty_row: str

    def find(self, expr: Expr) -> Grid:
        """The value of a node for each value of its indices."""
        ...

    def condition(self, expr: Expr) -> Grid:
        """A condition as truth values."""
        ...

    def number(self, expr: Expr) -> Fraction | float | None:
        """The number that a node is, if neither an index nor a tensor is in it."""
        ...

    def extent(self, extent: Expr) -> int:
        """The number that an extent is."""
        ...

    def guard(self, guards: tuple[Expr, ...], product: Grid) -> Grid:
        """The product, and 0 where a guard is false."""
        ...


def align(grids: Sequence[Grid]) -> tuple[list[Any], tuple[Index, ...]]:
    """The tensors with the same axes in the same order, and their indices.

    Axes of an index that a grid does not have are of length 1 there; torch broadcasts them. That
    is safe, since each axis has its index.
    """
    indices = tuple(dict.fromkeys(index for grid in grids for index in grid.indices))
    return [place(grid, indices) for grid in grids], indices


def place(grid: Grid, indices: tuple[Index, ...]) -> Any:
    """The tensor with an axis for each of these indices, of length 1 where it has none."""
    order = [grid.indices.index(index) for index in indices if index in grid.indices]
    found = grid.tensor
    if order != list(range(len(order))):
        found = found.permute(order)
    for number, index in enumerate(indices):
        if index not in grid.indices:
            found = found.unsqueeze(number)
    return found


def spread(grid: Grid, indices: tuple[Index, ...], evaluator: Evaluator) -> Any:
    """The tensor over exactly these indices, each axis at its full extent."""
    shape = [evaluator.extent(index.extent) for index in indices]
    return place(grid, indices).expand(shape)
