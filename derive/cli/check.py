"""derive check: does this code compute that formula?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from derive.checker import check
from derive.checker.source.load import list_candidates, split_member
from derive.cli.formulas import find_one
from derive.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from derive.checker.verdict import Verdict

# Unknown is no answer: the input could not be used for one.
EXIT = {True: 0, False: 1, None: 2}


def print_verdicts(  # noqa: PLR0913 - one for each option
    code: str,
    formula: str,
    *,
    bind: str,
    sizes: Mapping[str, int],
    backward: bool,
    seconds: float,
    init: str,
    as_json: bool,
    html: Path | None = None,
) -> int:
    """Print a report for each code that is meant; the exit code: 0 same, 1 different, 2 unknown."""
    if code == "-":
        if formula == "-":
            raise refuse("input-twice", "standard input is either the code or the formula")
        code = sys.stdin.read()
        if not code.strip():
            raise refuse("code-missing", "standard input is empty")
        code = code if "\n" in code else code + "\n"
    meant = find_one(formula).formula
    verdicts = [
        check(
            each,
            meant,
            bind=bind or None,
            sizes=sizes,
            backward=backward,
            seconds=seconds,
            init=init,
        )
        for each in _list_codes(code, meant.name or "")
    ]
    if html is not None:
        from derive.backend.to_html import to_page

        page = to_page(f"derive check {code}", *(verdict.to_html() for verdict in verdicts))
        html.write_text(page, encoding="utf-8")
    if as_json:
        data = [verdict.to_data() for verdict in verdicts]
        typer.echo(json.dumps(data if len(data) > 1 else data[0], indent=2))
    else:
        typer.echo("\n\n".join(map(str, verdicts)))
    if len(verdicts) > 1 and not as_json:
        typer.echo(f"\n{_sum_up(verdicts)}")
    return _join_exits([EXIT[verdict.same] for verdict in verdicts])


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
    """How many are the same, different, unknown."""
    words = {True: "same", False: "different", None: "unknown"}
    found = {says: [v.code for v in verdicts if v.same is same] for same, says in words.items()}
    return "\n".join(
        f"{len(codes)} {says}: {', '.join(codes)}" for says, codes in found.items() if codes
    )


def _join_exits(exits: Sequence[int]) -> int:
    """0 where all are the same; what is different counts before what is unknown."""
    return 1 if 1 in exits else max(exits)
