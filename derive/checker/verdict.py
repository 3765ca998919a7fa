"""One check: what is given, and what is said: same or different, how sure, where, the edit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from derive.checker.processes import CannotRunError, Note
from derive.checker.reading import say_line
from derive.errors import Diagnostic, Mark
from derive.ir import nodes as ir
from derive.notation.formula import Formula

VERSION = 1  # of a verdict's data: keys may come, none goes or changes its meaning
GRADES = ("proved", "identical", "agrees", "different", "unknown")
_ANSWERS = {True: "same", False: "different", None: "unknown"}


@dataclass(frozen=True)
class Verdict:
    """The answer of a check.

    `same` is True, False, or None where it cannot be told. `grade` says how it is known: "proved"
    (one normal form, for all sizes unless `reasons` name some), "identical" (in every entry over
    random prime fields), "agrees" (float64 against the direct loops), "different", "unknown".
    `line` is the first line of the user's file that departs from the formula, `edit` what to change
    there, confirmed by judging the edited formula against the code or the edited code against the
    formula; `corrected` has the lines of the code as they should be, where they could be written;
    `findings` are remarks that hold besides.
    """

    same: bool | None
    grade: str
    code: str = ""
    formula: str = ""
    line: int | None = None
    edit: str = ""
    difference: str = ""
    findings: tuple[Diagnostic, ...] = ()
    reasons: tuple[str, ...] = ()
    sizes: tuple[Mapping[str, int], ...] = ()
    bindings: tuple[str, ...] = ()
    annotations: tuple[tuple[int, str], ...] = field(default=(), compare=False)
    corrected: tuple[tuple[int, str], ...] = ()
    source: str = field(default="", compare=False, repr=False)
    places: tuple[str, ...] = field(default=(), compare=False, repr=False)  # lines of a notebook

    def __bool__(self) -> bool:
        """Whether the code is the same as the formula; unknown is not."""
        return self.same is True

    def __repr__(self) -> str:
        """One line: what pytest shows where `assert check(..)` fails, and a prompt of Python."""
        where = f", {say_line(self.line, self.places)}" if self.line else ""
        edit = f": {self.edit}" if self.edit else ""
        return f"<{_to_head(self)}{where}{edit}>"

    def __str__(self) -> str:
        """The report as it is shown to a person."""
        return "\n".join(_to_lines(self))

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, and the code with what its lines are."""
        from derive.backend.to_html import to_part

        return to_part(self.to_html())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What a prompt of IPython shows."""
        printer.text(str(self))

    def to_html(self) -> str:
        """The same as a part of a page."""
        from derive.backend.to_html import write_verdict

        return write_verdict(self.to_data(), self.source, find_remarks(self), self.places)

    def to_data(self) -> dict[str, Any]:
        """The verdict as plain data, for JSON."""
        return {
            "version": VERSION,
            "same": self.same,
            "grade": self.grade,
            "code": self.code,
            "formula": self.formula,
            "line": self.line,
            "place": say_line(self.line, self.places) if self.line else "",
            "edit": self.edit,
            "corrected": [{"line": line, "text": text} for line, text in self.corrected],
            "difference": self.difference,
            "reasons": list(self.reasons),
            "sizes": [dict(sample) for sample in self.sizes],
            "bindings": list(self.bindings),
            "annotations": [{"line": line, "is": what} for line, what in self.annotations],
            "findings": [
                {"code": each.code, "says": each.says, "facts": list(each.facts), "help": each.help}
                for each in self.findings
            ],
        }


def _to_lines(verdict: Verdict) -> list[str]:
    lines = [_to_head(verdict)]
    lines += [f"  {reason}" for reason in verdict.reasons]
    if verdict.difference:
        lines.append(f"  {verdict.difference}")
    if verdict.bindings:
        lines.append(f"  with {', '.join(verdict.bindings)}")
    if verdict.sizes:
        every = (" ".join(f"{n}={size}" for n, size in sizes.items()) for sizes in verdict.sizes)
        lines.append(f"  at {'; '.join(each or 'no sizes' for each in every)}")
    lines += _annotate(verdict)
    if verdict.edit:
        where = f"{say_line(verdict.line, verdict.places)}: " if verdict.line else ""
        lines.append(f"  edit: {where}{verdict.edit}")
    if verdict.corrected:
        lines += [
            "  so that the code reads",
            *(f"   {n:4d} | {row}" for n, row in verdict.corrected),
        ]
    for finding in verdict.findings:
        lines += [f"  {row}" for row in str(finding).splitlines()]
    return lines


def _to_head(verdict: Verdict) -> str:
    grade = "" if verdict.grade in {"different", "unknown"} else f", {verdict.grade}"
    apart = [each.says for each in verdict.findings if each.code == "scalar-default"]
    but = f", but {'; '.join(apart)}" if verdict.same and apart else ""
    return f"{_ANSWERS[verdict.same]}{grade}{but}: {verdict.code} against {verdict.formula}"


def _annotate(verdict: Verdict) -> list[str]:
    """The lines of the code that equal a node of the formula, and the first that equals none."""
    told = verdict.annotations or (verdict.line and verdict.same is False)
    if verdict.same or not verdict.source or not told:
        return []
    text = verdict.source.splitlines()
    said = find_remarks(verdict)
    shown = [(n, text[n - 1].rstrip()) for n in sorted(said) if 0 < n <= len(text)]
    width = min(72, max((len(line) for _, line in shown), default=0))
    rows = []
    for number, line in shown:
        at = verdict.places[number - 1] if verdict.places else f"{number:4d}"
        mark = ">" if number == verdict.line else " "
        rows.append(f"  {mark}{at} | {line:<{width}}  {said[number]}")
    return rows


def find_remarks(verdict: Verdict) -> dict[int, str]:
    """What is said of each line of the code: which node it equals, or where the edit belongs."""
    said: dict[int, list[str]] = {}
    for number, what in verdict.annotations:
        said.setdefault(number, []).append(what)
    if verdict.line is not None and (verdict.annotations or verdict.same is False):
        said.setdefault(verdict.line, [])
    remarks = {}
    for number, each in said.items():
        what = "; ".join(each)
        what = what if what.startswith("contains ") or not what else f"= {what}"
        if number == verdict.line:
            what = f"<-- {what}" if what else "<-- equals no part of the formula"
        remarks[number] = what
    return remarks


class Progress:
    """The verdict so far, which each stage sends when it has one, and the stage that is under way.

    What ends a stage costs what it would have found, never what is found already, and is told.
    """

    def __init__(self, send: Callable[[Verdict | Note], None], verdict: Verdict) -> None:
        self._send, self.verdict, self.stage = send, verdict, "loading the code"
        self.grant: Callable[[bool], None] = lambda _: None  # the time that a stage has
        self.repaired = ""  # what the code is as it stands, where only repaired it can be judged

    def __call__(self, verdict: Verdict) -> None:
        """The verdict from now on; of code that was repaired, never the same."""
        self.verdict = verdict
        if verdict.same and self.repaired:
            said = f"as it stands it {self.repaired}"
            reasons = (said, f"as repaired it is the same, {verdict.grade}", *verdict.reasons)
            verdict = replace(verdict, same=None, grade="unknown", reasons=reasons)
        self._send(verdict)

    def begin(self, stage: str, *, has_own_runs: bool = False) -> None:
        """Another stage is under way; where its runs are ours, each of them has all the time."""
        self.stage = stage
        self.tell("")
        self.grant(has_own_runs)

    def tell(self, what: str) -> None:
        """Show the stage, and what of it is done."""
        self._send(Note(f"{self.stage}: {what}" if what else self.stage))

    def end(self, why: str) -> None:
        """The stage did not finish."""
        said = f"{self.stage} did not finish: {why}"
        self(replace(self.verdict, reasons=(*self.verdict.reasons, said)))


@dataclass(frozen=True)
class Job:
    """Code, formula, and how the one is bound to the other."""

    code: Any
    formula: Formula
    system: ir.System
    binds: Mapping[str, str]
    sizes: Mapping[str, int]
    backward: bool
    seconds: float
    init: str = ""  # the constructor's arguments
    compiled: bool = False  # is what inductor makes of the code judged, too
    making: str = ""  # those that read the formula's sizes, so that they are others at each sample

    def start(self) -> Verdict:
        """What is known before anything has run."""
        if isinstance(self.code, (str, Path)):
            text = str(self.code)
            shown = text if "\n" not in text else "the code"
        else:
            shown = getattr(self.code, "__name__", type(self.code).__name__)
        return Verdict(None, "unknown", shown, self.system.name)

    def say_cannot_run(self, error: CannotRunError, verdict: Verdict) -> Verdict:
        """Unknown, with the line where the code stops."""
        says, reason, help = str(error), "the code cannot run", ""
        if error.line:  # by cell, where the code is a notebook's
            where = say_line(error.line, verdict.places)
            says = says.replace(f"line {error.line}:", f"{where}:", 1)
            if refusal := error.refusal:
                reason = f"drawn inputs do not pass {where}, {refusal}: the check got no further"
                help = "declare what tensors hold, as in x[N] > 0, or say --sizes, or leave it out"
        row = [each.strip() for each in verdict.source.splitlines()][(error.line or 0) - 1 :][:1]
        marks = tuple(Mark(each, 0, len(each)) for each in row if error.line)
        said = Diagnostic("cannot-run", says, marks, help=help)
        return replace(
            verdict,
            same=None,
            grade="unknown",
            line=error.line,
            reasons=(reason,),
            findings=(said, *verdict.findings, *error.findings),
        )
