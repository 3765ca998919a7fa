"""Loops over blocks of an index, so that what their steps make stays near.

A block of an index that every step of a body keeps (no step of it sums over it, nor normalises
along it) is computed by the same lines as the whole. Large intermediates then never exist as a
whole; and where a block is one position, its index no longer keeps the batch indices of a
contraction from being merged, so that torch copies no operand. Over an index that is summed, a loop
has values that run from block to block. A budget that no loop keeps to alone, a loop in a loop may.

    sum_j x_j = ((x_1 + x_2) + x_3) + ..             likewise prod, max, min
    sum_j softmax_j(s_j) v_j = acc / total           where, block by block,
        higher = max(peak, max_j s_j)                rescale = exp(peak - higher)
        total' = total * rescale + sum_j exp(s_j - higher)
        acc' = acc * rescale + sum_j exp(s_j - higher) v_j

Milakov, Gimelshein 2018; Rabe, Staats 2021; Dao et al. 2022. A peak begins at the lowest finite
number, not at -oo: a block of nothing but -oo then has the weights exp(-oo) = 0, not nan. It is no
part of the value, so no gradient flows through it. Sums run in float32 at least, whatever the
formula's dtype.
"""

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import geometric_mean

from derive.errors import refuse
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.plan import ops
from derive.plan.blocks.members import (
    Members,
    Region,
    find_blocks,
    find_members,
    is_reading,
    open_calls,
    to_leaf_key,
)
from derive.plan.cost import (
    Storage,
    count_elements,
    find_copied,
    find_kept,
    find_strides,
    find_true_axes,
)
from derive.plan.machine import WIDTH, Machine, round_up, to_bytes
from derive.plan.plan import Plan
from derive.plan.steps import Running, Start, Step, Tile, free_name, name_op

EXTREMES: dict[str, Start] = {"max": "-oo", "min": "oo"}  # and where they begin


@dataclass(frozen=True, slots=True)
class Body:
    """Steps of a loop over blocks of `index`, those before and after it, and what crosses over."""

    index: ir.Index
    before: tuple[Step, ...]
    inside: tuple[Step, ...]
    after: tuple[Step, ...]
    sliced: tuple[tuple[str, ops.Op], ...]  # the name in the loop, and what it is a block of
    joined: tuple[str, ...]  # steps that are read after the loop
    running: tuple[Running, ...] = ()  # values carried from block to block
    wide: str = ""  # what their dtype is called

    @property
    def names(self) -> set[str]:
        """All names of its own: of blocks, steps and running values."""
        steps = {step.name for step in (*self.before, *self.inside, *self.after)}
        return {self.wide, *steps, *(name for name, _ in self.sliced)}

    def cut(self, short: ir.Index) -> tuple[Step, ...]:
        """The steps on blocks: the index is exchanged for one of a block's extent."""
        names = {to_leaf_key(op, self.index): name for name, op in self.sliced}
        inside = find_places(self.inside, self.index)

        def cut_step(step: Step) -> Step:
            leaves = find_blocks(step.op, self.index, inside)
            new = {leaf: _to_block(leaf, names[to_leaf_key(leaf, self.index)]) for leaf in leaves}
            return Step(
                step.name, ops.rename_indices(ops.exchange(step.op, new), {self.index: short})
            )

        return tuple(map(cut_step, self.inside))


def find_places(steps: Iterable[Step], index: ir.Index) -> dict[str, int]:
    """The steps that keep an index, by name, and the place in which they have it."""
    return {step.name: step.axes.index(index) for step in steps if index in step.axes}


def _to_block(leaf: ops.Op, name: str) -> ops.Source:
    return ops.Source(
        name, ops.axes_of(leaf), leaf.kind if isinstance(leaf, ops.Source) else "real"
    )


def find_body(
    region: Region, index: ir.Index, *, is_summed: bool, longest: bool = False
) -> Body | None:
    """The loop worth having, or the longest one, over an index that is kept or summed, or None."""
    opened = open_calls(region, index)
    members = find_members(opened, index, is_summed=is_summed, longest=longest)
    return None if members is None else _Loop(region, index, members).make(opened.steps)


@dataclass(frozen=True, slots=True)
class Peak:
    """The names that belong to one normalized row."""

    peak: ops.Source
    rescale: ops.Source
    total: ops.Source


@dataclass
class _Loop:
    """A loop in the making."""

    region: Region
    index: ir.Index
    members: Members
    taken: set[str] = field(default_factory=set)
    before: list[Step] = field(default_factory=list)
    inside: list[Step] = field(default_factory=list)
    after: list[Step] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    peaks: dict[str, Peak] = field(default_factory=dict)  # by the name of the row
    renamed: dict[str, str] = field(default_factory=dict)
    wide: str = ""

    def make(self, opened: Sequence[Step]) -> Body:
        """The steps in and around the loop; `opened` are all steps, without calls that sum."""
        members = self.members
        self.taken = set(self.region.taken)
        self.wide = self._name("wide") if members.is_summed else ""
        for step, plain in zip(self.region.steps, opened, strict=True):
            if step.name in members.rows:
                self._soften(plain)
            elif step.name in members.inside:
                self._keep(Step(step.name, self._read(plain.op)))
            elif step.name in members.closing:
                sums = {op: self._close(op, step.name) for op in members.closing[step.name]}
                self.after.append(Step(step.name, ops.exchange(plain.op, sums)))
            else:
                (self.after if step.name in members.later else self.before).append(step)
        self._hoist()
        inside = tuple(self.inside)
        sliced = name_leaves(inside, self.index, self.taken)
        read = {
            *self.region.read,
            *(name for step in self.after for name in ops.find_reads(step.op)),
        }
        made = tuple(step.name for step in inside if step.name in self.members.inside.keys() & read)
        steps = (tuple(self.before), inside, tuple(self.after))
        return Body(self.index, *steps, sliced, made, tuple(self.running), self.wide)

    def _name(self, wanted: str) -> str:
        name = free_name(wanted, self.taken)
        self.taken.add(name)
        return name

    def _add(self, wanted: str, op: ops.Op, kind: str = "real") -> ops.Source:
        """A step of the loop."""
        name = self._name(wanted)
        self.inside.append(Step(name, op))
        return ops.Source(name, ops.axes_of(op), kind)

    def _run(self, wanted: str, axes: tuple[ir.Index, ...], start: Start) -> ops.Source:
        """A running value, which some step has to make anew."""
        name = self._name(wanted)
        self.running.append(Running(name, axes, start))
        return ops.Source(name, axes, "real" if start in EXTREMES.values() else "wide")

    def _keep(self, step: Step) -> None:
        """A step of blocks; one that is left with nothing but the weights has their name."""
        if isinstance(step.op, ops.Source) and step.op.name in self.renamed.values():
            self.renamed[step.name] = step.op.name
        else:
            self.inside.append(step)

    def _read(self, op: ops.Op) -> ops.Op:
        """The operation with the weights in place of what they are proportional to.

        Weights are 0 where a score is -oo: no zeros have to be put there.
        """
        parts = [part for part in ops.walk_ops(op) if isinstance(part, ops.Source)]
        new: dict[ops.Op, ops.Op] = {
            part: ops.Source(self.renamed[part.name], part.axes)
            for part in parts
            if part.name in self.renamed
        }
        fills = [
            part for part in ops.walk_ops(op) if isinstance(part, ops.Fill) and part.arg in new
        ]
        return ops.exchange(op, new | {part: new[part.arg] for part in fills})

    def _soften(self, step: Step) -> None:
        """The weights of a block, and their sum so far."""
        scores = self._show(self.members.scores[step.name], f"{step.name}_logits")
        peak = self._follow(scores, (self.index,))
        weights = self._add("weights", ops.Cast(_raise(scores, peak.peak)))
        call = ops.TorchCall(".sum", (ops.Given(0), -1), (("dtype", ops.Local(self.wide)),))
        part = ops.Reduction("sum", weights, (self.index,))
        self._accumulate(peak.total, ops.Cell(call, (weights,), part, peak.total.axes), peak)
        self.peaks[step.name] = peak
        self.renamed[step.name] = weights.name
        if self.region.empty_row == "zeros":
            self.after.append(_fill_empty(peak.total))

    def _hoist(self) -> None:
        """Compute before the loop what is the same for each block, and made of what is."""
        own = {step.name for step in self.inside} | {each.name for each in self.running}
        new: dict[ops.Op, ops.Op] = {}
        for step in self.inside:
            for op in self._find_same(step.op, own):
                known = next((step.name for step in self.before if step.op is op), "")
                name = known or self._name(name_op(op, "part"))
                if not known:
                    self.before.append(Step(name, op))
                new[op] = ops.Source(name, ops.axes_of(op))
        self.inside = [Step(step.name, ops.exchange(step.op, new)) for step in self.inside]

    def _find_same(self, op: ops.Op, own: Set[str]) -> Iterator[ops.Op]:
        """The parts of an operation that every block would compute alike, but no views."""
        if isinstance(op, (ops.Source, ops.Num)) or not ops.axes_of(op):
            return
        if is_reading(op, self.index) or ops.find_reads(op) & own:
            for arg in ops.args_of(op):
                yield from self._find_same(arg, own)
            return
        if not _is_view(op) and not ops.is_boolean(op):
            yield op

    def _show(self, op: ops.Op, wanted: str) -> ops.Op:
        """The operation by a name, unless it is a view."""
        return op if _is_view(op) else self._add(wanted, op)

    def _follow(self, scores: ops.Op, over: tuple[ir.Index, ...], *, clamp: bool = False) -> Peak:
        """The peak so far, and what the sums so far have to be scaled by."""
        rows = tuple(i for i in ops.axes_of(scores) if i not in over)
        zeros = self.region.empty_row == "zeros" or clamp
        total = self._run("total", rows, "zero" if zeros else "empty")
        peak = self._run("peak", rows, "lowest")
        places = tuple(ops.axes_of(scores).index(i) - len(ops.axes_of(scores)) for i in over)
        where = places[0] if len(places) == 1 else places
        largest = ops.TorchCall(".amax", (ops.TorchCall(".detach", (ops.Given(1),)), where))
        call = ops.TorchCall("torch.maximum", (ops.Given(0), largest))
        if clamp:  # a score of oo leaves a sum of oo
            call = ops.TorchCall(
                ".clamp", (call,), (("max", ops.Limit(ops.Local(self.wide), "max")),)
            )
        whole = ops.Apply("max", (peak, ops.Reduction("max", scores, over)), rows)
        higher = self._add("higher", ops.Cell(call, (peak, scores), whole, rows), "wide")
        rescale = self._add(
            "rescale", ops.Apply("exp", (ops.Apply("-", (peak, higher), rows),), rows)
        )
        self.inside.append(Step(peak.name, higher))
        return Peak(peak, rescale, total)

    def _accumulate(
        self, sums: ops.Source, part: ops.Op, peak: Peak | None, function: str = "+"
    ) -> None:
        """The running value with what the block adds to it."""
        before: ops.Op = sums
        if peak is not None:
            scale = ops.arrange(peak.rescale, sums.axes)
            before = ops.Apply("*", (sums, scale), sums.axes)
        self.inside.append(Step(sums.name, ops.Apply(function, (before, part), sums.axes)))

    def _close(self, closer: ops.Op, name: str) -> ops.Op:
        """What to read after the loop for an operation that sums over its index."""
        closer = self._read(closer)
        axes = ops.axes_of(closer)
        count: ir.Expr | None = None
        match closer:
            case ops.Reduction("logsumexp", arg, over):
                return self._close_logarithm(arg, over, name)
            case ops.Reduction("max" | "min" as kind):
                value = self._run(f"{name}_{kind}", axes, EXTREMES[kind])
                self._accumulate(value, closer, None, kind)
                return value
            case ops.Reduction("prod"):
                value = self._run(f"{name}_product", axes, "one")
                self._accumulate(value, closer, None, "*")
                return ops.Cast(value)
            case ops.Reduction("mean", arg, over):
                closer, count = (
                    ops.Reduction("sum", arg, over),
                    ir.Mul(tuple(i.extent for i in over)),
                )
        peak = self._find_peak(closer)
        value = self._run(f"{name}_sum", axes, "zero")
        self._accumulate(value, closer, peak)
        found: ops.Op = value
        if peak is not None:
            found = ops.Apply("/", (found, ops.arrange(peak.total, axes)), axes)
        if count is not None:
            found = ops.Apply("/", (found, ops.Num(count)), axes)
        return ops.Cast(found)

    def _close_logarithm(self, arg: ops.Op, over: tuple[ir.Index, ...], name: str) -> ops.Op:
        """The logarithm of a sum of exponentials, from its peak on."""
        scores = self._show(arg, f"{name}_logits")
        peak = self._follow(scores, over, clamp=True)
        rows = peak.total.axes
        self._accumulate(peak.total, ops.Reduction("sum", _raise(scores, peak.peak), over), peak)
        logarithm = ops.Apply("log", (peak.total,), rows)
        return ops.Cast(ops.Apply("+", (peak.peak, logarithm), rows))

    def _find_peak(self, closer: ops.Op) -> Peak | None:
        """That of the row whose weights an operation reads."""
        reads = ops.find_reads(closer)
        roots = self.members.roots.items()
        found = (root for name, root in roots if self.renamed.get(name, name) in reads)
        return next((self.peaks[root] for root in found if root in self.peaks), None)


def _is_view(op: ops.Op) -> bool:
    return all(isinstance(part, ops.VIEWS) for part in ops.walk_ops(op))


def _raise(scores: ops.Op, peak: ops.Op) -> ops.Op:
    """The exponentials of the scores, of which the largest so far is 1."""
    axes = ops.axes_of(scores)
    return ops.Apply("exp", (ops.Apply("-", (scores, ops.arrange(peak, axes)), axes),), axes)


def _fill_empty(total: ops.Source) -> Step:
    """Rows of nothing but -oo are 0 / 1."""
    is_empty = ops.Apply("==", (total, ops.Num(ir.ZERO)), total.axes)
    return Step(total.name, ops.Fill(total, is_empty, ops.Num(ir.ONE), True))


def name_leaves(
    group: Sequence[Step], index: ir.Index, taken: Set[str]
) -> tuple[tuple[str, ops.Op], ...]:
    """A name for each leaf in the loop: `q_h` for the blocks of q along h."""
    found: dict[ops.Op, tuple[str, ops.Op]] = {}
    inside = find_places(group, index)
    for step in group:
        for leaf in find_blocks(step.op, index, inside):
            key = to_leaf_key(leaf, index)
            if key not in found:
                name = free_name(f"{name_op(leaf, group[-1].name)}_{index.name}", taken)
                found[key] = name, leaf
                taken = taken | {name}
    return tuple(found.values())


TARGETS = (1 << 19, 1 << 20)  # elements of the largest tensor in a block: 2 and 4 MiB of float32
SHIFTED = 1 << 17  # the same of a loop over the positions in windows: of one position it has views
LEAN = tuple(1 << k for k in range(21, 2, -2))  # under a budget
OUTER = tuple(1 << k for k in range(39, 2, -2))  # of a loop around another, which cuts them down
MOST_OPERATIONS = 5000  # times indices: of a long plan loops over fewer indices are looked at
WIDER = (*TARGETS, 1 << 21, 1 << 22)  # of what is summed in parts, which costs each block
MEMORY = 1 / 4  # in a backward half the memory is worth a sixth of the time: 2 ** -MEMORY
DEEPEST = 2  # loops, one in another
SAME = 1.05  # of the best time: among those the smaller block is taken
GAIN = 0.8  # of what is without a loop, above which a loop is not worth its lines
KINDS = (False, True)  # of loops: over an index that is kept, over one that is summed


def tile(plan: Plan, machine: Machine, most: int | None = None) -> Plan:
    """The plan with a loop over blocks of one index where that is faster.

    With `most`, the elements that may be alive at once, the fastest plan of the simplest kind that
    keeps to it, else that with the fewest.
    """
    if most is not None and plan.peak > most:
        return _fit(plan, machine, most)
    if plan.in_place and most is None:
        return _choose_leaner(plan, machine)
    best = plan
    for is_summed in KINDS:
        found = list(_find_tiled(plan, is_summed, TARGETS if most is None else LEAN, most))
        found = [each for each in found if most is None or each.peak <= most]
        best = _choose_faster(best, found, machine)
    return best


def _choose_faster(plan: Plan, found: Sequence[Plan], machine: Machine) -> Plan:
    """One of those found, if it is clearly faster."""
    whole = plan.find_time(machine)
    seconds = [each.find_time(machine) for each in found]
    least = min(seconds, default=whole)
    if least >= GAIN * whole:
        return plan
    return next(p for p, time in zip(found, seconds, strict=True) if time <= SAME * least)


def _choose_leaner(plan: Plan, machine: Machine) -> Plan:
    """The plan with the loop, and then with the one inside it, by which time and memory gain."""

    def weigh(each: Plan) -> float:
        peaks = [max(1, part.peak) for part in each.parts]
        return float(each.find_time(machine) * geometric_mean(peaks) ** MEMORY)

    while len(plan.tiles) < DEEPEST:
        kinds = (_find_tiled(plan, is_summed, WIDER, None) for is_summed in KINDS)
        found = [each for kind in kinds for each in kind]
        weights = [weigh(each) for each in found]
        if min(weights, default=math.inf) >= GAIN * weigh(plan):
            break
        plan = found[weights.index(min(weights))]
    return plan


def _fit(plan: Plan, machine: Machine, most: int) -> Plan:
    """A plan that keeps to a budget: one loop, or one inside another where that is faster."""
    least, leanest = plan.peak, plan
    best: Plan | None = None
    kinds = [_find_tiled(plan, is_summed, LEAN, most) for is_summed in KINDS]
    for kind in [*kinds, _find_nested(plan, most)]:
        found = [(each.peak, each) for each in kind]
        fitting = [each for count, each in found if count <= most]
        if best is not None:
            return _choose_faster(best, fitting, machine)
        if fitting:
            best = min(fitting, key=lambda each: each.find_time(machine))
            if best.tile is not None and not best.tile.running:
                return best
        least, leanest = min([(least, leanest), *found], key=lambda pair: pair[0])
    return best or leanest


def _find_tiled(
    plan: Plan, is_summed: bool, targets: Sequence[int], most: int | None
) -> Iterator[Plan]:
    """The plan tiled along each index that allows it, by blocks of each size worth trying.

    Under a budget also with as many steps in the loop as can be.
    """
    region = open_region(plan)
    lengths = (False,) if most is None else (False, True)
    for index, longest in product(find_indices(plan), lengths):
        body = find_body(region, index, is_summed=is_summed, longest=longest)
        made = None if body is None else make_tiled(plan, body, targets[0])
        if made is not None:
            outer = [tile.target for tile in plan.tiles]
            is_shifting = any(t.is_shifting(op) for t in made.tiles for _, op in t.sliced)
            more = (SHIFTED,) if is_shifting and most is None else ()
            yield from (_aim(made, *outer, target) for target in (*more, *targets))


def _aim(plan: Plan, *targets: int) -> Plan:
    """The same loops with blocks of other lengths."""
    tile = None
    for each, target in reversed(list(zip(plan.tiles, targets, strict=True))):
        tile = replace(each, target=target, inner=tile)
    return replace(plan, tile=tile)


def _find_nested(plan: Plan, most: int) -> Iterator[Plan]:
    """The plan with a loop in a loop, for each pair of indices, by the largest blocks that fit."""
    region = open_region(plan)
    for index, longest in product(find_indices(plan), (False, True)):
        body = find_body(region, index, is_summed=False, longest=longest)
        around = None if body is None else make_tiled(plan, body, OUTER[0])
        if around is None:
            continue
        lengths = _find_lengths(around)
        around = _aim(around, lengths[0])
        for other, is_summed in product(find_indices(around), KINDS):
            region_in = open_region(around)
            inside = find_body(region_in, other, is_summed=is_summed, longest=longest)
            made = None if inside is None else make_tiled(around, inside, LEAN[0])
            if made is not None:
                yield from _fit_nested(made, lengths, most)


def _find_lengths(plan: Plan) -> list[int]:
    """The targets that lead to blocks of different lengths, more than one block if possible."""
    (tile,) = plan.tiles
    lengths = {target: _aim(plan, target).complete(plan.sizes)[tile.block] for target in OUTER}
    first = {length: target for target, length in reversed(lengths.items())}
    first.pop(Storage(plan.sizes).extent(tile.index), None)
    return sorted(first.values(), reverse=True) or [OUTER[-1]]


def _fit_nested(plan: Plan, around: Sequence[int], most: int) -> Iterator[Plan]:
    """For blocks of each length around, the longest ones inside that fit; else the leanest plan.

    The shorter the blocks around, the longer they may be.
    """
    longer = list(LEAN)
    target = longer.pop()
    leanest = _aim(plan, around[-1], target)
    if leanest.peak > most:
        yield leanest
        return
    for length in around:
        if _aim(plan, length, target).peak > most:
            continue
        while longer and _aim(plan, length, longer[-1]).peak <= most:
            target = longer.pop()
        yield _aim(plan, length, target)


def open_region(plan: Plan) -> Region:
    """The steps of a plan, or of its loop, as those among which another is looked for."""
    taken = {*plan.names, *(name for tile in plan.tiles for name in tile.names)}
    steps, read = plan.steps, {name for op in plan.results for name in ops.find_reads(op)}
    if plan.tile is not None:
        steps = steps[plan.tile.first : plan.tile.last + 1]
        read = {name for name, _, _ in plan.tile.joined} | {r.name for r in plan.tile.running}
    return Region(steps, read, taken, plan.complete(plan.sizes), plan.system.empty_row)


def find_indices(plan: Plan) -> tuple[ir.Index, ...]:
    """Those that some steps keep or sum over, along which there is more than one position.

    Of a long plan with many, those of the largest tensors.
    """
    steps, memory = open_region(plan).steps, Storage(plan.complete(plan.sizes))
    parts = [op for step in steps for op in ops.walk_ops(step.op)]
    found = [i for step in steps for i in step.axes]
    found += [i for op in parts for arg in ops.args_of(op) for i in ops.axes_of(arg)]
    cut = [ir.Size(tile.block) for tile in plan.tiles]  # a block is not cut again
    indices = [i for i in dict.fromkeys(found) if i.extent not in cut and memory.extent(i) > 1]
    most = max(1, MOST_OPERATIONS // len(parts))
    if len(indices) > most:
        large = sorted(parts, key=lambda op: -memory.count(find_true_axes(op)))
        wanted = list(dict.fromkeys(i for op in large for i in find_true_axes(op)))[:most]
        indices = [i for i in indices if i in wanted]
    return tuple(indices)


def make_tiled(plan: Plan, body: Body, target: int) -> Plan | None:
    """The plan whose body runs in a loop over blocks of at most `target` elements.

    None for a body that makes nothing new. In a plan that has a loop, the body is one of its
    steps, and its loop is inside.
    """
    around = plan.tile
    taken = open_region(plan).taken | body.names
    block = free_name("block" if around is None else "inner_block", taken)
    taken = {*taken, block}
    start = free_name("start", taken) if plan.in_place else ""
    taken = {*taken, start}
    steps = body.cut(ir.Index(body.index.name, ir.Size(block)))
    unit = _find_unit(body, plan)
    if unit is None or not body.sliced or _cuts_flat(body):
        return None
    if around is not None and {r.name for r in around.running} & {s.name for s in body.inside}:
        return None  # what the loop around adds up would be added up of one block alone
    joined, through = [], []
    between = [] if around is None else [*body.before, *body.after]
    own = {name for step in between for name in ops.find_reads(step.op)}
    outer = {name for name, _, _ in around.joined} - own if around is not None else set()
    for step in body.inside:
        if step.name in body.joined and step.name in outer and plan.in_place:
            through.append((step.name, step.axes.index(body.index)))
        elif step.name in body.joined:
            ending = "whole" if plan.in_place else "blocks"
            name = free_name(f"{step.name}_{ending}", taken)
            taken.add(name)
            joined.append((step.name, name, step.axes.index(body.index)))
    first = len(body.before) + (0 if around is None else around.first)
    made = Tile(
        body.index,
        block,
        first,
        first + len(steps) - 1,
        body.sliced,
        tuple(joined),
        unit,
        target,
        body.running,
        body.wide,
        start=start if joined or through else "",
        through=tuple(through),
    )
    steps = (*body.before, *steps, *body.after)
    if around is None:
        return replace(plan, steps=steps, tile=made)
    last = around.first + len(steps) - 1
    whole = (*plan.steps[: around.first], *steps, *plan.steps[around.last + 1 :])
    return replace(plan, steps=whole, tile=replace(around, last=last, inner=made))


def _cuts_flat(body: Body) -> bool:
    """Is a step cut into blocks that has size 1 along the index?"""
    made = {step.name: step for step in body.before}
    return any(
        made[part.name].axes[part.axes.index(body.index)] not in find_true_axes(made[part.name].op)
        for _, op in body.sliced
        for part in ops.walk_ops(op)
        if isinstance(part, ops.Source) and part.name in made and body.index in part.axes
    )


def _find_unit(body: Body, plan: Plan) -> Polynomial | None:
    """The elements that one position adds to the largest tensor made, or copied, in a block.

    None where nothing is made.
    """
    memory = Storage(plan.complete(plan.sizes))
    for step in (*body.before, *body.inside):
        memory.strides[step.name] = find_strides(step.op, memory)
    work = [op for step in body.inside for op in ops.walk_ops(step.op)]
    kept = [(find_true_axes(op), 1 + ops.is_integral(op)) for op in work if find_kept(op).terms]
    kept += [(ops.axes_of(arg), 1) for op in work for arg in find_copied(op, memory)]
    units = [
        count_elements(i for i in axes if i is not body.index) * Polynomial.of(each)
        for axes, each in kept
        if body.index in axes
    ]
    return max(units, key=plan.at_sizes, default=None)


def check_memory(plan: Plan, most: int) -> None:
    """Raise `memory-short` where a plan needs more elements than it may."""
    least = plan.peak
    if least > most:
        at = ", ".join(f"{size}={extent}" for size, extent in plan.sizes.items())
        takes = f"{to_bytes(least * WIDTH)}, {least:,} elements of float32"
        raise refuse(
            "memory-short",
            f"no plan of {plan.system.name} keeps to {to_bytes(most * WIDTH)}",
            facts=(
                f"{most:,} elements of {WIDTH} bytes may be alive at once",
                f"at {at} the leanest one takes {takes}",
            ),
            help=f"allow {round_up(least * WIDTH)}, or plan for smaller sizes",
        )
