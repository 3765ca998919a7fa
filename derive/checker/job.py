"""One check: what is given, and what is said before and without a judgement."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from derive.checker.load import CannotRunError, mark_line
from derive.checker.verdict import Verdict
from derive.errors import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.ir.nodes import System
    from derive.notation.formula import Formula


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
    begun: float = field(default_factory=time.monotonic)

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
        said = Diagnostic("cannot-run", str(error), mark_line(verdict.source, error.line))
        return replace(
            verdict,
            same=None,
            grade="unknown",
            line=error.line,
            reasons=("the code cannot run",),
            findings=(said, *verdict.findings),
        )

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.begun + self.seconds - time.monotonic()
