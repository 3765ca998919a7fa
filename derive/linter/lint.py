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


class UnreadableError(Exception):
    """A file that is neither text nor a notebook."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file's Python, its lines, and for a notebook the cells they come from."""

    path: str
    text: str
    lines: tuple[str, ...]
    cells: Cells | None = None

    @staticmethod
    def of(path: str, data: bytes) -> Source:
        """The source of a file's bytes; raises UnreadableError."""
        if path.endswith(".ipynb"):
            try:
                cells = read_cells(data)
            except ValueError as error:
                raise UnreadableError(str(error)) from error
            return Source(path, cells.text, tuple(cells.text.split("\n")), cells)
        try:  # Python's rules: the byte order mark or the coding line, else UTF-8
            encoding, _ = detect_encoding(BytesIO(data).readline)
            text = data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
        except (SyntaxError, UnicodeDecodeError, LookupError) as error:
            says = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
            raise UnreadableError(says) from error
        return Source(path, text, tuple(text.split("\n")))

    def parse(self) -> ast.Module:
        """The syntax tree; raises the errors of `ast.parse`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes such as "\d"
            return ast.parse(self.text)


def find_files(paths: Sequence[str]) -> Iterator[str]:
    """The files below the paths, each once, in order.

    A folder that cannot be listed is included, so that reading it reports the reason. Raises
    DeriveError for a missing path.
    """
    for path in paths:
        if not os.path.lexists(path):
            says = f"there is no file or folder {path}"
            raise refuse("path-missing", says, help="correct the path, or leave it out")
    found: dict[str, str] = {}
    for path in paths:
        for name in _list_sources(path) if os.path.isdir(path) else [path]:
            found[os.path.abspath(name)] = PurePath(os.path.normpath(name)).as_posix()
    yield from sorted(found.values())


def read_bytes(path: str) -> bytes:
    """The bytes of a file; raises UnreadableError."""
    try:
        if not os.path.isdir(path) and not os.path.isfile(path) and not os.path.islink(path):
            raise UnreadableError("it is no regular file")
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise UnreadableError(getattr(error, "strerror", None) or str(error)) from error


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

    @property
    def sort_key(self) -> tuple[Place, str, str]:
        """The sort key: place, code, message."""
        return self.place, self.code, self.says

    def __str__(self) -> str:
        """The message, the source with carets, what is known, the help."""
        marks = (self.mark,) if self.mark else ()
        below = str(Diagnostic("", "", marks, self.facts, self.help)).partition("\n")[2]
        head = f"{self.place}: {self.code} {self.severity}: {self.says}"
        return f"{head}\n{below}" if below else head

    def to_data(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        place = asdict(self.place)
        return {
            **place,
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


def lint(paths: Sequence[str]) -> Report:
    """The findings of all files below the paths; raises DeriveError for a missing path."""
    reports = [lint_bytes(path) for path in find_files(paths)]
    findings = sorted((f for each in reports for f in each.findings), key=lambda f: f.sort_key)
    return Report(tuple(findings), len(reports), sum(each.calls for each in reports))


def lint_bytes(path: str, data: bytes | None = None) -> Report:
    """The findings of one file, or of `data` under its path; the path shows a notebook."""
    try:
        source = Source.of(path, read_bytes(path) if data is None else data)
    except UnreadableError as error:
        return Report((_judge_file(UNREADABLE, path, str(error)),), 1, 0)
    says, line, column = "it is nested too deeply", 0, 0
    try:
        tree = source.parse()
    except SyntaxError as error:
        says, line, column = error.msg, error.lineno or 0, error.offset or 0
    except (ValueError, RecursionError, MemoryError) as error:
        says = str(error) or says
    else:
        with suppress(RecursionError):
            return _lint_tree(tree, source)
    return Report((*_judge_cells(source), _judge_syntax(source, says, line, column)), 1, 0)


def _lint_tree(tree: ast.Module, source: Source) -> Report:
    shown = (
        source.cells.shown if source.cells is not None else ()
    )  # the notebook shows the value of a last line
    calls = [
        replace(call, is_bare=False) if call.node.lineno in shown else call
        for call in read_calls(tree)
    ]
    ignores = read_ignores(source.text)
    # both strings of a conditional may have the same finding
    found = dict.fromkeys(f for call in calls for f in _lint_call(call, source, ignores))
    unused = [_judge_ignore(ignore, source) for ignore in ignores if not ignore.is_used]
    findings = sorted([*_judge_cells(source), *found, *unused], key=lambda f: f.sort_key)
    places = {(call.node.lineno, call.node.col_offset) for call in calls}
    return Report(tuple(findings), 1, len(places))


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
    text, facts = call.text, list(remark.facts)
    place = find_start(text, source.lines) if text and text.is_at_call else None
    if place is not None and 0 <= remark.start < remark.end:
        line, start = place
        span = (line, start + remark.start, line, start + remark.end)
        return _make_finding(rule, remark, source, span, facts)
    node = call.node if text is None else text.node
    if remark.start < 0:
        node = call.node
    if text is None:
        facts.append(f"the sublists read {call.written}")
    elif not text.is_at_call:
        facts.append(f'the string is "{text.value}"')
    lines = source.lines
    end_line = node.end_lineno or node.lineno
    start = to_column(lines[node.lineno - 1], node.col_offset)
    end = to_column(lines[end_line - 1], node.end_col_offset or 0)
    return _make_finding(rule, remark, source, (node.lineno, start, end_line, end), facts)


def _make_finding(
    rule: Rule,
    remark: Remark,
    source: Source,
    span: tuple[int, int, int, int],
    facts: Sequence[str] = (),
) -> Finding:
    """The finding at line, column (from 0), end line, end column of the source."""
    line, start, end_line, end = span
    mark = _to_mark(source.lines[line - 1], start, end if end_line == line else None)
    cell = 0
    if source.cells is not None:
        cell, line = source.cells.places[line - 1]
        end_line = source.cells.places[end_line - 1][1]
    place = Place(source.path, cell, line, start + 1, end_line, end + 1)
    severity, says, help = rule.severity, remark.says, remark.help
    return Finding(rule.code, rule.name, severity, place, says, help, tuple(facts), mark)


def _to_mark(line: str, start: int, end: int | None) -> Mark | None:
    """The line without its indentation; of a long line, the part near the stretch."""
    stop = len(line.rstrip()) if end is None else end
    lead = len(line) - len(line.lstrip())
    if stop - lead > _WIDEST:
        lead = max(lead, start - _WIDEST // 4)
    shown = "".join(c if c.isprintable() else " " for c in line[lead : lead + _WIDEST].rstrip())
    if not shown.strip():
        return None
    return Mark(shown, start - lead, min(stop - lead, len(shown)))


def _judge_file(rule: Rule, path: str, says: str) -> Finding:
    return Finding(rule.code, rule.name, rule.severity, Place(path, 0, 1, 1, 1, 1), says)


def _judge_syntax(source: Source, says: str, line: int, column: int) -> Finding:
    if not 1 <= line <= len(source.lines):
        return _judge_file(SYNTAX, source.path, says)
    start = max(0, min(column - 1, len(source.lines[line - 1])))
    return _make_finding(SYNTAX, Remark(says), source, (line, start, line, start + 1))


def _judge_cells(source: Source) -> list[Finding]:
    broken = source.cells.broken if source.cells else ()
    return [
        _make_finding(SYNTAX, Remark(says), source, (line, 0, line, 1)) for line, says in broken
    ]


def _judge_ignore(ignore: Ignore, source: Source) -> Finding:
    remark = Remark("the comment silences nothing", "take it out, or correct its codes")
    return _make_finding(
        UNUSED_IGNORE, remark, source, (ignore.line, ignore.start, ignore.line, ignore.end)
    )


@dataclass(slots=True)
class Ignore:
    """One comment: its line and columns, its codes, and whether it silenced a finding."""

    line: int
    start: int
    end: int
    codes: tuple[str, ...] | None  # None for all
    is_used: bool = False

    def covers(self, code: str, name: str) -> bool:
        """Whether the comment silences a rule, which it then records."""
        found = self.codes is None or any(w.upper() == code or w == name for w in self.codes)
        self.is_used |= found
        return found


def read_ignores(text: str) -> list[Ignore]:
    """The comments of a file in order; none if tokenizing fails."""
    ignores: list[Ignore] = []
    if "derive:" not in text:
        return ignores
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(StringIO(text).readline):
            found = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if found is None:
                continue
            line, column = token.start
            codes = None
            if found[1] is not None:
                codes = tuple(word.strip() for word in found[1].split(","))
            start, end = column + found.start(), column + found.end()
            ignores.append(Ignore(line, start, end, codes))
    return ignores
