"""The nearest edit: changes of the formula tried until one gives what the code gives.

    OPERATORS   what people get wrong, each with an example
    Search      the change that reproduces the code's results and fits its lines best

A change counts only if the changed formula gives the code's results on every draw. Of those that
do, the cheapest is taken, and a line of the code that has no meaning with it makes it dearer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from derive.checker.edits import equations, operators
from derive.checker.edits.judge import ERRORS

if TYPE_CHECKING:
    from derive.checker.edits.judge import Judge
    from derive.checker.edits.sites import Change, World
    from derive.ir.nodes import Equation, System

OPERATORS = (*operators.OPERATORS, *equations.OPERATORS)

_UNEXPLAINED = 0.25  # what a line without a meaning costs an edit
_MOST_HITS = 12


@dataclass
class Search:
    """One search: judged by what, over which equations, until the judge has taken so many steps.

    It can be gone on with from where it stopped.
    """

    judge: Judge
    weigh: Callable[[System], float]  # how much of the code an edited formula leaves unexplained
    confirm: Callable[[System], bool]
    groups: Sequence[Sequence[int]]  # of the equations, the likeliest first
    world: World
    most: int = 0

    @cached_property
    def _changes(self) -> Iterator[tuple[int, Change]]:
        """All changes, each with the number of its group of equations; cheap ones first."""
        for at, group in enumerate(self.groups):
            seen: set[tuple[Equation, ...] | System] = {self.judge.system.equations}
            for change in sorted(self._find_changes(group), key=lambda change: change.cost):
                system = change.system
                is_same = system.results == self.judge.system.results
                key = system.equations if is_same else system
                if key not in seen:
                    seen.add(key)
                    yield at, change

    def _find_changes(self, group: Sequence[int]) -> Iterator[Change]:
        for operator in OPERATORS:
            for site in (site for number in group for site in self.world.sites[number]):
                with suppress(*ERRORS):  # what an operator cannot be applied to, it leaves alone
                    for change in operator.find(site):
                        cost = operator.cost + change.cost
                        yield replace(change, cost=cost, about=operator.about)

    def find(self) -> Change | None:
        """The best single change, in the first group that has one, with what it costs in all."""
        best: Change | None = None
        hits = found_at = 0
        while self.judge.steps <= self.most and hits < _MOST_HITS:
            at, change = next(self._changes, (len(self.groups), None))
            if change is None or (best is not None and (at > found_at or change.cost >= best.cost)):
                break
            if not self.judge.is_confirmed(change.system):
                continue
            hits += 1
            cost = change.cost + _UNEXPLAINED * self.weigh(change.system)
            if (best is None or cost < best.cost) and self.confirm(change.system):
                best, found_at = replace(change, cost=cost), at
        return best
