"""The verdict on code that differs, with the line and the edit that explain it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.checker.draws import Draw
from derive.checker.explain import Case, explain
from derive.checker.judge import judge_far, run_quietly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.checker.job import Job
    from derive.checker.pick import Picked
    from derive.checker.verdict import Verdict
    from derive.ir.nodes import System


def tell(job: Job, picked: Picked, verdict: Verdict) -> Verdict:
    """The verdict with its line, its annotations, and an edit that is confirmed at every draw."""
    first, *others = [_make_case(job, picked, draw) for draw in picked.draws]
    case = replace(first, others=tuple(others), confirm=partial(_is_confirmed, picked))
    found = explain(case, max(1.0, job.left - 2))
    return replace(
        verdict,
        difference=found.difference or verdict.difference,
        line=found.line,
        edit=found.edit,
        annotations=found.annotations,
    )


def _make_case(job: Job, picked: Picked, draw: Draw) -> Case:
    """The code at the sizes of one draw."""
    program = picked.program

    def run(values: Mapping[str, Any]) -> tuple[Any, ...]:
        results: tuple[Any, ...] = run_quietly(program, values, draw.sizes)[0]
        return results

    def make(seed: int) -> Mapping[str, Any]:
        return Draw(job.system, draw.sizes, seed, draw.defaulted).make_inputs()

    return Case(job.system, run, make, draw.sizes, program.code.path, program.code.source)


def _is_confirmed(picked: Picked, edited: System) -> bool:
    """Does the edited formula give what the code gives, at every draw?"""
    draws = [Draw(edited, d.sizes, d.seed, d.defaulted) for d in picked.draws]
    return all(judge_far(picked.program, draw).same is not False for draw in draws)
