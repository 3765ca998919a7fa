"""Search for the edit that makes the code equal to the formula.

An edit counts only if its results are right on every sample. The cheapest edits are tried first, in
batches on one sample. The cost of an edit is that of the slip, plus that of its line. Among right
edits of about the same cost, the one wins whose lines equal the most parts of the formula.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from derive.checker.edits import code, rewrites
from derive.checker.processes import EndedError
from derive.checker.program import Program
from derive.checker.reading import say_line
from derive.checker.runs.trace import Example, are_close

MOST_COST = 2.5  # cost up to which an edit is more than chance
_BATCH = 96  # edits per request
_BRANCH = 1.0  # cost of an edit of a condition: it may only avoid the fault
_AGAIN = 0.15  # cost of the repetition of an edit at other lines
_LIKE = 0.2  # difference of costs within which edits are equally likely
_MOST_RIGHT = 6  # right edits that are compared
_MOST_AFTER = 3  # requests after the first one with a right edit


@dataclass
class Budget:
    """The steps that are left, about a millisecond each."""

    left: int
    edits: int = 0  # tried edits of the code


@dataclass(frozen=True)
class Correction:
    """An edit of the text that makes the code right."""

    rewrite: code.Rewrite
    source: str  # the whole corrected text

    def find_changed_lines(self, before: str) -> tuple[tuple[int, str], ...]:
        """The changed lines with their numbers."""
        pairs = zip(before.splitlines(), self.source.splitlines(), strict=False)
        return tuple((n, new) for n, (old, new) in enumerate(pairs, 1) if old != new)


@dataclass
class CorrectionSearch:
    """A search for corrections of the code, with trials and the cost of a run."""

    program: Program
    stock: rewrites.Stock
    trials: Sequence[Example]  # inputs, and the formula's results for them
    confirm: Callable[[str], bool]  # whether a text is right beyond the trials
    count_parts: Callable[[], int]  # lines and equations that agree, less values that do not
    weight: int  # steps per run
    tell: Callable[[str], None]  # receives the progress in words

    @cached_property
    def source(self) -> code.SourceText:
        """The original text."""
        return code.SourceText(self.program.code.source)

    @cached_property
    def ran(self) -> tuple[code.Lines, tuple[int, ...]]:
        """The executed lines with the values of names, and the repeated lines."""
        return code.watch_program(self.program, self.trials[0])

    @cached_property
    def every(self) -> list[code.Rewrite]:
        """All edits of the text."""
        found: dict[tuple[int, int, str, bool], code.Rewrite] = {}
        for site in code.find_sites(self.source, self.ran[0]):
            for rewrite in chain.from_iterable(act(site, self.stock) for act in rewrites.OPERATORS):
                key = (rewrite.start, rewrite.end, rewrite.text, bool(rewrite.others))
                cost = rewrite.cost + _BRANCH * isinstance(site.parents[0], ast.If)
                if key not in found or cost < found[key].cost:
                    found[key] = replace(rewrite, cost=cost)
        return [*found.values(), *code.repeat_rewrites([*found.values()], _AGAIN)]

    def rank(self, weigh: Callable[[int], float]) -> list[code.Rewrite]:
        """The likely edits, sorted by their cost and that of their line."""
        costs = {line: weigh(line) for line in dict.fromkeys(each.line for each in self.every)}
        ranked = (replace(each, cost=each.cost + costs[each.line]) for each in self.every)
        likely = [each for each in ranked if each.cost < MOST_COST]
        return sorted(likely, key=lambda each: (each.cost, each.start, each.end))

    def find_correction(self, weigh: Callable[[int], float], budget: Budget) -> Correction | None:
        """The likeliest edit that makes the code right."""
        right: list[Correction] = []
        after = 0
        ranked = self.rank(weigh)
        for batch in self._take_batches(ranked, budget):
            after += bool(right)
            if right and (after > _MOST_AFTER or batch[0].cost > right[0].rewrite.cost + _LIKE):
                chosen = self._choose(right)
                if chosen is not None:
                    return chosen
                right, after = [], 0
            try:
                passing = code.find_passing(self.program, batch, self.trials[0])
            except EndedError as error:
                says = f"with one of the tried edits of the code, {error}"
                raise EndedError(says) from error
            for rewrite in (batch[number] for number in passing if 0 <= number < len(batch)):
                dear = right and rewrite.cost > right[0].rewrite.cost + _LIKE
                if dear or len(right) >= _MOST_RIGHT:
                    break
                correction = Correction(rewrite, rewrite.apply(self.source.text))
                if self.is_right(correction):
                    right.append(correction)
        return self._choose(right)

    def _choose(self, right: list[Correction]) -> Correction | None:
        """The best edit among those that pass the trials, if it is right beyond them."""

        def rate(correction: Correction) -> tuple[int, float]:
            """The key of an edit: lines and values that are not explained, cost."""
            with self._run_corrected(correction):
                return -self.count_parts(), correction.rewrite.cost

        for each in sorted(right, key=rate) if len(right) > 1 else right:
            with suppress(Exception), self._run_corrected(each):
                if self.confirm(each.source):
                    return each
        return None

    def _run_corrected(self, correction: Correction) -> AbstractContextManager[None]:
        """Run the corrected code within the context."""
        return code.exchange(self.program.code, correction.source, correction.rewrite.line)

    def _take_batches(
        self, ranked: Sequence[code.Rewrite], budget: Budget
    ) -> Iterator[list[code.Rewrite]]:
        """Yield the edits in batches while the budget lasts."""
        for start in range(0, len(ranked), _BATCH):
            batch = [*ranked[start : start + max(0, min(_BATCH, budget.left // self.weight))]]
            if not batch:
                return
            at, line = f"{start} of {len(ranked)} edits of the code tried", batch[0].line
            self.tell(f"{at}, next on {say_line(line, self.program.code.places)}")
            budget.left -= len(batch) * self.weight
            budget.edits += len(batch)
            yield batch

    def is_right(self, correction: Correction) -> bool:
        """Whether the code is right with an edit on all samples."""
        with suppress(Exception), self._run_corrected(correction):
            found = [self.program.run(each.values, each.sizes).results for each in self.trials]
            pairs = zip(found, self.trials, strict=True)
            if not all(are_close(one, trial.results, finite=False) for one, trial in pairs):
                return False
            # an edit that avoids a branch, or runs a loop only once, hides the fault in it
            lines, repeated = self.ran
            lines_now, repeated_now = code.watch_program(self.program, self.trials[0])
            return lines.keys() <= lines_now.keys() and {*repeated} <= {*repeated_now}
        return False
