"""The nearest edit, of the formula so that it gives what the code gives, or of the code's text.

An edit counts only if its results are right on every sample. The cheapest are tried first: how
common the slip is, and how near its line is to where the values first part from the formula. A
line of the code that has no meaning with an edit makes it dearer. What an edit of the formula
leaves alone is not evaluated again: nodes are interned, so that a node which reads no changed
tensor has the value it had. Edits of the text are tried many at once, on one sample; of those
that are right on all and cost about the same, the one is taken whose lines fit the formula best.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from math import prod
from typing import Any

from derive.checker.edits import code, code_operators, operators, sites
from derive.checker.edits.code_operators import Stock
from derive.checker.processes import EndedError
from derive.checker.program import Program
from derive.checker.reading import say_line
from derive.checker.trace import ERRORS, Example, Print, are_close
from derive.ir import nodes as ir
from derive.ir.walk import find_children
from derive.judge.evaluate import Evaluator, Grid

NODES = 20  # that are evaluated in about a millisecond
LARGE = 20_000  # elements, whose arithmetic takes as long as all else of an evaluation


class BaseEvaluator(Evaluator):
    """An evaluator of the formula itself; what it has found is there for others."""

    def __init__(
        self, system: ir.System, values: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> None:
        super().__init__(values, sizes, system.empty_row)
        self.found: dict[ir.Expr, Grid] = {}
        for equation in system.equations:
            self.define(equation)

    def evaluate_node(self, expr: ir.Expr) -> Grid:
        """The value of a node, kept."""
        grid = self.found[expr] = super().evaluate_node(expr)
        return grid


class EditEvaluator(Evaluator):
    """An evaluator of an edited formula: `changed` are the tensors that have other values now."""

    def __init__(self, base: BaseEvaluator, system: ir.System) -> None:
        super().__init__(base.values, base.sizes, system.empty_row)
        self._base = base
        self.changed: set[str] = set()
        self.count = 0  # of the nodes that are evaluated

    def evaluate_node(self, expr: ir.Expr) -> Grid:
        """The value of a node: what it was, if nothing changed in it."""
        known = self._base.found.get(expr)
        if known is not None and not find_names(expr) & self.changed:
            return known
        self.count += 1
        return super().evaluate_node(expr)

    def extent(self, extent: ir.Expr) -> int:
        """The number that an extent is, as the base has kept it."""
        return self._base.extent(extent)


@lru_cache(maxsize=1 << 16)
def find_names(expr: ir.Expr) -> frozenset[str]:
    """The names of the tensors in a node."""
    own = [expr.tensor.name] if isinstance(expr, ir.Access) else []
    return frozenset(own).union(*map(find_names, find_children(expr)))


class Judge:
    """The formula, and what the code gave for some samples of its inputs."""

    def __init__(self, system: ir.System, runs: Sequence[Example]) -> None:
        self.system, self.runs = system, runs
        self.steps = 0  # of evaluations: as many milliseconds, about

    @cached_property
    def bases(self) -> tuple[BaseEvaluator, ...]:
        """The formula's values for each sample."""
        return tuple(BaseEvaluator(self.system, run.values, run.sizes) for run in self.runs)

    def evaluate(self, edited: ir.System, sample: int = 0) -> EditEvaluator:
        """The values of an edited formula."""
        found = EditEvaluator(self.bases[sample], edited)
        old = {equation.target.tensor.name: equation for equation in self.system.equations}
        counts: dict[str, int] = {}
        for equation in edited.equations:
            name = equation.target.tensor.name
            counts[name] = counts.get(name, 0) + 1
        later = {equation.target.tensor.name for equation in edited.equations}
        try:
            for equation in edited.equations:
                name = equation.target.tensor.name
                before = find_names(old[name].value) if name in old else frozenset()
                if find_names(equation.value) & later - before:
                    raise ValueError(f"{name} is made of what is not there yet")
                later.discard(name)
                same = old.get(name) is equation and counts[name] == 1
                if not same or find_names(equation.value) & found.changed:
                    found.define(equation)
                    found.changed.add(name)
        finally:
            weight = 1 + prod(self.runs[sample].sizes.values()) // LARGE
            self.steps += weight * (1 + found.count // NODES)
        return found

    def is_reproduced(self, edited: ir.System, sample: int = 0) -> bool:
        """Does the edited formula give the code's results for one sample?"""
        try:
            found = self.evaluate(edited, sample)
            results = [found.values[tensor.name] for tensor in edited.results]
            return are_close(self.runs[sample].results, results, finite=sample == 0)
        except ERRORS:
            return False


_UNEXPLAINED = 0.25  # what a line without a meaning costs an edit
_MOST_HITS = 12


@dataclass
class EditSearch:
    """One search: judged by what, over which equations, until the judge has taken so many steps.

    It can be gone on with from where it stopped.
    """

    judge: Judge
    weigh: Callable[[ir.System], float]  # how much of the code an edited formula leaves unexplained
    confirm: Callable[[ir.System], bool]
    groups: Sequence[Sequence[int]]  # of the equations, the likeliest first
    formula: sites.SizedFormula
    may_be: Callable[[ir.System], bool]  # can code compute the edited formula of what it is given
    most: int = 0

    @cached_property
    def _changes(self) -> Iterator[tuple[int, sites.Change]]:
        """All changes, each with the number of its group of equations; cheap ones first."""
        for at, group in enumerate(self.groups):
            seen: set[tuple[ir.Equation, ...] | ir.System] = {self.judge.system.equations}
            for change in sorted(self._find_changes(group), key=lambda change: change.cost):
                system = change.system
                is_same = system.results == self.judge.system.results
                key = system.equations if is_same else system
                if key not in seen:
                    seen.add(key)
                    yield at, change

    def _find_changes(self, group: Sequence[int]) -> Iterator[sites.Change]:
        for operator in operators.OPERATORS:
            for site in (site for number in group for site in self.formula.sites[number]):
                with suppress(*ERRORS):  # what an operator cannot be applied to, it leaves alone
                    for change in operator.find(site):
                        cost = operator.cost + change.cost
                        yield replace(change, cost=cost, about=operator.about)

    def find(self) -> sites.Change | None:
        """The best single change, in the first group that has one, with what it costs in all."""
        best: sites.Change | None = None
        hits = found_at = 0
        while self.judge.steps <= self.most and hits < _MOST_HITS:
            at, change = next(self._changes, (len(self.groups), None))
            if change is None or (best is not None and (at > found_at or change.cost >= best.cost)):
                break
            runs = range(len(self.judge.runs))
            is_like = self.judge.is_reproduced
            if not (self.may_be(change.system) and all(is_like(change.system, r) for r in runs)):
                continue
            hits += 1
            cost = change.cost + _UNEXPLAINED * self.weigh(change.system)
            if (best is None or cost < best.cost) and self.confirm(change.system):
                best, found_at = replace(change, cost=cost), at
        return best


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
    """An edit of the text that makes the code right."""

    rewrite: code.Rewrite
    source: str  # all of it, corrected

    def find_changed_lines(self, before: str) -> tuple[tuple[int, str], ...]:
        """The lines that read otherwise than before, with their numbers."""
        pairs = zip(before.splitlines(), self.source.splitlines(), strict=False)
        return tuple((n, new) for n, (old, new) in enumerate(pairs, 1) if old != new)


@dataclass
class Mender:
    """One search for corrections: the code, what its runs should give, and what a run costs."""

    program: Program
    stock: Stock
    trials: Sequence[Example]  # inputs, and what the formula gives for them
    confirm: Callable[[str], bool]  # is a text right beyond the trials
    count_parts: Callable[[], tuple[int, int]]  # of the formula, that the lines are as they are now
    weight: int  # steps that one run takes
    tell: Callable[[str], None]  # which edits are tried

    @cached_property
    def source(self) -> code.SourceText:
        """The text as it is."""
        return code.SourceText(self.program.code.source)

    @cached_property
    def ran(self) -> tuple[code.Lines, tuple[int, ...]]:
        """The lines that run, with what has a name there, and those that run repeatedly."""
        return code.watch_program(self.program, self.trials[0])

    def count_unused(self) -> int:
        """How many tensors and modules have names that the text never reads."""
        known = {name: each for names in self.ran[0].values() for name, each in names.items()}
        inner = [each for each in known.values() if isinstance(each, dict)]
        every = [*known.items(), *(item for members in inner for item in members.items())]
        found = {n for n, each in every if isinstance(each, str) or hasattr(each, "dtype")}
        return len(found & self.source.unused)

    @cached_property
    def rewrites(self) -> list[code.Rewrite]:
        """All edits of the text."""
        found: dict[tuple[int, int, str], code.Rewrite] = {}
        for site in code.find_sites(self.source, self.ran[0]):
            for rewrite in chain.from_iterable(
                act(site, self.stock) for act in code_operators.OPERATORS
            ):
                key = (rewrite.start, rewrite.end, rewrite.text)
                cost = rewrite.cost + _BRANCH * isinstance(site.parents[0], ast.If)
                if key not in found or cost < found[key].cost:
                    found[key] = replace(rewrite, cost=cost)
        return [
            *found.values(),
            *code.repeat_rewrites(list(found.values()), _AGAIN, self.source.text),
        ]

    def rank(self, weigh: Callable[[int], float]) -> list[code.Rewrite]:
        """The edits by their cost and that of their line, the likeliest first."""
        costs = {line: weigh(line) for line in dict.fromkeys(each.line for each in self.rewrites)}
        ranked = (replace(each, cost=each.cost + costs[each.line]) for each in self.rewrites)
        likely = [each for each in ranked if each.cost < MOST_COST]
        return sorted(likely, key=lambda each: (each.cost, each.start, each.end))

    def find(self, weigh: Callable[[int], float], budget: Budget) -> Correction | None:
        """The likeliest edit that makes the code right."""
        right: list[Correction] = []
        after = 0
        ranked = self.rank(weigh)
        for batch in self._take_batches(ranked, self.weight, budget):
            after += bool(right)
            if right and (after > _MOST_AFTER or batch[0].cost > right[0].rewrite.cost + _LIKE):
                chosen = self._choose(right)
                if chosen is not None:
                    return chosen
                right, after = [], 0
            passing = self._try(code.find_passing, batch)
            for rewrite in (batch[number] for number in passing if 0 <= number < len(batch)):
                dear = right and rewrite.cost > right[0].rewrite.cost + _LIKE
                if dear or len(right) >= _MOST_RIGHT:
                    break
                correction = Correction(rewrite, rewrite.apply_tidily(self.source.text))
                if self.is_right(correction):
                    right.append(correction)
        return self._choose(right)

    def _choose(self, right: list[Correction]) -> Correction | None:
        """The best of edits that pass the trials which is right beyond them."""

        def rate(correction: Correction) -> tuple[int, int, float]:
            """How much an edit leaves without a meaning, and what it costs."""
            with self._put(correction):
                ends, others = self.count_parts()
            return -ends, -others, correction.rewrite.cost

        for each in sorted(right, key=rate) if len(right) > 1 else right:
            with suppress(Exception), self._put(each):
                if self.confirm(each.source):
                    return each
        return None

    def is_right_text(self, text: str, lines: set[int]) -> bool:
        """Is the code right as a text says that has other lines, all in one statement?"""
        rewrite = code.Rewrite(0, 0, "", "", 0.0, min(lines))
        correction = Correction(rewrite, text)
        together = len({code.find_block(self.source.text, line) for line in lines}) == 1
        with suppress(Exception):
            if together and self.is_right(correction):
                with self._put(correction):
                    return self.confirm(text)
        return False

    def _put(self, correction: Correction) -> AbstractContextManager[None]:
        """In here the code runs as it is corrected."""
        return code.exchange(self.program.code, correction.source, correction.rewrite.line)

    def _try(
        self,
        look: Callable[[Program, Sequence[code.Rewrite], Example], code.Found],
        batch: list[code.Rewrite],
    ) -> code.Found:
        """What is seen of edits; what ends there is not the code as it was given."""
        try:
            return look(self.program, batch, self.trials[0])
        except EndedError as error:
            says = f"with one of the edits of the code that were tried, {error}"
            raise EndedError(says) from error

    def _take_batches(
        self, rewrites: Sequence[code.Rewrite], weight: int, budget: Budget
    ) -> Iterator[list[code.Rewrite]]:
        """The edits, many at a time, as long as there are steps left."""
        for start in range(0, len(rewrites), _BATCH):
            batch = list(rewrites[start : start + max(0, min(_BATCH, budget.left // weight))])
            if not batch:
                return
            at, line = f"{start} of {len(rewrites)} edits of the code tried", batch[0].line
            self.tell(f"{at}, next on {say_line(line, self.program.code.places)}")
            budget.left -= len(batch) * weight
            budget.edits += len(batch)
            yield batch

    def find_firsts(
        self, lines: set[int], count: Callable[[Sequence[Print]], int], budget: Budget, most: int
    ) -> list[Correction]:
        """Edits with which the code computes more than before of what counts.

        They are of some lines, or put in what the text never reads.
        """
        unused = re.compile(rf"\b({'|'.join(sorted(self.source.unused)) or '(?!)'})\b")
        every = self.rank(lambda _: 0.0)
        mine = [each for each in every if each.line in lines or unused.search(each.text)]
        gains = [
            (count(prints), rewrite)
            for batch in self._take_batches(mine, 2 * self.weight, budget)
            for rewrite, prints in zip(batch, self._try(code.find_prints, batch), strict=True)
        ]
        gains = sorted((each for each in gains if each[0] > 0), key=lambda each: -each[0])
        return [
            Correction(rewrite, rewrite.apply_tidily(self.source.text))
            for _, rewrite in gains[:most]
        ]

    def is_right(self, correction: Correction) -> bool:
        """Is the code right with an edit, on all samples?"""
        with suppress(Exception), self._put(correction):
            found = [self.program.run(each.values, each.sizes).results for each in self.trials]
            pairs = zip(found, self.trials, strict=True)
            if not all(are_close(one, trial.results, finite=False) for one, trial in pairs):
                return False
            # To avoid a branch, or to go through a loop only once, is to hide what is wrong in it.
            lines, repeated = self.ran
            lines_now, repeated_now = code.watch_program(self.program, self.trials[0])
            return lines.keys() <= lines_now.keys() and {*repeated} <= {*repeated_now}
        return False
