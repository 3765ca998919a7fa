"""The derivation of a plan, told from the formula as it is written to the last loop.

    find_derivation(plan, wish)   the loops as written, and entry by entry what was done

First come the rules of the recipe, then what the search took, in its order: both are counted on
plans without calls of torch, so that what a rule gains is seen. Then come the orders of
contraction, the calls, and the loop over blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from derive.errors import DeriveError
from derive.ir.nodes import Access, Equation, Tensor
from derive.plan.build import Draft, lower_in, lower_system, make_context
from derive.plan.choices import tell_calls, tell_loop
from derive.plan.layout import find_layouts
from derive.plan.log import PREPARE, Costs, Entry
from derive.plan.orders import tell_order
from derive.plan.tiling import time_plan
from derive.plan.written import Written, count_written
from derive.rewrite.derivation import find_uses
from derive.rewrite.letters import settle_letters
from derive.rewrite.recipes import prepare
from derive.rewrite.rules.products import flatten_product, flatten_sum, guard_product

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from derive.ir.nodes import Expr, System
    from derive.plan.machine import Machine
    from derive.plan.search import Wish
    from derive.plan.steps import Plan
    from derive.rewrite.derivation import Use

# They let go of brackets after another rule, and of letters that it took.
TIDY = (flatten_sum.name, flatten_product.name, "settle_letters")
FIRST = (guard_product.name,)  # it makes way for another rule


@dataclass(frozen=True, slots=True)
class Derivation:
    """The loops as they are written, and what was done, one thing after the other."""

    written: tuple[Written, ...]
    entries: tuple[Entry, ...]


def find_derivation(plan: Plan, wish: Wish) -> Derivation:
    """All that led to a plan, which the search found for this wish."""
    start, _ = prepare(plan.system)
    told = _tell_rules(plan, start)
    written = plan.system if told else start
    drafts = list(_find_drafts(Draft(plan.system, written, ()), told))
    entries = _count_entries(told, drafts, plan, wish)
    context = make_context(drafts[-1], plan.sizes)
    plain = lower_in(context, drafts[-1], cells=False)
    entries += [tell_order(order, plan.sizes) for order in context.orders]
    whole = lower_system(drafts[-1], plan.sizes, cells=wish.cells)
    before, after = (count_costs(each, wish.machine) for each in (plain, whole))
    entries += tell_calls(whole, before, after)
    if plan.tile is not None:
        costs = count_costs(plan, wish.machine)
        entries.append(tell_loop(whole, plan, after, costs, wish.elements))
    return Derivation(count_written(plan.system), tuple(entries))


def count_costs(plan: Plan, machine: Machine) -> Costs:
    """What a plan costs."""
    operations, elements = plan.flops, plan.peak_elements
    at = (plan.at_sizes(operations), plan.at_sizes(elements))
    return Costs(operations, elements, *at, time_plan(plan, machine))


@dataclass
class _Teller:
    """The entries so far, and what each equation looked like when it was last shown."""

    shown: dict[str, Expr]
    entries: list[Entry] = field(default_factory=list)
    held: Use | None = None  # a use of a rule that makes way for the next one

    def follow(self, uses: Iterable[Use]) -> None:
        """An entry for each use that is worth one."""
        for use in uses:
            if self.held is not None and self.held.equation != use.equation:
                self._release()
            if use.name in TIDY:
                self._tidy(use)
            elif use.name in FIRST:
                self.held = use
            else:
                self._tell(use)
        self._release()

    def add(self, entry: Entry) -> None:
        """An entry from what was last shown of its equation, in letters that can be read."""
        before = self.shown.get(entry.equation, entry.before)
        self.entries.append(replace(entry, before=before))
        self._show(entry.after, entry.system)

    def _show(self, after: Expr | None, system: System | None) -> None:
        """What the last entry leads to."""
        last = self.entries[-1]
        if after is None or system is None or last.target is None:
            return
        after = settle_letters(Equation(last.target, after), system)
        self.entries[-1] = replace(last, after=after, system=system)
        self.shown[last.equation] = after

    def settle(self, system: System) -> None:
        """What was tidied up without an entry of its own is part of the last one."""
        if self.entries:
            self.entries[-1] = replace(self.entries[-1], system=system)

    def _tell(self, use: Use) -> None:
        with_it = () if self.held is None else (f"with {self.held.name}: {self.held.law}",)
        targets = (equation.target for equation in use.system.equations)
        target = next(target for target in targets if target.tensor.name == use.equation)
        changed = (use.equation, use.before, use.after, target, use.system)
        self.held = None
        self.add(Entry(use.name, use.law, *changed, remarks=with_it))

    def _tidy(self, use: Use) -> None:
        """Part of what was told last, or held back; else it is not told."""
        if self.held is not None:
            self.held = replace(self.held, system=use.system, after=use.after)
        elif self.entries and self.entries[-1].equation == use.equation:
            self._show(use.after, use.system)

    def _release(self) -> None:
        """What was held back and nothing followed is told by itself."""
        held, self.held = self.held, None
        if held is not None:
            self._tell(held)


def _tell_rules(plan: Plan, start: System) -> list[Entry]:
    """The uses of rules and the orders of storage, without costs."""
    teller = _Teller({e.target.tensor.name: e.value for e in plan.system.equations})
    teller.follow(find_uses(plan.system))
    teller.settle(start)
    for entry in plan.log:
        if entry.name == PREPARE and entry.system is not None:
            last = teller.entries[-1].system
            teller.follow(find_uses(last) if last is not None else ())
            teller.settle(entry.system)
        elif entry.order:
            teller.entries.append(entry)
        else:
            teller.add(entry)
    return teller.entries


def _find_drafts(start: Draft, entries: Iterable[Entry]) -> Iterator[Draft]:
    """The formula before the first entry, and after each."""
    draft = start
    yield draft
    for entry in entries:
        if entry.order:
            draft = replace(draft, layouts={**draft.layouts, entry.equation: entry.order})
        else:
            draft = replace(draft, prepared=entry.system or draft.prepared)
        yield draft


def _count_entries(
    entries: list[Entry], drafts: list[Draft], plan: Plan, wish: Wish
) -> list[Entry]:
    """The entries with their costs, as far as the forms between can be planned."""
    stages = [(d, _count_draft(d, plan, wish.machine, cells=False)) for d in drafts]
    counted = []
    for entry, ((before, old), (after, new)) in zip(entries, pairwise(stages), strict=True):
        told = replace(entry, old=old, new=new)
        if entry.order:
            told = _show_order(told, before)
        if entry.is_choice and wish.cells:
            told = _compare_calls(told, before, after, plan, wish.machine)
        counted.append(told)
    return counted


def _count_draft(draft: Draft, plan: Plan, machine: Machine, *, cells: bool) -> Costs | None:
    try:
        return count_costs(lower_system(draft, plan.sizes, cells=cells), machine)
    except DeriveError:  # a form on the way need not have a plan
        return None


def _compare_calls(
    entry: Entry, before: Draft, after: Draft, plan: Plan, machine: Machine
) -> Entry:
    """Where the gain is that of a call of torch, the entry with what the search saw."""
    if entry.old is None or entry.new is None or _gains(entry.old, entry.new):
        return entry
    old, new = (_count_draft(draft, plan, machine, cells=True) for draft in (before, after))
    if old is None or new is None or not _gains(old, new):
        return entry
    seen = f"with calls of torch {old.seconds:.3g} s -> {new.seconds:.3g} s"
    return replace(entry, remarks=(*entry.remarks, seen))


def _gains(old: Costs, new: Costs) -> bool:
    return old.seconds is not None and new.seconds is not None and new.seconds < old.seconds


def _show_order(entry: Entry, draft: Draft) -> Entry:
    """The entry with the places in the order in which they were stored, and are from now on."""
    equations = draft.prepared.equations
    target = next(e.target for e in equations if e.target.tensor.name == entry.equation)
    usual = draft.layouts.get(entry.equation, find_layouts(draft.prepared)[entry.equation])
    before, after = (_arrange(target, order) for order in (usual, entry.order))
    return replace(entry, before=before, after=after)


def _arrange(target: Access, order: tuple[int, ...]) -> Access:
    shape = tuple(target.tensor.shape[k] for k in order)
    return Access(Tensor(target.tensor.name, shape), tuple(target.places[k] for k in order))
