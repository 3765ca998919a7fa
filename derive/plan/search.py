"""The search for a fast plan: rules that lead to other forms, orders of contraction, loops.

The search starts from the form that the rules of `recipes` make. It tries every use of an optional
rule, continues from the fastest form, and takes the best one. No form is tried twice. Times follow
from the machine's constants, not from a stopwatch, so the same formula gives the same bytes.

Contraction orders are chosen at the sizes of the plan. For size regimes, each size alone is made
much smaller and much larger. If another form or order takes far fewer operations there, the
crossing is found from the costs, which are polynomials over sizes.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from derive.errors import DeriveError
from derive.ir import nodes as ir
from derive.ir.functions import holds_complex
from derive.ir.recurrences import find_groups
from derive.ir.walk import walk
from derive.plan import ops
from derive.plan.blocks import check_memory, tile
from derive.plan.build import Form, lower_system
from derive.plan.lower.calls import fold_sums
from derive.plan.networks.factoring import factor_system
from derive.plan.path import EXHAUSTIVE, FEW, FLOPS
from derive.plan.plan import LARGE, Plan, Regime
from derive.plan.recurrences.chunks import Chunks, chunk_values, use_prefixes
from derive.plan.recurrences.loops import Loop
from derive.plan.recurrences.readers import Turns
from derive.plan.recurrences.scans import extract_loops, restore_loops
from derive.plan.recurrences.waves import turn_upward
from derive.plan.steps import Step
from derive.rewrite.recipes import LOSSY, OPTIONS, find_rewritings, prepare
from derive.rewrite.rule import Rule
from derive.rewrite.rules.offsets import find_offsets, find_recurrent

PAYS = 0.95  # the largest ratio of new to old time that justifies a rule
MOST_TURNS = 6  # forms whose neighbours are tried
MOST_FORMS = 24  # forms tried in total
MOST_OPERATIONS = 2400  # operations of all plans tried: a formula with over 100 gets fewer forms
RECUR = ("accumulate_powers", "sum_{r <= t} g**(t - r) * x_r = y_t, y_t = g * y_{t - 1} + x_t")
FACTOR = ("factor_terms", "sum x * u + sum x * w = sum x * (u + w)")
MOST_NEIGHBOURS = 4  # forms tried for other sizes
FAR = 16  # ratio of the sizes tried to the plan's: the plausible range
MOST_PRODUCTS = 10  # products of a plan up to which regimes are searched
CLEAR = 1.5  # ratio of operations at the end of the range from which a regime is kept


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a plan beyond the formula and its sizes."""

    elements: int | None = None  # the largest number of elements alive at once
    exact: bool = False  # no rule that loses digits
    cells: bool = True
    is_matmul: bool = False  # no einsum, and no loop over blocks: for other engines
    uses: tuple[tuple[str, ...], ...] = ()  # for each use, the results that it computes
    in_place: bool = False  # whether blocks may be written into the whole tensor
    keywords: bool = True  # whether chunk lengths of recurrences are keyword arguments


@dataclass(frozen=True, slots=True)
class Candidate:
    """A form, its plan without a loop over blocks, and the time of that plan."""

    form: Form
    plan: Plan
    seconds: float


@dataclass(frozen=True, slots=True)
class LoopFree:
    """A formula as a system without recurrences, and the loops that were taken out of it."""

    formula: ir.System
    system: ir.System
    loops: list[Loop]
    chunks: Chunks
    sizes: Mapping[str, int]

    @property
    def lengths(self) -> dict[str, int]:
        """Values of names that are no sizes: chunk lengths, and 0 for turn numbers in positions."""
        lengths = {name: length for name, (_, length) in self.chunks.lengths.items()}
        return {**lengths, **{loop.turn: 0 for loop in self.loops if loop.turn}}

    def restore_loops(self, plan: Plan) -> Plan:
        """The plan of the formula, from one of the system without recurrences."""
        if not self.loops:
            return plan
        plan = replace(plan, sizes=dict(self.sizes), lengths=self.chunks.lengths)
        return restore_loops(plan, self.formula, self.loops)


def remove_recurrences(formula: ir.System, sizes: Mapping[str, int], request: Request) -> LoopFree:
    """The formula without recurrences, by rewriting and by the extraction of loops."""
    keywords, cells = request.keywords, request.cells and not request.is_matmul
    closed = use_prefixes(turn_upward(fold_sums(formula)))
    chunks = chunk_values(closed, sizes, keywords=keywords)
    complete = {**sizes, **{name: length for name, (_, length) in chunks.lengths.items()}}
    turns = Turns(complete, cells, frozenset(chunks.inner))
    system, loops = extract_loops(chunks, keywords=keywords, turns=turns)
    return LoopFree(formula, system, loops, chunks, sizes)


def find_plan(
    system: ir.System, sizes: Mapping[str, int], request: Request, *, regimes: bool = False
) -> Plan:
    """The fastest plan that the search finds, with size regimes if `regimes`.

    A formula that can be written as a recurrence is also planned in that form.
    """
    plan = _search(system, sizes, request, regimes=regimes)
    if request.is_matmul or not any(find_offsets(e.value) for e in system.equations):
        return plan
    other = None if find_groups(system) else find_recurrent(prepare(system)[0])
    if other is None:
        return plan
    with suppress(DeriveError):
        found = _search(other, sizes, request)
        if found.find_time() < PAYS * plan.find_time():
            return replace(found, system=system, notes=(*found.notes, ": ".join(RECUR)))
    return plan


def _search(
    system: ir.System, sizes: Mapping[str, int], request: Request, *, regimes: bool = False
) -> Plan:
    """The fastest plan of a formula in the given form; see `find_plan`."""
    is_real = not any(holds_complex(equation.value) for equation in system.equations)
    if not is_real:  # cells and loops over blocks are of real numbers
        request = replace(request, cells=False)
    acyclic = remove_recurrences(system, sizes, request)
    search = _Search({**sizes, **acyclic.lengths}, request)
    prepared, notes = search.prepare(acyclic.system)
    form = Form(acyclic.system, prepared, notes)
    start = search.plan_form(form) if acyclic.loops else search.factor_form(form)
    best = search.try_orders(search.try_rules(start))
    best = search.try_transforms(start, best)
    plan = replace(best.plan, is_matmul=request.is_matmul)
    if acyclic.loops:
        plan = acyclic.restore_loops(plan)
    elif not request.is_matmul:
        if request.elements is not None and plan.peak > request.elements:
            plan = replace(plan, steps=move_elementwise_early(plan.steps), frees=0)
        plan = tile(plan, request.elements) if is_real else plan
    if request.elements is not None:
        check_memory(plan, request.elements)
    if plan.frees is None:
        plan = replace(plan, frees=LARGE)
    if regimes and not acyclic.loops:
        plan = replace(plan, regimes=search.find_regimes(plan, start))
    return plan


@dataclass
class _Search:
    """The forms of one formula at its sizes, with caches of prepared systems and plans."""

    sizes: Mapping[str, int]
    request: Request
    prepared: dict[ir.System, tuple[ir.System, tuple[str, ...]]] = field(default_factory=dict)
    planned: dict[ir.System, Plan] = field(default_factory=dict)  # keys: prepared systems

    def prepare(self, system: ir.System) -> tuple[ir.System, tuple[str, ...]]:
        """The system after the recipe, and the laws that the file names."""
        if system not in self.prepared:
            self.prepared[system] = prepare(system)
        return self.prepared[system]

    def factor_form(self, form: Form) -> Candidate:
        """The form with common factors of terms factored out, if the memory limit allows that."""
        system = factor_system(form.prepared, self.sizes)
        if system is None:
            return self.plan_form(form)
        notes = (*form.notes, ": ".join(FACTOR))
        found = self.plan_form(replace(form, prepared=system, notes=notes))
        most = self.request.elements
        if most is None or found.plan.peak <= most:
            return found
        return min(found, self.plan_form(form), key=lambda each: each.plan.peak)

    def _lower_form(self, form: Form, sizes: Mapping[str, int]) -> Plan:
        options, chunks = self.request, not self.request.is_matmul
        return lower_system(form, sizes, cells=options.cells, chunks=chunks, exact=options.exact)

    def plan_form(self, form: Form) -> Candidate:
        """The form with its plan; DeriveError if it has none."""
        is_usual = form.minimize == FLOPS and not form.transforms
        plan = self.planned.get(form.prepared) if is_usual else None
        if plan is None:
            plan = self._lower_form(form, self.sizes)
            plan = replace(plan, uses=self.request.uses, in_place=self.request.in_place)
            if is_usual:
                self.planned[form.prepared] = plan
        return Candidate(form, plan, plan.find_time())

    def try_rules(self, start: Candidate) -> Candidate:
        """The best form that optional rules lead to, by best-first search.

        A slower form may lead to a faster one, so it stays in the queue.
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
        operations = sum(1 for step in here.plan.steps for _ in ops.walk_ops(step.op))
        most = min(MOST_FORMS, MOST_OPERATIONS // max(1, operations))
        found = find_rewritings(here.form.prepared, rules)
        for rewriting in found:
            if len(seen) >= most:
                return
            rule, system = rewriting.rule, rewriting.system
            # the recipe simplifies what a law across equations has merged
            prepared = self.prepare(system)[0] if rule.across is not None else system
            if prepared not in seen:
                seen[prepared] = None
                loses = f"; it loses {rule.loses}" if rule.loses else ""
                notes = (*here.form.notes, f"{rule.name}: {rule.law}{loses}")
                with suppress(DeriveError):  # the form may read positions that no plan can
                    yield self.plan_form(replace(here.form, prepared=prepared, notes=notes))

    def try_transforms(self, start: Candidate, best: Candidate) -> Candidate:
        """The best candidate, or one whose sums use fast Fourier transforms if that is faster."""
        forms = (start.form,) if best is start else (start.form, best.form)
        for each in () if self.request.is_matmul else filter(_may_transform, forms):
            with suppress(DeriveError):
                found = self.plan_form(replace(each, transforms=True))
                if found.seconds < PAYS * best.seconds:
                    best = found
        return best

    def try_orders(self, best: Candidate) -> Candidate:
        """The best candidate, or its form with fewer, larger products if those are faster."""
        if not any(len(order.operands) <= EXHAUSTIVE for order in best.plan.orders):
            return best
        found = self.plan_form(replace(best.form, minimize=FEW))
        is_more = found.plan.at_sizes(found.plan.flops) > best.plan.at_sizes(best.plan.flops)
        return found if found.seconds < PAYS * best.seconds and not is_more else best

    def find_regimes(self, plan: Plan, start: Candidate) -> tuple[Regime, ...]:
        """The better plans at far smaller or larger sizes: at most two for each size, or ().

        Candidates are the first form and a few others, each in its best contraction order there.
        """
        longest = max((len(plan.einsums), *(len(order.path) for order in plan.orders)))
        if not plan.einsums or longest > MOST_PRODUCTS:
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
                    other = self._lower_form(found[counts.index(least)].form, there)
                    way, more = range(number, far, -1 if is_below else 1), other.flops

                    def is_worse(here: int) -> bool:
                        at = {**self.sizes, size: here}  # noqa: B023
                        return other.at_sizes(more, at) < plan.at_sizes(own, at)  # noqa: B023

                    last = way[bisect_left(way, True, lo=1, key=is_worse) - 1]
                    regimes.append(Regime(size, is_below, last, other))
        return tuple(regimes)


def move_elementwise_early(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Move each elementwise step directly behind its last operand, which frees memory sooner."""
    done: list[Step] = []
    places: dict[str, int] = {}
    for step in steps:
        last = max((places.get(name, -1) for name in ops.find_reads(step.op)), default=-1)
        is_sum = isinstance(step.op, ops.Apply) and last >= 0
        done.insert(last + 1 if is_sum else len(done), step)
        places = {each.name: place for place, each in enumerate(done)}
    return tuple(done)


def _may_transform(form: Form) -> bool:
    """Whether a form may have sums over waves or offsets: it has functions or sums of indices."""

    def is_able(part: ir.Expr) -> bool:
        terms = part.terms if isinstance(part, ir.Add) else ()
        factors = (factor for term in terms for factor in ir.split_product(term))
        is_function = isinstance(part, (ir.Call, ir.Pow, ir.Where))
        return is_function or any(isinstance(factor, ir.Index) for factor in factors)

    values = (equation.value for equation in form.prepared.equations)
    return any(is_able(part) for value in values for part in walk(value))
