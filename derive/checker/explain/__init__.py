"""Why code differs from its formula: the first element, the lines, the edit.

    1. trace     every tensor of the code, with its line
    2. nodes     every part of the formula, with its value; a tensor that is one tells its line
    3. edits     changes of the formula, until one gives what the code gives

The line is the first whose value is no part of the formula, though all that it reads is; with an
edit, the first whose value is a part of the edited formula alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from derive.checker.edits import Search
from derive.checker.edits.judge import ERRORS, Judge, Run
from derive.checker.edits.sites import World
from derive.checker.explain.changes import (
    count_gained,
    find_changed_line,
    find_result_line,
)
from derive.checker.explain.lines import Lines, find_lines
from derive.checker.explain.results import (
    find_difference,
    find_inner_survivor,
    find_result_edit,
)
from derive.checker.trace import Trace, record
from derive.checker.trace.nodes import is_condition
from derive.ir.polynomial import evaluate_extent
from derive.ir.walk import find_free, walk

if TYPE_CHECKING:
    from derive.ir.nodes import System

DRAWS = (0, 1, 2)
STEPS = 6000  # of the search for an edit: about 5 s of evaluations of small changed formulas
_ENOUGH = 4  # so long a range shows conditions that are shifted


@dataclass(frozen=True)
class Case:
    """Code that differs from its formula, with everything bound.

    `run` gives the code's results for inputs named as in the formula; `draw` gives inputs by seed.
    `others` are the same at other sizes: what holds at one size only is no edit. `confirm` says
    whether an edited formula holds beyond all this.
    """

    system: System
    run: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    draw: Callable[[int], Mapping[str, Any]]
    sizes: Mapping[str, int]
    path: str = ""
    source: str = ""
    others: tuple[Case, ...] = ()
    confirm: Callable[[System], bool] | None = None
    trace: Callable[[Mapping[str, Any]], Trace] | None = None  # where `run` cannot be watched


@dataclass(frozen=True)
class Explanation:
    """The first difference, the first line that departs, the edit, and what each line is."""

    difference: str = ""
    line: int | None = None
    edit: str = ""
    edited: System | None = None
    annotations: tuple[tuple[int, str], ...] = ()


def explain(case: Case, steps: int = STEPS) -> Explanation:
    """Why the code of a case gives something else than its formula, within so many steps."""
    found = Explanation()
    for turned in _find_turns(case):
        found = _explain_at(turned, steps)
        if found.difference:
            break  # a difference that shows at some sizes only is explained there
    return found


def _explain_at(case: Case, steps: int) -> Explanation:
    """The explanation at the sizes of this case; the others judge an edit."""
    values = case.draw(DRAWS[0])
    trace = case.trace(values) if case.trace else record(case.run, values, case.path)
    judge = _make_judge(case)
    try:
        base = judge.bases[0] if judge.runs else None
    except ERRORS:
        base = None
    if base is None:
        return Explanation()
    lines = find_lines(case.system, base, trace, case.sizes)
    difference = find_difference(case.system, base, judge.runs[0].results, case.sizes)
    if not difference:
        return Explanation(annotations=lines.annotate())
    found = Explanation(difference, lines.find_first_wrong(), annotations=lines.annotate())
    simple = find_result_edit(case.system, judge)
    if simple is not None:
        line = found.line or find_result_line(trace)
        return replace(found, line=line, edit=simple.words)
    search = _make_search(case, judge, lines, steps)
    world = World(case.system, case.sizes)
    edit = search.find(world)
    inner = find_inner_survivor(lines) if edit is None else None
    if inner is not None:
        return replace(found, line=inner.line, edit=inner.words)
    if edit is None:
        edit = search.find_pair(world, lambda system: count_gained(lines, system, judge))
    if edit is None:
        return found
    system = edit.change.system
    line = find_changed_line(lines, system, judge) or found.line or find_result_line(trace)
    return replace(found, line=line, edit=edit.words, edited=system)


def _find_turns(case: Case) -> Iterator[Case]:
    """Every case with the others behind it; sizes at which conditions have most to say first."""
    cases = (replace(case, others=()), *case.others)
    for best in sorted(cases, key=_measure_conditions, reverse=True):  # equals keep their order
        others = tuple(other for other in cases if other is not best)
        yield replace(best, others=others, confirm=case.confirm)


def _measure_conditions(case: Case) -> int:
    extents = [
        evaluate_extent(index.extent, case.sizes)
        for equation in case.system.equations
        for node in walk(equation.value)
        if is_condition(node)
        for index in find_free(node)
    ]
    return min((*extents, _ENOUGH))


def _make_judge(case: Case) -> Judge:
    """The code's results for each draw."""
    runs = []
    draws = [(case, seed) for seed in DRAWS] + [(other, DRAWS[1]) for other in case.others]
    for each, seed in draws:
        values = each.draw(seed)
        try:
            runs.append(Run(values, tuple(each.run(values)), each.sizes))
        except Exception:  # a draw that the code does not bear says nothing
            continue
    return Judge(case.system, runs)


def _make_search(case: Case, judge: Judge, lines: Lines, steps: int) -> Search:
    """The search for changes, near the first wrong line first."""

    def weigh(system: System) -> float:
        return lines.count_unexplained(system, judge)

    def confirm(system: System) -> bool:
        return case.confirm is None or case.confirm(system)

    return Search(judge, weigh, confirm, judge.steps + steps, lines.order_equations())
