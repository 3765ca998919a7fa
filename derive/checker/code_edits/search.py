"""The likeliest edit of a text with which the code computes the formula.

An edit counts only if the edited code gives the formula's results on every draw. They are tried by
cost: that of the operator, and what tells for the line. The first that is right is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from derive.checker.code_edits.operators import Stock, find_rewrites
from derive.checker.code_edits.running import Lines, exchange, put_text
from derive.checker.code_edits.sites import Rewrite, Source, find_sites, repeat_rewrites
from derive.checker.edits.judge import are_close

if TYPE_CHECKING:
    from derive.checker.load import Code

MOST_CALLS = 80_000  # of torch, in all runs of one search
MOST_RUNS = 2_000  # of the code; each takes some milliseconds on its way to the other process
MOST_COST = 2.5  # of an edit that is more than chance
_BRANCH = 1.0  # what it costs an edit that another branch is taken: it may hide what is wrong

_AGAIN = 0.3  # what it costs an edit to be made in all places alike


@dataclass(frozen=True)
class Trial:
    """One run of the code: how, for which inputs, and what it should give."""

    run: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    values: Mapping[str, Any]
    wanted: tuple[Any, ...]

    def is_passed(self, *, finite: bool = False) -> bool:
        """Does the code as it is now give what it should?"""
        try:
            found = self.run(self.values)
            return are_close(found, self.wanted, finite=finite)
        except Exception:  # whatever the edited code raises
            return False


@dataclass(frozen=True)
class Correction:
    """An edit of the text that makes the code right, and its words."""

    rewrite: Rewrite
    source: str  # all of it, corrected

    @property
    def line(self) -> int:
        """The line that is edited."""
        return self.rewrite.line

    @property
    def words(self) -> str:
        """What to do to the code."""
        return self.rewrite.words

    def find_changed_lines(self, before: str) -> tuple[tuple[int, str], ...]:
        """The lines that read otherwise than before, with their numbers."""
        pairs = zip(before.splitlines(), self.source.splitlines(), strict=False)
        return tuple((n, new) for n, (old, new) in enumerate(pairs, 1) if old != new)


@dataclass
class Mender:
    """One search for corrections: the code, what its runs should give, and how many there may be.

    `watch` gives the lines that run; `confirm` judges a text beyond the trials.
    """

    code: Code
    source: str
    stock: Stock
    trials: Sequence[Trial]
    watch: Callable[[], Lines]
    confirm: Callable[[str], bool]
    left: int  # of the runs
    edited: int = 0  # the line that is edited now; 0 where the code is as it was

    @cached_property
    def lines(self) -> Lines:
        """The lines that run, and what has a name there."""
        return self.watch()

    def list_rewrites(self, source: Source, weigh: Callable[[int], float]) -> list[Rewrite]:
        """All edits of the text, the likeliest first."""
        found: dict[tuple[int, int, str], Rewrite] = {}
        for site in find_sites(source, self.lines):
            for rewrite in find_rewrites(site, self.stock):
                key = (rewrite.start, rewrite.end, rewrite.text)
                cost = rewrite.cost + weigh(rewrite.line) + _BRANCH * site.is_branch
                if cost < MOST_COST and (key not in found or cost < found[key].cost):
                    found[key] = replace(rewrite, cost=cost)
        every = [*found.values(), *repeat_rewrites(list(found.values()), _AGAIN)]
        return sorted(every, key=lambda each: (each.cost, each.start, each.end))

    def find(self, source: Source, weigh: Callable[[int], float]) -> Correction | None:
        """The likeliest edit that makes every trial pass."""
        with self._undo():
            for rewrite in self.list_rewrites(source, weigh):
                if self.left <= 0:
                    return None
                edited = rewrite.apply(source.text)
                if self.is_right(edited, rewrite.line):
                    return Correction(rewrite, edited)
        return None

    @contextmanager
    def _undo(self) -> Iterator[None]:
        """Behind this the code is as it was."""
        try:
            yield
        finally:
            if self.edited:
                put_text(self.code, self.source, self.source, self.edited)
            self.edited = 0

    def _put(self, edited: str, line: int) -> None:
        before, self.edited = self.edited, line
        put_text(self.code, self.source, edited, line, before)

    def find_firsts(
        self, source: Source, lines: set[int], count: Callable[[], int], most: int
    ) -> list[Correction]:
        """Edits of some lines with which the code has more parts of the formula than before."""
        before = count()
        ranked: list[tuple[int, int, Correction]] = []
        for number, rewrite in enumerate(self.list_rewrites(source, lambda _: 0.0)):
            if rewrite.line not in lines or self.left <= 0:
                continue
            self.left -= 2  # a run that is watched takes longer
            edited = rewrite.apply(source.text)
            with suppress(Exception), self._undo():
                self._put(edited, rewrite.line)
                gained = count() - before
                if gained > 0:
                    ranked.append((-gained, number, Correction(rewrite, edited)))
        ranked.sort(key=lambda each: each[:2])
        return [correction for _, _, correction in ranked[:most]]

    def edit(self, edited: str, line: int) -> AbstractContextManager[None]:
        """In here the code runs as another text says."""
        return exchange(self.code, self.source, edited, line)

    def is_right(self, edited: str, line: int) -> bool:
        """Does the edited code pass?"""
        self.left -= 1
        try:
            self._put(edited, line)
            passed = self.trials[0].is_passed(finite=True)
            passed = passed and all(trial.is_passed() for trial in self.trials)
            return passed and self._runs_as_much() and self.confirm(edited)
        except Exception:  # whatever the edited code raises elsewhere
            return False

    def _runs_as_much(self) -> bool:
        """Do all lines run that ran before? To avoid a branch is to hide what is wrong in it."""
        return self.lines.keys() <= self.watch().keys()
