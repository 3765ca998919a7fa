"""Search for the edit that makes the formula equal to the code, or the code equal to the formula.

An edit counts only if its results are right on every sample. The cheapest edits are tried first.
The cost of an edit is that of the slip, plus the distance of its line from the first wrong value.
Each line of the code that equals no part of the edited formula adds to the cost. Nodes are
interned, so a node that reads no changed tensor keeps its value. Edits of the text are tried in
batches on one sample. Among right edits of about the same cost, the one wins whose lines equal the
most parts of the formula.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from math import prod

from derive.checker.edits import code_edits, formula_edits, sites, source
from derive.checker.edits.source import Rewrite
from derive.checker.processes import EndedError
from derive.checker.program import Program
from derive.checker.reading import say_line
from derive.checker.runs.trace import ERRORS, Example, are_close
from derive.ir import nodes as ir
from derive.judge.evaluate import Evaluator, Grid, evaluate_formula

NODES = 20  # nodes that are evaluated in about a millisecond
LARGE = 20_000  # elements whose arithmetic takes as long as the rest of an evaluation


class EditEvaluator(Evaluator):
    """An evaluator of an edited formula; `changed` names the tensors with new values."""

    def __init__(self, base: Evaluator, system: ir.System) -> None:
        super().__init__(base.values, base.sizes, system.empty_row)
        self._base = base
        self.changed: set[str] = set()
        self.count = 0  # evaluated nodes

    def evaluate_node(self, expr: ir.Expr) -> Grid:
        """The value of a node, reused if it reads no changed tensor."""
        known = self._base.known.get(expr)
        if known is not None and not find_tensor_names(expr) & self.changed:
            return known
        self.count += 1
        return super().evaluate_node(expr)

    def extent(self, extent: ir.Expr) -> int:
        """The value of an extent, from the base evaluator."""
        return self._base.extent(extent)


@lru_cache(maxsize=1 << 16)
def find_tensor_names(expr: ir.Expr) -> frozenset[str]:
    """The names of the tensors in a node."""
    own = [expr.tensor.name] if isinstance(expr, ir.Access) else []
    return frozenset(own).union(*map(find_tensor_names, expr.children))


@dataclass
class Budget:
    """The steps that are left, about a millisecond each."""

    left: int
    edits: int = 0  # tried edits of the code

    @contextmanager
    def split(self, part: float) -> Iterator[Budget]:
        """A budget with a fraction of the steps; its unused steps return at the end."""
        own = Budget(int(self.left * part))
        self.left -= own.left
        yield own
        self.left += max(own.left, 0)
        self.edits += own.edits


class Judge:
    """A formula, samples of its inputs, and the code's results, which an edited formula gives."""

    def __init__(self, system: ir.System, runs: Sequence[Example]) -> None:
        self.system, self.runs = system, runs
        self.budget = Budget(0)

    @cached_property
    def bases(self) -> tuple[Evaluator, ...]:
        """The evaluators of the formula, one for each sample."""
        return tuple(evaluate_formula(self.system, run.values, run.sizes) for run in self.runs)

    def evaluate(self, edited: ir.System, sample: int = 0) -> EditEvaluator:
        """The evaluator of an edit at a sample; ValueError if an equation reads a later tensor."""
        found = EditEvaluator(self.bases[sample], edited)
        old = {equation.target.tensor.name: equation for equation in self.system.equations}
        counts = Counter(equation.target.tensor.name for equation in edited.equations)
        later = {*counts}
        try:
            for equation in edited.equations:
                name = equation.target.tensor.name
                before = find_tensor_names(old[name].value) if name in old else frozenset()
                if find_tensor_names(equation.value) & later - before:
                    raise ValueError(f"{name} is made of what is not there yet")
                later.discard(name)
                same = old.get(name) is equation and counts[name] == 1
                if not same or find_tensor_names(equation.value) & found.changed:
                    found.define(equation)
                    found.changed.add(name)
        finally:
            weight = 1 + prod(self.runs[sample].sizes.values()) // LARGE
            self.budget.left -= weight * (1 + found.count // NODES)
        return found

    def is_reproduced(self, edited: ir.System, sample: int = 0) -> bool:
        """Whether the edited formula reproduces the code's results for one sample."""
        try:
            found = self.evaluate(edited, sample)
            results = [found.values[tensor.name] for tensor in edited.results]
            return are_close(self.runs[sample].results, results, finite=sample == 0)
        except ERRORS:
            return False


_UNEXPLAINED = 0.25  # cost of each line of the code that equals no part of the edited formula
_MOST_HITS = 12


@dataclass
class EditSearch:
    """A search for an edit of the formula, which stops with the judge's budget, to be resumed."""

    judge: Judge
    weigh: Callable[[ir.System], float]  # number of unexplained lines and equations
    confirm: Callable[[ir.System], bool]
    groups: Sequence[Sequence[int]]  # numbers of equations, the likeliest first
    formula: sites.SizedFormula
    may_be: Callable[[ir.System], bool]  # whether code can compute the formula

    @cached_property
    def _changes(self) -> Iterator[tuple[int, sites.Change]]:
        """All changes, cheap ones first, each with the number of its group of equations."""
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
        for kind in formula_edits.FORMULA_EDITS:
            for site in (site for number in group for site in self.formula.sites[number]):
                with suppress(*ERRORS):  # sites to which this kind does not apply
                    for new, words, extra in kind.find(site):
                        yield site.change(new, words, kind.cost + extra, kind.about)

    def find_change(self) -> sites.Change | None:
        """The cheapest right change of the first group with one, at its total cost; else None."""
        best: sites.Change | None = None
        hits = found_at = 0
        while self.judge.budget.left >= 0 and hits < _MOST_HITS:
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


MOST_COST = 2.5  # cost up to which an edit is more than chance
_BATCH = 96  # edits per request
_BRANCH = 1.0  # cost of an edit of a condition: it may only avoid the fault
_AGAIN = 0.15  # cost of the repetition of an edit at other lines
_LIKE = 0.2  # difference of costs within which edits are equally likely
_MOST_RIGHT = 6  # right edits that are compared
_MOST_AFTER = 3  # requests after the first one with a right edit


@dataclass
class CorrectionSearch:
    """A search for the edit of the code that gives the formula's results in all trials."""

    program: Program
    stock: code_edits.Stock
    trials: Sequence[Example]  # inputs, and the formula's results for them
    confirm: Callable[[str], bool]  # whether a text is right beyond the trials
    score_agreement: Callable[[], int]  # lines and equations that agree, less values that do not
    weight: int  # steps per run
    tell: Callable[[str], None]  # receives the progress in words

    @cached_property
    def original(self) -> source.SourceText:
        """The original text."""
        return source.SourceText(self.program.code.source)

    @cached_property
    def executed_lines(self) -> tuple[source.Lines, tuple[int, ...]]:
        """The pair (executed lines with the values of names, repeated lines)."""
        return source.watch_program(self.program, self.trials[0])

    @cached_property
    def every(self) -> list[Rewrite]:
        """Each edit of the text once, at its least cost; like edits at several places as one."""
        found: dict[tuple[int, int, str], Rewrite] = {}
        for site in source.find_sites(self.original, self.executed_lines[0]):
            every = (find(site, self.stock) for find in code_edits.CODE_EDITS)
            for rewrite in chain.from_iterable(every):
                key = (rewrite.start, rewrite.end, rewrite.text)
                cost = rewrite.cost + _BRANCH * isinstance(site.parents[0], ast.If)
                if key not in found or cost < found[key].cost:
                    found[key] = replace(rewrite, cost=cost)
        return [*found.values(), *source.repeat_rewrites([*found.values()], _AGAIN)]

    def rank(self, weigh: Callable[[int], float]) -> list[Rewrite]:
        """The likely edits, sorted by their cost plus that of their line, `weigh(line)`."""
        costs = {line: weigh(line) for line in dict.fromkeys(each.line for each in self.every)}
        ranked = (replace(each, cost=each.cost + costs[each.line]) for each in self.every)
        likely = [each for each in ranked if each.cost < MOST_COST]
        return sorted(likely, key=lambda each: (each.cost, each.start, each.end))

    def find_correction(self, weigh: Callable[[int], float], budget: Budget) -> Rewrite | None:
        """The likeliest edit that makes the code right; None if none is found within the budget."""
        right: list[Rewrite] = []
        after = 0
        ranked = self.rank(weigh)
        for batch in self._take_batches(ranked, budget):
            after += bool(right)
            if right and (after > _MOST_AFTER or batch[0].cost > right[0].cost + _LIKE):
                chosen = self._choose(right)
                if chosen is not None:
                    return chosen
                right, after = [], 0
            try:
                passing = source.find_passing(self.program, batch, self.trials[0])
            except EndedError as error:
                says = f"with one of the tried edits of the code, {error}"
                raise EndedError(says) from error
            for rewrite in (batch[number] for number in passing if 0 <= number < len(batch)):
                dear = right and rewrite.cost > right[0].cost + _LIKE
                if dear or len(right) >= _MOST_RIGHT:
                    break
                if self.is_right(rewrite):
                    right.append(rewrite)
        return self._choose(right)

    def _choose(self, right: list[Rewrite]) -> Rewrite | None:
        """The best edit that passes the trials and is right beyond them; None if none is."""

        def rate(rewrite: Rewrite) -> tuple[int, float]:
            """The pair to minimize: minus the score of agreement, the cost."""
            with source.exchange(self.program.code, rewrite):
                return -self.score_agreement(), rewrite.cost

        for each in sorted(right, key=rate) if len(right) > 1 else right:
            with suppress(Exception), source.exchange(self.program.code, each):
                if self.confirm(each.apply(self.original.text)):
                    return each
        return None

    def _take_batches(self, ranked: Sequence[Rewrite], budget: Budget) -> Iterator[list[Rewrite]]:
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

    def is_right(self, rewrite: Rewrite) -> bool:
        """Whether the code is right with an edit on all samples."""
        with suppress(Exception), source.exchange(self.program.code, rewrite):
            found = [self.program.run(each.values, each.sizes).results for each in self.trials]
            pairs = zip(found, self.trials, strict=True)
            if not all(are_close(one, trial.results, finite=False) for one, trial in pairs):
                return False
            # an edit that avoids a branch, or runs a loop only once, hides the fault in it
            lines, repeated = self.executed_lines
            lines_now, repeated_now = source.watch_program(self.program, self.trials[0])
            return lines.keys() <= lines_now.keys() and {*repeated} <= {*repeated_now}
        return False
