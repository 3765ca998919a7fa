"""`derive lint`: einsums that look wrong in a source tree, as text, JSON or SARIF.

Exit codes: 0 nothing graver than an info, 1 a warning or an error, 2 the command cannot be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from derive.backend.to_sarif import to_sarif
from derive.cli.tables import print_heading, print_json, print_line, print_table, to_json
from derive.errors import refuse, suggest
from derive.linter.lint import find_results, lint
from derive.linter.rules import RULES, Severity, choose, find_rule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from derive.linter.lint import Finding, Report
    from derive.linter.rules import Rule

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_EXAMPLES = (("hurts", "red"), ("fine", "green"))


class Form(StrEnum):
    """What is printed."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of one run; no selected rule means all but the rare ones, unless `everything`."""

    select: Sequence[str] = ()
    everything: bool = False
    ignore: Sequence[str] = ()
    exclude: Sequence[str] = ()
    least: Severity = Severity.INFO
    form: Form = Form.TEXT
    sarif: Path | None = None  # a file that is written besides


def read_wishes(  # noqa: PLR0913 - one for each option
    select: Sequence[str],
    ignore: Sequence[str],
    exclude: Sequence[str],
    least: str,
    form: str,
    *,
    everything: bool = False,
    sarif: Path | None = None,
) -> Wishes:
    """The options as they were written; DeriveError for a severity or a form that is none."""
    severities, forms = [str(s) for s in Severity], [str(f) for f in Form]
    if least not in severities:
        advice = suggest(least, severities) or f"they are {', '.join(severities)}"
        raise refuse("severity-unknown", f"there is no severity {least}", help=advice)
    if form not in forms:
        advice = suggest(form, forms) or f"they are {', '.join(forms)}"
        raise refuse("format-unknown", f"there is no format {form}", help=advice)
    return Wishes(select, everything, ignore, exclude, Severity(least), Form(form), sarif)


def print_findings(paths: Sequence[str], wishes: Wishes, statistics: bool) -> int:
    """Lint the paths, print what was found, and give the exit code."""
    if not paths:
        raise refuse("path-wanted", "there is nothing to lint", help="name files or folders")
    every = frozenset(rule.code for rule in RULES if wishes.everything or not rule.is_rare)
    selected = (choose(wishes.select) if wishes.select else every) - choose(wishes.ignore)
    report = lint(paths, wishes.exclude)
    findings = [
        f for f in report.findings if f.code in selected and f.severity.rank >= wishes.least.rank
    ]
    log = to_json(to_sarif(*find_results(findings)))
    if wishes.sarif is not None:
        wishes.sarif.write_text(log + "\n", encoding="utf-8")
    match wishes.form:
        case Form.SARIF:
            print_line(log)
        case Form.JSON:
            print_json(
                {
                    "findings": [finding.to_data() for finding in findings],
                    "statistics": [
                        {"code": code, "name": name, "severity": severity, "count": count}
                        for code, name, severity, count in _count(findings)
                    ],
                    "files": report.files,
                    "einsums": report.calls,
                }
            )
        case Form.TEXT:
            _print_text(findings, report, statistics)
    return int(any(finding.severity is not Severity.INFO for finding in findings))


def print_rules(as_json: bool) -> None:
    """All codes with their names and severities."""
    if as_json:
        print_json([_to_data(rule) for rule in RULES])
        return
    rows = [(rule.code, rule.name, str(rule.severity), rule.title) for rule in RULES]
    print_table(("code", "name", "severity", "what it finds"), rows)


def print_rule(word: str, as_json: bool) -> None:
    """One rule as a small chapter."""
    rule = find_rule(word)
    if as_json:
        print_json(_to_data(rule))
        return
    print_heading(f"{rule.code} {rule.name} ({rule.severity})")
    print_line(f"{rule.title}\n\n{rule.why}")
    for name, style in _EXAMPLES:
        print_heading(f"\n{name}")
        for line in getattr(rule, name).splitlines():
            print_line(f"    {line}", style)
    if rule.is_rare:
        print_line("\nShown with --all, or where it is selected.")
    print_line(f"\nSilence one call with: # derive: ignore[{rule.code}]")


def _to_data(rule: Rule) -> dict[str, str]:
    heads = ("code", "name", "severity", "title", "why", "hurts", "fine")
    return {head: str(getattr(rule, head)) for head in heads}


def _print_text(findings: Sequence[Finding], report: Report, statistics: bool) -> None:
    if statistics:
        rows = [(str(count), code, name, kind) for code, name, kind, count in _count(findings)]
        if rows:
            print_table(("count", "code", "name", "severity"), rows, numbers="count")
    else:
        for finding in findings:
            print_line(finding.head, _STYLES[finding.severity])
            if finding.body:
                print_line(finding.body)
    print_line(_sum_up(findings, report))


def _sum_up(findings: Sequence[Finding], report: Report) -> str:
    """The last line: `2 errors, 1 warning, 0 infos; 12 einsums in 40 files`."""
    counts = [
        _number(sum(f.severity is severity for f in findings), str(severity))
        for severity in reversed(Severity)
    ]
    read = f"{_number(report.calls, 'einsum')} in {_number(report.files, 'file')}"
    return f"{', '.join(counts)}; {read}"


def _number(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _count(findings: Sequence[Finding]) -> list[tuple[str, str, str, int]]:
    """Code, name, severity and count of the rules that found something, by code."""
    codes = [finding.code for finding in findings]
    return [
        (rule.code, rule.name, str(rule.severity), codes.count(rule.code))
        for rule in RULES
        if rule.code in codes
    ]
