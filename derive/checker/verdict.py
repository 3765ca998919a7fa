"""The records of a check: `Job` is the request, `Verdict` the answer, `Progress` sends verdicts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from derive.checker.processes import CannotRunError, Note
from derive.checker.reading import say_line
from derive.errors import Diagnostic, Mark
from derive.ir import nodes as ir
from derive.notation.formula import Formula

VERSION = 1  # version of the JSON data; keys may be added, none removed or changed
GRADES = ("proved", "identical", "agrees", "different", "unknown")
_ANSWERS = {True: "same", False: "different", None: "unknown"}


@dataclass(frozen=True)
class Verdict:
    """The answer of a check.

    `same` is True, False, or None for unknown. `grade` is the evidence: "proved"
    (one normal form, for all sizes unless `reasons` name some), "identical" (in every entry over
    random prime fields), "agrees" (float64 against the direct loops), "different", "unknown".
    `line` is the first line of the user's file that departs from the formula. `edit` is the change
    there, confirmed by judging the edited formula against the code or the edited code against the
    formula. `corrected` has the corrected lines of the code, where known. `findings` are further
    remarks.
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
        """Whether the code is the same as the formula; False for unknown."""
        return self.same is True

    def __repr__(self) -> str:
        """One line, for failing assertions in pytest and the Python prompt."""
        where = f", {say_line(self.line, self.places)}" if self.line else ""
        edit = f": {self.edit}" if self.edit else ""
        return f"<{_to_head(self)}{where}{edit}>"

    def __str__(self) -> str:
        """The report as text."""
        return "\n".join(_to_lines(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the report at an IPython prompt."""
        printer.text(str(self))

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
        lines.append(f"  at {'; '.join(each or 'no sizes' for each in dict.fromkeys(every))}")
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
    """The annotated lines of code, the verdict's marked `>`; [] for "same" or none to show."""
    told = verdict.annotations or (verdict.line and verdict.same is False)
    if verdict.same or not verdict.source or not told:
        return []
    text = verdict.source.splitlines()
    said = list_line_remarks(verdict)
    shown = [(n, text[n - 1].rstrip()) for n in sorted(said) if 0 < n <= len(text)]
    width = min(72, max((len(line) for _, line in shown), default=0))
    rows = []
    for number, line in shown:
        at = verdict.places[number - 1] if verdict.places else f"{number:4d}"
        mark = ">" if number == verdict.line else " "
        rows.append(f"  {mark}{at} | {line:<{width}}  {said[number]}")
    return rows


def list_line_remarks(verdict: Verdict) -> dict[int, str]:
    """The remark on each line, by number: "= node of the formula", "<-- .." on the wrong line."""
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
    """The verdict so far and the current stage; each stage sends its verdict.

    A failure in a stage loses only that stage's results, and is reported.
    """

    def __init__(self, send: Callable[[Verdict | Note], None], verdict: Verdict) -> None:
        self._send, self.verdict, self.stage = send, verdict, "loading the code"
        self.grant: Callable[[bool], None] = lambda _: None  # resets the time limit
        self.repaired = ""  # the fault of the code before the repair
        self.rival = ""  # the file's result that may be meant instead of the function

    def __call__(self, verdict: Verdict) -> None:
        """Set and send the verdict; for repaired code, "same" is sent as unknown."""
        self.verdict = verdict
        if verdict.same and self.repaired:
            said = f"as it stands it {self.repaired}"
            reasons = (said, f"as repaired it is the same, {verdict.grade}", *verdict.reasons)
            verdict = replace(verdict, same=None, grade="unknown", reasons=reasons)
        if self.rival and not verdict.same:
            said = f"{verdict.code} is not the same: name what is meant, it or {self.rival}"
            verdict = replace(verdict, same=None, grade="unknown", reasons=(said,))
        self._send(verdict)

    def begin(self, stage: str, *, has_own_runs: bool = False) -> None:
        """Begin a stage; with `has_own_runs` the time limit applies to each run."""
        self.stage = stage
        self.tell("")
        self.grant(has_own_runs)

    def tell(self, what: str) -> None:
        """Show the stage and its progress."""
        self._send(Note(f"{self.stage}: {what}" if what else self.stage))

    def end(self, why: str) -> None:
        """Add the reason why the stage did not finish, and send the verdict."""
        said = f"{self.stage} did not finish: {why}"
        self(replace(self.verdict, reasons=(*self.verdict.reasons, said)))


@dataclass(frozen=True)
class Job:
    """The request of a check: code, formula, bindings and options."""

    code: Any
    formula: Formula
    system: ir.System
    binds: Mapping[str, str]
    sizes: Mapping[str, int]
    backward: bool
    seconds: float
    init: str = ""  # the constructor's arguments

    def start(self) -> Verdict:
        """The verdict before any run: unknown, with the names of code and formula."""
        if isinstance(self.code, (str, Path)):
            text = str(self.code)
            shown = text if "\n" not in text else "the code"
        else:
            shown = getattr(self.code, "__name__", type(self.code).__name__)
        return Verdict(None, "unknown", shown, self.system.name)

    def say_cannot_run(self, error: CannotRunError, verdict: Verdict) -> Verdict:
        """The verdict for code that cannot run: unknown, with the failing line."""
        says, reason, help = str(error), "the code cannot run", ""
        if error.line:  # the cell and line of a notebook
            where = say_line(error.line, verdict.places)
            says = says.replace(f"line {error.line}:", f"{where}:", 1)
            if refusal := error.refusal:
                reason = f"the drawn inputs fail {where}, {refusal}: the check got no further"
                help = "declare the range of the tensors, x[N] > 0, or give --sizes, or remove it"
        row = [each.strip() for each in verdict.source.splitlines()][(error.line or 0) - 1 :][:1]
        marks = tuple(Mark(each, 0, len(each)) for each in row if error.line)
        said = Diagnostic("cannot-run", says, marks, help=help)
        return replace(
            verdict,
            same=None,
            grade="unknown",
            line=error.line,
            bindings=error.bindings,
            reasons=(reason,),
            findings=(said, *verdict.findings, *error.findings),
        )
