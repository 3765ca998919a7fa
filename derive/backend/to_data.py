"""Indices and plans as data for --json, and as rows of tables.

The roles of an index, each with the equations in which it has it:

    free        on the left side; `total (cumsum)` for a function along it
    summed      bound by a sum; `y (max)` for another reduction
    shared      in several reads on the right side
    broadcast   not in a term of a sum, or not on the right side at all
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from derive.ir import nodes as ir
from derive.ir.pieces import to_compact
from derive.ir.polynomial import evaluate_extent
from derive.ir.text import to_text
from derive.ir.walk import (
    as_written,
    find_accesses,
    find_all_indices,
    find_broadcast,
    find_free,
    walk,
)
from derive.plan import cost, machine, meaning
from derive.plan.plan import Plan

Data = dict[str, Any]

ROLE_HEADS = ("index", "extent", "number", "free in", "summed in", "shared in", "broadcast in")
STEP_HEADS = ("step", "einsum", "shape", "flops", "what it computes")
_UNITS = ("", " k", " M", " G", " T", " P", " E")


def to_roles_data(system: ir.System, sizes: Mapping[str, int]) -> list[Data]:
    """For each index of the user's equations: its extent, its number at `sizes`, its roles."""
    system = as_written(system)
    found = []
    for index in find_all_indices(system):
        roles: dict[str, dict[str, None]] = {
            role: {} for role in ("free", "summed", "shared", "broadcast")
        }
        for equation in system.equations:
            name, parts = equation.target.tensor.name, list(walk(equation.value))
            if index in find_free(equation.target):
                kinds = [p.kind for p in parts if isinstance(p, ir.Along) and p.index is index]
                taken = f" ({', '.join(dict.fromkeys(kinds))})" if kinds else ""
                roles["free"][name + taken] = None
            for part in parts:
                if isinstance(part, ir.Reduce) and index in part.bound:
                    kind = "" if part.kind == "sum" else f" ({part.kind})"
                    roles["summed"][name + kind] = None
            # several tensors, or several places of one, are read by the index
            if sum(index in find_free(access) for access in find_accesses(equation.value)) > 1:
                roles["shared"][name] = None
            sums = [part.terms for part in parts if isinstance(part, ir.Add)]
            reads = [[find_free(t) for t in terms if find_accesses(t)] for terms in sums]
            # a term of a sum lacks it, or the whole right side
            is_repeated = any(len({index in free for free in each}) == 2 for each in reads)
            if is_repeated or index in find_broadcast(equation):
                roles["broadcast"][name] = None
        entry = {"index": index.name, "extent": to_text(index.extent)}
        number = evaluate_extent(index.extent, sizes)
        found.append({**entry, "number": number, **{role: [*n] for role, n in roles.items()}})
    return found


def to_plan_data(plan: Plan) -> Data:
    """The steps of a plan in order with their costs, and the totals."""
    return {
        "sizes": dict(plan.sizes),
        "steps": [
            {
                "name": step.name,
                "einsums": list(plan.find_einsums(step)),
                "shape": [to_compact(index.extent) for index in step.axes],
                "flops": plan.at_sizes(plan.count_flops(step)),
                "elements": plan.at_sizes(cost.find_kept(step.op)),
                "equation": to_text(meaning.to_step_equation(step)),
            }
            for step in plan.steps
        ],
        "einsums": list(plan.einsums),
        "flops": str(plan.flops),
        "flops_at_sizes": plan.at_sizes(plan.flops),
        "peak_elements": str(plan.peak_elements),
        "peak_elements_at_sizes": plan.at_sizes(plan.peak_elements),
        "notes": list(plan.notes),
    }


def to_role_rows(data: Sequence[Data]) -> list[tuple[str, ...]]:
    """A row for each index, under ROLE_HEADS."""
    return [
        (
            *(str(each[head]) for head in ROLE_HEADS[:3]),
            *(", ".join(each[head.split()[0]]) for head in ROLE_HEADS[3:]),
        )
        for each in data
    ]


def to_step_rows(data: Data) -> list[tuple[str, ...]]:
    """The steps in order, under STEP_HEADS; operations are those at the plan's sizes."""
    return [
        (
            step["name"],
            "\n".join(step["einsums"]),
            f"[{', '.join(step['shape'])}]",
            to_short(step["flops"]),
            step["equation"],
        )
        for step in data["steps"]
    ]


def to_cost_pairs(data: Data, plan: Plan) -> list[tuple[str, str]]:
    """The pairs (label, text) on operations, memory, and the loops over blocks."""
    pairs = []
    for label in ("flops", "peak elements"):
        key = label.replace(" ", "_")
        text, number = data[key], data[f"{key}_at_sizes"]
        pairs.append((label, text if text == str(number) else f"{text} = {number:,}"))
    memory = machine.to_bytes(data["peak_elements_at_sizes"] * machine.WIDTH)
    pairs.append(("in float32", f"{memory} alive at once"))
    for tile in plan.tiles:
        length = plan.complete(plan.sizes)[tile.block]
        steps = ", ".join(step.name for step in plan.steps[tile.first : tile.last + 1])
        pairs.append((tile.block, f"{length} of {tile.index.name} at a time: {steps}"))
    return pairs


def to_short(number: int) -> str:
    """A number in short form, `34.4 M`."""
    value = Decimal(number)
    for unit in _UNITS:
        if value < Decimal("999.5"):
            return f"{float(value):.3g}{unit}"
        value /= 1000
    return f"{Decimal(number):.2e}"
