"""`derive show`: a formula's text, its indices, and its plan: steps, einsum strings, costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.cli.derivation_data import to_derivation_data
from derive.cli.formulas import FROM_TEXT, build_found
from derive.cli.index_table import print_roles, to_roles_data
from derive.cli.remarks import find_remarks
from derive.cli.sizes import check_sizes
from derive.cli.step_table import print_costs, print_steps, to_plan_data
from derive.cli.tables import print_diagnostic, print_heading, print_json, print_line, print_text
from derive.errors import DeriveError
from derive.ir.text import to_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.cli.formulas import Found
    from derive.cli.options import Options
    from derive.compiler import Built
    from derive.ir.nodes import System


@dataclass(frozen=True, slots=True)
class Parts:
    """What is asked for of a formula, instead of all that is known about it."""

    loops: bool = False
    code: bool = False
    latex: bool = False
    derivation: bool = False


def print_formula(found: Found, options: Options) -> None:
    """All that is known about a formula, at its typical sizes or at those that are given."""
    from derive.frontend.system import to_system

    system = to_system(found.formula)
    _check(found, options.sizes)
    print_title(found, system)
    try:
        built = build_checked(found, options)
    except DeriveError as error:
        print_line()
        print_diagnostic(error.diagnostic)
        return
    print_heading("\nindices")
    print_roles(system, built.plan.sizes)
    print_heading("\nsteps")
    print_steps(built.plan)
    print_line()
    print_costs(built.plan)
    for note in built.notes:
        print_text(f"by {note}")
    for remark in find_remarks(built, options):
        print_text(remark)


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


def print_data(found: Found, options: Options, parts: Parts) -> None:
    """The same as JSON, with the loops, the code and the derivation where they are asked for."""
    built = build_checked(found, options)
    data = {
        "name": found.name,
        "title": found.formula.title,
        "source": found.formula.source,
        "origin": found.origin,
        "formula": list(to_lines(built.system)),
        "latex": find_latex(found),
        "notes": list(found.notes),
        "indices": to_roles_data(built.system, built.plan.sizes),
        **to_plan_data(built.plan),
    }
    if parts.loops:
        data["loops"] = _find_loops(found)
    if parts.code:
        data["code"] = built.source
    if parts.derivation:
        data["derivation"] = to_derivation_data(built)
    print_json(data)


def print_loops(found: Found) -> None:
    """The formula as loops over single numbers, in Python."""
    from derive.frontend.system import to_system

    to_system(found.formula)  # refuses what is wrong in it
    print_line(_find_loops(found).rstrip("\n"))


def find_latex(found: Found) -> list[str]:
    """The equations as LaTeX, a line each."""
    from derive.frontend.sympy.latex import to_latex

    return list(to_latex(found.formula))


def _find_loops(found: Found) -> str:
    from derive.judge.loops import to_loops

    return to_loops(found.formula)


def build_checked(found: Found, options: Options) -> Built:
    """The formula's file, at sizes that it has."""
    _check(found, options.sizes)
    return build_found(found, options)


def _check(found: Found, sizes: Mapping[str, int]) -> None:
    """Refuse sizes that the formula does not have."""
    if sizes:
        from derive.frontend.system import to_system
        from derive.ir.walk import find_sizes

        check_sizes(sizes, find_sizes(to_system(found.formula)))
