"""Grids: tensors whose axes are named by indices, and how several are brought to one order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.ir.nodes import Index
    from derive.verify.evaluate import Evaluator


@dataclass(frozen=True, slots=True)
class Grid:
    """A tensor with one axis for each index, in this order."""

    tensor: Any
    indices: tuple[Index, ...]


def align(grids: Sequence[Grid]) -> tuple[list[Any], tuple[Index, ...]]:
    """The tensors with the same axes in the same order, and their indices.

    Axes of an index that a grid does not have are of length 1 there; torch broadcasts them. That
    is safe, since each axis has its letter.
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
