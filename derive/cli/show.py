"""`derive show`: a formula's text, its indices, its plan; or the parts that are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.cli.formulas import FROM_TEXT, build_found, find_asked, find_code, is_code
from derive.cli.options import check_sizes
from derive.cli.plans import (
    Data,
    find_remarks,
    print_costs,
    print_roles,
    print_steps,
    to_plan_data,
    to_roles_data,
)
from derive.cli.tables import print_diagnostic, print_heading, print_json, print_line, print_text
from derive.errors import DeriveError
from derive.ir.text import to_lines

if TYPE_CHECKING:
    from derive.cli.formulas import Found
    from derive.cli.options import Options, ReadWords
    from derive.compiler import Built
    from derive.ir.nodes import System


@dataclass(frozen=True, slots=True)
class Parts:
    """What is asked for of a formula, instead of all that is known about it."""

    loops: bool = False
    code: bool = False
    latex: bool = False
    derivation: bool = False


def show(  # noqa: PLR0913, PLR0917 - one for each option
    where: str, inputs: str, options: Options, parts: Parts, as_json: bool, read: ReadWords
) -> None:
    """Print the formula that is named, or that of a function: its parts, else all."""
    if is_code(where):
        found = find_code(where, inputs, sizes=options.sizes)
    else:
        found, options = find_asked(where, options, read)
    if as_json:
        print_json(_to_data(found, options, parts))
        return
    if parts.derivation:
        _print_derivation(found, options, parts.latex)
        return
    if parts.loops:
        print_line(_find_loops(found).rstrip("\n"))
    if parts.code:
        print_line(build_checked(found, options).source.rstrip("\n"))
    if parts.latex:
        print_line("\n".join(_find_latex(found)))
    if not parts.loops and not parts.code and not parts.latex:
        _print_all(found, options)


def build_checked(found: Found, options: Options) -> Built:
    """The formula's file, at sizes that it has."""
    _check_sizes(found, options)
    return build_found(found, options)


def print_title(found: Found, system: System) -> None:
    """What the formula is, where it is from, and its lines."""
    formula = found.formula
    print_heading(f"{found.name}: {formula.title}" if formula.title else found.name)
    if formula.source:
        print_line(f"Source: {formula.source}", "dim")
    if found.origin != FROM_TEXT:
        print_line(f"From {found.origin}", "dim")
    print_line("\n".join(["", *to_lines(system)]))
    for note in found.notes:
        print_line(f"  {note}")


def _print_all(found: Found, options: Options) -> None:
    """All that is known about a formula, at its typical sizes or at those that are given."""
    from derive.frontend.system import to_system

    system = to_system(found.formula)
    _check_sizes(found, options)
    print_title(found, system)  # before it is planned: a formula without a plan is shown, too
    try:
        built = build_found(found, options)
    except DeriveError as error:
        print_line()
        print_diagnostic(error.diagnostic)
        return
    data = to_plan_data(built.plan)
    print_heading("\nindices")
    print_roles(to_roles_data(system, built.plan.sizes))
    print_heading("\nsteps")
    print_steps(data)
    print_line()
    print_costs(data, built.plan)
    for note in built.notes:
        print_text(f"by {note}")
    for remark in find_remarks(built, options):
        print_text(remark)


def _print_derivation(found: Found, options: Options, as_latex: bool) -> None:
    built = build_checked(found, options)
    if as_latex:
        from derive.backend.to_latex import to_align

        print_line(to_align(built.system, built.derivation.entries))
    else:
        from derive.cli.derivation import print_derivation

        print_title(found, built.system)
        print_derivation(built, options)


def _to_data(found: Found, options: Options, parts: Parts) -> Data:
    """The same, with the loops, the code and the derivation where they are asked for."""
    built = build_checked(found, options)
    data = {
        "name": found.name,
        "title": found.formula.title,
        "source": found.formula.source,
        "origin": found.origin,
        "formula": list(to_lines(built.system)),
        "latex": _find_latex(found),
        "notes": list(found.notes),
        "indices": to_roles_data(built.system, built.plan.sizes),
        **to_plan_data(built.plan),
    }
    if parts.loops:
        data["loops"] = _find_loops(found)
    if parts.code:
        data["code"] = built.source
    if parts.derivation:
        from derive.cli.derivation import to_derivation_data

        data["derivation"] = to_derivation_data(built)
    return data


def _find_latex(found: Found) -> list[str]:
    """The equations as LaTeX, a line each."""
    from derive.frontend.sympy.latex import to_latex

    return list(to_latex(found.formula))


def _find_loops(found: Found) -> str:
    """The formula as loops over single numbers, in Python."""
    from derive.frontend.system import to_system
    from derive.judge.loops import to_loops

    to_system(found.formula)  # refuses what is wrong in it
    return to_loops(found.formula)


def _check_sizes(found: Found, options: Options) -> None:
    """Refuse sizes that the formula does not have."""
    if options.sizes:
        from derive.frontend.system import to_system
        from derive.ir.walk import find_sizes

        check_sizes(options.sizes, find_sizes(to_system(found.formula)))
