"""The derivation of a plan, from the formula as it is written to the last loop.

    find_derivation(plan, request)   the loops as written, and entry by entry what was done

First come the rules of the recipe, then what the search took, in its order: both are counted on
plans without calls of torch, so that what a rule gains is seen. Then come the orders of
contraction, the calls, and the loop over blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from derive.errors import DeriveError
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.polynomial import NOTHING, Polynomial, add_all
from derive.ir.recurrences import find_groups
from derive.ir.text import to_text
from derive.ir.walk import find_free, find_sizes
from derive.plan import ops
from derive.plan.build import Form, lower_system
from derive.plan.cost import (
    Storage,
    count_elements,
    find_copied,
    find_kept,
    find_strides,
    find_true_axes,
)
from derive.plan.lower.context import find_layouts
from derive.plan.meaning import to_expr, to_step_equation
from derive.plan.path import OUTER, Order, Path
from derive.plan.plan import PREPARE, Costs, Entry, Plan
from derive.plan.scans import Linear, find_indices_of
from derive.plan.search import RECUR, STAGES, open_formula
from derive.plan.steps import Step
from derive.rewrite.recipes import Use, find_uses, prepare
from derive.rewrite.rule import settle_indices
from derive.rewrite.rules.offsets import find_recurrent
from derive.rewrite.rules.products import flatten_product, flatten_sum, guard_product, is_bracket

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from derive.plan.machine import Machine
    from derive.plan.scans import Loop
    from derive.plan.search import Opened, Request
    from derive.plan.steps import Tile


@dataclass(frozen=True, slots=True)
class Written:
    """The loops of one equation: their operations, and the elements that they fill."""

    equation: str
    operations: Polynomial
    elements: Polynomial


def count_written(system: ir.System) -> tuple[Written, ...]:
    """The loops of each equation."""
    counted = ((each, count_elements(find_free(each.target))) for each in system.equations)
    return tuple(
        Written(each.target.tensor.name, elements * _count_expr(each.value), elements)
        for each, elements in counted
    )


def _count_expr(expr: ir.Expr) -> Polynomial:
    """Operations for one value of the free indices."""
    match expr:
        case _ if ops.is_number(expr):
            return NOTHING
        case ir.Add(parts):
            return Polynomial.of(len(parts) - 1) + add_all(map(_count_expr, parts))
        case ir.Mul(factors):
            return _count_product(factors)
        case ir.Pow(base, exponent):
            return Polynomial.of(1) + _count_expr(base) + _count_expr(exponent)
        case ir.Call(_, arguments):
            return Polynomial.of(bool(arguments)) + add_all(map(_count_expr, arguments))
        case ir.Where(_, then, other):
            return Polynomial.of(not is_bracket(expr)) + _count_expr(then) + _count_expr(other)
        case ir.Reduce() | ir.Along():
            each = _count_expr(expr.body) + Polynomial.of(ROWS[expr.kind].operations)
            return each * count_elements(expr.bound) if isinstance(expr, ir.Reduce) else each
    return NOTHING


def _count_product(factors: tuple[ir.Expr, ...]) -> Polynomial:
    """A sign costs nothing, and dividing no more than multiplying."""
    kept = [factor for factor in factors if factor is not ir.MINUS_ONE]
    parts = [
        each.base
        if len(kept) > 1 and isinstance(each, ir.Pow) and each.exponent is ir.MINUS_ONE
        else each
        for each in kept
    ]
    return Polynomial.of(max(0, len(kept) - 1)) + add_all(map(_count_expr, parts))


NAME = "contract_in_pairs"
BEST = "no order of the factors takes fewer operations at these sizes"
GOOD = "an order of few operations at these sizes; there are too many orders to try them all"


@dataclass(frozen=True, slots=True)
class _Part:
    """An operand, or several that have met: over `spanned`, of which `kept` are left."""

    value: ir.Expr
    spanned: tuple[ir.Index, ...]
    kept: tuple[ir.Index, ...]

    @property
    def operations(self) -> Polynomial:
        each = 2 if set(self.spanned) != set(self.kept) else 1
        return count_elements(self.spanned) * Polynomial.of(each)


def describe_order(order: Order, sizes: Mapping[str, int]) -> Entry:
    """The pairs, and what they cost beside the whole product at once."""
    parts = [_Part(to_expr(op), ops.axes_of(op), ops.axes_of(op)) for op in order.operands]
    whole = _join(parts, order.axes)
    named = _meet(parts, order, order.path, named=True)
    spanned = count_elements(whole.spanned)
    old = _count([spanned * Polynomial.of(len(parts))], [spanned], sizes)
    made = [count_elements(part.kept) for part in named]
    new = _count([part.operations for part in named], made, sizes)
    remarks = [
        f"{to_text(ir.Equation(_name(number, part), part.value))}: {_write(part.operations)}"
        for number, part in enumerate(named, 1)
    ]
    return Entry(
        NAME,
        BEST if len(parts) <= OUTER else GOOD,
        order.equation,
        whole.value,
        _meet(parts, order, order.path, named=False)[-1].value,
        old=old,
        new=new,
        remarks=(*remarks, _compare(parts, order, new, sizes)),
    )


def _meet(parts: Sequence[_Part], order: Order, path: Path, *, named: bool) -> list[_Part]:
    """What is made, pair by pair; earlier ones stand in later ones, or by their number."""
    left, made = list(parts), []
    for pair in path:
        met = [left[k] for k in pair]
        left = [part for k, part in enumerate(left) if k not in pair]
        needed = {*order.axes, *(i for part in left for i in part.kept)}
        part = _join(met, needed)
        made.append(part)
        left.append(_Part(_name(len(made), part), part.kept, part.kept) if named else part)
    return made


def _join(met: Sequence[_Part], needed: Collection[ir.Index]) -> _Part:
    """The product of some parts, summed over what is not needed any more."""
    spanned = tuple(dict.fromkeys(i for part in met for i in part.kept))
    kept = tuple(i for i in spanned if i in needed)
    bound = tuple(i for i in spanned if i not in needed)
    product = ir.product_of([part.value for part in met])
    value = ir.sum_over(bound, product)
    return _Part(value, spanned, kept)


def _name(number: int, part: _Part) -> ir.Access:
    return ir.name_axes(f"({number})", part.kept)


def _compare(parts: Sequence[_Part], order: Order, new: Costs, sizes: Mapping[str, int]) -> str:
    """What the order as it is written takes."""
    last = len(parts) - 1
    path = ((0, 1), *((0, last - k) for k in range(1, last)))
    written = add_all(part.operations for part in _meet(parts, order, path, named=True))
    if int(written.at(sizes)) == new.operations_at:
        return "from left to right it would be as many"
    count = f"{int(written.at(sizes)):,}"
    return f"from left to right it would be {_write(written)} = {count} operations"


def _count(
    operations: Sequence[Polynomial], elements: Sequence[Polynomial], sizes: Mapping[str, int]
) -> Costs:
    total = add_all(operations)
    largest = max(elements, key=lambda each: int(each.at(sizes)))
    return Costs(total, largest, int(total.at(sizes)), int(largest.at(sizes)))


def _write(polynomial: Polynomial) -> str:
    return to_text(polynomial.to_expr()).replace(" * ", "*")


WriteCell: TypeAlias = "Callable[[ops.Cell], tuple[str, str]]"
CALL = ("call_torch", "one call of torch does what these operations do")
LOOP = "loop_over_blocks"
FREE = ("let_go", "what nothing reads any more makes room for what is made next")


def describe_calls(plan: Plan, old: Costs, new: Costs, write: WriteCell) -> list[Entry]:
    """An entry for each call; the last one has the costs of them all."""
    found = []
    for step in plan.steps:
        for op in ops.walk_ops(step.op):
            if isinstance(op, ops.Cell):
                target = to_step_equation(step).target if op is step.op else None
                call, condition = write(op)
                remarks = (
                    f"by {call}",
                    *([f"where {condition}, else as above"] if condition else []),
                )
                found.append(Entry(*CALL, step.name, to_expr(op), target=target, remarks=remarks))
    together = ("costs of all calls together",) if len(found) > 1 else ()
    return _count_last(found, old, new, *together)


def _count_last(entries: list[Entry], old: Costs, new: Costs, *remarks: str) -> list[Entry]:
    """The entries, the last one with the costs of all."""
    counted = [replace(e, old=old, new=new, remarks=(*e.remarks, *remarks)) for e in entries[-1:]]
    return [*entries[:-1], *counted]


def describe_loop(
    whole: Plan, plan: Plan, old: Costs, new: Costs, most: int | None = None
) -> Entry:
    """The loop, how long a block is, and which large tensors and copies it does without.

    `most`: the elements that may be alive at once.
    """
    at = plan.tile
    assert at is not None
    names = _list_names(plan, at)
    remarks = [
        f"in the loop: {', '.join(names)}",
        *_describe_inside(plan, at),
        *_describe_largest(whole, at, names),
        *_describe_copies(whole, plan, at, names),
    ]
    if most is not None and old.elements_at > most:
        alive = f"{old.elements_at:,} elements are alive at once"
        remarks.append(f"without it {alive}, and {most:,} may be")
    law = _describe_length(plan, at)
    return Entry(LOOP, law, names[-1], old=old, new=new, remarks=tuple(remarks))


def _list_names(plan: Plan, at: Tile) -> list[str]:
    return [step.name for step in plan.steps[at.first : at.last + 1]]


def _describe_length(plan: Plan, at: Tile) -> str:
    sizes = plan.complete(plan.sizes)
    extent = Storage(sizes).extent(at.index)
    return f"a block of {at.index.name} at a time, {sizes[at.block]} of {extent} positions"


def _describe_inside(plan: Plan, at: Tile) -> list[str]:
    """What runs from block to block, and the loop inside."""
    uses = [f"from block to block: {', '.join(r.name for r in at.running)}"] if at.running else []
    if at.inner is None:
        return uses
    names = ", ".join(_list_names(plan, at.inner))
    return [
        *uses,
        f"in it {_describe_length(plan, at.inner)}: {names}",
        *_describe_inside(plan, at.inner),
    ]


def _describe_largest(whole: Plan, at: Tile, names: Sequence[str]) -> list[str]:
    """The largest tensor that is made in the loop only block by block."""
    joined = [name for name, _, _ in at.joined]
    made = [
        (step, op)
        for step in whole.steps
        for op in ops.walk_ops(step.op)
        if step.name in names and at.index in find_true_axes(op)
        if not (op is step.op and step.name in joined)
    ]
    if not made:
        return []
    step, op = max(made, key=lambda pair: whole.at_sizes(find_kept(pair[1])))
    count = whole.at_sizes(find_kept(op))
    name = step.name if op is step.op else f"a part of {step.name}"
    shape = ", ".join(to_text(i.extent) for i in find_true_axes(op))
    return [f"{name} [{shape}], {count:,} elements, never exists as a whole"] if count else []


def _describe_copies(whole: Plan, plan: Plan, at: Tile, names: Sequence[str]) -> list[str]:
    """What torch copies for products of whole tensors, and not for those of blocks."""
    copied = _find_copies(whole, names, ())
    roots = {name: _find_roots(op) for name, op in at.sliced}
    in_blocks = _find_copies(plan, names, at.sliced)
    still = {root for name in in_blocks for root in roots.get(name, (name,))}
    gone = {name: count for name, count in copied.items() if name not in still}
    if not gone:
        return []
    return [f"torch does not copy {', '.join(gone)} any more, {sum(gone.values()):,} elements"]


def _find_copies(
    plan: Plan, names: Sequence[str], sliced: Sequence[tuple[str, ops.Op]]
) -> dict[str, int]:
    """The elements that torch copies in some of the steps, by the names of the tensors."""
    memory, found = Storage(plan.complete(plan.sizes)), dict[str, int]()
    for step in plan.steps:
        if step.name == names[0]:
            memory.strides |= {name: find_strides(op, memory) for name, op in sliced}
        if step.name in names:
            for arg in (arg for op in ops.walk_ops(step.op) for arg in find_copied(op, memory)):
                name = ", ".join(_find_roots(arg))
                found[name] = found.get(name, 0) + memory.count(ops.axes_of(arg))
        memory.strides[step.name] = find_strides(step.op, memory)
    return found


def _find_roots(op: ops.Op) -> tuple[str, ...]:
    """The tensors that an operation reads."""
    return tuple(dict.fromkeys(p.name for p in ops.walk_ops(op) if isinstance(p, ops.Source)))


# They let go of brackets after another rule, and of indices that it took.
TIDY = (flatten_sum.name, flatten_product.name, settle_indices.__name__)
FIRST = (guard_product.name,)  # it makes way for another rule


Lower: TypeAlias = "Callable[[Form, bool], Plan]"  # how a form is planned, with cells or without


@dataclass(frozen=True, slots=True)
class Derivation:
    """The loops as they are written, and what was done, one thing after the other."""

    written: tuple[Written, ...]
    entries: tuple[Entry, ...]


def find_derivation(
    plan: Plan, request: Request, write: WriteCell, formula: ir.System | None = None
) -> Derivation:
    """All that led to a plan, which the search found for this request.

    `write` gives the texts of a cell's call and of its condition. The formula is that of the plan
    where nothing else is said.
    """
    whole_formula = plan.system if formula is None else formula
    stages: list[Entry] = []
    if plan.recurs and not find_groups(whole_formula):
        other = find_recurrent(prepare(whole_formula)[0])
        assert other is not None
        stages += _describe_stage(*RECUR, whole_formula, other)
        opened = open_formula(other, plan.sizes, request)
    else:
        opened = open_formula(whole_formula, plan.sizes, request)
    for (name, law), (old, new) in zip(STAGES, pairwise(opened.stages), strict=True):
        stages += _describe_stage(name, law, old, new)
    stages += _describe_turns(opened)
    system, sizes = opened.system, {**plan.sizes, **opened.chunks.lengths}
    start, _ = prepare(system)
    uses = _list_rules(replace(plan, system=system), start)
    written = system if uses else start
    forms = list(_find_forms(Form(system, written, ()), uses))

    def lower(form: Form, cells: bool) -> Plan:
        return opened.close(lower_system(form, sizes, cells=cells, exact=request.exact))

    entries = _count_entries(uses, forms, lower, request)
    form, plain = forms[-1], lower(forms[-1], False)
    if any(isinstance(op, ops.Fourier) for step in plan.steps for op in ops.walk_ops(step.op)):
        form, direct = replace(form, transforms=True), count_costs(plain, request.machine)
        plain = lower(form, False)
        entries += _describe_transforms(plain, direct, count_costs(plain, request.machine))
    entries += [describe_order(order, sizes) for order in plain.orders]
    whole = lower(form, request.cells)
    before, after = (count_costs(each, request.machine) for each in (plain, whole))
    calls = describe_calls(whole, before, after, write)
    entries += calls
    after = after if calls else before  # indices merged alone are no step of their own
    if plan.tile is not None:
        costs = count_costs(replace(plan, frees=None), request.machine)
        entries.append(describe_loop(whole, plan, after, costs, request.elements))
        after = costs
    names = [name for freed in plan.freed.values() for name in freed]
    if names:
        costs = count_costs(plan, request.machine)
        entries.append(Entry(*FREE, names[-1], old=after, new=costs, remarks=(", ".join(names),)))
    told = (_declare(entry, opened.chunks.lengths) for entry in (*stages, *entries))
    return Derivation(count_written(whole_formula), tuple(told))


def _declare(entry: Entry, lengths: Mapping[str, int]) -> Entry:
    """The entry, whose system says how long chunks are where it has any."""
    if entry.system is None or not lengths:
        return entry
    used = {*find_sizes(entry.system)}
    sizes = tuple(ir.SizeInput(*each) for each in lengths.items() if each[0] in used)
    return replace(entry, system=replace(entry.system, sizes=(*entry.system.sizes, *sizes)))


def _describe_stage(name: str, law: str, old: ir.System, new: ir.System) -> Iterator[Entry]:
    """An entry for each equation that another form of the whole has in place of others."""
    before = {each.target.tensor.name: each for each in old.equations}
    for each in new.equations:
        was = before.get(each.target.tensor.name)
        if was is None or (was.target, was.value) != (each.target, each.value):
            value = was.value if was is not None and was.target is each.target else None
            yield Entry(name, law, each.target.tensor.name, value, each.value, each.target, new)


IN_TURN = "recur_in_turn"
IN_CHUNKS = ("recur_in_chunks", "h_t = a_t * h_{t - 1} + x_t: chunks of places side by side")
ONCE = ("lift_from_loop", "what no turn changes is computed for all places at once")
AFTER = ("read_after_loop", "sums over a state are made in its turns, the last one has a name")


def _describe_turns(opened: Opened) -> Iterator[Entry]:
    """What is computed before the loops, what a turn of each makes, and what runs in chunks."""
    turns = {made: loop for loop in opened.loops for made in loop.made.values()}
    known = {each.target.tensor: each for each in opened.stages[-1].equations}
    for each in opened.system.equations:
        tensor, loop = each.target.tensor, turns.get(each.target.tensor)
        told = Entry(*ONCE, tensor.name, None, each.value, each.target, opened.system)
        if loop is not None:
            law = f"for each {loop.index.name} in turn, {to_text(loop.index.extent)} turns"
            yield replace(told, name=IN_TURN, law=law, remarks=(*_describe_names(loop, tensor),))
        elif tensor not in known:
            yield told
        elif each.value is not (was := known[tensor].value):
            yield replace(told, name=AFTER[0], law=AFTER[1], before=was)
    for loop in opened.loops:
        if isinstance(loop.whole, Linear):
            name, parts = loop.whole.target.tensor.name, loop.whole.parts
            read = (ops.Source(part.tensor.name, find_indices_of(part)) for part in parts)
            each = to_step_equation(Step(name, loop.whole.to_op(loop.index, *read)))
            start = f"what stands before the first {loop.index.name} is {to_text(parts[-1])}"
            yield Entry(*IN_CHUNKS, name, None, each.value, each.target, remarks=(start,))


def _describe_names(loop: Loop, made: ir.Tensor) -> Iterator[str]:
    """What the names in a turn stand for."""
    own = next(tensor for tensor, each in loop.made.items() if each is made)
    yield f"{made.name} is {own.name} at {loop.index.name}"
    if first := [each.name for each in loop.first.get(own, ())]:
        where = "stand first" if not loop.skips else "stand before the first place"
        yield f"{', '.join(first)} {where if len(first) > 1 else where.replace('stand', 'stands')}"
    for (tensor, lag), before in loop.before.items():
        if tensor is own:
            yield f"{before.name} is {own.name} {lag} turn{'s' * (lag > 1)} before"
    if own in loop.last:
        yield f"{loop.last[own].name} is {own.name} after the last turn"
    if made is next(iter(loop.made.values())):
        for (tensor, _), part in loop.sliced.items():
            yield f"{part.name} is {tensor.name} at {loop.index.name}"


TRANSFORM = ("transform", "a sum over waves, or over offsets, takes N * log N operations")
KINDS = {
    "fft": "a Fourier transform of {length} values",
    "ifft": "a Fourier transform back to {length} values",
    "rfft": "a Fourier transform of {length} real values, half of its frequencies",
    "irfft": "a Fourier transform back to {length} real values",
}


def _describe_transforms(plan: Plan, old: Costs, new: Costs) -> list[Entry]:
    """The steps that have transforms, each with what these do in words; the last with the costs."""
    found = []
    for step in plan.steps:
        kinds = [op for op in ops.walk_ops(step.op) if isinstance(op, ops.Fourier)]
        remarks = tuple(
            f"{KINDS[op.kind].format(length=to_text(op.length))}, by torch.fft.{op.kind}"
            for op in kinds
        )
        if kinds:
            equation = to_step_equation(step)
            told = Entry(*TRANSFORM, step.name, None, equation.value, equation.target)
            found.append(replace(told, remarks=tuple(dict.fromkeys(remarks))))
    return _count_last(found, old, new)


def count_costs(plan: Plan, machine: Machine) -> Costs:
    """What a plan costs."""
    operations, elements = plan.flops, plan.peak_elements
    at = (plan.at_sizes(operations), plan.at_sizes(elements))
    return Costs(operations, elements, *at, plan.find_time(machine))


@dataclass
class _Entries:
    """The entries so far, and what each equation looked like when it was last shown."""

    shown: dict[str, ir.Expr]
    entries: list[Entry] = field(default_factory=list)

    def follow(self, uses: Iterable[Use]) -> None:
        """An entry for each use that is worth one."""
        held: Use | None = None  # a use of a rule that makes way for the next one
        for use in uses:
            if held is not None and held.equation != use.equation:
                self._add_use(held)
                held = None
            if use.name in FIRST:
                held = use
            elif use.name not in TIDY:
                self._add_use(use, held)
                held = None
            elif held is not None:
                held = replace(held, system=use.system, after=use.after)
            elif self.entries and self.entries[-1].equation == use.equation:
                self._show(use.after, use.system)
        if held is not None:
            self._add_use(held)

    def add(self, entry: Entry) -> None:
        """An entry from what was last shown of its equation, in indices that can be read."""
        before = self.shown.get(entry.equation, entry.before)
        self.entries.append(replace(entry, before=before))
        self._show(entry.after, entry.system)

    def _show(self, after: ir.Expr | None, system: ir.System | None) -> None:
        """What the last entry leads to."""
        last = self.entries[-1]
        if after is None or system is None or last.target is None:
            return
        after = settle_indices(ir.Equation(last.target, after), system)
        self.entries[-1] = replace(last, after=after, system=system)
        self.shown[last.equation] = after

    def settle(self, system: ir.System) -> None:
        """What was tidied up without an entry of its own is part of the last one."""
        if self.entries:
            self.entries[-1] = replace(self.entries[-1], system=system)

    def _add_use(self, use: Use, held: Use | None = None) -> None:
        with_it = () if held is None else (f"with {held.name}: {held.law}",)
        targets = (equation.target for equation in use.system.equations)
        target = next(target for target in targets if target.tensor.name == use.equation)
        changed = (use.equation, use.before, use.after, target, use.system)
        self.add(Entry(use.name, use.law, *changed, remarks=with_it))


def _list_rules(plan: Plan, start: ir.System) -> list[Entry]:
    """The uses of rules and the orders of storage, without costs."""
    logged = _Entries({e.target.tensor.name: e.value for e in plan.system.equations})
    logged.follow(find_uses(plan.system))
    logged.settle(start)
    for entry in plan.log:
        if entry.name == PREPARE and entry.system is not None:
            last = logged.entries[-1].system
            logged.follow(find_uses(last) if last is not None else ())
            logged.settle(entry.system)
        elif entry.order:
            logged.entries.append(entry)
        else:
            logged.add(entry)
    return logged.entries


def _find_forms(start: Form, entries: Iterable[Entry]) -> Iterator[Form]:
    """The formula before the first entry, and after each."""
    form = start
    yield form
    for entry in entries:
        if entry.order:
            form = replace(form, layouts={**form.layouts, entry.equation: entry.order})
        else:
            form = replace(form, prepared=entry.system or form.prepared)
        yield form


def _count_entries(
    entries: list[Entry], forms: list[Form], lower: Lower, request: Request
) -> list[Entry]:
    """The entries with their costs, as far as the forms between can be planned."""
    stages = [(d, _count_form(d, lower, request.machine, cells=False)) for d in forms]
    counted = []
    for entry, ((before, old), (after, new)) in zip(entries, pairwise(stages), strict=True):
        uses = replace(entry, old=old, new=new)
        if entry.order:
            uses = _show_order(uses, before)
        if entry.is_choice and request.cells:
            uses = _compare_calls(uses, before, after, lower, request.machine)
        counted.append(uses)
    return counted


def _count_form(form: Form, lower: Lower, machine: Machine, *, cells: bool) -> Costs | None:
    try:
        return count_costs(lower(form, cells), machine)
    except DeriveError:  # a form on the way need not have a plan
        return None


def _compare_calls(
    entry: Entry, before: Form, after: Form, lower: Lower, machine: Machine
) -> Entry:
    """Where the gain is that of a call of torch, the entry with what the search saw."""
    if entry.old is None or entry.new is None or _gains(entry.old, entry.new):
        return entry
    old, new = (_count_form(form, lower, machine, cells=True) for form in (before, after))
    if old is None or new is None or not _gains(old, new):
        return entry
    seen = f"with calls of torch {old.seconds:.3g} s -> {new.seconds:.3g} s"
    return replace(entry, remarks=(*entry.remarks, seen))


def _gains(old: Costs, new: Costs) -> bool:
    return old.seconds is not None and new.seconds is not None and new.seconds < old.seconds


def _show_order(entry: Entry, form: Form) -> Entry:
    """The entry with the places in the order in which they were stored, and are from now on."""
    equations = form.prepared.equations
    target = next(e.target for e in equations if e.target.tensor.name == entry.equation)
    usual = form.layouts.get(entry.equation, find_layouts(form.prepared)[entry.equation])
    before, after = (_arrange(target, order) for order in (usual, entry.order))
    return replace(entry, before=before, after=after)


def _arrange(target: ir.Access, order: tuple[int, ...]) -> ir.Access:
    shape = tuple(target.tensor.shape[k] for k in order)
    return ir.Access(ir.Tensor(target.tensor.name, shape), tuple(target.places[k] for k in order))
