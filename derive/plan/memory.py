"""A budget of memory: what a person types for it, and a plan that does not keep to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from derive.errors import refuse
from derive.plan.machine import WIDTH

if TYPE_CHECKING:
    from derive.plan.steps import Plan

UNITS = {"": 1, "B": 1, "K": 10**3, "KB": 10**3, "M": 10**6, "MB": 10**6, "G": 10**9, "GB": 10**9}
UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def parse_memory(memory: int | str) -> int:
    """The bytes of 256MiB, 2GB or a plain number; DeriveError for anything else."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(memory))
    unit = UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None or isinstance(memory, bool) or float(found[1]) <= 0:
        raise refuse(
            "memory-amount",
            f"{memory} is no amount of memory",
            help="write a number of bytes, or one with a unit: 256MiB, 2GB",
        )
    return int(float(found[1]) * unit)


def check_memory(plan: Plan, most: int) -> None:
    """Raise `memory-short` where a plan needs more elements than it may."""
    least = plan.at_sizes(plan.peak_elements)
    if least > most:
        at = ", ".join(f"{size}={extent}" for size, extent in plan.sizes.items())
        takes = f"{to_bytes(least * WIDTH)}, {least:,} elements of float32"
        raise refuse(
            "memory-short",
            f"no plan of {plan.system.name} keeps to {to_bytes(most * WIDTH)}",
            facts=(
                f"{most:,} elements of {WIDTH} bytes may be alive at once",
                f"at {at} the leanest one takes {takes}",
            ),
            help=f"allow {_round_up(least * WIDTH)}, or plan for smaller sizes",
        )


def to_bytes(count: int) -> str:
    """An amount of memory as a person reads it."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def _round_up(count: int) -> str:
    """An amount that is enough, as it is typed."""
    unit, size = next((u, s) for u, s in _ROUND if count >= s)
    return f"{-(-count // size)}{unit}"


_ROUND = (("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
