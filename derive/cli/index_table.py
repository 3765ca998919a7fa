"""The indices of a formula as a table, and as data for --json: how far each runs, and what it does.

The columns are those of `analysis.roles`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from derive.analysis.roles import find_roles
from derive.cli.tables import print_table
from derive.ir.polynomial import evaluate_extent
from derive.ir.text import to_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.ir.nodes import System


def print_roles(system: System, sizes: Mapping[str, int]) -> None:
    """A row for each index."""
    heads = ("index", "extent", "number", "free in", "summed in", "shared in", "broadcast in")
    rows = [
        (
            roles.index.name,
            to_text(roles.index.extent),
            str(evaluate_extent(roles.index.extent, sizes)),
            *map(", ".join, (roles.free, roles.summed, roles.shared, roles.broadcast)),
        )
        for roles in find_roles(system)
    ]
    if rows:
        print_table(heads, rows, numbers="number", prose=heads[3:])


def to_roles_data(system: System, sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """The indices for --json."""
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
