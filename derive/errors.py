"""Diagnostics: what is wrong, where, what is known, and one thing to do.

A refusal is built as data where it is found (`Diagnostic`) and raised as `DeriveError`. It prints

    CODE: SAYS
        the formula's line
              ^^^^
      FACT
      help: HELP
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from threading import current_thread, main_thread

# Limit of Python frames: 200 factors, flat in a formula, are nested by pairs in a plan. The worst
# recursion that was tried filled the 8 MiB of a main thread at 8,000; other threads may have less.
DEEPEST = 4000


@dataclass(frozen=True, slots=True)
class Mark:
    """A stretch of one line, columns `start` to `end` (0-based, end excluded)."""

    line: str
    start: int
    end: int

    def __str__(self) -> str:
        """The line, and carets under the stretch."""
        return f"{self.line}\n{' ' * self.start}{'^' * max(1, self.end - self.start)}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One refusal: a stable `code`, one sentence, the places, what is known, one thing to do."""

    code: str
    says: str
    marks: tuple[Mark, ...] = ()
    facts: tuple[str, ...] = ()
    help: str = ""

    def __str__(self) -> str:
        """The whole message, as it is shown to a person."""
        lines = [f"{self.code}: {self.says}"]
        for mark in self.marks:
            lines += [f"    {row}" for row in str(mark).splitlines()]
        lines += [f"  {fact}" for fact in self.facts]
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


class DeriveError(Exception):
    """An unusable formula, text or command; `diagnostic` has the reason."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(str(diagnostic))
        self.diagnostic = diagnostic


def refuse(
    code: str, says: str, *, marks: Iterable[Mark] = (), facts: Iterable[str] = (), help: str = ""
) -> DeriveError:
    """The error to raise for one refusal."""
    return DeriveError(Diagnostic(code, says, tuple(marks), tuple(facts), help))


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean ...?` with the nearest of the known words; "" if none is near."""
    near = get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


@contextmanager
def refuse_depth() -> Iterator[None]:
    """Raise the limit of recursion within the context; a RecursionError becomes a diagnostic."""
    limit = sys.getrecursionlimit()
    if current_thread() is main_thread():
        sys.setrecursionlimit(max(limit, DEEPEST))
    try:
        yield
    except RecursionError:
        raise refuse(
            "too-deep",
            "an expression is nested too deeply",
            help="give its parts names: write them as equations of their own",
        ) from None
    finally:
        if current_thread() is main_thread():
            sys.setrecursionlimit(limit)
