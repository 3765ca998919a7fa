"""The checker on one page: code against formula -> verdict.

    load        the code that a person means                        slots, script
    pick        which argument is which tensor, and at which sizes  tries, bind, shapes, draws, ties
    judge       float64 against the loops; sizes and inputs beyond the code's own numbers
    stability   float32 and bfloat16 at logits of 1 and of 1e4
    explain     where code departs from its formula, and the edit   trace, edits

Somebody's code runs in a child process (`child`), which sends the verdict so far after each stage:
what is slow or hangs costs the later stages, never an answer that is already had.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.checker.child import run_in_child
from derive.checker.job import Job
from derive.checker.load import CannotRunError, load
from derive.checker.sources import parse_binds
from derive.checker.stages import judge, refine
from derive.checker.verdict import Verdict
from derive.errors import refuse
from derive.frontend.system import to_system
from derive.judge.samples import find_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from derive.notation.formula import Formula

__all__ = ["Verdict", "check"]


def check(  # noqa: PLR0913, PLR0917 - the contract's
    code: Any,
    formula: Formula | str,
    bind: str | Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    backward: bool = False,
    seconds: float = 30,
) -> Verdict:
    """Whether code computes a formula, how sure that is, and if not, where and what to edit.

    `code` is a function, a torch module or a class of modules, `file.py:name`, an einsum string, or
    Python text; `formula` a Formula, a name of the library, or text in the notation. `bind` says
    what arguments are given where names do not tell, `{"query": "Q", "W_q.weight": "W_Q.T"}`;
    `sizes` fixes sizes; `backward` judges gradients too. The code runs in a child process for at
    most `seconds` seconds. Raises DeriveError for what cannot be read; code that does not run is
    "unknown", never the same.
    """
    if seconds <= 0:
        raise refuse("seconds-range", "seconds has to be more than 0")
    wanted = find_formula(formula)
    system = to_system(wanted)
    unknown = [size for size in sizes or () if size not in find_sizes(system)]
    if unknown:
        raise refuse(
            "size-unknown",
            f"{unknown[0]} is no size of {system.name}",
            facts=(f"its sizes are {', '.join(find_sizes(system))}",),
        )
    binds = parse_binds(bind) if isinstance(bind, str) else dict(bind or {})
    job = Job(code, wanted, system, binds, dict(sizes or {}), backward, seconds)
    found, ended = run_in_child(partial(_work, job), seconds)
    verdict: Verdict = job.start() if found is None else found
    if not ended:
        return verdict
    why = f"the code was still running after {seconds:g} s" if ended == "time" else ended
    if verdict.same is None:
        return replace(verdict, reasons=(*verdict.reasons, why))
    return replace(verdict, reasons=(*verdict.reasons, f"stopped before the end: {why}"))


def find_formula(formula: Formula | str) -> Formula:
    """The formula that is meant: itself, one of the library, or a text."""
    if not isinstance(formula, str):
        return formula
    if "=" in formula:
        from derive.frontend.from_text import parse

        return parse(formula)
    from derive.formulas import find_formula as find_in_library

    return find_in_library(formula)


def _work(job: Job, send: Callable[[Verdict], None]) -> None:
    """All stages; each sends the verdict so far."""
    import torch

    torch.set_num_threads(1)
    verdict = job.start()
    send(verdict)
    try:
        code = load(job.code, job.system.name)
        verdict = replace(verdict, code=code.name, source=code.source, findings=code.findings)
        send(verdict)
        picked, verdict = judge(job, code, verdict, send)
    except CannotRunError as error:
        send(job.say_cannot_run(error, verdict))
        return
    refine(job, picked, verdict, send)
