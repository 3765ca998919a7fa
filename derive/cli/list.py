"""`derive list`: the formulas of the library, as a table or as a page."""

from pathlib import Path

from derive.cli import formulas, tables
from derive.ir import nodes as ir


def print_list(as_json: bool) -> None:
    """Every formula of the library, family by family: name, title, arguments."""
    from derive.frontend.from_sympy import from_sympy

    entries = [
        {
            "family": found.family,
            "name": found.name,
            "title": found.formula.title,
            "arguments": [entry.name for entry in from_sympy(found.formula).inputs],
        }
        for found in formulas.find_library().values()
    ]
    if as_json:
        tables.print_json(entries)
        return
    rows = [(*map(str, each), " ".join(names)) for *each, names in map(dict.values, entries)]
    heads = ("family", "formula", "title", "arguments")
    tables.print_table(heads, rows, prose=heads[2:])
    tables.print_line(f"{len(rows)} formulas; see one with: derive show NAME")


def write_gallery(path: Path) -> None:
    """The page of all formulas as they are set, family by family."""
    from derive.backend import to_html
    from derive.frontend.from_sympy import from_sympy

    families: dict[str, list[tuple[str, str, str, ir.System]]] = {}
    for found in formulas.find_library().values():
        formula = found.formula
        entry = (found.name, formula.title, formula.source, from_sympy(formula))
        families.setdefault(found.family, []).append(entry)
    count = sum(map(len, families.values()))
    title = to_html.write_title("derive", f"{count} formulas", "See one with: derive show NAME")
    page = to_html.to_page("derive: formulas", title, to_html.write_gallery(families))
    path.write_text(page, encoding="utf-8")
