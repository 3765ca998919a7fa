"""A kind of edit: the function that finds its changes, and an example of what it mends.

    @kind(
        formula="x[N]; y[i] = x[i]**2",
        code="return x",                     # wrong: its arguments are the formula's tensors
        words="square x",                    # what the edit must say, in lower case
        cost=2,                              # of two edits that fit, the cheaper is proposed
    )
    def find_missing_powers(world: World, number: int) -> Iterator[Change]: ...

The examples are run by one parametrised test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from derive.checker.edits.sites import Change, World

    Find = Callable[[World, int], Iterator[Change]]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of edit, with an example."""

    name: str
    formula: str
    code: str
    words: str
    cost: float
    find: Find

    def __call__(self, world: World, number: int) -> Iterator[Change]:
        """The changes of this kind in one equation."""
        return self.find(world, number)


def kind(*, formula: str, code: str, words: str, cost: float) -> Callable[[Find], Kind]:
    """A function on one equation as a Kind, with its example."""

    def wrap(find: Find) -> Kind:
        return Kind(find.__name__, formula, code, words, cost, find)

    return wrap
