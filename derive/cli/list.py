"""`derive list`: the formulas of the library."""

from derive.cli import formulas, tables


def print_list(as_json: bool) -> None:
    """Print every formula of the library, family by family: name, title, arguments."""
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
    tables.print_table(heads, rows)
    print(f"{len(rows)} formulas; see one with: derive show NAME")
