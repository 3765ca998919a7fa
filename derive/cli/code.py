"""Formulas out of a person's code: `derive show FILE.py:function`, `derive build --from`."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from derive.cli.files import show_path
from derive.cli.formulas import NOTEBOOK, Found, list_functions
from derive.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def is_code(argument: str) -> bool:
    """Is it FILE.py:NAME or of a notebook, and NAME a function or a class there?"""
    path, _, member = argument.rpartition(":")
    if not path.endswith((".py", NOTEBOOK)) or not member.isidentifier():
        return False
    return member in list_functions(Path(path))


def find_code(
    argument: str,
    inputs: str,
    name: str | None = None,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> Found:
    """The formula of a function, its arguments declared in the notation or told by its text.

    A size that the code takes as a number is the one of `sizes`.
    """
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
        told = {size: sizes[size] for size in found.fixed if size in sizes}
        if told:
            found = lift_code(code.target, inputs, name=name, source=code.source, sizes=told)
    except CannotRunError as error:
        raise refuse("lift-run", f"{argument} does not load: {error}") from error
    path, _, member = argument.rpartition(":")
    shown = f"{show_path(Path(path))}:{member}"
    rebuild = f"derive build --from {shlex.quote(shown)}"
    rebuild += f" --inputs {shlex.quote(inputs)}" if inputs else ""
    return Found(
        found.formula.name or member,
        found.formula,
        shown,
        rebuild,
        notes=found.say(),
        fixed=dict(found.fixed),
    )


def find_checked(
    argument: str,
    inputs: str,
    name: str | None,
    sizes: Mapping[str, int],
    others: Sequence[str] = (),
) -> Found:
    """The formula of a function, once the function is found to compute it."""
    from derive.checker import check
    from derive.cli.tables import print_line

    if others:
        raise refuse("build-from", f"--from builds one function, and {others[0]} was named too")
    found = find_code(argument, inputs, name, sizes)
    _refuse_frozen(argument, {n: size for n, size in found.fixed.items() if n not in sizes})
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


def _refuse_frozen(argument: str, frozen: Mapping[str, int]) -> None:
    """No file is made for a size at which the code happened to be run."""
    if not frozen:
        return
    names = ", ".join(frozen)
    raise refuse(
        "lift-frozen",
        f"{argument} takes {names} as a number, so its formula holds for one {names} alone",
        help=f"choose it, --sizes {','.join(f'{name}=64' for name in frozen)}, or write the code "
        "with the size itself, as in x.shape[-1] ** -0.5",
    )
