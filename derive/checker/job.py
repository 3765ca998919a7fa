"""One check: what is given, and what is said before and without a judgement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from derive.checker.load import CannotRunError, mark_line
from derive.checker.reading import say_line
from derive.checker.verdict import Verdict
from derive.errors import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from derive.ir.nodes import System
    from derive.notation.formula import Formula


class Report:
    """The verdict so far, which each stage sends when it has one, and the stage that is under way.

    What ends a stage costs what it would have found, never what is found already, and is told.
    """

    def __init__(self, send: Callable[[Verdict], None], verdict: Verdict) -> None:
        self._send, self.verdict, self.stage = send, verdict, "loading the code"
        self.grant: Callable[[], None] = lambda: None  # the time that a stage has

    def __call__(self, verdict: Verdict) -> None:
        """The verdict from now on."""
        self.verdict = verdict
        self._send(verdict)

    def begin(self, stage: str) -> None:
        """Another stage is under way."""
        self.stage = stage
        self.grant()

    def end(self, why: str) -> None:
        """The stage did not finish."""
        said = f"{self.stage} did not finish: {why}"
        self(replace(self.verdict, reasons=(*self.verdict.reasons, said)))


@dataclass(frozen=True)
class Job:
    """Code, formula, and how the one is bound to the other."""

    code: Any
    formula: Formula
    system: System
    binds: Mapping[str, str]
    sizes: Mapping[str, int]
    backward: bool
    seconds: float
    init: str = ""  # the constructor's arguments

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
        says = str(error)
        if error.line:  # by cell, where the code is a notebook's
            says = says.replace(
                f"line {error.line}:", f"{say_line(error.line, verdict.places)}:", 1
            )
        said = Diagnostic("cannot-run", says, mark_line(verdict.source, error.line))
        return replace(
            verdict,
            same=None,
            grade="unknown",
            line=error.line,
            reasons=("the code cannot run",),
            findings=(said, *verdict.findings, *error.findings),
        )
