"""The checker on one page: code against formula -> verdict.

    load        the code that a person means: read, mended, loaded             reading
    pick        which argument is which tensor, at which sizes    slots, bind, subjects, relations
    stages      what is asked one after the other, up to the proof        samples, judge/, runs/
    explain     where code departs from its formula, and the edit          trace, lines, edits/

Three processes, by `processes`: the caller's; the judge, its `child`, which sends the verdict so
far after each stage; and the `runner`, which alone runs somebody's code and answers the judge.
"""

from __future__ import annotations

import ast
import gc
import os
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from derive import errors, formulas
from derive.checker import pick, processes, program, reading
from derive.checker.load import split_member
from derive.checker.slots import parse_text
from derive.checker.stages import judge
from derive.checker.verdict import Job, Progress, Verdict
from derive.frontend.from_sympy import check_real, to_system
from derive.judge.samples import find_sizes
from derive.libraries import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from derive.checker.load import Code
    from derive.notation.formula import Formula

__all__ = ["Verdict", "check"]


def check(  # noqa: PLR0913, PLR0917 - the contract's
    code: Any,
    formula: Formula | str,
    bind: str | Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    backward: bool = False,
    seconds: float = 30,
    init: str = "",
    compiled: bool = False,
    show: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Whether code computes a formula, how sure that is, and if not, where and what to edit.

    `code` is a function, a torch module or a class of modules, `file.py:name`, a notebook, an
    einsum string, or Python text; `init` the arguments with which a class is made,
    `"Config(n_head=2)"`; they may read the formula's sizes, `"width=D"`. `formula` is a Formula, a
    name of the library, or text in the notation. `bind` says what arguments are given where names
    do not tell, `{"query": "Q", "W_q.weight": "W_Q.T"}`; `sizes` fixes sizes; `backward` judges
    gradients too; `compiled` the graph that torch.compile makes of it, after inductor's passes.
    The code runs in a process of its own, for at most `seconds` seconds in each stage; `show` is
    given what is done, in words, as it begins. Raises
    DeriveError for what cannot be read; code that does not run is "unknown", never the same.
    """
    if not 0 < seconds < inf:  # nan is no number of seconds either
        raise errors.refuse("seconds-range", "seconds has to be a finite number above 0")
    wanted = formulas.read_formula(formula)
    system = to_system(wanted)
    if backward:
        check_real(system)
    unknown = [size for size in sizes or () if size not in find_sizes(system)]
    if unknown:
        raise errors.refuse(
            "size-unknown",
            f"{unknown[0]} is no size of {system.name}",
            facts=(f"its sizes are {', '.join(find_sizes(system))}",),
        )
    binds = program.parse_binds(bind) if isinstance(bind, str) else dict(bind or {})
    known = {*find_sizes(system), *(scalar.name for scalar in system.scalars)}
    made = ast.walk(parse_text(f"_({init}\n)"))  # what cannot be read is told where it is made
    making = init if any(isinstance(n, ast.Name) and n.id in known for n in made) else ""
    init = "" if making else init
    fixed = dict(sizes or {})
    job = Job(
        _find_place(code), wanted, system, binds, fixed, backward, seconds, init, compiled, making
    )
    with processes.make_folder() as folder:
        work = partial(_work, job, folder)
        found, ended = processes.run_in_child(work, classes=(Verdict,), show=show)
    verdict: Verdict = found if isinstance(found, Verdict) else job.start()
    if not ended:
        return verdict
    return replace(verdict, reasons=(*verdict.reasons, f"the check did not finish: it {ended}"))


def _find_place(code: Any) -> Any:
    """The code; a file by its whole path, since it is run in another folder."""
    if not isinstance(code, (str, Path)):
        return code
    path, _ = split_member(str(code))
    return f"{Path(path).absolute()}{str(code)[len(path) :]}" if path else code


def _work(job: Job, folder: str, send: processes.Send) -> None:
    """All stages; each sends the verdict so far."""
    from derive.checker.processes import EndedError
    from derive.checker.runs.runner import start_runner

    torch.set_num_threads(1)
    gc.freeze()  # the libraries: a collection that looked at them would copy their pages
    report = Progress(send, job.start())
    if not hasattr(os, "fork"):
        from derive.checker.load import load

        judge_job(job, partial(load, job.code, job.system.name, job.init), report)
        return
    with start_runner(job, folder) as link:
        report.grant = link.restart
        try:
            judge_job(job, partial(link.ask, "load"), report)
        except EndedError as error:
            report.end(str(error))
        except errors.DeriveError:
            raise
        except Exception as error:  # a mistake of ours takes nothing from what is known already
            processes.log_error(error)
            report.end(f"derive itself failed, {processes.describe_crash(error)}")


def judge_job(job: Job, load: Callable[..., Code], report: Progress) -> None:
    """All stages with the code, wherever it lives."""
    report(job.start())
    try:
        code = load()
        report.repaired = "is no Python" if code.broken is not None else ""
        report(_introduce(job, code))
        stages = judge(job, code, report.verdict, report)
    except processes.CannotRunError as error:
        said = job.say_cannot_run(error, report.verdict)
        report(said)
        named = _find_renamed(job, load, error, report)
        if len(named) != 1:
            known = "it may be " + ", ".join(rename.new for rename, _ in named)
            report(replace(said, reasons=(*said.reasons, known)) if named else said)
            return
        ((rename, code),) = named
        report.repaired = report.repaired or "does not run"
        report(replace(_introduce(job, code), line=code.broken or rename.line))
        stages = judge(job, code, report.verdict, report)
    if job.compiled and stages.verdict.same:
        stages.judge_compiled()
    else:
        stages.refine()


def _introduce(job: Job, code: Code) -> Verdict:
    """What is known of code that is loaded."""
    return replace(
        job.start(),
        code=code.name,
        source=code.source,
        findings=code.findings,
        places=code.places,
        line=code.broken,
    )


def _find_renamed(
    job: Job, load: Callable[..., Code], error: processes.CannotRunError, report: Progress
) -> list[tuple[reading.Rename, Code]]:
    """What code may read instead of a name that nothing sets: what fits, else what runs."""
    fitting: list[tuple[reading.Rename, Code]] = []
    others: dict[int, list[tuple[reading.Rename, Code]]] = {}
    for rename in reading.find_renames(report.verdict.source, str(error), error.line):
        report.begin(f"the search for what {rename.old} is")
        try:
            code = load(rename)
            choice = pick.pick_program(code, job.system, job.binds, job.sizes, job.making)
        except (processes.CannotRunError, errors.DeriveError):
            continue
        if choice.fits and choice.failure is None:
            fitting.append((rename, code))
        elif choice.fits and choice.failure is not None and choice.failure.line != error.line:
            others.setdefault(len(choice.samples[0].relations), []).append((rename, code))
    return fitting or others.get(min(others, default=0), [])
