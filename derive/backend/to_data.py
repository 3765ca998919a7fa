"""What is known about a plan, as data: --json prints it, tables and pages show its rows.

What each index does in which equation:

    free        the left side has it; `alpha (softmax)` where something is taken along it
    summed      the right side adds up over it; `y (max)` where it is reduced otherwise
    shared      several tensors on the right are read by it
    broadcast   a term of a sum, or the whole right side, is repeated along it
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from derive.analysis.extents import find_broadcast, find_left
from derive.ir import nodes as ir
from derive.ir.polynomial import evaluate_extent
from derive.ir.text import to_text
from derive.ir.walk import as_written, find_accesses, find_all_indices, find_free, walk
from derive.plan.cost import find_kept
from derive.plan.machine import WIDTH, to_bytes
from derive.plan.meaning import to_step_equation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from derive.plan.plan import Plan

Data = dict[str, Any]

ROLE_HEADS = ("index", "extent", "number", "free in", "summed in", "shared in", "broadcast in")
STEP_HEADS = ("step", "einsum", "shape", "flops", "what it computes")
_UNITS = ("", " k", " M", " G", " T", " P", " E")


@dataclass(frozen=True, slots=True)
class Roles:
    """One index, and the names of the equations in which it has each role."""

    index: ir.Index
    free: tuple[str, ...]
    summed: tuple[str, ...]
    shared: tuple[str, ...]
    broadcast: tuple[str, ...]


def find_roles(system: ir.System) -> tuple[Roles, ...]:
    """The roles of every index that the user wrote, in order of appearance."""
    system = as_written(system)
    return tuple(
        Roles(
            index,
            _collect(_find_along(index, e) for e in system.equations if index in find_left(e)),
            _collect(name for e in system.equations for name in _find_reduced(index, e)),
            _collect(_name(e) for e in system.equations if _is_shared(index, e)),
            _collect(_name(e) for e in system.equations if _is_broadcast(index, e)),
        )
        for index in find_all_indices(system)
    )


def _collect(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _name(equation: ir.Equation) -> str:
    return equation.target.tensor.name


def _find_along(index: ir.Index, equation: ir.Equation) -> str:
    """The equation's name, and what it takes along the index."""
    kinds = _collect(
        here.kind
        for here in walk(equation.value)
        if isinstance(here, ir.Along) and here.index is index
    )
    return f"{_name(equation)} ({', '.join(kinds)})" if kinds else _name(equation)


def _find_reduced(index: ir.Index, equation: ir.Equation) -> Iterator[str]:
    for here in walk(equation.value):
        if isinstance(here, ir.Reduce) and index in here.bound:
            yield _name(equation) + ("" if here.kind == "sum" else f" ({here.kind})")


def _is_shared(index: ir.Index, equation: ir.Equation) -> bool:
    """Do two tensors, or two places of one, read by the index?"""
    reading = [access for access in find_accesses(equation.value) if index in find_free(access)]
    return len(reading) > 1


def _is_broadcast(index: ir.Index, equation: ir.Equation) -> bool:
    """Does the right side lack an index of the left, or a term one of the others?"""
    if index in find_broadcast(equation):
        return True
    for here in walk(equation.value):
        if isinstance(here, ir.Add):
            terms = [find_free(term) for term in here.terms if find_accesses(term)]
            if any(index in free for free in terms) and any(index not in f for f in terms):
                return True
    return False


def to_roles_data(system: ir.System, sizes: Mapping[str, int]) -> list[Data]:
    """The indices: how far each runs, and in which equations it does what."""
    return [
        {
            "index": roles.index.name,
            "extent": to_text(roles.index.extent),
            "number": evaluate_extent(roles.index.extent, sizes),
            "free": list(roles.free),
            "summed": list(roles.summed),
            "shared": list(roles.shared),
            "broadcast": list(roles.broadcast),
        }
        for roles in find_roles(system)
    ]


def to_plan_data(plan: Plan) -> Data:
    """The steps in order, what each costs, and all of them together."""
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
    """Operations and memory over sizes, and as numbers; what is done block by block."""
    pairs = []
    for label in ("flops", "peak elements"):
        key = label.replace(" ", "_")
        text, number = data[key], data[f"{key}_at_sizes"]
        pairs.append((label, text if text == str(number) else f"{text} = {number:,}"))
    memory = to_bytes(data["peak_elements_at_sizes"] * WIDTH)
    pairs.append(("in float32", f"{memory} alive at once"))
    for tile in plan.tiles:
        length = plan.complete(plan.sizes)[tile.block]
        steps = ", ".join(step.name for step in plan.steps[tile.first : tile.last + 1])
        pairs.append((tile.block, f"{length} of {tile.index.name} at a time: {steps}"))
    return pairs


def to_compact(expr: ir.Expr) -> str:
    """An expression over sizes without blanks around its products."""
    return to_text(expr).replace(" * ", "*").replace(" / ", "/")


def to_short(number: int) -> str:
    """A cost as a person reads it: 34.4 M."""
    value = Decimal(number)
    for unit in _UNITS:
        if value < Decimal("999.5"):
            return f"{float(value):.3g}{unit}"
        value /= 1000
    return f"{Decimal(number):.2e}"
