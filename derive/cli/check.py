"""derive check: does this code compute that formula?"""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from derive import checker, errors
from derive.checker.load import list_candidates, split_member
from derive.checker.verdict import Verdict
from derive.cli import formulas, tables
from derive.cli.options import Judged

# Unknown is no answer: the input could not be used for one.
EXIT = {True: 0, False: 1, None: 2}


def print_verdicts(code: str, formula: str, judged: Judged, as_json: bool) -> int:
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
    if as_json:
        data = [verdict.to_data() for verdict in verdicts]
        tables.print_json(data if len(data) > 1 else data[0])
    else:
        typer.echo("\n\n".join(map(str, verdicts)))
    if len(verdicts) > 1 and not as_json:
        typer.echo(f"\n{_sum_up(verdicts)}")
    exits = [EXIT[verdict.same] for verdict in verdicts]
    return 1 if 1 in exits else max(exits)  # different comes before unknown


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
