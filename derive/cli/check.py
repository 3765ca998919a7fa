"""derive check: does this code compute that formula?"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import typer

from derive.checker import check
from derive.cli.formulas import find_one
from derive.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

# Unknown is no answer: the input could not be used for one.
EXIT = {True: 0, False: 1, None: 2}


def print_verdict(  # noqa: PLR0913 - one for each option
    code: str,
    formula: str,
    *,
    bind: str,
    sizes: Mapping[str, int],
    backward: bool,
    seconds: float,
    as_json: bool,
) -> int:
    """Print the report; the exit code: 0 same, 1 different, 2 unknown."""
    if code == "-":
        if formula == "-":
            raise refuse("input-twice", "standard input is either the code or the formula")
        code = sys.stdin.read()
        if not code.strip():
            raise refuse("code-missing", "standard input is empty")
        code = code if "\n" in code else code + "\n"
    found = find_one(formula)
    meant = found.formula
    verdict = check(code, meant, bind=bind or None, sizes=sizes, backward=backward, seconds=seconds)
    typer.echo(json.dumps(verdict.to_data(), indent=2) if as_json else str(verdict))
    return EXIT[verdict.same]
