"""Size regimes: from which size on another order of contraction takes fewer operations.

The best order is chosen at the sizes that a plan is made for. Each size alone is then made much
smaller and much larger; where another form or order takes clearly fewer operations there, the size
at which the two are equal is found from their costs, which are polynomials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.plan.build import lower_system
from derive.plan.search import find_forms
from derive.plan.steps import Regime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.ir.nodes import System
    from derive.plan.search import Wish
    from derive.plan.steps import Plan

FAR = 16  # times smaller and larger: the plausible range
MOST_PRODUCTS = 10  # of a plan whose orders are searched again at other sizes
CLEAR = 1.5  # times fewer operations at its end, from which another order is worth telling


def find_regimes(
    system: System, plan: Plan, sizes: Mapping[str, int], wish: Wish
) -> tuple[Regime, ...]:
    """At most one regime below and one above for each size."""
    if not plan.einsums or len(plan.einsums) > MOST_PRODUCTS:
        return ()
    forms = find_forms(system, sizes, wish)
    found = []
    for size, number in sizes.items():
        for is_below in (True, False):
            far = max(1, number // FAR) if is_below else number * FAR
            if far == number:
                continue
            there = {**sizes, size: far}
            plans = [lower_system(form, there, cells=wish.cells) for form in forms]
            other = min(plans, key=lambda each: each.at_sizes(each.flops))
            if _count(other, sizes, size, far) * CLEAR <= _count(plan, sizes, size, far):
                crossing = _find_crossing((plan, other), sizes, size, far)
                found.append(Regime(size, is_below, crossing, other))
    return tuple(found)


def _count(plan: Plan, sizes: Mapping[str, int], size: str, number: int) -> int:
    """Operations with one size changed."""
    return plan.at_sizes(plan.flops, {**sizes, size: number})


def _find_crossing(plans: tuple[Plan, Plan], sizes: Mapping[str, int], size: str, far: int) -> int:
    """The last number, from the plan's own towards `far`, at which the first plan is no worse."""
    near = sizes[size]
    plan, other = plans
    while abs(near - far) > 1:
        middle = (near + far) // 2
        if _count(other, sizes, size, middle) < _count(plan, sizes, size, middle):
            far = middle
        else:
            near = middle
    return near
