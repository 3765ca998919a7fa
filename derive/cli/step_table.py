"""The steps of a plan and what they cost, as tables and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from derive.cli.sizes import to_option
from derive.cli.tables import print_line, print_pairs, print_table, to_short
from derive.ir.text import to_text
from derive.plan.costs import find_kept
from derive.plan.machine import WIDTH
from derive.plan.meaning import to_step_equation
from derive.plan.memory import to_bytes

if TYPE_CHECKING:
    from derive.ir.nodes import Expr
    from derive.plan.steps import Plan, Step


def print_steps(plan: Plan) -> None:
    """The steps in order: einsum strings, shape, operations at the plan's sizes."""
    rows = [
        (
            step.name,
            "\n".join(plan.find_einsums(step)),
            find_shape(step),
            to_short(plan.at_sizes(plan.count_flops(step))),
            to_text(to_step_equation(step)),
        )
        for step in plan.steps
    ]
    print_table(
        ("step", "einsum", "shape", "flops", "what it computes"),
        rows,
        "flops",
        prose=("what it computes",),
    )


def print_costs(plan: Plan) -> None:
    """Operations and memory as polynomials over sizes, and as numbers."""
    at = to_option(plan.sizes).replace(",", " ")
    if at:
        print_line(f"at {at}:")
    pairs = []
    for label, cost in (("flops", plan.flops), ("peak elements", plan.peak_elements)):
        equals = f" = {plan.at_sizes(cost):,}" if cost.constant is None else ""
        pairs.append((label, f"{to_compact(cost.to_expr())}{equals}"))
    memory = plan.at_sizes(plan.peak_elements) * WIDTH
    pairs.append(("in float32", f"{to_bytes(memory)} alive at once"))
    for tile in plan.tiles:
        length = plan.complete(plan.sizes)[tile.block]
        steps = ", ".join(step.name for step in plan.steps[tile.first : tile.last + 1])
        pairs.append((tile.block, f"{length} of {tile.index.name} at a time: {steps}"))
    print_pairs(pairs)


def to_plan_data(plan: Plan) -> dict[str, Any]:
    """The plan for --json."""
    return {
        "sizes": dict(plan.sizes),
        "steps": [
            {
                "name": step.name,
                "einsums": list(plan.find_einsums(step)),
                "shape": [to_compact(index.extent) for index in step.axes],
                "flops": plan.at_sizes(plan.count_flops(step)),
                "elements": plan.at_sizes(find_kept(step.op)),
                "equation": to_text(to_step_equation(step)),
            }
            for step in plan.steps
        ],
        "einsums": list(plan.einsums),
        "flops": to_compact(plan.flops.to_expr()),
        "flops_at_sizes": plan.at_sizes(plan.flops),
        "peak_elements": to_compact(plan.peak_elements.to_expr()),
        "peak_elements_at_sizes": plan.at_sizes(plan.peak_elements),
        "notes": list(plan.notes),
    }


def find_shape(step: Step) -> str:
    """The extents of a step's result, in order."""
    return f"[{', '.join(to_compact(index.extent) for index in step.axes)}]"


def to_compact(expr: Expr) -> str:
    """An expression over sizes without blanks around its products."""
    return to_text(expr).replace(" * ", "*").replace(" / ", "/")
