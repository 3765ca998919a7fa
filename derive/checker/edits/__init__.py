"""The nearest edit: changes of the formula tried until one gives what the code gives.

    KINDS       what people get wrong, each kind with an example
    find_edit   the change that reproduces the code's results and fits its lines best

A change counts only if the changed formula gives the code's results on every draw. Of those that
do, the smallest is taken; among equals the one with which most lines of the code have a meaning.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from derive.checker.edits.functions import (
    find_eps,
    find_missing_functions,
    find_missing_powers,
    find_other_functions,
    find_other_numbers,
)
from derive.checker.edits.indices import (
    find_diagonals,
    find_exchanged_indices,
    find_exchanged_tensors,
    find_exchanged_twice,
    find_other_indices,
    find_other_results,
    find_other_tensors,
    find_separate_sums,
)
from derive.checker.edits.judge import ERRORS
from derive.checker.edits.masks import (
    find_inverted,
    find_misplaced,
    find_missing,
    find_shifted,
    find_transposed,
)
from derive.checker.edits.places import (
    find_halves,
    find_moved_places,
    find_turned_halves,
)
from derive.checker.edits.rows import (
    find_missing_rows,
    find_missing_sums,
    find_other_bound,
    find_other_bound_of_equations,
    find_other_counts,
    find_other_kinds,
    find_other_rows,
    find_other_variance,
)
from derive.checker.edits.sites import Change, World
from derive.checker.edits.terms import (
    find_missing_factors,
    find_missing_terms,
    find_scales,
    find_signs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from derive.checker.edits.judge import Judge
    from derive.checker.edits.sites import Kind
    from derive.ir.nodes import System

    Weigh = Callable[[System], float]  # how much of the code an edited formula leaves unexplained
    Confirm = Callable[[System], bool]

KINDS: tuple[Kind, ...] = (
    # indices
    find_exchanged_indices,
    find_exchanged_twice,
    find_other_indices,
    find_diagonals,
    find_separate_sums,
    # names
    find_other_tensors,
    find_exchanged_tensors,
    find_other_results,
    # softmax, sums, means
    find_other_rows,
    find_other_bound,
    find_other_bound_of_equations,
    find_missing_sums,
    find_other_variance,
    find_other_kinds,
    find_missing_rows,
    find_other_counts,
    # scales and signs
    find_scales,
    find_signs,
    # terms and factors
    find_missing_terms,
    find_missing_factors,
    # functions
    find_missing_powers,
    find_missing_functions,
    find_other_functions,
    find_other_numbers,
    find_eps,
    # masks
    find_inverted,
    find_shifted,
    find_transposed,
    find_missing,
    find_misplaced,
    # positions
    find_moved_places,
    # layouts
    find_halves,
    find_turned_halves,
)

_UNEXPLAINED = 0.25  # what a line without a meaning costs an edit
_MOST_HITS = 12
_CHEAP = 2.0  # of kinds that may come first of several
_MOST_FIRST = 4


@dataclass(frozen=True)
class Edit:
    """A change that makes the formula compute what the code does, and what it costs."""

    change: Change
    cost: float
    kind: Kind

    @property
    def words(self) -> str:
        """What to do to the code."""
        return self.change.words


@dataclass
class Search:
    """One search: judged by what, over which equations, until the judge has taken so many steps.

    It can be gone on with from where it stopped.
    """

    judge: Judge
    weigh: Weigh
    confirm: Confirm
    groups: Sequence[Sequence[int]]  # of the equations, the likeliest first
    world: World
    most: int = 0

    @cached_property
    def _changes(self) -> Iterator[tuple[int, Kind, Change]]:
        """All changes, each with the number of its group of equations; cheap kinds first."""
        return (
            (at, kind, change)
            for at, group in enumerate(self.groups)
            for kind in sorted(KINDS, key=lambda kind: kind.cost)
            for change in self._find_changes(kind, group)
        )

    def find(self) -> Edit | None:
        """The best single change, in the first group that has one."""
        best: Edit | None = None
        hits = found_at = 0
        while not self.is_over() and hits < _MOST_HITS:
            at, kind, change = next(self._changes, (len(self.groups), None, None))
            if kind is None or change is None:
                break
            if best is not None and (at > found_at or kind.cost >= best.cost):
                break
            cost = kind.cost + change.extra
            if (best is not None and cost >= best.cost) or not self.is_fitting(change.system):
                continue
            hits += 1
            cost += _UNEXPLAINED * self.weigh(change.system)
            if (best is None or cost < best.cost) and self.confirm(change.system):
                best, found_at = Edit(change, cost, kind), at
        return best

    def find_firsts(self, gain: Callable[[System], int]) -> list[Change]:
        """Changes that give some line a meaning, those of most lines first."""
        likely: list[tuple[int, float, Change]] = []
        for _, kind, change in self._changes:
            if self.is_over():
                break
            gained = gain(change.system) if kind.cost < _CHEAP else 0
            if gained:
                likely.append((-gained, kind.cost + change.extra, change))
        likely.sort(key=lambda each: each[:2])
        return [change for _, _, change in likely[:_MOST_FIRST]]

    def _find_changes(self, kind: Kind, group: Sequence[int]) -> list[Change]:
        found: list[Change] = []
        for number in group:
            with suppress(*ERRORS):  # what a kind cannot be applied to, it does not concern
                found.extend(kind(self.world, number))
        return found

    def is_fitting(self, system: System) -> bool:
        """Does a formula give the code's results on all draws?"""
        return self.judge.is_reproduced(system) and self.judge.is_confirmed(system)

    def is_over(self) -> bool:
        """Are all steps taken?"""
        return self.judge.steps > self.most
