"""`derive einsum`: the meaning and the cost of an einsum string, and surprises in it."""

from collections.abc import Mapping

from derive.backend.to_data import to_plan_data
from derive.cli import options, tables
from derive.linter.calls import find_plain, find_remarks


def print_einsum(equation: str, sizes: Mapping[str, int], as_json: bool) -> None:
    """Print the string as a formula in the notation, as steps with costs, and remarks on it."""
    from derive.compiler import build
    from derive.frontend.from_einsum import from_einsum, read_fixed
    from derive.frontend.from_sympy import to_system
    from derive.ir.text import to_lines, to_text
    from derive.ir.walk import find_all_indices

    formula = from_einsum(equation)
    system = to_system(formula)
    # A size is given by its index, `b=8`, or by its own name, `B=8`.
    names = {index.name: to_text(index.extent) for index in find_all_indices(system)}
    options.check_sizes(sizes, names.values(), tuple(names))
    chosen = {names.get(name, name): number for name, number in sizes.items()}
    plan = build(formula, sizes=chosen or None).plan
    spec, operands = read_fixed(equation), [entry.name for entry in system.inputs]
    terms = ",".join(map("".join, spec.names))
    data = {
        "einsum": f"{terms}->{spec.write(spec.output)}",
        "formula": list(to_lines(system)),
        "same_as": find_plain(spec, operands),
        "remarks": list(find_remarks(spec, operands)),
        **to_plan_data(plan),
    }
    if as_json:
        tables.print_json(data)
        return
    print(f'einsum "{data["einsum"]}"')
    print("\n".join(data["formula"]))
    same = [f"the same as {data['same_as']}"] if data["same_as"] else []
    for remark in (*same, *data["remarks"]):
        print(f"  - {remark}")
    print("\nsteps")
    tables.print_steps(data)
    print()
    tables.print_costs(data, plan)
