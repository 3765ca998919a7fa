"""Why code differs from its formula: the first element, the lines, the edit.

    1. trace     every tensor of the code, with its line
    2. nodes     every part of the formula, with its value; a tensor that is one tells its line
    3. edits     changes of the formula, until one gives what the code gives
    4. code      edits of the code itself, until one gives what the formula gives

The line is that of the edited code. Where only the formula could be edited, it is the first whose
value is a part of the edited formula alone; else the first whose value is no part of the formula,
though all that it reads is. Where no one edit is enough, one that makes a line right is made first,
and what is then wrong is explained in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.checker.code_edits.operators import Stock
from derive.checker.code_edits.running import Lines as Ran
from derive.checker.code_edits.search import MOST_CALLS, MOST_RUNS, Correction, Mender, Trial
from derive.checker.code_edits.sites import Source
from derive.checker.edits import Search
from derive.checker.edits.judge import ERRORS, Judge, Keeping, Run
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
    from derive.checker.load import Code
    from derive.ir.nodes import System

DRAWS = (0, 1, 2)
STEPS = 6000  # of the search for an edit: about 5 s of evaluations of small changed formulas
MOST_FAULTS = 3
_MOST_FIRST = 4  # of the edits that may come first of several
# What it costs an edit to be on a line that is not suspected; that is a part; that is an equation.
_NEAR, _APART, _RIGHT = 0.2, 0.4, 0.8
_ENOUGH = 4  # so long a range shows conditions that are shifted


@dataclass(frozen=True)
class Case:
    """Code that differs from its formula, with everything bound.

    `run` gives the code's results for inputs named as in the formula; `draw` gives inputs by seed.
    `others` are the same at other sizes: what holds at one size only is no edit. `confirm` says
    whether a formula is what the code computes beyond all this, `confirm_text` whether it still is
    with another text. `trace` and `watch` are there where `run` itself cannot be watched; `code` is
    what can be edited.
    """

    system: System
    run: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    draw: Callable[[int], Mapping[str, Any]]
    sizes: Mapping[str, int]
    path: str = ""
    source: str = ""
    others: tuple[Case, ...] = ()
    confirm: Callable[[System], bool] | None = None
    trace: Callable[[Mapping[str, Any]], Trace] | None = None
    watch: Callable[[Mapping[str, Any]], Ran] | None = None
    code: Code | None = None
    confirm_text: Callable[[System, str], bool] | None = None
    tell: Callable[[Explanation], None] | None = None

    def record(self, seed: int) -> Trace:
        """The trace of one run."""
        values = self.draw(seed)
        return self.trace(values) if self.trace else record(self.run, values, self.path)

    def is_corrected(self, text: str) -> bool:
        """Is the formula what the code computes with this text, which it has now?"""
        return self.confirm_text is None or self.confirm_text(self.system, text)

    def is_confirmed(self, system: System) -> bool:
        """Is the formula what the code computes, as far as can be told?"""
        return self.confirm is None or self.confirm(system)


@dataclass(frozen=True)
class Explanation:
    """The first difference, the first line that departs, the edit, and what each line is.

    `corrected` has the lines of the code as they should be, where that can be written.
    """

    difference: str = ""
    line: int | None = None
    edit: str = ""
    edited: System | None = None
    annotations: tuple[tuple[int, str], ...] = ()
    corrected: tuple[tuple[int, str], ...] = ()


def explain(case: Case, steps: int = STEPS) -> Explanation:
    """Why the code of a case gives something else than its formula, within so many steps."""
    found = Explanation()
    for turned in _find_turns(case):
        found = _explain_at(turned, steps, MOST_FAULTS)
        if found.difference:  # a difference that shows at some sizes only is explained there
            sizes = " ".join(f"{name}={size}" for name, size in turned.sizes.items())
            at = f", at {sizes}" if sizes else ""
            return replace(found, difference=f"{found.difference}{at}")
    return found


def _explain_at(case: Case, steps: int, faults: int) -> Explanation:
    """The explanation at the sizes of this case; the others judge an edit."""
    trace = case.record(DRAWS[0])
    judge = _make_judge(case)
    try:
        base = judge.bases[0] if judge.runs else None
    except ERRORS:
        base = None
    if base is None:
        return Explanation()
    lines = find_lines(case.system, base, trace, case.sizes)
    difference = find_difference(case.system, base, judge.runs[0].results, case.sizes)
    annotations = lines.annotate(_find_lines_elsewhere(case))
    if not difference:
        return Explanation(annotations=annotations)
    plain = Explanation(difference, lines.find_first_wrong(), annotations=annotations)
    found, suspects = _edit_formula(case, judge, lines, steps, plain)
    if case.tell is not None and faults == MOST_FAULTS:
        case.tell(found)
    mender = _make_mender(case, len(trace.events)) if steps else None
    if mender is not None:
        weigh = _make_weigh(lines, suspects, case.source)
        correction = mender.find(Source(case.source), weigh)
        if correction is not None:
            return _add_correction(found, correction, case.source)
    if found.edit or faults == 1 or not steps:
        return found
    return _explain_in_turn(
        case, judge, lines, mender, replace(plain, line=found.line), steps, faults
    )


def _edit_formula(
    case: Case, judge: Judge, lines: Lines, steps: int, plain: Explanation
) -> tuple[Explanation, set[int]]:
    """The explanation by an edit of the formula, if one is found, and the lines it suspects."""
    simple = find_result_edit(case.system, judge)
    if simple is not None:
        line = plain.line or find_result_line(lines.trace)
        return replace(plain, line=line, edit=simple.words), {line or 0}
    search = Search(
        judge,
        lambda system: lines.count_unexplained(system, judge),
        case.is_confirmed,
        judge.steps + steps,
        lines.order_equations(),
    )
    edit = search.find(World(case.system, case.sizes))
    inner = find_inner_survivor(lines) if edit is None else None
    if inner is not None:
        return replace(plain, line=inner.line, edit=inner.words), {inner.line or 0}
    if edit is None:
        return plain, {plain.line or 0}
    system = edit.change.system
    line = find_changed_line(lines, system, judge) or plain.line or find_result_line(lines.trace)
    return replace(plain, line=line, edit=edit.words, edited=system), {line or 0, plain.line or 0}


def _make_mender(case: Case, calls: int) -> Mender | None:
    """The search for an edit of the code; none where its text is not known."""
    trials = []
    draws = [(case, seed) for seed in DRAWS] + [(other, DRAWS[1]) for other in case.others]
    for each, seed in draws:
        values = each.draw(seed)
        try:
            base = Keeping(case.system, values, each.sizes)
        except ERRORS:
            continue
        wanted = tuple(base.values[tensor.name] for tensor in case.system.results)
        trials.append(Trial(each.run, values, wanted))
    if not trials or case.code is None or case.watch is None:
        return None
    stock = Stock.of(case.system, case.sizes)
    watch = partial(case.watch, trials[0].values)
    left = min(MOST_CALLS // max(calls, 10), MOST_RUNS)
    return Mender(case.code, case.source, stock, trials, watch, case.is_corrected, left)


def _make_weigh(lines: Lines, suspects: set[int], source: str) -> Callable[[int], float]:
    """What it costs an edit to be on a line."""
    spread = Source(source).spread(suspects)
    exact = {event.line for event in lines.exact}
    right = lines.find_right()

    def weigh(line: int) -> float:
        if line in right:
            return _RIGHT
        if line in spread:
            return 0.0
        return _APART if line in exact else _NEAR

    return weigh


def _add_correction(found: Explanation, correction: Correction, source: str) -> Explanation:
    return replace(
        found,
        line=correction.line,
        edit=found.edit or correction.words,
        corrected=correction.find_changed_lines(source),
    )


def _explain_in_turn(  # noqa: PLR0913, PLR0917 - what is known already
    case: Case,
    judge: Judge,
    lines: Lines,
    mender: Mender | None,
    plain: Explanation,
    steps: int,
    faults: int,
) -> Explanation:
    """The explanation by an edit that makes a line right, and of what is wrong with it made."""
    steps //= 2
    if mender is not None:
        spread = Source(case.source).spread({lines.find_first_inexact() or 0})
        firsts = mender.find_firsts(
            Source(case.source), spread, lambda: _count_exact(case, judge), _MOST_FIRST
        )
        for first in firsts:
            with mender.edit(first.source, first.line):
                left = replace(case, source=first.source)
                rest = _explain_at(left, steps, faults - 1)
            if rest.edit:
                lines_now = dict((*first.find_changed_lines(case.source), *rest.corrected))
                return replace(
                    plain,
                    line=first.line,
                    edit=f"{first.words}; and line {rest.line}: {rest.edit}",
                    corrected=tuple(sorted(lines_now.items())),
                )
    search = Search(
        judge, lambda _: 0.0, case.is_confirmed, judge.steps + steps, lines.order_equations()
    )
    world = World(case.system, case.sizes)
    for change in search.find_firsts(world, lambda system: count_gained(lines, system, judge)):
        rest = _explain_at(replace(case, system=change.system), steps, faults - 1)
        if rest.edit:
            line = find_changed_line(lines, change.system, judge) or plain.line
            return replace(
                plain,
                line=line,
                edit=f"{change.words}; and {rest.edit}",
                edited=rest.edited,
                corrected=rest.corrected,
            )
    return plain


def _count_exact(case: Case, judge: Judge) -> int:
    """How many nodes of the formula are values of the code as it is now."""
    trace = case.record(DRAWS[0])
    if trace.error:
        return 0
    lines = find_lines(case.system, judge.bases[0], trace, case.sizes)
    return len({lines.matches[event].node for event in lines.exact})


def _find_lines_elsewhere(case: Case) -> Lines | None:
    """The lines at other sizes, where a number that only happens to be a size is another."""
    for other in case.others:
        if other.sizes == case.sizes:
            continue
        try:
            values = other.draw(DRAWS[1])
            base = Keeping(case.system, values, other.sizes)
        except ERRORS:
            continue
        return find_lines(case.system, base, other.record(DRAWS[1]), other.sizes)
    return None


def _find_turns(case: Case) -> Iterator[Case]:
    """Every case with the others behind it; sizes at which conditions have most to say first."""
    cases = (replace(case, others=()), *case.others)
    for best in sorted(cases, key=_measure_conditions, reverse=True):  # equals keep their order
        others = tuple(other for other in cases if other is not best)
        yield replace(
            best,
            others=others,
            confirm=case.confirm,
            confirm_text=case.confirm_text,
            tell=case.tell,
        )


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
