"""`derive einsum`: what an einsum string means, what it costs, and what in it may surprise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.cli.sizes import check_sizes
from derive.cli.step_table import print_costs, print_steps, to_plan_data
from derive.cli.tables import print_heading, print_json, print_line
from derive.linter.plain import Parts, find_call, find_remarks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.ir.nodes import System


def print_einsum(equation: str, sizes: Mapping[str, int], as_json: bool) -> None:
    """The string as a formula in the notation, as loops, as steps with costs; and remarks."""
    from derive.compiler import build
    from derive.frontend.from_einsum import from_einsum
    from derive.frontend.system import to_system
    from derive.ir.text import to_lines
    from derive.judge.loops import to_loops

    formula = from_einsum(equation)
    system = to_system(formula)
    built = build(formula, sizes=_from_letters(sizes, system) or None)
    parts = Parts.of(equation, tuple(entry.name for entry in system.inputs))
    plain, remarks = find_call(parts), find_remarks(parts)
    lines, loops = to_lines(system), to_loops(formula)
    if as_json:
        print_json(
            {
                "einsum": str(parts),
                "formula": list(lines),
                "loops": loops,
                "same_as": plain,
                "remarks": list(remarks),
                **to_plan_data(built.plan),
            }
        )
        return
    print_heading(f'einsum "{parts}"')
    print_line("\n".join(lines))
    for remark in (*((f"the same as {plain}",) if plain else ()), *remarks):
        print_line(f"  - {remark}", "yellow")
    print_heading("\nloops")
    print_line(loops.rstrip("\n"))
    print_heading("\nsteps")
    print_steps(built.plan)
    print_line()
    print_costs(built.plan)


def _from_letters(sizes: Mapping[str, int], system: System) -> dict[str, int]:
    """The sizes that were given by their letters, `b=8`, or by their own names, `B=8`."""
    from derive.analysis.extents import find_letters
    from derive.ir.text import to_text

    names = {index.name: to_text(index.extent) for index in find_letters(system)}
    check_sizes(sizes, (*names, *names.values()))
    return {names.get(name, name): number for name, number in sizes.items()}
