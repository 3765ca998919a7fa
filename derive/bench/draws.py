"""Inputs for a measurement: of the order that they have in a network.

Sums over many normal numbers grow, and a softmax of logits in the hundreds is made of numbers so
small that a processor multiplies them many times slower than others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from derive.judge.samples import draw_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.ir.nodes import System


def draw_moderate(system: System, sizes: Mapping[str, int], dtype: Any) -> dict[str, Any]:
    """Random inputs by name; a real tensor without a domain is scaled by its last extent ** -1/4.

    A product of two of them over that extent is then of order 1.
    """
    drawn = draw_inputs(system, sizes, seed=0, dtype=dtype)
    for entry in system.inputs:
        is_free = getattr(entry, "lower", None) is getattr(entry, "upper", None) is None
        if getattr(entry, "kind", "") == "real" and is_free and getattr(entry, "shape", ()):
            value = drawn[entry.name]
            drawn[entry.name] = value * max(1, value.shape[-1]) ** -0.25
    return drawn
