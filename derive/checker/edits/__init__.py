"""The nearest edit: changes of the formula tried until one gives what the code gives.

    OPERATORS   what people get wrong, each with an example
    Judge       does an edited formula give what the code gave, in float64
    Search      the change that reproduces the code's results and fits its lines best

A change counts only if the changed formula gives the code's results on every sample. Of those that
do, the cheapest is taken, and a line of the code that has no meaning with it makes it dearer. What
an edit leaves alone is not evaluated again: nodes are interned, so a node of the formula that reads
no tensor which the edit has changed has the value it had.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from derive.checker.edits import equations, operators
from derive.ir import nodes as ir
from derive.ir.walk import find_children
from derive.judge.evaluate import Evaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from derive.checker.edits.sites import Change, SizedFormula
    from derive.judge.evaluate import Grid


NODES = 20  # that are evaluated in about a millisecond
LARGE = 20_000  # elements, whose arithmetic takes as long as all else of an evaluation
TOLERANCE = 1e-9  # relative to the largest finite element
ERRORS = (
    RuntimeError,
    ValueError,
    IndexError,
    KeyError,
    ZeroDivisionError,
    OverflowError,
    AssertionError,
    TypeError,
)  # what an edited formula may raise that means nothing


@dataclass(frozen=True)
class Example:
    """The code's results for one sample of inputs."""

    values: Mapping[str, Any]
    results: tuple[Any, ...]
    sizes: Mapping[str, int]


class BaseEvaluator(Evaluator):
    """An evaluator of the formula itself; what it has found is there for others."""

    def __init__(
        self, system: ir.System, values: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> None:
        super().__init__(values, sizes, system.empty_row)
        self.found: dict[ir.Expr, Grid] = {}
        for equation in system.equations:
            self.define(equation)

    def find(self, expr: ir.Expr) -> Grid:
        """The value of a node, kept."""
        grid = self.found[expr] = super().find(expr)
        return grid


class EditEvaluator(Evaluator):
    """An evaluator of an edited formula: `names` are the tensors that have other values now."""

    def __init__(self, base: BaseEvaluator, names: TensorNames, system: ir.System) -> None:
        super().__init__(base.values, base.sizes, system.empty_row)
        self._base, self._names = base, names
        self.changed: set[str] = set()
        self.count = 0  # of the nodes that are evaluated

    def find(self, expr: ir.Expr) -> Grid:
        """The value of a node: what it was, if nothing changed in it."""
        known = self._base.found.get(expr)
        if known is not None and not self._names.find(expr) & self.changed:
            return known
        self.count += 1
        return super().find(expr)

    def extent(self, extent: ir.Expr) -> int:
        """The number that an extent is, as the base has kept it."""
        return self._base.extent(extent)


class TensorNames:
    """The names of the tensors in each node."""

    def __init__(self) -> None:
        self._known: dict[ir.Expr, frozenset[str]] = {}

    def find(self, expr: ir.Expr) -> frozenset[str]:
        """The names of the tensors in a node."""
        if expr not in self._known:
            own = [expr.tensor.name] if isinstance(expr, ir.Access) else []
            inside = (self.find(child) for child in find_children(expr))
            self._known[expr] = frozenset(own).union(*inside)
        return self._known[expr]


class Judge:
    """The formula, and what the code gave for some samples of its inputs."""

    def __init__(self, system: ir.System, runs: Sequence[Example]) -> None:
        self.system, self.runs = system, runs
        self.names = TensorNames()
        self.tried = 0
        self.steps = 0  # of evaluations: as many milliseconds, about

    @cached_property
    def bases(self) -> tuple[BaseEvaluator, ...]:
        """The formula's values for each sample."""
        return tuple(BaseEvaluator(self.system, run.values, run.sizes) for run in self.runs)

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """How many steps an evaluation is, for each sample."""
        return tuple(1 + prod(run.sizes.values()) // LARGE for run in self.runs)

    def evaluate(self, edited: ir.System, sample: int = 0) -> EditEvaluator:
        """The values of an edited formula."""
        found = EditEvaluator(self.bases[sample], self.names, edited)
        old = {equation.target.tensor.name: equation for equation in self.system.equations}
        counts: dict[str, int] = {}
        for equation in edited.equations:
            name = equation.target.tensor.name
            counts[name] = counts.get(name, 0) + 1
        later = {equation.target.tensor.name for equation in edited.equations}
        try:
            for equation in edited.equations:
                name = equation.target.tensor.name
                before = self.names.find(old[name].value) if name in old else frozenset()
                if self.names.find(equation.value) & later - before:
                    raise ValueError(f"{name} is made of what is not there yet")
                later.discard(name)
                same = old.get(name) is equation and counts[name] == 1
                if not same or self.names.find(equation.value) & found.changed:
                    found.define(equation)
                    found.changed.add(name)
        finally:
            self.steps += self.weights[sample] * (1 + found.count // NODES)
        return found

    def is_reproduced(self, edited: ir.System, sample: int = 0) -> bool:
        """Does the edited formula give the code's results for one sample?"""
        self.tried += 1
        try:
            found = self.evaluate(edited, sample)
            results = [found.values[tensor.name] for tensor in edited.results]
            return are_close(self.runs[sample].results, results, finite=sample == 0)
        except ERRORS:
            return False

    def is_confirmed(self, edited: ir.System) -> bool:
        """Does it on all samples?"""
        return all(self.is_reproduced(edited, sample) for sample in range(len(self.runs)))


def are_close(found: Sequence[Any], wanted: Sequence[Any], *, finite: bool = True) -> bool:
    """Are the results the same up to rounding, and, if asked for, is anything finite in each?"""
    if not len(found) >= len(wanted) > 0:
        return False
    return all(is_close(a, b, finite=finite) for a, b in zip(found, wanted, strict=False))


def is_close(found: Any, wanted: Any, *, finite: bool = True) -> bool:
    """Is a tensor the other up to rounding, perhaps with finite numbers in it?"""
    if tuple(found.shape) != tuple(wanted.shape):
        return False
    one, other = found.double(), wanted.double()
    off = (one - other).abs()
    top = float(other.abs().max()) if other.numel() else 0.0
    if top < float("inf"):  # neither nan nor infinities: one look is enough
        return bool(off.max() <= TOLERANCE * max(top, 1e-3)) if other.numel() else True
    told = other.isfinite()
    if not bool((told == one.isfinite()).all()) or (finite and not bool(told.any())):
        return False
    top = float(other[told].abs().max()) if bool(told.any()) else 0.0
    same = (one == other) | (one.isnan() & other.isnan()) | (off <= TOLERANCE * max(top, 1e-3))
    return bool(same.all())


OPERATORS = (*operators.OPERATORS, *equations.OPERATORS)

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
    formula: SizedFormula
    most: int = 0

    @cached_property
    def _changes(self) -> Iterator[tuple[int, Change]]:
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

    def _find_changes(self, group: Sequence[int]) -> Iterator[Change]:
        for operator in OPERATORS:
            for site in (site for number in group for site in self.formula.sites[number]):
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
