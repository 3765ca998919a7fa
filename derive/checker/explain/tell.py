"""The verdict on code that differs, with the line and the edit that explain it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from derive.checker.draws import vary_sizes
from derive.checker.draws.inputs import SCALES, scale, vary_inputs
from derive.checker.edits.judge import ERRORS
from derive.checker.explain import Case, Explanation, explain
from derive.checker.judge import judge_at
from derive.checker.source.load import CannotRunError, find_literals
from derive.judge.evaluate import evaluate_system

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.checker.draws import Draw
    from derive.checker.pick import Picked
    from derive.checker.verdict import Job, Verdict
    from derive.ir.nodes import System

MOST_FAR = 40  # draws at other sizes that confirm a corrected line
MOST_INPUTS = 16  # of special inputs that do


def tell(
    job: Job, picked: Picked, verdict: Verdict, send: Callable[[Verdict], None] | None = None
) -> Verdict:
    """The verdict with its line, its annotations, and an edit that is confirmed at every draw.

    What differs at a further draw alone is explained there. `send` takes what is known on the way.
    """
    job = _leave_out_missing(job, picked)
    shown = () if picked.shown is None else (picked.shown,)

    def add(found: Explanation) -> Verdict:
        kept = verdict.difference if picked.shown is not None else found.difference
        return replace(
            verdict,
            difference=kept or verdict.difference,
            line=found.line,
            edit=found.edit,
            annotations=found.annotations,
            corrected=found.corrected,
            reasons=(*verdict.reasons, *filter(None, [found.tried])),
        )

    def say(found: Explanation) -> None:
        if send is not None:
            send(add(replace(found, difference=verdict.difference)))

    return add(_explain_at(job, picked, (*shown, *picked.draws), say))


def _leave_out_missing(job: Job, picked: Picked) -> Job:
    """The job without the results of the formula that the code does not return."""
    draw = picked.draws[0]
    results = picked.program.run(draw.make_inputs(), draw.sizes).results
    if not 0 < len(results) < len(job.system.results):
        return job
    return replace(job, system=replace(job.system, results=job.system.results[: len(results)]))


def _explain_at(
    job: Job, picked: Picked, draws: Sequence[Draw], say: Callable[[Explanation], None]
) -> Explanation:
    first, *others = [_make_case(job, picked, draw) for draw in draws]
    confirm = partial(_is_confirmed, picked, draws)
    infinite = _count_infinite(picked)

    def confirm_text(system: System, text: str) -> bool:
        """Also at special inputs and beyond the numbers of the text, with no new overflow."""
        start = replace(picked.draws[0], system=system)
        larger = {scale(start, each).reason for each in SCALES[1:]}  # digits are lost there
        numbers = find_literals(replace(picked.program.code, source=text))
        inputs = [each for each in vary_inputs([start], numbers) if each.reason not in larger]
        far = (*inputs[:MOST_INPUTS], *islice(vary_sizes(start, numbers), MOST_FAR))
        return _is_confirmed(picked, (*draws, *far), system) and _count_infinite(picked) <= infinite

    case = replace(
        first, others=tuple(others), confirm=confirm, confirm_text=confirm_text, tell=say
    )
    return explain(case)


def _count_infinite(picked: Picked) -> int:
    """How many results are no finite numbers, though the formula's are, where inputs are large."""
    draw = scale(picked.draws[0], SCALES[0])
    values = draw.make_inputs()
    try:
        wanted = evaluate_system(draw.system, values, draw.sizes)
        results = picked.program.run(values, draw.sizes).results
    except (CannotRunError, *ERRORS):
        return 0
    pairs = zip(results, (wanted[t.name] for t in draw.system.results), strict=False)
    return sum(
        int((~found.isfinite() & other.isfinite()).sum())
        for found, other in pairs
        if found.shape == other.shape
    )


def _make_case(job: Job, picked: Picked, draw: Draw) -> Case:
    """The code at one draw."""

    def make(seed: int) -> Mapping[str, Any]:
        return replace(draw, system=job.system, seed=seed).make_inputs()

    return Case(job.system, picked.program, make, draw.sizes)


def _is_confirmed(picked: Picked, draws: Sequence[Draw], edited: System) -> bool:
    """Does the edited formula give what the code gives, at every draw?"""
    moved = [replace(draw, system=edited) for draw in draws]
    try:
        return not any(judge_at(picked.program, draw).is_clear for draw in moved)
    except ERRORS:  # it has no value at one of them
        return False
