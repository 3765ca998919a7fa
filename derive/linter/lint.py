"""Read files, put the rules to every einsum in them, and tell what they found, in order.

    files -> bytes -> source -> tree -> calls -> remarks -> findings, less those that are ignored

Nothing is run, and nothing raises for what stands in a file: that is a finding. On any line of a
call a comment silences findings; one that silences nothing is told of.

    # derive: ignore                 everything
    # derive: ignore[DE101, DE103]   these codes, or names of rules
"""

from __future__ import annotations

import re
import tokenize
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import TYPE_CHECKING

from derive.errors import Mark
from derive.linter.calls import Call, read_calls
from derive.linter.rule import Finding, Place, Remark
from derive.linter.rules import CALL_RULES, SYNTAX, UNREADABLE, UNUSED_IGNORE, is_known
from derive.linter.scopes import find_characters, to_column
from derive.linter.sources import (
    Source,
    UnparsableError,
    UnreadableError,
    find_files,
    mentions_einsum,
    read,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from derive.linter.rule import Rule

_COMMENT = re.compile(r"#\s*derive:\s*ignore\b(?:\s*\[([^\]]*)\])?")
_WIDEST = 160  # columns of a source line that a mark shows


@dataclass(frozen=True, slots=True)
class Report:
    """All findings in order, how many files were read, and how many calls were judged."""

    findings: tuple[Finding, ...]
    files: int
    calls: int


def lint(paths: Sequence[str], exclude: Sequence[str] = ()) -> Report:
    """The findings of all files below the paths; DeriveError where a path is not there."""
    findings: list[Finding] = []
    files = calls = 0
    for path, is_named in find_files(paths, exclude):
        files += 1
        try:
            data = read(path)
        except UnreadableError as error:
            findings.append(_judge_file(UNREADABLE, path, str(error)))
            continue
        if is_named or mentions_einsum(data):
            report = lint_bytes(path, data)
            findings += report.findings
            calls += report.calls
    return Report(tuple(sorted(findings, key=lambda f: f.order)), files, calls)


def lint_bytes(path: str, data: bytes) -> Report:
    """The findings of one file; its path tells a notebook, and is shown."""
    try:
        source = Source.of(path, data)
    except UnreadableError as error:
        return Report((_judge_file(UNREADABLE, path, str(error)),), 1, 0)
    try:
        return _lint_source(source)
    except UnparsableError as error:
        finding = _judge_syntax(source, str(error), error.line, error.column)
    except RecursionError:
        finding = _judge_syntax(source, "it is nested too deeply", 0, 0)
    return Report((*_judge_cells(source), finding), 1, 0)


def _lint_source(source: Source) -> Report:
    calls = [_show(call, source) for call in read_calls(source.parse())]
    ignores = read_ignores(source.text)
    # both strings of a conditional may have the same finding
    found = dict.fromkeys(f for call in calls for f in _judge(call, source, ignores))
    unused = [f for ignore in ignores for f in _judge_ignore(ignore, source)]
    findings = sorted([*_judge_cells(source), *found, *unused], key=lambda f: f.order)
    places = {(call.node.lineno, call.node.col_offset) for call in calls}
    return Report(tuple(findings), 1, len(places))


def _show(call: Call, source: Source) -> Call:
    """The call; where a notebook shows its value, that is a use."""
    is_shown = source.cells is not None and call.node.lineno in source.cells.shown
    return replace(call, is_bare=False) if is_shown else call


def _judge(call: Call, source: Source, ignores: Sequence[Ignore]) -> Iterator[Finding]:
    first, last = call.node.lineno, call.node.end_lineno or call.node.lineno
    near = [ignore for ignore in ignores if first <= ignore.line <= last]
    for rule in CALL_RULES:
        for remark in _find_remarks(rule, call):
            # each comment is asked, so that each knows that it is of use
            silent = [ignore.covers(rule.code, rule.name) for ignore in near]
            if not any(silent):
                yield _to_finding(rule, remark, call, source)


def _find_remarks(rule: Rule, call: Call) -> Iterable[Remark]:
    """What a rule says of a call, and of what is wrong in its string."""
    fault = call.fault
    if fault is None or fault.kind not in rule.faults:
        return rule.find(call) if rule.find else ()
    help = fault.help
    if fault.kind == "output-twice":
        help += "; torch.diag_embed builds a diagonal"
    start, end = (0, len(call.written)) if fault.start < 0 else (fault.start, fault.end)
    return (Remark(fault.says, help, start, end, fault.facts),)


def _to_finding(rule: Rule, remark: Remark, call: Call, source: Source) -> Finding:
    """The remark at its indices, else at the literal, else at the call."""
    text, facts = call.text, list(remark.facts)
    characters = find_characters(text, source.lines) if text and text.is_at_call else []
    if characters and 0 <= remark.start < remark.end <= len(characters):
        (line, start), (last, end) = characters[remark.start], characters[remark.end - 1]
        if line == last:
            return _build(rule, remark, source, (line, start, line, end + 1), facts)
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
    return _build(rule, remark, source, (node.lineno, start, end_line, end), facts)


def _build(
    rule: Rule,
    remark: Remark,
    source: Source,
    span: tuple[int, int, int, int],
    facts: Sequence[str] = (),
) -> Finding:
    """The finding at line, column (from 0), end line, end column of the source."""
    line, start, end_line, end = span
    return Finding(
        rule.code,
        rule.name,
        rule.severity,
        _to_place(source, span),
        remark.says,
        remark.help,
        tuple(facts),
        _to_mark(source.lines[line - 1], start, end if end_line == line else None),
    )


def _to_place(source: Source, span: tuple[int, int, int, int]) -> Place:
    line, start, end_line, end = span
    cell = 0
    if source.cells is not None:
        cell, line = source.cells.places[line - 1]
        end_line = source.cells.places[end_line - 1][1]
    return Place(source.path, cell, line, start + 1, end_line, end + 1)


def _to_mark(line: str, start: int, end: int | None) -> Mark | None:
    """The line without its indentation, or what of it is near the stretch."""
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
    return _build(SYNTAX, Remark(says), source, (line, start, line, start + 1))


def _judge_cells(source: Source) -> list[Finding]:
    broken = source.cells.broken if source.cells else ()
    return [_build(SYNTAX, Remark(says), source, (line, 0, line, 1)) for line, says in broken]


def _judge_ignore(ignore: Ignore, source: Source) -> Iterator[Finding]:
    span = (ignore.line, ignore.start, ignore.line, ignore.end)
    unused = ignore.find_unused()
    if unused is None and not (ignore.codes and len(ignore.codes) > 1):
        unknown = [code for code in ignore.codes or () if not is_known(code)]
        says = f"there is no rule {unknown[0]}" if unknown else "the comment silences nothing"
        advice = "derive lint --list shows all codes" if unknown else "take it out"
        yield _build(UNUSED_IGNORE, Remark(says, advice), source, span)
        return
    for code in ignore.codes or () if unused is None else unused:
        says = f"{code} silences nothing here" if is_known(code) else f"there is no rule {code}"
        advice = f"take {code} out"
        yield _build(UNUSED_IGNORE, Remark(says, advice), source, span)


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
