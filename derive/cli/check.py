"""derive check: does this code compute that formula?"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import typer

from derive import checker, errors
from derive.backend.to_sarif import Result, Rule, to_sarif
from derive.checker.load import list_candidates, split_member
from derive.checker.verdict import Verdict
from derive.cli import formulas, tables
from derive.cli.options import Judged

# Unknown is no answer: the input could not be used for one.
EXIT = {True: 0, False: 1, None: 2}

_WHY = "The code was run and judged against the formula: in numbers, over fields, and by algebra."
_RULES = (
    Rule("same", "same-as-formula", "The code computes the formula.", _WHY, "", "none"),
    Rule(
        "different",
        "different-from-formula",
        "The code computes something else.",
        _WHY,
        "The message has the line that departs from the formula, and the edit, where one is known.",
        "error",
    ),
    Rule(
        "unknown",
        "not-judged",
        "Whether the code computes the formula cannot be told.",
        _WHY,
        "The message says what stood in the way.",
        "warning",
    ),
    Rule("remark", "remark", "Something that holds besides.", _WHY, "", "note"),
)


def print_verdicts(
    code: str, formula: str, judged: Judged, as_json: bool, sarif: Path | None
) -> int:
    """Print a report for each code that is meant; the exit code: 0 same, 1 different, 2 unknown."""
    if code == "-":
        if formula == "-":
            raise errors.refuse("input-twice", "standard input is either the code or the formula")
        code = sys.stdin.read()
        if not code.strip():
            raise errors.refuse("code-missing", "standard input is empty")
        code = code if "\n" in code else code + "\n"
    meant = formulas.find_one(formula).formula
    codes = _list_codes(code, meant.name or "")
    options = asdict(judged) | {"bind": judged.bind or None}
    verdicts = []
    for each in codes:
        with tables.show_progress(each if "\n" not in each else "the code") as show:
            verdicts.append(checker.check(each, meant, **options, show=show))
    if sarif is not None:
        pairs = zip(codes, verdicts, strict=True)
        results = [result for each, verdict in pairs for result in _find_results(each, verdict)]
        used = {result.code for result in results}
        log = to_sarif([rule for rule in _RULES if rule.code in used], results)
        sarif.write_text(tables.to_json(log) + "\n", encoding="utf-8")
    if as_json:
        data = [verdict.to_data() for verdict in verdicts]
        tables.print_json(data if len(data) > 1 else data[0])
    else:
        typer.echo("\n\n".join(map(str, verdicts)))
    if len(verdicts) > 1 and not as_json:
        typer.echo(f"\n{_sum_up(verdicts)}")
    exits = [EXIT[verdict.same] for verdict in verdicts]
    return 1 if 1 in exits else max(exits)  # different comes before unknown


def _find_results(code: str, verdict: Verdict) -> Iterator[Result]:
    """The verdict at its line, and its remarks; code of no file has no place."""
    path = split_member(code)[0]
    rule = _RULES[(True, False, None).index(verdict.same)]
    says, lines = str(replace(verdict, findings=())), verdict.source.splitlines()
    at = verdict.line if path and not verdict.places else None
    region = {"startLine": at} if at else None
    widths = [(n, len(lines[n - 1]), text) for n, text in verdict.corrected if n <= len(lines)]
    fixed = tuple(widths) if at and verdict.edit else ()
    yield Result(rule.code, rule.level, says, path, region, fix=verdict.edit, lines=fixed)
    for each in verdict.findings:
        yield Result("remark", "note", str(each), path)


def _list_codes(code: str, wanted: str) -> list[str]:
    """The code itself; all functions and classes of a file of which none is called as the formula.

    FILE.py:one,other names several.
    """
    path, _, members = code.rpartition(":")
    if path.endswith(".py") and "," in members:
        names = [name.strip() for name in members.split(",") if name.strip()]
        return [f"{path}:{name}" for name in dict.fromkeys(names)]
    path, member = split_member(code)
    names = list_candidates(Path(path), wanted) if path and not member else []
    if len(names) < 2:
        return [code]
    return [f"{path}:{name}" for name in names]


def _sum_up(verdicts: Sequence[Verdict]) -> str:
    """The numbers of same, different and unknown verdicts."""
    words = {True: "same", False: "different", None: "unknown"}
    found = {says: [v.code for v in verdicts if v.same is same] for same, says in words.items()}
    return "\n".join(
        f"{len(codes)} {says}: {', '.join(codes)}" for says, codes in found.items() if codes
    )
