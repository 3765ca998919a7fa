"""`derive show`: a formula's text, its indices and its plan, or the requested parts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from derive.backend import to_data
from derive.cli import formulas, tables
from derive.cli.options import Parts, check_sizes
from derive.errors import DeriveError
from derive.ir import nodes as ir
from derive.ir.text import to_lines
from derive.ir.walk import as_written
from derive.options import Options

if TYPE_CHECKING:
    from derive.compiler import Built


def show(where: str, options: Options, parts: Parts, as_json: bool) -> None:
    """Print the named formula, or that of a function: the requested parts, else all."""
    if formulas.is_code(where):
        found = formulas.find_code(where, parts.inputs, sizes=options.sizes)
    else:
        found = formulas.find_one(where)
    if parts.gradient:
        found = formulas.differentiate(found, parts.gradient)
    if as_json:
        tables.print_json(_to_data(found, options, parts))
        return
    if parts.code:
        print(build_checked(found, options).source.rstrip("\n"))
    if parts.latex:
        from derive.backend.to_latex import to_align

        print(to_align(_find_system(found)))
    if not parts.code and not parts.latex:
        _print_all(found, options)


def build_checked(found: formulas.Found, options: Options) -> Built:
    """The built file of a formula; DeriveError for sizes that the formula lacks."""
    _check_sizes(found, options)
    return formulas.build_found(found, options)


def print_title(found: formulas.Found, system: ir.System) -> None:
    """Print the equations, and title and source as comments, so that they can be read back."""
    formula = found.formula
    print(f"# {found.name}: {formula.title}" if formula.title else f"# {found.name}")
    if formula.source:
        print(f"# Source: {formula.source}")
    if found.origin != formulas.FROM_TEXT:
        print(f"# From {found.origin}")
    print("\n".join(["", *to_lines(system)]))
    for note in found.notes:
        print(f"# {note}")


def _print_all(found: formulas.Found, options: Options) -> None:
    """Print the full report on a formula, at its typical sizes or at given ones."""
    system = _find_system(found)
    _check_sizes(found, options)
    print_title(found, system)  # before it is planned: a formula without a plan is shown, too
    try:
        built = formulas.build_found(found, options)
    except DeriveError as error:
        print()
        print(error.diagnostic, file=sys.stderr)
        return
    data = to_data.to_plan_data(built.plan)
    print("\nindices")
    tables.print_roles(to_data.to_roles_data(system, built.plan.sizes))
    print("\nsteps")
    tables.print_steps(data)
    print()
    tables.print_costs(data, built.plan)
    for note in built.notes:
        tables.print_text(f"by {note}")


def _to_data(found: formulas.Found, options: Options, parts: Parts) -> to_data.Data:
    """The report, with the code where it is requested."""
    from derive.backend.to_latex import to_latex

    built = build_checked(found, options)
    equations = as_written(_find_system(found)).equations
    data = {
        "name": found.name,
        "title": found.formula.title,
        "source": found.formula.source,
        "origin": found.origin,
        "formula": list(to_lines(built.system)),
        "latex": [f"{to_latex(e.target)} = {to_latex(e.value)}" for e in equations],
        "notes": list(found.notes),
        "indices": to_data.to_roles_data(built.system, built.plan.sizes),
        **to_data.to_plan_data(built.plan),
    }
    if parts.code:
        data["code"] = built.source
    return data


def _find_system(found: formulas.Found) -> ir.System:
    """The formula's equations, checked."""
    from derive.frontend.from_sympy import to_system

    return to_system(found.formula)


def _check_sizes(found: formulas.Found, options: Options) -> None:
    """Refuse sizes that the formula does not have."""
    if options.sizes:
        from derive.ir.walk import find_sizes

        check_sizes(options.sizes, find_sizes(_find_system(found)))
