"""The steps of a generated function, and the loops over blocks in which some of them run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from derive.ir.nodes import MINUS_ONE, Mul, Pow, Size
from derive.ir.polynomial import Polynomial
from derive.plan.ops import Op, axes_of

if TYPE_CHECKING:
    from derive.ir.nodes import Index


# Before the first block: 0, or 1 where there is no block; 1; the lowest finite number; infinities.
Start: TypeAlias = Literal["zero", "empty", "one", "lowest", "-oo", "oo"]


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the generated function: a name and the operation that gives it."""

    name: str
    op: Op

    @property
    def axes(self) -> tuple[Index, ...]:
        """The indices of the result, in order."""
        return axes_of(self.op)


@dataclass(frozen=True, slots=True)
class Running:
    """A value that a loop carries from block to block; a step of the loop makes it anew."""

    name: str
    axes: tuple[Index, ...]
    start: Start


@dataclass(frozen=True, slots=True)
class Tile:
    """Some of the steps run in a loop over blocks of an index, whose length is a keyword argument.

    The index of those steps has the extent `block`. A block is as long as keeps the largest tensor
    in it to `target` elements; each position adds `unit` elements to that tensor. An index that is
    summed leaves nothing to be joined: its loop has running values. Some of the steps may run in a
    loop of their own.
    """

    index: Index
    block: str
    first: int  # of the steps in the loop
    last: int
    sliced: tuple[tuple[str, Op], ...]  # the name of a block, and what it is a block of
    joined: tuple[
        tuple[str, str, int], ...
    ]  # a step, the list of its blocks, the place of the index
    unit: Polynomial
    target: int
    running: tuple[Running, ...] = ()
    wide: str = ""  # the name of the dtype of the running sums: half precision would not do
    inner: Tile | None = None

    @property
    def blocks(self) -> Polynomial:
        """How many blocks there are, the last one counted by its share."""
        return Polynomial.of(Mul((self.index.extent, Pow(Size(self.block), MINUS_ONE))))

    @property
    def names(self) -> set[str]:
        """The names that the loop has beside those of its steps."""
        lists = {name for _, name, _ in self.joined}
        return lists | {self.block, self.wide, *(name for name, _ in self.sliced)} - {""}

    @property
    def nest(self) -> tuple[Tile, ...]:
        """The loop and those inside it, outermost first."""
        return (self, *(self.inner.nest if self.inner is not None else ()))
