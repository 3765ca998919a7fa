"""A rule of the linter, what it remarks on one call, and the finding that this becomes.

    @rule(
        code="DE101", name="repeated-index", severity=Severity.WARNING,
        why="...",
        hurts='torch.einsum("dd,bxcd->bxcd", W, x)',
        fine='torch.einsum("dk,bxck->bxcd", W, x)',
    )
    def find_repeated_indices(call: Call, spec: Spec) -> Iterator[Remark]: ...

A rule looks at one call with a valid string, or names the faults of strings that it tells. One
parametrised test lints both examples, each behind PRELUDE. A finding prints as

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
    from collections.abc import Callable, Iterable, Iterator

    from derive.errors import Mark
    from derive.frontend.from_einsum import Spec
    from derive.linter.calls import Call

# What the examples take for granted.
PRELUDE = """\
import torch
import numpy as np
import jax.numpy as jnp
import opt_einsum as oe
from einops import einsum, rearrange, reduce, repeat
"""


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
class Rule:
    """One thing to look for; `find` is None where a file is judged, not a call."""

    code: str
    name: str
    severity: Severity
    title: str
    why: str
    hurts: str
    fine: str
    find: Callable[[Call], Iterable[Remark]] | None = None
    faults: tuple[str, ...] = ()  # kinds of faults of a string that it tells
    is_rare: bool = False  # where it fires the code is mostly meant so: shown when asked for


def rule(  # noqa: PLR0913 - a rule has that many parts
    *,
    code: str,
    name: str,
    severity: Severity,
    why: str,
    hurts: str,
    fine: str,
    is_rare: bool = False,
) -> Callable[[Callable[[Call, Spec], Iterator[Remark]]], Rule]:
    """A function on a call and its string as a Rule; its docstring begins with the rule's title."""

    def wrap(find: Callable[[Call, Spec], Iterator[Remark]]) -> Rule:
        def ask(call: Call) -> Iterable[Remark]:
            return find(call, call.spec) if call.spec is not None else ()

        title = (find.__doc__ or "").strip().splitlines()[0]
        return Rule(code, name, severity, title, why, hurts, fine, ask, is_rare=is_rare)

    return wrap


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
