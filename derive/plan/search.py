"""The search for a fast plan: rules that lead to other forms, orders of storage, loops.

From the form that the rules of `recipes` make, every use of an optional rule is tried, the best one
taken, and so on until none pays; then, tensor by tensor, other orders of storage. What a form costs
is told by the machine's constants, not by a stopwatch, so that the same formula gives the same
bytes. Forms met before are not tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from derive.ir.nodes import Index
from derive.plan.build import Draft, lower_system
from derive.plan.layout import find_layouts
from derive.plan.machine import DEFAULT, Machine
from derive.plan.memory import check_memory
from derive.plan.tiling import tile, time_plan
from derive.rewrite.options import LOSSY, OPTIONS, find_rewritings
from derive.rewrite.recipes import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from derive.ir.nodes import Equation, System
    from derive.plan.steps import Plan
    from derive.rewrite.options import Rewriting

PAYS = 0.95  # of the time before: a rule that gains less is not worth a reader's thought
MOST_RULES = 6  # in a row
MOST_FORMS = 60  # tried in all


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a plan beyond the formula and its sizes."""

    machine: Machine = DEFAULT
    elements: int | None = None  # that may be alive at once
    fast_math: bool = False  # rules that lose digits may be used
    cells: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """A draft, its plan without a loop, and how long that takes."""

    draft: Draft
    plan: Plan
    seconds: float


def find_plan(system: System, sizes: Mapping[str, int], wish: Wish) -> Plan:
    """The fastest plan that the search meets."""
    prepared, notes = prepare(system)
    best = _try_rules(_measure(Draft(system, prepared, notes), sizes, wish), sizes, wish)
    best = _try_layouts(best, sizes, wish)
    plan = tile(best.plan, wish.machine, wish.elements)
    if wish.elements is not None:
        check_memory(plan, wish.elements)
    return plan


def _measure(draft: Draft, sizes: Mapping[str, int], wish: Wish) -> Found:
    plan = lower_system(draft, sizes, cells=wish.cells)
    return Found(draft, plan, time_plan(plan, wish.machine))


def _try_rules(start: Found, sizes: Mapping[str, int], wish: Wish) -> Found:
    """The best form that optional rules lead to, one after the other."""
    rules = (*OPTIONS, *LOSSY) if wish.fast_math else OPTIONS
    best, seen = start, {start.draft.prepared: None}
    for _ in range(MOST_RULES):
        found: list[tuple[Found, Rewriting]] = []
        for rewriting in find_rewritings(best.draft.prepared, rules):
            for form in (rewriting.system, prepare(rewriting.system)[0]):
                if form not in seen and len(seen) < MOST_FORMS:
                    seen[form] = None
                    note = f"{rewriting.rule.name}: {rewriting.rule.law}"
                    draft = replace(best.draft, prepared=form, notes=(*best.draft.notes, note))
                    found.append((_measure(draft, sizes, wish), rewriting))
        if not found:
            break
        next_one, _ = min(found, key=lambda pair: pair[0].seconds)
        if next_one.seconds >= PAYS * best.seconds:
            break
        best = next_one
    return best


def _try_layouts(best: Found, sizes: Mapping[str, int], wish: Wish) -> Found:
    """Each tensor's places in another order of storage, where that saves copies."""
    for equation in best.draft.prepared.equations:
        name = equation.target.tensor.name
        for order in _find_orders(equation, best.draft):
            draft = replace(best.draft, layouts={**best.draft.layouts, name: order})
            found = _measure(draft, sizes, wish)
            if found.seconds < PAYS * best.seconds:
                best = found
    return best


def _find_orders(equation: Equation, draft: Draft) -> Iterator[tuple[int, ...]]:
    """The usual order with one place moved to the front, or two neighbours exchanged."""
    target = equation.target
    if not all(isinstance(place, Index) for place in target.places):
        return
    usual = find_layouts(draft.prepared)[target.tensor.name]
    usual = draft.layouts.get(target.tensor.name, usual)
    for k in range(1, len(usual)):
        yield (usual[k], *usual[:k], *usual[k + 1 :])
        if k > 1:
            yield (*usual[: k - 1], usual[k], usual[k - 1], *usual[k + 1 :])
