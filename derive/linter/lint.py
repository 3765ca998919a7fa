"""Lint: the files of a source tree, and the findings in each.

A file's text is Python, or a notebook's code cells. The search of a folder skips hidden files,
folders of tools (`__pycache__`, `node_modules`) and virtual environments. A named file or folder is
always read.
"""

from __future__ import annotations

import ast
import os
import re
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from io import BytesIO, StringIO
from pathlib import Path, PurePath
from tokenize import detect_encoding
from typing import Any

from derive.errors import Diagnostic, Mark, refuse
from derive.frontend.notebooks import Cells, read_cells
from derive.linter.calls import Call, read_calls
from derive.linter.rules import (
    CALL_RULES,
    SYNTAX,
    UNREADABLE,
    UNUSED_IGNORE,
    Remark,
    Rule,
    Severity,
)
from derive.linter.scopes import find_start, to_column

_KEPT_BY_TOOLS = ("__pycache__", "node_modules")
_SUFFIXES = (".py", ".ipynb")
_EINSUMS = re.compile("einsum|contract")  # every name of an einsum contains one of these words


@dataclass(frozen=True)
class Source:
    """One file's Python, and for a notebook the cells it comes from."""

    path: str
    text: str = ""
    cells: Cells | None = None

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return self.text.split("\n")


def read_source(path: str, data: bytes) -> Source:
    """The source of a file's bytes; raises SyntaxError, ValueError or LookupError."""
    if path.endswith(".ipynb"):
        cells = read_cells(data)
        return Source(path, cells.text, cells)
    # Python's rules: the byte order mark or the coding line, else UTF-8
    encoding, _ = detect_encoding(BytesIO(data).readline)
    return Source(path, data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n"))


def find_files(paths: Sequence[str]) -> Iterator[str]:
    """The source files below the paths, none hidden or in tool folders, each once, in order.

    A folder that cannot be listed is included, so that reading it reports the reason. Raises
    DeriveError for a missing path.
    """
    for path in paths:
        if not os.path.lexists(path):
            says = f"there is no file or folder {path}"
            raise refuse("path-missing", says, help="correct the path, or leave it out")
    lists = (_list_sources(path) if os.path.isdir(path) else [path] for path in paths)
    names = {os.path.abspath(name): os.path.normpath(name) for each in lists for name in each}
    yield from sorted(PurePath(name).as_posix() for name in names.values())


def _list_sources(folder: str) -> Iterator[str]:
    refused: list[str] = []
    for here, folders, files in os.walk(folder, onerror=lambda e: refused.append(str(e.filename))):
        folders[:] = sorted(
            name
            for name in folders
            if not (name.startswith(".") or name in _KEPT_BY_TOOLS)
            if not os.path.exists(os.path.join(here, name, "pyvenv.cfg"))
        )
        for name in sorted(files):
            path = os.path.join(here, name)
            # no sockets and pipes; broken links are reported
            is_file = os.path.isfile(path) or os.path.islink(path)
            if name.endswith(_SUFFIXES) and not name.startswith(".") and is_file:
                yield path
    yield from refused


def read_bytes(path: str) -> bytes:
    """The bytes of a file; raises OSError or ValueError."""
    if not os.path.isdir(path) and not os.path.isfile(path) and not os.path.islink(path):
        raise ValueError("it is no regular file")
    return Path(path).read_bytes()


_COMMENT = re.compile(r"#\s*derive:\s*ignore\b(?:\s*\[([^\]]*)\])?")
_WIDEST = 160  # columns of a source line that are shown


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A stretch of a file; in a notebook, lines count from the start of the cell."""

    path: str
    cell: int  # 0 outside notebooks
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        """The place in the notation of editors."""
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{self.path}:{cell}{self.line}:{self.column}"


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

    def __str__(self) -> str:
        """The message, the source with carets, what is known, the help."""
        marks = (self.mark,) if self.mark else ()
        below = str(Diagnostic("", "", marks, self.facts, self.help)).partition("\n")[2]
        head = f"{self.place}: {self.code} {self.severity}: {self.says}"
        return f"{head}\n{below}" if below else head

    def to_data(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        return {
            **asdict(self.place),
            "cell": self.place.cell or None,
            "code": self.code,
            "name": self.name,
            "severity": str(self.severity),
            "message": self.says,
            "facts": list(self.facts),
            "help": self.help,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All findings in order, and the numbers of files and of calls."""

    findings: tuple[Finding, ...]
    files: int
    calls: int


def _sort_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda each: (each.place, each.code, each.says)))


def lint(paths: Sequence[str]) -> Report:
    """The findings of all files below the paths; raises DeriveError for a missing path."""
    reports = [lint_bytes(path) for path in find_files(paths)]
    findings = [finding for each in reports for finding in each.findings]
    return Report(_sort_findings(findings), len(reports), sum(each.calls for each in reports))


def lint_bytes(path: str, data: bytes | None = None) -> Report:
    """The findings of one file, or of `data` under its path; the path shows a notebook."""
    try:
        source = read_source(path, read_bytes(path) if data is None else data)
    except (OSError, SyntaxError, ValueError, LookupError) as error:
        says = getattr(error, "strerror", None) or str(error)
        says = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else says
        return Report((_make_finding(UNREADABLE, Remark(says), Source(path), 1, 0, 0),), 1, 0)
    broken = source.cells.broken if source.cells else ()
    found = [_make_finding(SYNTAX, Remark(says), source, line, 0, 1) for line, says in broken]
    says, line, column = "it is nested too deeply", 0, 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes such as "\d"
            tree = ast.parse(source.text)
    except SyntaxError as error:
        says, line, column = error.msg, error.lineno or 0, error.offset or 0
    except (ValueError, RecursionError, MemoryError) as error:
        says = str(error) or says
    else:
        with suppress(RecursionError):
            return _lint_tree(tree, source, found)
    if not 1 <= line <= len(source.lines):
        source, line = Source(path), 1
    start = max(0, min(column - 1, len(source.lines[line - 1])))
    end = start + 1 if source.text else 0
    return Report((*found, _make_finding(SYNTAX, Remark(says), source, line, start, end)), 1, 0)


def _lint_tree(tree: ast.Module, source: Source, found: list[Finding]) -> Report:
    # a notebook shows the value of a last line
    shown = source.cells.shown if source.cells is not None else ()
    calls = [
        replace(call, is_bare=False) if call.node.lineno in shown else call
        for call in (read_calls(tree) if _EINSUMS.search(source.text) else ())
    ]
    ignores = [*read_ignores(source.text)]
    # both strings of a conditional may have the same finding
    found += dict.fromkeys(f for call in calls for f in _lint_call(call, source, ignores))
    idle = Remark("the comment silences nothing", "take it out, or correct its codes")
    found += [
        _make_finding(UNUSED_IGNORE, idle, source, each.line, each.start, each.end)
        for each in ignores
        if not each.is_used
    ]
    places = {(call.node.lineno, call.node.col_offset) for call in calls}
    return Report(_sort_findings(found), 1, len(places))


def _lint_call(call: Call, source: Source, ignores: Sequence[Ignore]) -> Iterator[Finding]:
    first, last = call.node.lineno, call.node.end_lineno or call.node.lineno
    near = [ignore for ignore in ignores if first <= ignore.line <= last]
    for rule in CALL_RULES:
        for remark in rule.find_remarks(call):
            # all comments are asked, so that each records its use
            silent = [ignore.covers(rule.code, rule.name) for ignore in near]
            if not any(silent):
                yield _to_finding(rule, remark, call, source)


def _to_finding(rule: Rule, remark: Remark, call: Call, source: Source) -> Finding:
    """The remark at its indices, else at the literal, else at the call."""
    text = call.text
    place = find_start(text, source.lines) if text and text.is_at_call else None
    if place is not None and 0 <= remark.start < remark.end:
        line, start = place
        return _make_finding(rule, remark, source, line, start + remark.start, start + remark.end)
    if text is None:
        remark = replace(remark, facts=(*remark.facts, f"the sublists read {call.written}"))
    elif not text.is_at_call:
        remark = replace(remark, facts=(*remark.facts, f'the string is "{text.value}"'))
    node = call.node if text is None or remark.start < 0 else text.node
    last = node.end_lineno or node.lineno
    start = to_column(source.lines[node.lineno - 1], node.col_offset)
    end = to_column(source.lines[last - 1], node.end_col_offset or 0)
    return _make_finding(rule, remark, source, node.lineno, start, end, last)


def _make_finding(rule: Rule, remark: Remark, source: Source, *span: int) -> Finding:
    """The finding at a line, columns (from 0) and perhaps a last line of the source."""
    line, start, end, last = (*span, span[0])[:4]
    mark = _to_mark(source.lines[line - 1], start, end if last == line else None)
    cell = 0
    if source.cells is not None:
        cell, line = source.cells.places[line - 1]
        last = source.cells.places[last - 1][1]
    place = Place(source.path, cell, line, start + 1, last, end + 1)
    return Finding(
        rule.code, rule.name, rule.severity, place, remark.says, remark.help, remark.facts, mark
    )


def _to_mark(line: str, start: int, end: int | None) -> Mark | None:
    """The line without its indentation, or its part near the stretch; None for a blank one."""
    stop = len(line.rstrip()) if end is None else end
    lead = len(line) - len(line.lstrip())
    if stop - lead > _WIDEST:
        lead = max(lead, start - _WIDEST // 4)
    shown = "".join(c if c.isprintable() else " " for c in line[lead : lead + _WIDEST].rstrip())
    return Mark(shown, start - lead, min(stop - lead, len(shown))) if shown.strip() else None


@dataclass(slots=True)
class Ignore:
    """One comment that silences findings: its place, its codes, and whether it silenced one."""

    line: int
    start: int
    end: int
    codes: tuple[str, ...] | None  # None for all
    is_used: bool = False

    def covers(self, code: str, name: str) -> bool:
        """Whether the comment silences a rule; if so, its use is recorded."""
        found = self.codes is None or any(w.upper() == code or w == name for w in self.codes)
        self.is_used |= found
        return found


def read_ignores(text: str) -> Iterator[Ignore]:
    """The comments that silence findings, in order, up to where tokenizing fails."""
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(StringIO(text).readline) if "derive:" in text else ():
            found = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if found is not None:
                line, column = token.start
                words = None if found[1] is None else tuple(map(str.strip, found[1].split(",")))
                yield Ignore(line, column + found.start(), column + found.end(), words)
