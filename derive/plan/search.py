"""The search for a fast plan: rules that lead to other forms, orders of storage, loops.

From the form that the rules of `recipes` make, every use of an optional rule is tried, the most
promising form always first, and the best one taken; then, tensor by tensor, other orders of
storage. What a form costs is told by the machine's constants, not by a stopwatch, so that the same
formula gives the same bytes. Forms met before are not tried again.

The best order of contraction is chosen at the sizes that a plan is made for. For size regimes each
size alone is then made much smaller and much larger; where another form or order takes clearly
fewer operations there, the size at which the two are equal is found from their costs, which are
polynomials.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from derive.errors import DeriveError
from derive.ir.nodes import Index
from derive.plan.blocks import check_memory, tile
from derive.plan.build import Draft, lower_system
from derive.plan.cost import Memory, find_copied, find_strides
from derive.plan.layout import find_layouts
from derive.plan.machine import DEFAULT, Machine
from derive.plan.ops import find_reads, walk_ops
from derive.plan.path import FEW
from derive.plan.plan import PREPARE, Entry, Regime
from derive.rewrite.options import LOSSY, OPTIONS, Rewriting, find_rewritings
from derive.rewrite.recipes import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.ir.nodes import Equation, System
    from derive.plan.plan import Plan
    from derive.rewrite.rule import Rule

PAYS = 0.95  # of the time before: a rule that gains less is not worth a reader's thought
ORDER_PAYS = 0.98  # the same for an order of storage, which is no more to read
MOST_TURNS = 4  # forms from which others are looked for
MOST_FORMS = 24  # tried in all
MOST_OPERATIONS = 2400  # of the plans tried: a formula of more than a hundred gets fewer forms
STORE = ("store", "in this order torch copies less, or reads what it needs in one piece")
NEAR = 4  # forms tried for other sizes


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
    best = _try_layouts(_try_orders(best, sizes, wish), sizes, wish)
    plan = tile(best.plan, wish.machine, wish.elements)
    if wish.elements is not None:
        check_memory(plan, wish.elements)
    return plan


def find_forms(system: System, sizes: Mapping[str, int], wish: Wish) -> list[Draft]:
    """The form of the recipe and a few near it, for a look at other sizes."""
    prepared, notes = prepare(system)
    start = _measure(Draft(system, prepared, notes), sizes, wish)
    rules = [rule for rule in OPTIONS if rule.across is not None]
    near = islice(_find_next(start, rules, {prepared: None}, sizes, wish), NEAR)
    return [found.draft for found in (start, *near)]


def _measure(draft: Draft, sizes: Mapping[str, int], wish: Wish) -> Found:
    plan = lower_system(draft, sizes, cells=wish.cells)
    return Found(draft, plan, plan.find_time(wish.machine))


def _try_rules(start: Found, sizes: Mapping[str, int], wish: Wish) -> Found:
    """The best form that optional rules lead to; the most promising one is always tried next.

    A form that is slower itself may lead to a faster one, so it is kept for its turn.
    """
    rules = (*OPTIONS, *LOSSY) if wish.fast_math else OPTIONS
    best, seen, waiting = start, {start.draft.prepared: None}, [start]
    for _ in range(MOST_TURNS):
        if not waiting:
            break
        here = min(waiting, key=lambda found: found.seconds)
        waiting.remove(here)
        for found in _find_next(here, rules, seen, sizes, wish):
            waiting.append(found)
            if found.seconds < PAYS * best.seconds:
                best = found
    return best


def _find_next(
    here: Found,
    rules: Sequence[Rule],
    seen: dict[System, None],
    sizes: Mapping[str, int],
    wish: Wish,
) -> Iterator[Found]:
    """The forms that one use of one rule leads to, without those seen before."""
    most = min(MOST_FORMS, _count_tries(here.plan))
    for rewriting in find_rewritings(here.draft.prepared, rules):
        if len(seen) >= most:
            return
        is_whole = rewriting.rule.across is not None  # what it put together can be sorted out
        form = prepare(rewriting.system)[0] if is_whole else rewriting.system
        if form not in seen:
            seen[form] = None
            note = _say(rewriting.rule)
            log = (*here.draft.log, *note_rule(rewriting, form))
            notes = (*here.draft.notes, note)
            draft = replace(here.draft, prepared=form, notes=notes, log=log)
            with suppress(DeriveError):  # it may have positions that no plan can read
                yield _measure(draft, sizes, wish)


def _count_tries(plan: Plan) -> int:
    """How many plans as long as this one may be tried."""
    return MOST_OPERATIONS // sum(1 for step in plan.steps for _ in walk_ops(step.op))


def _say(rule: Rule) -> str:
    """The rule's law, and what it loses."""
    loses = f"; it loses {rule.loses}" if rule.loses else ""
    return f"{rule.name}: {rule.law}{loses}"


def _try_orders(best: Found, sizes: Mapping[str, int], wish: Wish) -> Found:
    """Among orders of as few operations, one of fewer or larger products.

    Small matrices are slow to multiply.
    """
    found = _measure(replace(best.draft, minimize=FEW), sizes, wish)
    is_more = found.plan.at_sizes(found.plan.flops) > best.plan.at_sizes(best.plan.flops)
    return found if found.seconds < PAYS * best.seconds and not is_more else best


def _try_layouts(best: Found, sizes: Mapping[str, int], wish: Wish) -> Found:
    """Each tensor's places in another order of storage, where that saves copies."""
    copied, left = _find_copied(best.plan), _count_tries(best.plan)
    for equation in best.draft.prepared.equations:
        name = equation.target.tensor.name
        if name not in copied:
            continue
        orders = list(islice(_find_orders(equation, best.draft), left))
        left -= len(orders)
        for order in orders:
            log = (*best.draft.log, note_order(name, order))
            draft = replace(best.draft, layouts={**best.draft.layouts, name: order}, log=log)
            found = _measure(draft, sizes, wish)
            if found.seconds < ORDER_PAYS * best.seconds:
                best = found
    return best


def _find_copied(plan: Plan) -> set[str]:
    """The tensors that torch copies to multiply them, by the names in the plan."""
    memory = Memory(plan.sizes)
    found: set[str] = set()
    for step in plan.steps:
        for op in walk_ops(step.op):
            found |= {name for arg in find_copied(op, memory) for name in find_reads(arg)}
        memory.strides[step.name] = find_strides(step.op, memory)
    return found


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
