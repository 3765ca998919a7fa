"""`derive show`: which formula, and which parts of what is known about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.cli.code import find_code, is_code
from derive.cli.derivation import print_derivation
from derive.cli.formulas import find_asked
from derive.cli.show import (
    Parts,
    build_checked,
    find_latex,
    print_data,
    print_formula,
    print_loops,
)
from derive.cli.tables import print_line

if TYPE_CHECKING:
    from derive.cli.formulas import Found
    from derive.cli.options import Options


def find_shown(where: str, inputs: str, options: Options) -> tuple[Found, Options]:
    """The formula that is named, or that of a function, and the options for it."""
    if is_code(where):
        return find_code(where, inputs, sizes=options.sizes), options
    return find_asked(where, options)


def print_parts(found: Found, options: Options, parts: Parts, as_json: bool) -> None:
    """The parts that are asked for, else all."""
    if as_json:
        print_data(found, options, parts)
        return
    if parts.derivation:
        print_derivation(found, options, latex=parts.latex)
        return
    if parts.loops:
        print_loops(found)
    if parts.code:
        print_line(build_checked(found, options).source.rstrip("\n"))
    if parts.latex:
        print_line("\n".join(find_latex(found)))
    if not parts.loops and not parts.code and not parts.latex:
        print_formula(found, options)
