"""Comments that silence findings, on any line of the call.

    # derive: ignore                 everything
    # derive: ignore[DE101, DE103]   these codes, or names of rules

What follows is for the reader. A comment that silences nothing is told of.
"""

from __future__ import annotations

import re
import tokenize
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMENT = re.compile(r"#\s*derive:\s*ignore\b(?:\s*\[([^\]]*)\])?")


@dataclass(slots=True)
class Ignore:
    """One comment: its line and columns, the codes it names, and those it silenced."""

    line: int
    start: int
    end: int
    codes: tuple[str, ...] | None  # None for all
    used: set[str] = field(default_factory=set)

    def covers(self, code: str, name: str) -> bool:
        """Whether the comment silences a rule; if it does, that is noted."""
        if self.codes is None:
            self.used.add(code)
            return True
        word = next((w for w in self.codes if w.upper() == code or w == name), None)
        if word is not None:
            self.used.add(word)
        return word is not None

    def find_unused(self) -> tuple[str, ...] | None:
        """The codes that silenced nothing; None where the whole comment did."""
        if not self.used:
            return None
        return tuple(code for code in self.codes or () if code not in self.used)


def read_ignores(text: str) -> list[Ignore]:
    """The comments of a file in order."""
    if "derive:" not in text:
        return []
    return list(_read(text))


def _read(text: str) -> Iterator[Ignore]:
    try:
        for token in tokenize.generate_tokens(StringIO(text).readline):
            found = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if found is None:
                continue
            line, column = token.start
            codes = None
            if found[1] is not None:
                codes = tuple(dict.fromkeys(w.strip() for w in found[1].split(",") if w.strip()))
            yield Ignore(line, column + found.start(), column + found.end(), codes)
    except (tokenize.TokenError, SyntaxError):
        return  # what can be parsed and not tokenized has no comments for us
