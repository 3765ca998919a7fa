"""`derive show`: a formula's text, its indices, its plan; or the parts that are asked for.

With `--derivation`, what was done to it step by step, as text and as data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.backend import to_data
from derive.cli import formulas, tables
from derive.cli.options import Code, Parts, ReadWords, check_sizes
from derive.errors import DeriveError
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, add_all
from derive.ir.text import to_lines, to_text
from derive.ir.walk import as_written
from derive.options import Options, show_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.compiler import Built
    from derive.plan.plan import Entry, Plan

_MOST = 2  # terms of a cost that are shown; --json has them all
_NO_CHOICE = "no gain by itself: this rule always applies, and makes way for what follows"


def print_derivation(built: Built, options: Options) -> None:
    """The loops as written, every entry with the costs at the plan's sizes, and the sum of all."""
    at = tables.say_at(built.plan.sizes)
    tables.print_heading(f"\nas written, in loops over single numbers{f', at {at}' if at else ''}")
    _print_written(built)
    entries = built.derivation.entries
    for number, entry in enumerate(entries, 1):
        tables.print_heading(f"\n{number}. {entry.name}: {entry.law}")
        tables.print_pairs(_find_pairs(entry, built.plan))
    if not entries:
        tables.print_line("\nNo rule changes it: the steps are the formula as it is written.")
    olds = [e.old for e in entries if e.old is not None and e.old.seconds is not None]
    news = [e.new for e in entries if e.new is not None and e.new.seconds is not None]
    if not olds:
        return
    tables.print_heading("\nin all" if len(entries) > 1 else "")
    if len(entries) > 1:
        old, new = olds[0], news[-1]
        times = f"{tables.to_time(old.seconds or 0.0)} -> {tables.to_time(new.seconds or 0.0)}"
        pairs = [
            ("operations", _change(old.operations_at, new.operations_at)),
            ("elements alive", _change(old.elements_at, new.elements_at)),
            ("estimated time", times),
        ]
        tables.print_pairs(pairs)
    tables.print_text("operations are those of the torch code at each step, masks too", "dim")
    if options.machine is None:
        whose = "the built-in constants of a server core, not of this machine"
    else:
        whose = f"the constants in {show_path(options.machine)}"
    tables.print_text(f"times are by {whose}", "dim")


def _print_written(built: Built) -> None:
    plan, written = built.plan, built.derivation.written
    rows = [(each.equation, each.operations, each.elements) for each in written]
    if len(rows) > 1:
        work, filled = (add_all(parts) for parts in zip(*(row[1:] for row in rows), strict=True))
        rows.append(("in all", work, filled))
    table = [
        (
            name,
            to_data.to_short(plan.at_sizes(work)),
            _write_report(work, plan),
            to_data.to_short(plan.at_sizes(filled)),
        )
        for name, work, filled in rows
    ]
    heads = ("equation", "operations", "over sizes", "elements")
    tables.print_table(heads, table, "operations elements", prose=("over sizes",))


def _find_pairs(entry: Entry, plan: Plan) -> Iterator[tuple[str, str]]:
    """Labels and texts: the two sides, remarks, costs."""
    before = "before" if entry.target is not None or entry.after is None else f"in {entry.equation}"
    for label, value in ((before, entry.before), ("after", entry.after)):
        if value is not None:
            yield label, _write_side(entry, value)
    for remark in entry.remarks:
        yield "", remark
    old, new = entry.old, entry.new
    if old is not None and old == new:
        yield "costs", "as before"
    for label, name, one, other in to_data.find_changes(entry):
        if name == "seconds":
            yield label, f"{tables.to_time(one)} -> {tables.to_time(other)}"
            if other > one and not entry.is_choice:
                yield "", _NO_CHOICE
        else:
            at = _change(getattr(old, f"{name}_at"), getattr(new, f"{name}_at"))
            yield label, f"{_write_report(one, plan)} -> {_write_report(other, plan)}  ({at})"


def _change(old: int, new: int) -> str:
    return f"{to_data.to_short(old)} -> {to_data.to_short(new)}"


def _write_report(cost: Polynomial, plan: Plan) -> str:
    """The largest terms at the plan's sizes, and whether there are more."""
    terms = [Polynomial({monomial: value}) for monomial, value in cost.terms.items()]
    terms.sort(key=lambda term: (-abs(plan.at_sizes(term)), str(term)))
    kept = " + ".join(str(term) for term in terms[:_MOST])
    return (kept or "0") + (" + .." if len(terms) > _MOST else "")


def to_derivation_data(built: Built) -> to_data.Data:
    """The loops as written, and every entry."""
    plan, derivation = built.plan, built.derivation
    return {
        "written": [
            {
                "equation": each.equation,
                "operations": str(each.operations),
                "operations_at_sizes": plan.at_sizes(each.operations),
                "elements": str(each.elements),
                "elements_at_sizes": plan.at_sizes(each.elements),
            }
            for each in derivation.written
        ],
        "entries": [_find_data(entry) for entry in derivation.entries],
    }


def _write_side(entry: Entry, value: ir.Expr | None) -> str:
    """One side of an entry: an equation, or a part of one; nothing where there is none."""
    if value is None:
        return ""
    return to_text(value if entry.target is None else ir.Equation(entry.target, value))


def _find_data(entry: Entry) -> to_data.Data:
    data: to_data.Data = {key: getattr(entry, key) for key in ("name", "law", "equation")}
    data |= {side: _write_side(entry, getattr(entry, side)) for side in ("before", "after")}
    data |= {"remarks": list(entry.remarks), "costs": None}
    if entry.old is not None and entry.new is not None:
        both = entry.old, entry.new
        data["costs"] = {
            "operations": [str(costs.operations) for costs in both],
            "operations_at_sizes": [costs.operations_at for costs in both],
            "elements": [str(costs.elements) for costs in both],
            "elements_at_sizes": [costs.elements_at for costs in both],
            "seconds": [costs.seconds for costs in both],
        }
    return data


def show(  # noqa: PLR0913, PLR0917 - what is named, and how
    where: str, code: Code, options: Options, parts: Parts, as_json: bool, read: ReadWords
) -> None:
    """Print the formula that is named, or that of a function: its parts, else all."""
    if formulas.is_code(where):
        found = formulas.find_code(where, code, sizes=options.sizes)
    else:
        found, options = formulas.find_asked(where, options, read)
    if parts.gradient:
        found = formulas.differentiate(found, parts.gradient)
    if as_json:
        tables.print_json(_to_data(found, options, parts))
        return
    if parts.derivation:
        _print_derivation(found, options, parts.latex)
        return
    if parts.loops:
        tables.print_line(_find_loops(found).rstrip("\n"))
    if parts.code:
        tables.print_line(build_checked(found, options).source.rstrip("\n"))
    if parts.latex:
        from derive.backend.to_latex import to_align

        tables.print_line(to_align(_find_system(found), ()))
    if not parts.loops and not parts.code and not parts.latex:
        _print_all(found, options)


def build_checked(found: formulas.Found, options: Options) -> Built:
    """The formula's file, at sizes that it has."""
    _check_sizes(found, options)
    return formulas.build_found(found, options)


def print_title(found: formulas.Found, system: ir.System) -> None:
    """Title and source of the formula as comment lines, so that the text can be read back."""
    formula = found.formula
    tables.print_heading(f"# {found.name}: {formula.title}" if formula.title else f"# {found.name}")
    if formula.source:
        tables.print_line(f"# Source: {formula.source}", "dim")
    if found.origin != formulas.FROM_TEXT:
        tables.print_line(f"# From {found.origin}", "dim")
    tables.print_line("\n".join(["", *to_lines(system)]))
    for note in found.notes:
        tables.print_line(f"# {note}")


def _print_all(found: formulas.Found, options: Options) -> None:
    """The full report on a formula, at its typical sizes or at given ones."""
    system = _find_system(found)
    _check_sizes(found, options)
    print_title(found, system)  # before it is planned: a formula without a plan is shown, too
    try:
        built = formulas.build_found(found, options)
    except DeriveError as error:
        tables.print_line()
        tables.print_diagnostic(error.diagnostic)
        return
    data = to_data.to_plan_data(built.plan)
    tables.print_heading("\nindices")
    tables.print_roles(to_data.to_roles_data(system, built.plan.sizes))
    tables.print_heading("\nsteps")
    tables.print_steps(data)
    tables.print_line()
    tables.print_costs(data, built.plan)
    for note in built.notes:
        tables.print_text(f"by {note}")
    for remark in tables.find_remarks(built, options):
        tables.print_text(remark)


def _print_derivation(found: formulas.Found, options: Options, as_latex: bool) -> None:
    built = build_checked(found, options)
    if as_latex:
        from derive.backend.to_latex import to_align

        tables.print_line(to_align(built.system, built.derivation.entries))
    else:
        print_title(found, built.system)
        print_derivation(built, options)


def _to_data(found: formulas.Found, options: Options, parts: Parts) -> to_data.Data:
    """The report, with loops, code and derivation where they are requested."""
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
    if parts.loops:
        data["loops"] = _find_loops(found)
    if parts.code:
        data["code"] = built.source
    if parts.derivation:
        data["derivation"] = to_derivation_data(built)
    return data


def _find_system(found: formulas.Found) -> ir.System:
    """The formula's equations, checked."""
    from derive.frontend.from_sympy import to_system

    return to_system(found.formula)


def _find_loops(found: formulas.Found) -> str:
    """The formula as loops over single numbers, in Python."""
    from derive.judge.loops import to_loops

    _find_system(found)  # refuses what is wrong in it
    return to_loops(found.formula)


def _check_sizes(found: formulas.Found, options: Options) -> None:
    """Refuse sizes that the formula does not have."""
    if options.sizes:
        from derive.ir.walk import find_sizes

        check_sizes(options.sizes, find_sizes(_find_system(found)))
