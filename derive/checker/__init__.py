"""The check: does this code compute that formula?

    derive check CODE --formula F      exit code 0: same; 1: different; 2: unknown

CODE is FILE.py:function, FILE.py:Class (a torch module), a script, a notebook or one of its tensors
(FILE.ipynb:scores), an einsum string, or `-` for standard input. F is a name of the library, a file
or a text.

Grades, the strongest first
    proved       both sides have one normal form: equal for all sizes, except those that are named
    identical    equal in every entry over random prime fields, without a tolerance
    agrees       equal in float64 to direct loops, at the sizes that are named
    different    with the first element, the first line that departs, and a confirmed edit
    unknown      and why

Over fields exp, log, roots, masks of -inf and gradients are exact. Functions such as erf are
unknown functions there. max and sort hold for any order of the entries.

Arguments are matched by name, then by order; names that are only alike give way to the order where
the code does not run. `--bind "query=Q,W_q.weight=W_Q.T,num_heads=H,cores=[A,B,C]"` names the
others, the last a list. Parameters of torch modules have the layout that torch documents. Random
tensors of a script are its arguments.

Sizes are drawn pairwise distinct. Two sizes are equal only if the code forces it: by a view, an
assertion, a literal or a constructor argument. Code that is right only with another layout is
different; the report names the binding that would make it the same.

The code also runs in float32, float16 and bfloat16. The tolerance is what the formula itself loses
there. Code that lowers the precision is at most "agrees".

Findings are reported beside the grade: values not finite in float32 at logits of 1e4, rows with
nothing left, a finite number in place of -inf in a mask, large terms that cancel, equal sizes that
hide exchanged indices, changed arguments, unused names.

Code that is no valid Python, or reads an undefined name, is repaired where there is one way to do
it. The report then says "as repaired it is the same".

Options: --backward compares gradients too. --seconds limits the time of the user's code in each
stage; no other clock decides anything. --json prints data.

What is contained. The caller, the judge and the runner are three processes. The runner alone loads
the code. It receives tensors and sends tensors; nothing it sends is unpickled or evaluated. The
verdict goes from the judge to the caller over a pipe that the runner does not have. The code runs
in an empty folder that is deleted afterwards. Where Linux grants namespaces, it has no network and
sees no other process. All processes that it starts end with the check.

What is not contained. Code can read and write the user's files by their full paths. Without
namespaces (some containers, macOS) it can reach the network and kill the judge, which gives
"unknown". A function that is passed as an object has been imported by the caller already. Where the
system cannot fork, nothing is contained. Code that recognises the check can show other values than
it computes elsewhere. Code that rewrites the tracer in its own process can be called "proved", but
never against values that the judge saw.

Modules, and those that each uses
    load        read, repair and load the code                             reading
    pick        bind arguments to tensors and choose sizes      slots, bind, subjects, relations
    stages      the judgements, up to the proof                     samples, judge/, runs/
    explain     the line that departs from the formula, and the edit          lines, edits/
    processes   the judge is its `child`, which sends the verdict so far after each stage   frames
"""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from derive import errors, formulas
from derive.checker import pick, processes, program, reading
from derive.checker.load import split_member
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
    show: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """The verdict of code against a formula: the answer, its grade, and the line and the edit.

    `code` is a function, a torch module or a class of modules, `file.py:name`, a notebook, an
    einsum string, or Python text; `init` has the arguments with which a class is made,
    `"Config(n_head=2)"`. `formula` is a Formula, a name of the library, or text in the notation.
    `bind` maps arguments to inputs where names do not decide, `{"query": "Q", "W.weight": "W.T"}`.
    `sizes` fixes sizes; `backward` compares gradients too. The code runs in a process of its own,
    for at most `seconds` in each stage; `show` receives the name of each stage as it begins.
    Raises DeriveError for input that cannot be read; code that does not run is "unknown".
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
    fixed = dict(sizes or {})
    job = Job(_make_absolute(code), wanted, system, binds, fixed, backward, seconds, init)
    with TemporaryDirectory(prefix="derive-", ignore_cleanup_errors=True) as folder:
        work = partial(_work, job, folder)
        found, ended = processes.run_in_child(work, classes=(Verdict,), show=show)
    verdict: Verdict = found if isinstance(found, Verdict) else job.start()
    if not ended:
        return verdict
    return replace(verdict, reasons=(*verdict.reasons, f"the check did not finish: it {ended}"))


def _make_absolute(code: Any) -> Any:
    """The code, with a file's path made absolute: the code runs in another folder."""
    if not isinstance(code, (str, Path)):
        return code
    path, _ = split_member(str(code))
    return f"{Path(path).absolute()}{str(code)[len(path) :]}" if path else code


def _work(job: Job, folder: str, send: processes.Send) -> None:
    """Run all stages, the code in a runner in `folder`; each stage sends the verdict so far."""
    from derive.checker.processes import EndedError
    from derive.checker.runs.runner import start_runner

    torch.set_num_threads(1)
    gc.freeze()  # keep the collector from touching library objects, which would copy shared pages
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
        except Exception as error:  # a bug in derive: keep the verdict so far
            report.end(f"derive itself failed, {processes.describe_crash(error)}")


def judge_job(job: Job, load: Callable[..., Code], report: Progress) -> None:
    """Run all stages on the code that `load` returns, if need be with a name replaced."""
    report(job.start())
    try:
        code = load()
        report.repaired = "is no Python" if code.broken is not None else ""
        report.rival = code.rival
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
    stages.refine()


def _introduce(job: Job, code: Code) -> Verdict:
    """The verdict "unknown" with the name, source and findings of the loaded code."""
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
    """Pairs (rename of an undefined name, code) that fit; if none, those that fail elsewhere."""
    fitting: list[tuple[reading.Rename, Code]] = []
    others: dict[int, list[tuple[reading.Rename, Code]]] = {}
    for rename in reading.find_renames(report.verdict.source, str(error), error.line):
        report.begin(f"the search for what {rename.old} is")
        try:
            code = load(rename)
            choice = pick.pick_program(code, job.system, job.binds, job.sizes)
        except (processes.CannotRunError, errors.DeriveError):
            continue
        if choice.fits and choice.failure is None:
            fitting.append((rename, code))
        elif choice.fits and choice.failure is not None and choice.failure.line != error.line:
            others.setdefault(len(choice.samples[0].relations), []).append((rename, code))
    return fitting or others.get(min(others, default=0), [])
