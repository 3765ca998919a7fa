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
        raise refuse(
            "memory-short",
            f"no plan of {plan.system.name} keeps to {most * WIDTH:,} bytes",
            facts=(f"at {at} the leanest one takes {least * WIDTH:,}",),
            help="allow that much, or plan for smaller sizes",
        )
