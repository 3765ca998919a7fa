"""What random fields add to a verdict of float64: identical, or why it stays what it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from derive.checker.judge_fields import Exactness, judge_fields
from derive.errors import Diagnostic

if TYPE_CHECKING:
    from derive.checker.job import Job
    from derive.checker.judge import Outcome
    from derive.checker.pick import Picked
    from derive.checker.verdict import Verdict

_SOFT_MASK = Diagnostic(
    "finite-mask",
    "a finite number stands for -inf in the mask",
    facts=("a row with nothing left gives an average of what is masked, not nan or zeros",),
    help='use float("-inf"), or be sure that every row keeps an entry',
)


def judge_exactly(job: Job, picked: Picked, verdict: Verdict, floats: Outcome) -> Verdict:
    """The verdict after random fields; `floats` is what float64 says."""
    exactness = judge_fields(picked.program, picked.draws, backward=job.backward)
    if exactness.soft_mask:
        verdict = replace(verdict, findings=(*verdict.findings, _SOFT_MASK))
    if exactness.same:
        return _say_identical(verdict, exactness, floats.off)
    if exactness.same is None:
        return replace(verdict, reasons=(*verdict.reasons, exactness.reason))
    return _say_other(verdict, exactness, floats)


def _say_identical(verdict: Verdict, exactness: Exactness, off: float) -> Verdict:
    reasons: tuple[str, ...] = ()
    if exactness.opaque:
        reasons = (f"whatever {', '.join(exactness.opaque)} may be",)
    findings = verdict.findings
    if not verdict.same:
        says = f"exact arithmetic agrees, float64 is off by {off:.1e}"
        findings = (*findings, Diagnostic("rounding", says, facts=verdict.reasons))
    return replace(verdict, same=True, grade="identical", reasons=reasons, findings=findings)


def _say_other(verdict: Verdict, exactness: Exactness, floats: Outcome) -> Verdict:
    """Another value over fields: a difference, unless chance or a hash may have made it."""
    if exactness.opaque or exactness.is_chancy or exactness.soft_mask:
        what = ", ".join(exactness.opaque) or "the order or the sign of values"
        reason = f"not told over random fields, where {what} is left to chance"
        return replace(verdict, reasons=(*verdict.reasons, reason))
    if verdict.same:
        says = "in exact arithmetic the code is not quite the formula"
        help = "look for a small constant on one side alone, such as an epsilon"
        found = Diagnostic("not-quite", says, facts=(exactness.difference,), help=help)
        return replace(verdict, findings=(*verdict.findings, found))
    difference = floats.difference or exactness.difference
    return replace(verdict, same=False, grade="different", difference=difference)
