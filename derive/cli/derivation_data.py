"""A derivation as data, for --json: what was done, before and after, costs before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from derive.cli.step_table import to_compact
from derive.ir.nodes import Equation
from derive.ir.text import to_text

if TYPE_CHECKING:
    from derive.compiler import Built
    from derive.ir.nodes import Expr
    from derive.plan.log import Entry


def to_derivation_data(built: Built) -> dict[str, Any]:
    """The loops as written, and every entry."""
    plan, derivation = built.plan, built.derivation
    return {
        "written": [
            {
                "equation": each.equation,
                "operations": to_compact(each.operations.to_expr()),
                "operations_at_sizes": plan.at_sizes(each.operations),
                "elements": to_compact(each.elements.to_expr()),
                "elements_at_sizes": plan.at_sizes(each.elements),
            }
            for each in derivation.written
        ],
        "entries": [_to_data(entry) for entry in derivation.entries],
    }


def write_side(entry: Entry, value: Expr | None) -> str:
    """One side of an entry: an equation, or a part of one; nothing where there is none."""
    if value is None:
        return ""
    return to_text(value if entry.target is None else Equation(entry.target, value))


def _to_data(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "law": entry.law,
        "equation": entry.equation,
        "before": write_side(entry, entry.before),
        "after": write_side(entry, entry.after),
        "remarks": list(entry.remarks),
        "costs": _to_costs_data(entry),
    }


def _to_costs_data(entry: Entry) -> dict[str, Any] | None:
    old, new = entry.old, entry.new
    if old is None or new is None:
        return None
    return {
        "operations": [to_compact(costs.operations.to_expr()) for costs in (old, new)],
        "operations_at_sizes": [old.operations_at, new.operations_at],
        "elements": [to_compact(costs.elements.to_expr()) for costs in (old, new)],
        "elements_at_sizes": [old.elements_at, new.elements_at],
        "seconds": [old.seconds, new.seconds],
    }
