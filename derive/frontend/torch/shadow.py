"""What is known of a tensor while code runs: its extents, the buffer behind it, and where in it.

    buffer = axes -> value             value[axes] is an access of an equation's tensor, or a mask,
                                       a position, a constant, written out
    shadow = letters -> places         the element at the letters is the buffer's at the places

Views share a buffer and differ in their maps; a write gives the buffer another value, and every
view of it sees that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from derive.ir.nodes import ONE, ZERO, Expr, Index

if TYPE_CHECKING:
    from derive.errors import DeriveError


def kind_of(tensor: Any) -> str:
    """What a tensor holds: real, int or bool."""
    import torch

    if tensor.dtype is torch.bool:
        return "bool"
    return "real" if tensor.is_floating_point() else "int"


@dataclass(eq=False)
class Buffer:
    """One piece of memory: its value for each value of its axes; a write changes `value`."""

    axes: tuple[Index, ...]
    value: Expr
    kind: str  # real | int | bool
    poison: DeriveError | None = None  # something was written here that cannot be told


@dataclass(frozen=True, eq=False)
class Shadow:
    """A tensor as a view of a buffer."""

    letters: tuple[Index, ...]
    places: tuple[Expr, ...]
    buffer: Buffer

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The extents."""
        return tuple(letter.extent for letter in self.letters)

    @property
    def kind(self) -> str:
        """What it holds: real, int or bool."""
        return self.buffer.kind

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.letters)


@dataclass(frozen=True, eq=False)
class Poison:
    """A tensor whose value cannot be told: the refusal is raised where something depends on it."""

    error: DeriveError


@dataclass(eq=False)
class Letters:
    """Fresh indices, each under a name of its own that begins with the letter it would like."""

    count: int = field(default=0)

    def make(self, extent: Expr, hint: str) -> Index:
        """A fresh index of this extent."""
        self.count += 1
        return Index(f"{hint}~{self.count}", extent)

    def copy(self, index: Index) -> Index:
        """A fresh index of the same extent and hint."""
        return self.make(index.extent, hint_of(index))


def hint_of(index: Index) -> str:
    """The letter that an index would like to have."""
    return index.name.partition("~")[0]


def at(letter: Index) -> Expr:
    """An index as a place; the only place of an axis of length 1."""
    return ZERO if letter.extent is ONE else letter
