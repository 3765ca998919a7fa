"""The likeliest edit of a text with which the code computes the formula.

An edit counts only if the edited code gives the formula's results on every sample. They are tried
in the order of their cost: how common the slip is, and how near its line is to where the values
first part from the formula. Many are tried in one request, on one sample; of those that pass and
are right on all samples, and cost about the same, the one is taken whose lines are most parts of
the formula.
"""

from __future__ import annotations

import ast
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from derive.checker.code_edits.operators import OPERATORS, Stock
from derive.checker.code_edits.running import (
    Lines,
    exchange,
    find_passing,
    find_prints,
    watch_program,
)
from derive.checker.code_edits.sites import (
    Rewrite,
    SourceText,
    count_contrived,
    find_closing,
    find_sites,
    repeat_rewrites,
)
from derive.checker.edits import are_close
from derive.checker.runs.processes import EndedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from derive.checker.edits import Example
    from derive.checker.program import Program
    from derive.checker.trace import Print

MOST_COST = 2.5  # of an edit that is more than chance
_BATCH = 96  # edits that one request tries
_BRANCH = 1.0  # what it costs an edit that another branch is taken: it may hide what is wrong
_AGAIN = 0.15  # what it costs an edit to be made in all places alike
_LIKE = 0.2  # by how much the costs of edits differ that are as likely
_MOST_RIGHT = 6  # edits of which the best is taken
_MOST_AFTER = 3  # requests that are made after the first that had one


@dataclass
class Budget:
    """How much may still be tried; a step takes about a millisecond."""

    left: int
    edits: int = 0  # of the code, that were tried

    @contextmanager
    def part(self, part: float) -> Iterator[Budget]:
        """A part of what is left; what is left of it in the end, and what it has tried, is ours."""
        own = Budget(int(self.left * part))
        self.left -= own.left
        yield own
        self.left += max(own.left, 0)
        self.edits += own.edits


@dataclass(frozen=True)
class Correction:
    """An edit of the text that makes the code right, and its words."""

    rewrite: Rewrite
    source: str  # all of it, corrected

    @staticmethod
    def of(rewrite: Rewrite, source: str) -> Correction:
        """The edit made, with no brackets that it does not need."""
        edited = rewrite.apply(source)
        meant = ast.dump(ast.parse(edited))
        for start in [m.start() for m in re.finditer(r"\(", edited)][::-1]:
            if rewrite.start <= start < rewrite.end + len(edited) - len(source):
                end = find_closing(edited, start)
                bare = edited[:start] + edited[start + 1 : end] + edited[end + 1 :]
                with suppress(SyntaxError):
                    edited = bare if ast.dump(ast.parse(bare)) == meant else edited
        return Correction(rewrite, edited)

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


@contextmanager
def _blame_edits() -> Iterator[None]:
    """What ends in here ends by an edit that is tried, not by the code as it was given."""
    try:
        yield
    except EndedError as error:
        raise EndedError(f"with one of the edits of the code that were tried, {error}") from error


@dataclass
class Mender:
    """One search for corrections: the code, what its runs should give, and what a run costs.

    `confirm` judges a text beyond the trials; `count_parts` tells how many parts of the formula the
    lines of the code are, as it is now.
    """

    program: Program
    stock: Stock
    trials: Sequence[Example]  # inputs, and what the formula gives for them
    confirm: Callable[[str], bool]
    count_parts: Callable[[], tuple[int, int]]
    weight: int  # steps that one run takes

    @cached_property
    def source(self) -> SourceText:
        """The text as it is."""
        return SourceText(self.program.code.source)

    @cached_property
    def ran(self) -> tuple[Lines, tuple[int, ...]]:
        """The lines that run, with what has a name there, and those that run repeatedly."""
        return watch_program(self.program, self.trials[0].values, self.trials[0].sizes)

    @property
    def lines(self) -> Lines:
        """The lines that run, and what has a name there."""
        return self.ran[0]

    def count_unused(self) -> int:
        """How many tensors and modules have names that the text never reads."""
        known = {name: each for names in self.lines.values() for name, each in names.items()}
        inner = [each for each in known.values() if isinstance(each, dict)]
        every = [*known.items(), *(item for members in inner for item in members.items())]
        found = {n for n, each in every if isinstance(each, str) or hasattr(each, "dtype")}
        return len(found & self.source.unused)

    @cached_property
    def rewrites(self) -> list[Rewrite]:
        """All edits of the text."""
        found: dict[tuple[int, int, str], Rewrite] = {}
        for site in find_sites(self.source, self.lines):
            for rewrite in chain.from_iterable(each(site, self.stock) for each in OPERATORS):
                key = (rewrite.start, rewrite.end, rewrite.text)
                cost = rewrite.cost + _BRANCH * site.is_branch
                if key not in found or cost < found[key].cost:
                    found[key] = replace(rewrite, cost=cost)
        return [*found.values(), *repeat_rewrites(list(found.values()), _AGAIN)]

    def rank(self, weigh: Callable[[int], float]) -> list[Rewrite]:
        """The edits by their cost and that of their line, the likeliest first."""
        lines = dict.fromkeys(each.line for each in self.rewrites)
        costs = {line: weigh(line) for line in lines}
        ranked = [replace(each, cost=each.cost + costs[each.line]) for each in self.rewrites]
        likely = [each for each in ranked if each.cost < MOST_COST]
        return sorted(likely, key=lambda each: (each.cost, each.start, each.end))

    def find(self, weigh: Callable[[int], float], budget: Budget) -> Correction | None:
        """The likeliest edit that makes the code right."""
        trial = self.trials[0]
        right: list[Correction] = []
        after = 0
        for batch in self._take_batches(self.rank(weigh), self.weight, budget):
            after += bool(right)
            if right and (after > _MOST_AFTER or batch[0].cost > right[0].rewrite.cost + _LIKE):
                chosen = self._choose(right)
                if chosen is not None:
                    return chosen
                right, after = [], 0
            with _blame_edits():
                passing = find_passing(
                    self.program, batch, trial.values, trial.sizes, trial.results
                )
            for rewrite in (batch[number] for number in passing if 0 <= number < len(batch)):
                dear = right and rewrite.cost > right[0].rewrite.cost + _LIKE
                if dear or len(right) >= _MOST_RIGHT:
                    break
                correction = Correction.of(rewrite, self.source.text)
                if self.is_right(correction):
                    right.append(correction)
        return self._choose(right)

    def _choose(self, right: list[Correction]) -> Correction | None:
        """The best of edits that pass the trials which is right beyond them."""

        def rate(correction: Correction) -> tuple[int, int, int, float]:
            """How contrived an edit is, how much it leaves without a meaning, what it costs."""
            with exchange(self.program.code, correction.source, correction.line):
                ends, others = self.count_parts()
            return count_contrived(correction.source), -ends, -others, correction.rewrite.cost

        for each in sorted(right, key=rate) if len(right) > 1 else right:
            with suppress(Exception), exchange(self.program.code, each.source, each.line):
                if self.confirm(each.source):
                    return each
        return None

    def _take_batches(
        self, rewrites: Sequence[Rewrite], weight: int, budget: Budget
    ) -> Iterator[list[Rewrite]]:
        """The edits, many at a time, as long as there are steps left."""
        for start in range(0, len(rewrites), _BATCH):
            batch = list(rewrites[start : start + max(0, min(_BATCH, budget.left // weight))])
            if not batch:
                return
            budget.left -= len(batch) * weight
            budget.edits += len(batch)
            yield batch

    def find_firsts(
        self, lines: set[int], count: Callable[[Sequence[Print]], int], budget: Budget, most: int
    ) -> list[Correction]:
        """Edits with which the code computes more than before of what counts.

        They are of some lines, or put in what the text never reads.
        """
        trial = self.trials[0]
        unused = re.compile(rf"\b({'|'.join(sorted(self.source.unused)) or '(?!)'})\b")
        every = self.rank(lambda _: 0.0)
        mine = [each for each in every if each.line in lines or unused.search(each.text)]
        ranked: list[tuple[int, int, Rewrite]] = []
        for batch in self._take_batches(mine, 2 * self.weight, budget):
            with _blame_edits():
                seen = find_prints(self.program, batch, trial.values, trial.sizes)
            for rewrite, found in zip(batch, seen, strict=True):
                gained = count(found)
                if gained > 0:
                    ranked.append((-gained, len(ranked), rewrite))
        ranked.sort(key=lambda each: each[:2])
        text = self.source.text
        return [Correction.of(each, text) for _, _, each in ranked[:most]]

    def is_right(self, correction: Correction) -> bool:
        """Is the code right with an edit, on all samples?"""
        with suppress(Exception), exchange(self.program.code, correction.source, correction.line):
            found = [self.program.run(each.values, each.sizes).results for each in self.trials]
            pairs = zip(found, self.trials, strict=True)
            if not all(are_close(one, trial.results, finite=False) for one, trial in pairs):
                return False
            # To avoid a branch, or to go through a loop only once, is to hide what is wrong in it.
            (lines, repeated), trial = self.ran, self.trials[0]
            lines_now, repeated_now = watch_program(self.program, trial.values, trial.sizes)
            return lines.keys() <= lines_now.keys() and {*repeated} <= {*repeated_now}
        return False
