"""`derive lint`: einsums that look wrong in a source tree, as text or JSON.

Exit codes: 0 nothing graver than an info, 1 a warning or an error, 2 the command cannot be used.
"""

from collections.abc import Sequence

from derive.cli.options import Chosen
from derive.cli.tables import print_json, print_table
from derive.errors import refuse
from derive.linter.lint import lint
from derive.linter.rules import RULES, Severity, choose_codes, find_rule


def print_findings(paths: Sequence[str], chosen: Chosen, as_json: bool) -> int:
    """Lint the paths and print the findings; return 1 if one is more than info, else 0."""
    if not paths:
        raise refuse("path-wanted", "there is nothing to lint", help="name files or folders")
    every = frozenset(rule.code for rule in RULES if chosen.everything or not rule.is_rare)
    selected = choose_codes(chosen.select) if chosen.select else every
    selected -= choose_codes(chosen.ignore or ())
    report = lint(paths)
    findings = [finding for finding in report.findings if finding.code in selected]
    if as_json:
        found = [finding.to_data() for finding in findings]
        print_json({"findings": found, "files": report.files, "einsums": report.calls})
    else:
        for finding in findings:
            print(finding)
        parts = [
            _number(sum(f.severity is severity for f in findings), str(severity))
            for severity in reversed(Severity)
        ]
        read_text = f"{_number(report.calls, 'einsum')} in {_number(report.files, 'file')}"
        print(f"{', '.join(parts)}; {read_text}")
    return int(any(finding.severity is not Severity.INFO for finding in findings))


def _number(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def print_rules(word: str, as_json: bool) -> None:
    """Print all codes with their names and severities, or the chapter of the one named."""
    rules = [find_rule(word)] if word else [*RULES]
    if as_json:
        heads = ("code", "name", "severity", "title", "why", "hurts", "fine")
        data = [{head: str(getattr(rule, head)) for head in heads} for rule in rules]
        print_json(data[0] if word else data)
        return
    if not word:
        rows = [(rule.code, rule.name, str(rule.severity), rule.title) for rule in rules]
        print_table(("code", "name", "severity", "what it finds"), rows)
        return
    (rule,) = rules
    print(f"{rule.code} {rule.name} ({rule.severity})")
    print(f"{rule.title}\n\n{rule.why}")
    for name, example in (("hurts", rule.hurts), ("fine", rule.fine)):
        print(f"\n{name}", *example.splitlines(), sep="\n    ")
    if rule.is_rare:
        print("\nShown with --all, or where it is selected.")
    print(f"\nSilence one call with: # derive: ignore[{rule.code}]")
