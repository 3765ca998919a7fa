"""derive check: does this code compute that formula?"""

from dataclasses import asdict

import typer

from derive import checker, errors
from derive.cli import formulas, tables
from derive.cli.options import Judged

# "unknown" has the exit code of an input that cannot be used
EXIT = {True: 0, False: 1, None: 2}


def print_verdict(code: str, formula: str, judged: Judged, as_json: bool) -> int:
    """Print the report, and return the exit code: 0 same, 1 different, 2 unknown."""
    if code == "-":
        if formula == "-":
            raise errors.refuse("input-twice", "standard input is either the code or the formula")
        code = formulas.read_input()
        if not code.strip():
            raise errors.refuse("code-missing", "standard input is empty")
        code = code if "\n" in code else code + "\n"
    meant = formulas.find_one(formula).formula
    options = asdict(judged) | {"bind": judged.bind or None}
    with tables.show_progress(code if "\n" not in code else "the code") as show:
        verdict = checker.check(code, meant, **options, show=show)
    if as_json:
        tables.print_json(verdict.to_data())
    else:
        typer.echo(str(verdict))
    return EXIT[verdict.same]
