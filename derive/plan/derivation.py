"""The derivation of a plan: one entry for each rule and choice, from the formula to the loops.

First come the forms of recurrences. Then come the rules of the recipe and of the search, each with
the costs of the plans before and after it. Then come the orders of contraction, the transforms, the
calls of torch, and the loop over blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from derive.errors import DeriveError
from derive.ir import nodes as ir
from derive.ir.definitions import multiply
from derive.ir.functions import ROWS
from derive.ir.polynomial import NOTHING, Polynomial, add_all, evaluate_extent
from derive.ir.recurrences import find_groups
from derive.ir.text import to_text
from derive.ir.walk import find_free, find_sizes, is_number, substitute
from derive.plan import ops
from derive.plan.build import Form, lower_system
from derive.plan.cost import count_elements
from derive.plan.meaning import to_expr, to_step_equation
from derive.plan.plan import PREPARE, Costs, Entry, Plan
from derive.plan.recurrences.loops import Linear
from derive.plan.search import RECUR, STAGES, remove_recurrences
from derive.rewrite.recipes import RENAMED, find_uses, prepare
from derive.rewrite.rule import rename_equation_indices
from derive.rewrite.rules.offsets import find_recurrent
from derive.rewrite.rules.products import flatten_product, flatten_sum, guard_product, is_bracket

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from derive.plan.machine import Machine
    from derive.plan.path import Order
    from derive.plan.recurrences.loops import Loop
    from derive.plan.search import LoopFree, Request
    from derive.plan.steps import Tile

WriteCell: TypeAlias = Callable[[ops.Cell], tuple[str, str]]
IN_TURN = "recur_in_turn"
IN_CHUNKS = ("recur_in_chunks", "h_t = a_t * h_{t - 1} + x_t, computed in chunks in parallel")
ONCE = ("lift_from_loop", "values without a state are computed before the loop, for all positions")
PAIRS = ("contract_in_pairs", "factors are contracted in pairs, with few operations at these sizes")
TRANSFORM = ("transform", "a sum over waves or offsets is an FFT: N * log N operations")
CALL = ("call_torch", "one call of torch replaces these operations")
LOOP = "loop_over_blocks"
# Rules that only tidy up brackets and indices after another rule.
TIDY = (flatten_sum.name, flatten_product.name, RENAMED[0])


@dataclass(frozen=True, slots=True)
class Written:
    """The loops of one equation as written: their operations and the elements of the result."""

    equation: str
    operations: Polynomial
    elements: Polynomial


@dataclass(frozen=True, slots=True)
class Derivation:
    """The loops as written, and the entries in order."""

    written: tuple[Written, ...]
    entries: tuple[Entry, ...]


def find_derivation(
    plan: Plan, request: Request, write: WriteCell, formula: ir.System | None = None
) -> Derivation:
    """The derivation of a plan that the search found for this request.

    `write` gives the texts of a cell's call and of its condition. The default formula is the
    plan's.
    """
    formula = plan.system if formula is None else formula
    recurrent, stages = formula, list[Entry]()
    if plan.recurs and not find_groups(formula):
        found = find_recurrent(prepare(formula)[0])
        assert found is not None
        recurrent, stages = found, [*_list_changes(*RECUR, formula, found)]
    acyclic = remove_recurrences(recurrent, plan.sizes, request)
    for (name, law), (old, new) in zip(STAGES, pairwise(acyclic.stages), strict=True):
        stages += _list_changes(name, law, old, new)
    stages += _list_turns(acyclic)
    uses = _list_uses(plan, acyclic.system)
    rows = _Rows(plan, request, acyclic, uses)
    entries = [*rows.count_uses(), *rows.list_transforms()]
    entries += [_describe_order(order) for order in plan.orders]
    calls = rows.list_calls(write)
    counted = [place for place, entry in enumerate(entries) if entry.new is not None]
    if counted and not calls:  # without calls, the search for them may have changed strides
        costs = rows.count_form(rows.last, cells=request.cells)
        entries[counted[-1]] = replace(entries[counted[-1]], new=costs)
    entries += [*calls, *rows.list_loops()]
    declared = (_declare_lengths(each, acyclic.lengths) for each in (*stages, *entries))
    return Derivation(count_written(formula), tuple(declared))


def count_costs(plan: Plan, machine: Machine) -> Costs:
    """The costs of a plan."""
    operations, elements = plan.flops, plan.peak_elements
    at = (plan.at_sizes(operations), plan.at_sizes(elements))
    return Costs(operations, elements, *at, plan.find_time(machine))


def _declare_lengths(entry: Entry, lengths: Mapping[str, int]) -> Entry:
    """The entry, with lengths of chunks and numbers of turns as sizes of its system."""
    if entry.system is None or not lengths:
        return entry
    used = {*find_sizes(entry.system)}
    sizes = tuple(ir.SizeInput(*each) for each in lengths.items() if each[0] in used)
    return replace(entry, system=replace(entry.system, sizes=(*entry.system.sizes, *sizes)))


# The loops as written.


def count_written(system: ir.System) -> tuple[Written, ...]:
    """The loops of each equation."""
    counted = ((each, count_elements(find_free(each.target))) for each in system.equations)
    return tuple(
        Written(each.target.tensor.name, elements * _count_expr(each.value), elements)
        for each, elements in counted
    )


def _count_expr(expr: ir.Expr) -> Polynomial:
    """The operations for one value of the free indices."""
    match expr:
        case _ if is_number(expr):
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
    """The operations of a product: a sign is free, and a division counts as one."""
    kept = [factor for factor in factors if factor is not ir.MINUS_ONE]
    parts = [
        each.base
        if len(kept) > 1 and isinstance(each, ir.Pow) and each.exponent is ir.MINUS_ONE
        else each
        for each in kept
    ]
    return Polynomial.of(max(0, len(kept) - 1)) + add_all(map(_count_expr, parts))


# Recurrences.


def _list_changes(name: str, law: str, old: ir.System, new: ir.System) -> Iterator[Entry]:
    """An entry for each equation that is new or changed in another form of the system."""
    before = {each.target.tensor.name: each for each in old.equations}
    for each in new.equations:
        was = before.get(each.target.tensor.name)
        if was is None or (was.target, was.value) != (each.target, each.value):
            value = was.value if was is not None and was.target is each.target else None
            yield Entry(name, law, each.target.tensor.name, value, each.value, each.target, new)


def _list_turns(acyclic: LoopFree) -> Iterator[Entry]:
    """The entries of values outside of loops, of the turns of loops, and of chunks."""
    turns = {made: loop for loop in acyclic.loops for made in loop.made.values()}
    known = {each.target.tensor: each.value for each in acyclic.stages[-1].equations}
    for each in acyclic.system.equations:
        tensor, loop = each.target.tensor, turns.get(each.target.tensor)
        was, target = known.get(tensor), each.target
        entry = Entry(*ONCE, tensor.name, was, each.value, target, acyclic.system)
        if loop is not None:
            law = f"for each {loop.index.name} in turn, {to_text(loop.index.extent)} turns"
            yield replace(entry, name=IN_TURN, law=law, remarks=(*_list_names(loop, tensor),))
        elif each.value is not was:
            yield entry
    for loop in acyclic.loops:
        if isinstance(loop.whole, Linear):
            decay, added, first = loop.whole.parts
            back: dict[ir.Expr, ir.Expr] = {loop.index: ir.Add((loop.index, ir.MINUS_ONE))}
            target = loop.whole.target
            value = ir.Add((multiply(decay, substitute(target, back)), added))
            start = f"what stands before the first {loop.index.name} is {to_text(first)}"
            yield Entry(*IN_CHUNKS, target.tensor.name, None, value, target, remarks=(start,))


def _list_names(loop: Loop, made: ir.Tensor) -> Iterator[str]:
    """The meaning of the names in a turn."""
    own = next(tensor for tensor, each in loop.made.items() if each is made)
    if first := ", ".join(each.name for each in loop.first.get(own, ())):
        yield f"before the first turn {own.name} is {first}"
    for (tensor, lag), before in loop.before.items():
        if tensor is own:
            yield f"{before.name} is {own.name} {lag} turn{'s' * (lag > 1)} before"
    if loop.turn:
        yield f"{loop.turn} is the number of the turn, from 0"


# Rules and choices.


def _list_uses(plan: Plan, system: ir.System) -> list[Entry]:
    """The entries of the uses of rules, without costs."""
    uses: list[Entry] = []
    _add_uses(uses, system)
    for entry in plan.log:
        if entry.name != PREPARE:
            uses.append(entry)
        elif uses[-1].system is not None:
            _add_uses(uses, uses[-1].system)
    shown = {each.target.tensor.name: each.value for each in system.equations}
    for place, entry in enumerate(uses):
        assert entry.system is not None
        each = next(e for e in entry.system.equations if e.target.tensor.name == entry.equation)
        before = shown.get(entry.equation)
        after = rename_equation_indices(each, entry.system).value
        uses[place] = replace(entry, before=before, after=after, target=each.target)
        shown[entry.equation] = after
    return uses


def _add_uses(uses: list[Entry], system: ir.System) -> None:
    """Add the rules that the recipe applies to a system; tidying rules get no entry."""
    for use in find_uses(system):
        if use.name not in TIDY:
            guard = (guard_product.name, use.equation)  # precedes a rewrite of the product
            way = [each for each in uses[-1:] if (each.name, each.equation) == guard]
            del uses[len(uses) - len(way) :]
            remarks = tuple(f"with {each.name}: {each.law}" for each in way)
            uses.append(Entry(use.name, use.law, use.equation, system=use.system, remarks=remarks))
        elif uses:
            uses[-1] = replace(uses[-1], system=use.system)


@dataclass
class _Rows:
    """The entries of a plan, from the uses that lead to it."""

    plan: Plan
    request: Request
    acyclic: LoopFree
    uses: Sequence[Entry]

    def __post_init__(self) -> None:
        """Find the forms before the first use and after each; the last one is the planned form."""
        system = self.acyclic.system
        start = system if self.uses else prepare(system)[0]
        self.forms = [Form(system, start, ())]
        for entry in self.uses:
            assert entry.system is not None
            self.forms.append(Form(system, entry.system, ()))
        parts = (op for step in self.plan.steps for op in ops.walk_ops(step.op))
        has_waves = any(isinstance(op, ops.Fourier) for op in parts)
        self.last = replace(self.forms[-1], transforms=has_waves)

    def lower_form(self, form: Form, *, cells: bool) -> Plan:
        """The plan of a form, without a loop over blocks."""
        sizes = {**self.plan.sizes, **self.acyclic.lengths}
        plan = lower_system(form, sizes, cells=cells, exact=self.request.exact)
        return replace(self.acyclic.restore_loops(plan), frees=self.plan.frees)

    def count_form(self, form: Form, *, cells: bool = False) -> Costs | None:
        """The costs of a form; None for an intermediate form without a plan."""
        try:
            return count_costs(self.lower_form(form, cells=cells), self.request.machine)
        except DeriveError:
            return None

    def count_uses(self) -> Iterator[Entry]:
        """The entries of uses, with costs of the plans before and after, without calls."""
        costs = pairwise(map(self.count_form, self.forms))
        for entry, (old, new) in zip(self.uses, costs, strict=True):
            yield replace(entry, old=old, new=new)

    def list_transforms(self) -> list[Entry]:
        """The entries of Fourier transforms; the last one has the costs."""
        if not self.last.transforms:
            return []
        found = []
        for step in self.lower_form(self.last, cells=False).steps:
            waves = [op for op in ops.walk_ops(step.op) if isinstance(op, ops.Fourier)]
            calls = (f"torch.fft.{op.kind} of {to_text(op.length)} values" for op in waves)
            if waves:
                each, remarks = to_step_equation(step), tuple(dict.fromkeys(calls))
                entry = Entry(*TRANSFORM, step.name, None, each.value, each.target, remarks=remarks)
                found.append(entry)
        return _count_last(found, self.count_form(self.forms[-1]), self.count_form(self.last))

    def list_calls(self, write: WriteCell) -> list[Entry]:
        """The entries of calls of torch; the last one has the costs."""
        if not self.request.cells:
            return []
        found = []
        for step in self.lower_form(self.last, cells=True).steps:
            for op in ops.walk_ops(step.op):
                if isinstance(op, ops.Cell):
                    target = to_step_equation(step).target if op is step.op else None
                    call, condition = write(op)
                    remarks: tuple[str, ...] = (f"by {call}", f"where {condition}, else as above")
                    remarks = remarks if condition else remarks[:1]
                    entry = Entry(*CALL, step.name, to_expr(op), target=target, remarks=remarks)
                    found.append(entry)
        return _count_last(
            found, self.count_form(self.last), self.count_form(self.last, cells=True)
        )

    def list_loops(self) -> list[Entry]:
        """The entry of the loop over blocks, with the loops inside it as remarks."""
        if self.plan.tile is None:
            return []
        old = self.count_form(self.last, cells=self.request.cells)
        new = count_costs(self.plan, self.request.machine)
        outer, *inner = [_describe_blocks(self.plan, tile) for tile in self.plan.tiles]
        (law, names), most = outer, self.request.elements
        remarks = [f"in the loop: {names}", *(f"in it {law}: {names}" for law, names in inner)]
        if most is not None and old is not None and old.elements_at > most:
            alive = f"{old.elements_at:,} elements are alive at once"
            remarks.append(f"without it {alive}, and {most:,} may be")
        last = names.split(", ")[-1]
        return [Entry(LOOP, law, last, old=old, new=new, remarks=tuple(remarks))]


def _count_last(entries: list[Entry], old: Costs | None, new: Costs | None) -> list[Entry]:
    """The entries, with the costs of all in the last one."""
    return [*entries[:-1], *(replace(each, old=old, new=new) for each in entries[-1:])]


def _describe_order(order: Order) -> Entry:
    """The entry of a contraction order: the product flat, and nested in pairs."""
    left = [(to_expr(op), ops.axes_of(op)) for op in order.operands]
    whole = _multiply_factors(left, order.axes)[0]
    for pair in order.path:
        met = [left[place] for place in pair]
        left = [part for place, part in enumerate(left) if place not in pair]
        needed = {*order.axes, *(index for _, axes in left for index in axes)}
        left.append(_multiply_factors(met, needed))
    return Entry(*PAIRS, order.equation, whole, left[-1][0])


def _multiply_factors(
    met: Sequence[tuple[ir.Expr, tuple[ir.Index, ...]]], needed: Collection[ir.Index]
) -> tuple[ir.Expr, tuple[ir.Index, ...]]:
    """The product of some factors, summed over the indices not needed later."""
    spanned = tuple(dict.fromkeys(index for _, axes in met for index in axes))
    bound = tuple(index for index in spanned if index not in needed)
    value = ir.sum_over(bound, ir.product_of([value for value, _ in met]))
    return value, tuple(index for index in spanned if index in needed)


def _describe_blocks(plan: Plan, tile: Tile) -> tuple[str, str]:
    """(the length of a block, the names of the steps in the loop)."""
    sizes = plan.complete(plan.sizes)
    extent = evaluate_extent(tile.index.extent, sizes)
    length = f"a block of {tile.index.name} at a time, {sizes[tile.block]} of {extent} positions"
    return length, ", ".join(step.name for step in plan.steps[tile.first : tile.last + 1])
