"""The log of a derivation: what was done to a formula on its way to a plan, entry by entry.

The search notes what it takes while it runs, without costs; `plan.derivation` tells the whole, from
the formula as it is written to the loop over blocks, and counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from derive.ir.nodes import Access, Expr, System
    from derive.ir.polynomial import Polynomial
    from derive.rewrite.options import Rewriting

PREPARE = "prepare"  # an entry that stands for all uses of rules of the recipe
STORE = ("store", "in this order torch copies less, or reads what it needs in one piece")


@dataclass(frozen=True, slots=True)
class Costs:
    """What a form costs: as polynomials over sizes, at the plan's sizes, and in seconds."""

    operations: Polynomial
    elements: Polynomial  # alive together at the fullest moment
    operations_at: int
    elements_at: int
    seconds: float | None = None  # as the machine's constants tell; None for a part of a plan


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was done: a rule used, or a choice of the planner.

    `before` and `after` are values of `target`; without a target they are parts of the equation.
    `system` is the whole formula afterwards, where that changed.
    """

    name: str
    law: str  # or the reason, in one sentence
    equation: str
    before: Expr | None = None
    after: Expr | None = None
    target: Access | None = None
    system: System | None = None
    order: tuple[int, ...] = ()  # in which the places of the tensor are stored
    old: Costs | None = None
    new: Costs | None = None
    remarks: tuple[str, ...] = ()
    is_choice: bool = False  # of the search; a rule of the recipe always applies


def note_rule(rewriting: Rewriting, form: System) -> tuple[Entry, ...]:
    """One use of an optional rule, and that the recipe was used afterwards."""
    rule, system = rewriting.rule, rewriting.system
    targets = (equation.target for equation in system.equations)
    entry = Entry(
        rule.name,
        rule.law,
        rewriting.equation,
        rewriting.before,
        rewriting.after,
        next(target for target in targets if target.tensor.name == rewriting.equation),
        system,
        remarks=(f"loses {rule.loses}",) if rule.loses else (),
        is_choice=True,
    )
    tidied = (Entry(PREPARE, "", rewriting.equation, system=form),) if form is not system else ()
    return (entry, *tidied)


def note_order(tensor: str, order: tuple[int, ...]) -> Entry:
    """Another order of storage for the places of a tensor."""
    return Entry(*STORE, tensor, order=order, is_choice=True)
