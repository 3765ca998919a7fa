"""Does an edited formula give what the code gave? In float64, from the edited equation on.

What an edit leaves alone is not evaluated again: nodes are interned, so a node of the formula that
reads no tensor which the edit has changed has the value it had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from derive.ir.nodes import Access, Expr, System
from derive.ir.walk import find_children
from derive.judge.evaluate import Evaluator

if TYPE_CHECKING:
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
class Run:
    """The code's results for one draw of inputs."""

    values: Mapping[str, Any]
    results: tuple[Any, ...]
    sizes: Mapping[str, int]


class Keeping(Evaluator):
    """An evaluator of the formula itself; what it has found is there for others."""

    def __init__(self, system: System, values: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        super().__init__(values, sizes, system.empty_row)
        self.found: dict[Expr, Grid] = {}
        for equation in system.equations:
            self.define(equation)

    def find(self, expr: Expr) -> Grid:
        """The value of a node, kept."""
        grid = self.found[expr] = super().find(expr)
        return grid


class Changed(Evaluator):
    """An evaluator of an edited formula: `names` are the tensors that have other values now."""

    def __init__(self, base: Keeping, names: Names, system: System) -> None:
        super().__init__(base.values, base.sizes, system.empty_row)
        self._base, self._names = base, names
        self.changed: set[str] = set()
        self.count = 0  # of the nodes that are evaluated

    def find(self, expr: Expr) -> Grid:
        """The value of a node: what it was, if nothing changed in it."""
        known = self._base.found.get(expr)
        if known is not None and not self._names.find(expr) & self.changed:
            return known
        self.count += 1
        return super().find(expr)

    def extent(self, extent: Expr) -> int:
        """The number that an extent is, as the base has kept it."""
        return self._base.extent(extent)


class Names:
    """The names of the tensors in each node."""

    def __init__(self) -> None:
        self._known: dict[Expr, frozenset[str]] = {}

    def find(self, expr: Expr) -> frozenset[str]:
        """The names of the tensors in a node."""
        if expr not in self._known:
            own = [expr.tensor.name] if isinstance(expr, Access) else []
            inside = (self.find(child) for child in find_children(expr))
            self._known[expr] = frozenset(own).union(*inside)
        return self._known[expr]


class Judge:
    """The formula, and what the code gave for some draws of its inputs."""

    def __init__(self, system: System, runs: Sequence[Run]) -> None:
        self.system, self.runs = system, runs
        self.names = Names()
        self.tried = 0
        self.steps = 0  # of evaluations: as many milliseconds, about

    @cached_property
    def bases(self) -> tuple[Keeping, ...]:
        """The formula's values for each draw."""
        return tuple(Keeping(self.system, run.values, run.sizes) for run in self.runs)

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """How many steps an evaluation is, for each draw."""
        return tuple(1 + prod(run.sizes.values()) // LARGE for run in self.runs)

    def evaluate(self, edited: System, draw: int = 0) -> Changed:
        """The values of an edited formula."""
        found = Changed(self.bases[draw], self.names, edited)
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
            self.steps += self.weights[draw] * (1 + found.count // NODES)
        return found

    def is_reproduced(self, edited: System, draw: int = 0) -> bool:
        """Does the edited formula give the code's results for one draw?"""
        self.tried += 1
        try:
            found = self.evaluate(edited, draw)
            results = [found.values[tensor.name] for tensor in edited.results]
            return are_close(self.runs[draw].results, results, finite=draw == 0)
        except ERRORS:
            return False

    def is_confirmed(self, edited: System) -> bool:
        """Does it on all draws?"""
        return all(self.is_reproduced(edited, draw) for draw in range(len(self.runs)))


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
