"""Formulas out of a person's code: `derive show FILE.py:function`, `derive build --from`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from derive.cli.files import show_path
from derive.cli.formulas import Found, list_functions
from derive.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_code(argument: str) -> bool:
    """Is it FILE.py:NAME, and NAME a function or a class of the file?"""
    path, _, member = argument.rpartition(":")
    if not path.endswith(".py") or not member.isidentifier():
        return False
    return member in list_functions(Path(path))


def find_code(argument: str, inputs: str, name: str | None = None) -> Found:
    """The formula of a function, its arguments declared in the notation or told by its text."""
    from derive.checker.load import CannotRunError, load
    from derive.frontend.from_code import lift_code

    try:
        code = load(argument)
        if isinstance(code.target, type):
            raise refuse(
                "lift-class",
                f"{argument} is a class: its parameters have no names in a formula",
                help="write a function of its parameters that calls torch.func.functional_call",
            )
        found = lift_code(code.target, inputs, name=name, source=code.source)
    except CannotRunError as error:
        raise refuse("lift-run", f"{argument} does not load: {error}") from error
    path, _, member = argument.rpartition(":")
    shown = f"{show_path(Path(path))}:{member}"
    rebuild = f"derive build --from {shlex.quote(shown)}"
    rebuild += f" --inputs {shlex.quote(inputs)}" if inputs else ""
    return Found(found.formula.name or member, found.formula, shown, rebuild, notes=found.say())


def find_checked(argument: str, inputs: str, name: str | None, others: Sequence[str] = ()) -> Found:
    """The formula of a function, once the function is found to compute it."""
    from derive.checker import check
    from derive.cli.tables import print_line

    if others:
        raise refuse("build-from", f"--from builds one function, and {others[0]} was named too")
    found = find_code(argument, inputs, name)
    verdict = check(argument, found.formula)
    if not verdict:
        raise refuse(
            "lift-differs",
            f"the formula out of {argument} was not found to be the code's",
            facts=str(verdict).splitlines(),
        )
    print_line(f"{argument} is the formula, {verdict.grade}: {'; '.join(verdict.reasons)}", "dim")
    for says in (*found.notes, *(finding.says for finding in verdict.findings)):
        print_line(f"  {says}")
    return found
