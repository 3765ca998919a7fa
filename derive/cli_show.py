"""`derive show`: a formula's text, its indices, and its plan: steps, einsum strings, costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.cli_formulas import FROM_TEXT, build_found
from derive.cli_roles import print_roles, to_roles_data
from derive.cli_sizes import check_sizes
from derive.cli_steps import print_costs, print_steps, to_plan_data
from derive.cli_tables import print_heading, print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.cli_formulas import Found
    from derive.compiler import Built


def print_formula(found: Found, sizes: Mapping[str, int], as_json: bool) -> None:
    """All that is known about a formula, at its typical sizes or at those that are given."""
    from derive.ir.text import to_lines

    built = _build(found, sizes)
    formula, system = found.formula, built.system
    lines = to_lines(system)
    if as_json:
        print_json(
            {
                "name": found.name,
                "title": formula.title,
                "source": formula.source,
                "origin": found.origin,
                "formula": list(lines),
                "indices": to_roles_data(system, built.plan.sizes),
                **to_plan_data(built.plan),
            }
        )
        return
    print_heading(f"{found.name}: {formula.title}" if formula.title else found.name)
    if formula.source:
        print_line(f"Source: {formula.source}", "dim")
    if found.origin != FROM_TEXT:
        print_line(f"From {found.origin}", "dim")
    print_line("\n".join(["", *lines]))
    print_heading("\nindices")
    print_roles(system, built.plan.sizes)
    print_heading("\nsteps")
    print_steps(built.plan)
    print_line()
    print_costs(built.plan)
    for note in built.notes:
        print_line(f"  by {note}")


def print_loops(found: Found) -> None:
    """The formula as loops over single numbers, in Python."""
    from derive.compiler import to_system
    from derive.verify.loops import to_loops

    to_system(found.formula)  # refuses what is wrong in it
    print_line(to_loops(found.formula).rstrip("\n"))


def print_code(found: Found, sizes: Mapping[str, int]) -> None:
    """The text of the file that `derive build` writes."""
    print_line(_build(found, sizes).source.rstrip("\n"))


def _build(found: Found, sizes: Mapping[str, int]) -> Built:
    if sizes:
        from derive.compiler import to_system
        from derive.ir.sizes import find_sizes

        check_sizes(sizes, find_sizes(to_system(found.formula)))
    return build_found(found, sizes)
