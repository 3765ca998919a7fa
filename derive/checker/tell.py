"""The verdict on code that differs, with the line and the edit that explain it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.checker.code_edits.running import Lines, watch_program
from derive.checker.draws import Draw, find_far_draws
from derive.checker.explain import Case, Explanation, explain
from derive.checker.judge import LARGE, judge_far, scale_value
from derive.checker.load import CannotRunError, find_literals
from derive.checker.trace import Trace, record_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from derive.checker.job import Job
    from derive.checker.pick import Picked
    from derive.checker.verdict import Verdict
    from derive.ir.nodes import System


def tell(job: Job, picked: Picked, verdict: Verdict) -> Verdict:
    """The verdict with its line, its annotations, and an edit that is confirmed at every draw.

    Sizes of the verdict beyond the draws are those at which alone the code differs. What differs at
    no draw does so at large inputs.
    """
    job = _leave_out_missing(job, picked)
    far = [replace(picked.draws[0], sizes=sizes) for sizes in verdict.sizes[len(picked.draws) :]]
    draws = [*far, *picked.draws]
    found = _explain_at(job, picked, draws, 1.0)
    if not found.difference and judge_far(picked.program, picked.draws[0], LARGE).same is False:
        found = replace(_explain_at(job, picked, draws, LARGE), difference=verdict.difference)
    return replace(
        verdict,
        difference=found.difference or verdict.difference,
        line=found.line,
        edit=found.edit,
        annotations=found.annotations,
        corrected=found.corrected,
    )


def _leave_out_missing(job: Job, picked: Picked) -> Job:
    """The job without the results of the formula that the code does not return."""
    draw = picked.draws[0]
    results = picked.program.run(draw.make_inputs(), draw.sizes).results
    if not 0 < len(results) < len(job.system.results):
        return job
    return replace(job, system=replace(job.system, results=job.system.results[: len(results)]))


def _explain_at(job: Job, picked: Picked, draws: Sequence[Draw], scale: float) -> Explanation:
    first, *others = [_make_case(job, picked, draw, scale) for draw in draws]
    confirm = partial(_is_confirmed, picked, draws, scale)
    infinite = _count_infinite(picked)

    def confirm_text(system: System, text: str) -> bool:
        """Also beyond the numbers of the text, and with no overflow that was not there before."""
        start = replace(picked.draws[0], system=system)
        far = find_far_draws(start, find_literals(replace(picked.program.code, source=text)))
        moved = [replace(draw, system=system) for draw in draws]
        return (
            all(judge_far(picked.program, draw, scale).same for draw in (*moved, *far))
            and judge_far(picked.program, start, LARGE).same is not False
            and _count_infinite(picked) <= infinite
        )

    case = replace(first, others=tuple(others), confirm=confirm, confirm_text=confirm_text)
    return explain(case)


def _count_infinite(picked: Picked) -> int:
    """How many elements of the results are no finite numbers where the inputs are large."""
    draw = picked.draws[0]
    values = {n: scale_value(draw, n, v, LARGE) for n, v in draw.make_inputs().items()}
    try:
        results = picked.program.run(values, draw.sizes).results
    except CannotRunError:
        return 0
    return sum(int((~result.isfinite()).sum()) for result in results)


def _make_case(job: Job, picked: Picked, draw: Draw, scale: float) -> Case:
    """The code at the sizes of one draw, with inputs that are so many times as large."""
    program = picked.program

    def run(values: Mapping[str, Any]) -> tuple[Any, ...]:
        return program.run(values, draw.sizes).results

    def make(seed: int) -> Mapping[str, Any]:
        values = Draw(job.system, draw.sizes, seed, draw.defaulted).make_inputs()
        return {name: scale_value(draw, name, value, scale) for name, value in values.items()}

    def trace(values: Mapping[str, Any]) -> Trace:
        return record_program(program, values, draw.sizes)

    def watch(values: Mapping[str, Any]) -> Lines:
        return watch_program(program, values, draw.sizes)

    code = program.code
    case = Case(job.system, run, make, draw.sizes, code.path, code.source)
    return replace(case, trace=trace, watch=watch, code=code)


def _is_confirmed(picked: Picked, draws: Sequence[Draw], scale: float, edited: System) -> bool:
    """Does the edited formula give what the code gives, at every draw?"""
    moved = [Draw(edited, d.sizes, d.seed, d.defaulted) for d in draws]
    return all(judge_far(picked.program, draw, scale).same is not False for draw in moved)
