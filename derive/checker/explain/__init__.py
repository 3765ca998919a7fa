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
from derive.checker.code_edits.running import exchange
from derive.checker.code_edits.search import Budget, Correction, Mender, Trial
from derive.checker.code_edits.sites import Source
from derive.checker.edits import Search
from derive.checker.edits.judge import ERRORS, Judge, Keeping, Run
from derive.checker.edits.sites import World
from derive.checker.explain.lines import (
    Lines,
    count_gained,
    find_changed_line,
    find_lines,
    find_result_line,
)
from derive.checker.explain.results import (
    find_difference,
    find_inner_survivor,
    find_result_edit,
)
from derive.checker.reading import say_line
from derive.checker.trace import Trace, record_program
from derive.checker.trace.nodes import is_condition
from derive.ir.polynomial import evaluate_extent
from derive.ir.walk import find_free, walk

if TYPE_CHECKING:
    from derive.checker.program import Program
    from derive.ir.nodes import System

DRAWS = (0, 1, 2)
STEPS = 9000  # of a whole explanation; each takes about a millisecond
MOST_FAULTS = 3
# The parts of what is left that have an edit of the formula, one of the code, more of the formula,
# edits that may come first, and what is explained behind the first.
_FORMULA, _CODE, _AFTER, _FIRSTS, _BEHIND = 0.2, 0.6, 0.15, 0.2, 0.6
_MOST_FIRST = 4  # of the edits that may come first of several
# What it costs an edit to be on a line that is not suspected; that is a part; that is an equation.
_NEAR, _APART, _RIGHT = 0.2, 0.4, 0.8
_ENOUGH = 4  # so long a range shows conditions that are shifted
# How much a run does that takes a step: calls of torch, and elements that they make.
_CALLS, _ELEMENTS = 40, 200_000


@dataclass(frozen=True)
class Case:
    """Code that differs from its formula, with everything bound.

    `draw` gives inputs named as in the formula, by seed. `others` are the same at other sizes: what
    holds at one size only is no edit. `confirm` says whether a formula is what the code computes
    beyond all this, `confirm_text` whether the formula is what it computes with another text.
    """

    system: System
    program: Program
    draw: Callable[[int], Mapping[str, Any]]
    sizes: Mapping[str, int]
    others: tuple[Case, ...] = ()
    confirm: Callable[[System], bool] | None = None
    confirm_text: Callable[[System, str], bool] | None = None
    tell: Callable[[Explanation], None] | None = None

    @property
    def source(self) -> str:
        """The text of the code."""
        return self.program.code.source

    def run(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The code's results."""
        return self.program.run(values, self.sizes).results

    def record(self, seed: int) -> Trace:
        """The trace of one run."""
        return record_program(self.program, self.draw(seed), self.sizes)

    def with_source(self, source: str) -> Case:
        """The code with another text, which it has been given."""
        code = replace(self.program.code, source=source)
        program = replace(self.program, code=code)
        others = tuple(replace(other, program=program) for other in self.others)
        return replace(self, program=program, others=others)

    def is_corrected(self, text: str) -> bool:
        """Is the formula what the code computes with this text, which it has now?"""
        return self.confirm_text is None or self.confirm_text(self.system, text)

    def is_confirmed(self, system: System) -> bool:
        """Is the formula what the code computes, as far as can be told?"""
        return self.confirm is None or self.confirm(system)


@dataclass(frozen=True)
class Explanation:
    """The first difference, the first line that departs, the edit, and what each line is.

    `corrected` has the lines of the code as they should be, where that can be written; `tried` says
    what was tried where no edit was found.
    """

    difference: str = ""
    line: int | None = None
    edit: str = ""
    edited: System | None = None
    annotations: tuple[tuple[int, str], ...] = ()
    corrected: tuple[tuple[int, str], ...] = ()
    tried: str = ""
    placed: int | None = None  # the line whose value is what an edit of the formula changes


def explain(case: Case, steps: int = STEPS) -> Explanation:
    """Why the code of a case gives something else than its formula, within so many steps."""
    found = Explanation()
    budget = Budget(steps)
    for turned in _find_turns(case):
        found = _explain_at(turned, budget, MOST_FAULTS)
        if found.difference:  # a difference that shows at some sizes only is explained there
            sizes = " ".join(f"{name}={size}" for name, size in turned.sizes.items())
            at = f", at {sizes}" if sizes else ""
            found = replace(found, difference=f"{found.difference}{at}")
            break
    if found.difference and budget.edits and not found.edit:
        said = f"none of the {budget.edits} edits of the code that were tried makes it right"
        found = replace(found, tried=said)
    return found


def _explain_at(case: Case, budget: Budget, faults: int) -> Explanation:
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
    if budget.left <= 0:
        return plain
    simple = find_result_edit(case.system, judge)
    search = Search(
        judge,
        lambda system: lines.count_unexplained(system, judge),
        case.is_confirmed,
        lines.order_equations(),
        World(case.system, case.sizes),
    )
    if simple is not None:
        line = plain.line or find_result_line(trace)
        found, suspects = replace(plain, line=line, edit=simple.words, placed=line), {line or 0}
    else:
        found, suspects = _edit_formula(search, lines, plain, budget, _FORMULA)
    if case.tell is not None and faults == MOST_FAULTS:
        case.tell(found)
    mender = _make_mender(case, judge, trace)
    if mender is not None:
        correction = _edit_code(mender, lines, suspects, budget)
        if correction is not None:
            return _add_correction(found, correction, lines, case.source)
    if not found.edit:
        found, _ = _edit_formula(search, lines, plain, budget, _AFTER)
    if found.edit or faults == 1:
        return found
    plain = replace(plain, line=found.line)
    return _explain_in_turn(case, judge, lines, mender, plain, budget, faults)


def _edit_formula(
    search: Search, lines: Lines, plain: Explanation, budget: Budget, part: float
) -> tuple[Explanation, set[int]]:
    """The explanation by an edit of the formula, if one is found, and the lines it suspects."""
    judge = search.judge
    own = budget.take_part(part)
    search.most = judge.steps + own.left
    begun = judge.steps
    edit = search.find()
    own.left -= judge.steps - begun
    budget.give_back(own)
    inner = find_inner_survivor(lines) if edit is None else None
    if inner is not None:
        found = replace(plain, line=inner.line, edit=inner.words, placed=inner.line)
        return found, {inner.line or 0}
    if edit is None:
        return plain, {plain.line or 0}
    system = edit.system
    placed = find_changed_line(lines, system, judge)
    line = placed or plain.line or find_result_line(lines.trace)
    if system.results != judge.system.results:  # no value is another, only what is returned
        placed = line
    found = replace(plain, line=line, edit=edit.words, edited=system, placed=placed)
    return found, {line or 0, plain.line or 0}


def _edit_code(
    mender: Mender, lines: Lines, suspects: set[int], budget: Budget
) -> Correction | None:
    """The edit of the code that makes it right, the suspected lines first.

    Two tensors that stand unused are two faults: there an edit for each is looked for soon.
    """
    own = budget.take_part(_CODE if mender.count_unused() < 2 else _FORMULA)
    correction = mender.find(_make_weigh(lines, mender.source.spread(suspects)), own)
    budget.give_back(own)
    return correction


def _make_mender(case: Case, judge: Judge, trace: Trace) -> Mender | None:
    """The search for an edit of the code; none where its text is not known."""
    if case.program.code.target is None or not case.source:
        return None
    trials = []
    draws = [(case, seed) for seed in DRAWS] + [(other, DRAWS[1]) for other in case.others]
    for each, seed in draws:
        values = each.draw(seed)
        try:
            base = Keeping(case.system, values, each.sizes)
        except ERRORS:
            continue
        wanted = tuple(base.values[tensor.name] for tensor in case.system.results)
        trials.append(Trial(values, each.sizes, wanted))
    if not trials:
        return None
    made = sum(event.value.numel() for event in trace.events)
    is_script = case.program.code.script is not None  # which is compiled whole
    weight = 1 + is_script + len(trace.events) // _CALLS + made // _ELEMENTS
    stock = Stock.of(case.system, case.sizes)
    count = partial(_count_parts, case, judge)
    return Mender(case.program, stock, trials, case.is_corrected, count, weight)


def _make_weigh(lines: Lines, suspects: set[int]) -> Callable[[int], float]:
    """What it costs an edit to be on a line."""
    exact = {line for line, event in lines.last.items() if event in lines.exact}
    right = lines.find_right()
    suspects = suspects | lines.find_scaled()

    def weigh(line: int) -> float:
        if line in suspects:
            return 0.0
        if line in right:
            return _RIGHT
        return _APART if line in exact else _NEAR

    return weigh


def _add_correction(
    found: Explanation, correction: Correction, lines: Lines, source: str
) -> Explanation:
    """The explanation with the corrected code.

    The formula's words are kept where the line that is edited has the value that they are about,
    or has none.
    """
    here = Source(source).spread({correction.line})
    is_about = found.placed in here or (found.placed is None and not here & {*lines.last})
    return replace(
        found,
        line=correction.line,
        edit=found.edit if found.edit and is_about else correction.words,
        corrected=correction.find_changed_lines(source),
    )


def _explain_in_turn(  # noqa: PLR0913, PLR0917 - what is known already
    case: Case,
    judge: Judge,
    lines: Lines,
    mender: Mender | None,
    plain: Explanation,
    budget: Budget,
    faults: int,
) -> Explanation:
    """The explanation by an edit that makes a line right, and of what is wrong with it made."""
    if mender is not None:
        spread = mender.source.spread({lines.find_first_inexact() or 0})
        before = lines.count_met(list(lines.prints.values()))
        own = budget.take_part(_FIRSTS)
        firsts = mender.find_firsts(
            spread, lambda prints: lines.count_met(prints) - before, own, _MOST_FIRST
        )
        budget.give_back(own)
        for first in firsts:
            own = budget.take_part(_BEHIND)
            with exchange(case.program.code, first.source, first.line):
                rest = _explain_at(case.with_source(first.source), own, faults - 1)
            budget.give_back(own)
            if rest.edit:
                where = say_line(rest.line or 0, case.program.code.places)
                changed = dict((*first.find_changed_lines(case.source), *rest.corrected))
                return replace(
                    plain,
                    line=first.line,
                    edit=f"{first.words}; and {where}: {rest.edit}",
                    corrected=tuple(sorted(changed.items())) if rest.corrected else (),
                )
    search = Search(
        judge,
        lambda _: 0.0,
        case.is_confirmed,
        lines.order_equations(),
        World(case.system, case.sizes),
        judge.steps + budget.take_part(_BEHIND).left,
    )
    for change in search.find_firsts(lambda system: count_gained(lines, system, judge)):
        own = budget.take_part(_BEHIND)
        rest = _explain_at(replace(case, system=change.system), own, faults - 1)
        budget.give_back(own)
        if rest.edit:
            line = find_changed_line(lines, change.system, judge) or plain.line
            return replace(
                plain, line=line, edit=f"{change.words}; and {rest.edit}", edited=rest.edited
            )
    return plain


def _count_parts(case: Case, judge: Judge) -> tuple[int, int]:
    """How many lines and equations agree in the code as it is now."""
    trace = case.record(DRAWS[0])
    if trace.error:
        return 0, 0
    return find_lines(case.system, judge.bases[0], trace, case.sizes).count_parts()


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
