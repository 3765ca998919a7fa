"""The search for a fast plan: rules that lead to other forms, orders of contraction, loops.

From the form that the rules of `recipes` make, every use of an optional rule is tried, the most
promising form always first, and the best one taken. What a form costs follows from the machine's
constants, not from a stopwatch, so that the same formula gives the same bytes. Forms met before are
not tried again.

The best order of contraction is chosen at the sizes that a plan is made for. For size regimes each
size alone is then made much smaller and much larger; where another form or order takes clearly
fewer operations there, the size at which the two are equal is found from their costs, which are
polynomials.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from derive.errors import DeriveError
from derive.ir import nodes as ir
from derive.ir.functions import holds_complex
from derive.ir.polynomial import Polynomial
from derive.ir.recurrences import find_groups
from derive.ir.walk import walk
from derive.plan import ops
from derive.plan.blocks import check_memory, tile
from derive.plan.build import Form, lower_system
from derive.plan.chunks import Chunks, chunk_values, close_running
from derive.plan.factoring import factor_system
from derive.plan.lower.calls import fold_sums
from derive.plan.machine import DEFAULT, Machine
from derive.plan.path import EXHAUSTIVE, FEW, FLOPS
from derive.plan.plan import LARGE, PREPARE, Entry, Plan, Regime
from derive.plan.readers import Turns
from derive.plan.scans import Loop, close_recurrences, open_recurrences
from derive.plan.steps import Step
from derive.plan.waves import turn_upward
from derive.rewrite.recipes import LOSSY, OPTIONS, Rewriting, find_rewritings, prepare
from derive.rewrite.rule import Rule
from derive.rewrite.rules.offsets import find_offsets, find_recurrent

PAYS = 0.95  # of the time before: a rule that gains less is not worth a reader's thought
MOST_TURNS = 6  # forms from which others are looked for
MOST_FORMS = 24  # tried in all
MOST_OPERATIONS = 2400  # of the plans tried: a formula of more than a hundred gets fewer forms
RECUR = ("accumulate_powers", "sum_{r <= t} g**(t - r) * x_r = y_t, y_t = g * y_{t - 1} + x_t")
FACTOR = ("factor_terms", "sum x * u + sum x * w = sum x * (u + w)")
MOST_NEIGHBOURS = 4  # forms tried for other sizes
FAR = 16  # times smaller and larger: the plausible range
MOST_PRODUCTS = 10  # of a plan whose orders are searched again at other sizes
CLEAR = 1.5  # times fewer operations at its end, from which another order is worth telling


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a plan beyond the formula and its sizes."""

    machine: Machine = DEFAULT
    elements: int | None = None  # that may be alive at once
    exact: bool = False  # no rule that loses digits
    fast_math: bool = False  # such rules also where digits count, if the sign is kept
    cells: bool = True
    is_matmul: bool = False  # no einsum, and no loop over blocks: for other engines
    uses: tuple[tuple[str, ...], ...] = ()  # the results that are computed, each time others
    in_place: bool = False  # may blocks be written into the whole that they are of?
    keywords: bool = True  # for how long the chunks of recurrences are


@dataclass(frozen=True, slots=True)
class Candidate:
    """A form, its plan without a loop, and how long that takes."""

    form: Form
    plan: Plan
    seconds: float


@dataclass(frozen=True, slots=True)
class Opened:
    """A formula that recurs as a system that does not, by way of others, and its loops."""

    stages: tuple[ir.System, ...]  # as written, upward, so far, in chunks: as STAGES tells
    system: ir.System
    loops: list[Loop]
    chunks: Chunks
    sizes: Mapping[str, int]

    @property
    def lengths(self) -> dict[str, int]:
        """Numbers for the lengths of chunks, and for the turns of loops, which begin at 0."""
        return {**self.chunks.lengths, **{loop.turn: 0 for loop in self.loops if loop.turn}}

    def close(self, plan: Plan) -> Plan:
        """A plan of that system as one of the formula."""
        if not self.loops:
            return plan
        lengths = {name: (self.chunks.indices[name], n) for name, n in self.chunks.lengths.items()}
        plan = replace(plan, sizes=dict(self.sizes), lengths=lengths)
        return close_recurrences(plan, self.stages[0], self.loops)


STAGES = (
    ("turn_upward", "what recurs from the last place, or over several indices, recurs upward"),
    ("close_running", "h_t = h_{t - 1} + x_t adds up all x so far; so do products and extremes"),
    ("chunk_values", "sums over values in chunks of places, each from what the last one left"),
)


def open_formula(formula: ir.System, sizes: Mapping[str, int], request: Request) -> Opened:
    """The formula as its loops leave it to be planned, and how it came to that."""
    keywords, cells = request.keywords, request.cells and not request.is_matmul
    turned = turn_upward(folded := fold_sums(formula))
    chunks = chunk_values(
        closed := close_running(turned), sizes, request.machine, keywords=keywords
    )
    complete = {**sizes, **chunks.lengths}
    system, loops = open_recurrences(
        chunks.system,
        chunks.views,
        chunks.lengths,
        keywords=keywords,
        turns=Turns(complete, request.machine, cells, frozenset(chunks.inner)),
    )
    stages = (formula if loops else folded, turned, closed, chunks.system)
    return Opened(stages, system, loops, chunks, sizes)


def find_plan(
    system: ir.System, sizes: Mapping[str, int], request: Request, *, regimes: bool = False
) -> Plan:
    """The fastest plan that the search meets, and the `regimes` of sizes in which others are.

    What can recur is also planned so.
    """
    plan = _search(system, sizes, request, regimes=regimes)
    if request.is_matmul or not any(find_offsets(e.value) for e in system.equations):
        return plan
    other = None if find_groups(system) else find_recurrent(prepare(system)[0])
    if other is None:
        return plan
    with suppress(DeriveError):
        found = _search(other, sizes, request)
        if found.find_time(request.machine) < PAYS * plan.find_time(request.machine):
            return replace(found, system=system, notes=(*found.notes, ": ".join(RECUR)))
    return plan


def _search(
    system: ir.System, sizes: Mapping[str, int], request: Request, *, regimes: bool = False
) -> Plan:
    is_real = not any(holds_complex(equation.value) for equation in system.equations)
    if not is_real:  # cells and loops over blocks are of real numbers
        request = replace(request, cells=False)
    opened = open_formula(system, sizes, request)
    search = _Search({**sizes, **opened.lengths}, request)
    prepared, notes = search.prepare(opened.system)
    form = Form(opened.system, prepared, notes)
    start = search.measure(form) if opened.loops else search.start(form)
    best = search.try_orders(search.try_rules(start))
    best = search.try_transforms(start, best)
    plan = replace(best.plan, is_matmul=request.is_matmul)
    if opened.loops:
        plan = opened.close(plan)
    elif not request.is_matmul:
        if request.elements is not None and plan.peak > request.elements:
            plan = replace(plan, steps=add_early(plan.steps), frees=0)
        plan = tile(plan, request.machine, request.elements) if is_real else plan
    if request.elements is not None:
        check_memory(plan, request.elements)
    if plan.frees is None:
        plan = replace(plan, frees=LARGE)
    is_open = regimes and not opened.loops
    return replace(plan, regimes=search.find_regimes(plan, start)) if is_open else plan


@dataclass
class _Search:
    """Forms of one formula at its sizes; each is prepared, and planned, once."""

    sizes: Mapping[str, int]
    request: Request
    prepared: dict[ir.System, tuple[ir.System, tuple[str, ...]]] = field(default_factory=dict)
    planned: dict[ir.System, Plan] = field(default_factory=dict)  # in orders of fewest operations

    def prepare(self, system: ir.System) -> tuple[ir.System, tuple[str, ...]]:
        """What the recipe makes of a system, and the laws worth telling of."""
        if system not in self.prepared:
            self.prepared[system] = prepare(system)
        return self.prepared[system]

    def start(self, form: Form) -> Candidate:
        """The form itself, or what its terms have in common taken out, where memory allows that."""
        system = factor_system(form.prepared, self.sizes)
        if system is None:
            return self.measure(form)
        values = {equation.target: equation.value for equation in form.prepared.equations}
        changed = next(e for e in system.equations if values.get(e.target, e.value) is not e.value)
        name, before = changed.target.tensor.name, values[changed.target]
        told = Entry(*FACTOR, name, before, changed.value, changed.target, system, is_choice=True)
        notes = (*form.notes, ": ".join(FACTOR))
        found = self.measure(replace(form, prepared=system, notes=notes, log=(told,)))
        most = self.request.elements
        if most is None or found.plan.peak <= most:
            return found
        return min(found, self.measure(form), key=lambda each: each.plan.peak)

    def _lower(self, form: Form, sizes: Mapping[str, int]) -> Plan:
        asked = self.request
        told = dict(cells=asked.cells, chunks=not asked.is_matmul, exact=asked.exact)
        return lower_system(form, sizes, **told)

    def measure(self, form: Form) -> Candidate:
        """The form with its plan; DeriveError where it has none."""
        is_usual = form.minimize == FLOPS and not form.transforms
        plan = self.planned.get(form.prepared) if is_usual else None
        if plan is None:
            plan = self._lower(form, self.sizes)
            plan = replace(plan, uses=self.request.uses, in_place=self.request.in_place)
            if is_usual:
                self.planned[form.prepared] = plan
        return Candidate(form, plan, plan.find_time(self.request.machine))

    def try_rules(self, start: Candidate) -> Candidate:
        """The best form that optional rules lead to; the most promising one is always tried next.

        A form that is slower itself may lead to a faster one, so it is kept for its turn.
        """
        rules = OPTIONS if self.request.exact else (*OPTIONS, *LOSSY)
        best, seen, waiting = start, {start.form.prepared: None}, [start]
        for _ in range(MOST_TURNS):
            if not waiting:
                break
            here = min(waiting, key=lambda found: found.seconds)
            waiting.remove(here)
            for found in self.find_next(here, rules, seen):
                waiting.append(found)
                if found.seconds < PAYS * best.seconds:
                    best = found
        return best

    def find_next(
        self, here: Candidate, rules: Sequence[Rule], seen: dict[ir.System, None]
    ) -> Iterator[Candidate]:
        """The forms that one use of one rule leads to, without those seen before."""
        most = min(MOST_FORMS, _count_tries(here.plan))
        found = find_rewritings(here.form.prepared, rules, fast_math=self.request.fast_math)
        for rewriting in found:
            if len(seen) >= most:
                return
            rule, system = rewriting.rule, rewriting.system
            # What a law across equations put together can be sorted out.
            prepared = self.prepare(system)[0] if rule.across is not None else system
            if prepared not in seen:
                seen[prepared] = None
                loses = f"; it loses {rule.loses}" if rule.loses else ""
                notes = (*here.form.notes, f"{rule.name}: {rule.law}{loses}")
                log = (*here.form.log, *note_rule(rewriting, prepared))
                with suppress(DeriveError):  # it may have positions that no plan can read
                    yield self.measure(replace(here.form, prepared=prepared, notes=notes, log=log))

    def try_transforms(self, start: Candidate, best: Candidate) -> Candidate:
        """The first form, or the same, with sums of waves and of offsets by fast transforms."""
        forms = (start.form,) if best is start else (start.form, best.form)
        for each in () if self.request.is_matmul else filter(_may_transform, forms):
            with suppress(DeriveError):
                found = self.measure(replace(each, transforms=True))
                if found.seconds < PAYS * best.seconds:
                    best = found
        return best

    def try_orders(self, best: Candidate) -> Candidate:
        """Among orders of as few operations, one of fewer or larger products.

        Small matrices are slow to multiply. Two factors meet in one order.
        """
        if not any(len(order.operands) <= EXHAUSTIVE for order in best.plan.orders):
            return best
        found = self.measure(replace(best.form, minimize=FEW))
        is_more = found.plan.at_sizes(found.plan.flops) > best.plan.at_sizes(best.plan.flops)
        return found if found.seconds < PAYS * best.seconds and not is_more else best

    def find_regimes(self, plan: Plan, start: Candidate) -> tuple[Regime, ...]:
        """At most one regime below and one above for each size.

        Looked at are the form of the recipe and a few near it, in their best orders there.
        """
        if not plan.einsums or count_products(plan) > MOST_PRODUCTS:
            return ()
        rules = [rule for rule in OPTIONS if rule.across is not None]
        others = islice(self.find_next(start, rules, {start.form.prepared: None}), MOST_NEIGHBOURS)
        found = [start, *others]
        if len(found) == 1 and not start.plan.orders:
            return ()
        regimes, own, flops = [], plan.flops, [each.plan.flops for each in found]
        for size, number in self.sizes.items():
            for is_below in (True, False):
                far = max(1, number // FAR) if is_below else number * FAR
                if far == number:
                    continue
                there = {**self.sizes, size: far}
                counts = [
                    each.plan.at_sizes(count, there)
                    + sum(order.find_gain(there) for order in each.plan.orders)
                    for each, count in zip(found, flops, strict=True)
                ]
                least = min(counts)
                if least * CLEAR <= plan.at_sizes(own, there):
                    form = found[counts.index(least)].form
                    other = self._lower(form, there)
                    other = replace(other, is_matmul=self.request.is_matmul)
                    both = (plan, own), (other, other.flops)
                    regimes.append(
                        Regime(size, is_below, _find_crossing(*both, self.sizes, size, far), other)
                    )
        return tuple(regimes)


def add_early(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps in an order in which what is added up is there no longer than it must."""
    done: list[Step] = []
    places: dict[str, int] = {}
    for step in steps:
        last = max((places.get(name, -1) for name in ops.find_reads(step.op)), default=-1)
        is_sum = isinstance(step.op, ops.Apply) and last >= 0
        done.insert(last + 1 if is_sum else len(done), step)
        places = {each.name: place for place, each in enumerate(done)}
    return tuple(done)


def _find_crossing(
    own: tuple[Plan, Polynomial],
    other: tuple[Plan, Polynomial],
    sizes: Mapping[str, int],
    size: str,
    far: int,
) -> int:
    """The last number, from the plan's own towards `far`, at which the first plan is no worse."""
    own_side = sizes[size]
    while abs(own_side - far) > 1:
        middle = (own_side + far) // 2
        at = {**sizes, size: middle}
        one, two = (plan.at_sizes(count, at) for plan, count in (own, other))
        own_side, far = (own_side, middle) if two < one else (middle, far)
    return own_side


def count_products(plan: Plan) -> int:
    """The products of a plan, or of its longest order."""
    return max((len(plan.einsums), *(len(order.path) for order in plan.orders)))


def _may_transform(form: Form) -> bool:
    """Whether waves or offsets can be in the form: functions, or sums of indices."""

    def is_able(part: ir.Expr) -> bool:
        terms = part.terms if isinstance(part, ir.Add) else ()
        factors = (factor for term in terms for factor in ir.split_product(term))
        is_function = isinstance(part, (ir.Call, ir.Pow, ir.Where))
        return is_function or any(isinstance(factor, ir.Index) for factor in factors)

    values = (equation.value for equation in form.prepared.equations)
    return any(is_able(part) for value in values for part in walk(value))


def _count_tries(plan: Plan) -> int:
    """How many plans as long as this one may be tried."""
    return MOST_OPERATIONS // max(1, sum(1 for step in plan.steps for _ in ops.walk_ops(step.op)))


def note_rule(rewriting: Rewriting, form: ir.System) -> tuple[Entry, ...]:
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
