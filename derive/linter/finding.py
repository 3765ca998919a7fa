"""What the linter says: a finding has a rule, a place, one sentence, and one thing to do.

    path:line:column: CODE severity: says
        the source line
            ^^^^
      FACT
      help: HELP

Lines and columns count from 1, columns in characters; the end column is the first one behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derive.errors import Mark


class Severity(StrEnum):
    """How much a finding matters: an info alone leaves the code clean."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """The severities in order, the gravest highest."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A stretch of a file; in a notebook the lines are those of the numbered cell."""

    path: str
    cell: int  # 0 in a file that is no notebook
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        """The place as editors read it."""
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{self.path}:{cell}{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Remark:
    """What a rule says of one call; columns are those of the einsum string, -1 for all of it."""

    says: str
    help: str = ""
    start: int = -1
    end: int = -1
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark at its place in a file."""

    code: str
    name: str
    severity: Severity
    place: Place
    says: str
    help: str = ""
    facts: tuple[str, ...] = ()
    mark: Mark | None = None

    @property
    def order(self) -> tuple[Place, str, str]:
        """Findings are told in the order of their places."""
        return self.place, self.code, self.says

    @property
    def head(self) -> str:
        """The first line of the message."""
        return f"{self.place}: {self.code} {self.severity}: {self.says}"

    @property
    def body(self) -> str:
        """The lines below the first: the source with carets, what is known, the help."""
        lines = [f"    {row}" for row in str(self.mark).splitlines()] if self.mark else []
        lines += [f"  {fact}" for fact in self.facts]
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)

    def __str__(self) -> str:
        """The whole message."""
        return f"{self.head}\n{self.body}" if self.body else self.head


def to_data(finding: Finding) -> dict[str, Any]:
    """The finding as JSON takes it."""
    place = finding.place
    return {
        "path": place.path,
        "cell": place.cell or None,
        "line": place.line,
        "column": place.column,
        "end_line": place.end_line,
        "end_column": place.end_column,
        "code": finding.code,
        "name": finding.name,
        "severity": str(finding.severity),
        "message": finding.says,
        "facts": list(finding.facts),
        "help": finding.help,
    }
