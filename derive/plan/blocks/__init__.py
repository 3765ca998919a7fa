"""Tiling: loops over blocks of an index, which keep intermediate results small.

If every step of the body keeps the index (none sums over it or normalises along it), a block is
computed by the same lines as the whole, and large intermediates never exist as a whole. In a block
of one position, the batch indices of a contraction can be merged, so that torch copies no operand.
A loop over a summed index carries accumulators from block to block. If no single loop keeps to a
memory budget, a nested loop may.

    sum_j x_j = ((x_1 + x_2) + x_3) + ..             likewise max, min
    sum_j softmax_j(s_j) v_j = acc / total           where, block by block,
        higher = max(peak, max_j s_j)                rescale = exp(peak - higher)
        total' = total * rescale + sum_j exp(s_j - higher)
        acc' = acc * rescale + sum_j exp(s_j - higher) v_j

The second is the online softmax: Milakov, Gimelshein 2018; Rabe, Staats 2021; Dao et al. 2022. A
peak starts at the lowest finite number, not at -oo, so that a block of -oo only has the weights
exp(-oo) = 0, not nan. The result does not depend on the peak, so no gradient flows through it. Sums
are accumulated in float32 at least, whatever the formula's dtype.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from statistics import geometric_mean

from derive.errors import refuse
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.plan import ops
from derive.plan.blocks.body import Body, find_body
from derive.plan.blocks.members import Region
from derive.plan.cost import (
    Storage,
    count_elements,
    find_copied,
    find_kept,
    find_strides,
    find_true_axes,
)
from derive.plan.machine import WIDTH, round_up, to_bytes
from derive.plan.plan import Plan
from derive.plan.steps import Tile, free_name

# Block sizes to try, in elements of the largest tensor of a block.
TARGETS = (1 << 19, 1 << 20)  # 2 and 4 MiB of float32
SHIFTED = 1 << 17  # additionally for a loop over offsets in windows, whose single offsets are views
LEAN = tuple(1 << k for k in range(21, 2, -2))  # under a memory budget
OUTER = tuple(1 << k for k in range(39, 2, -2))  # for an outer loop; the inner one cuts further
WIDER = (*TARGETS, 1 << 21, 1 << 22)  # for backward passes, which pay per block for partial sums
MOST_OPERATIONS = 5000  # times indices: for longer plans, fewer indices are tried
MEMORY = 1 / 4  # a backward pass trades half the memory for 2 ** -MEMORY, a sixth, of the time
DEEPEST = 2  # the most nested loops
SAME = 1.05  # times the best time: equally fast, so that the smaller block wins
GAIN = 0.8  # times the time without a loop: the most that a loop may take
KINDS = (False, True)  # kinds of loops: over a kept index, over a summed index


def tile(plan: Plan, most: int | None = None) -> Plan:
    """Return the plan with a loop over blocks of an index, or nested ones, if that is faster.

    `most` limits the elements alive at once: then the fastest plan of the simplest kind within the
    limit is returned, or the plan with the fewest elements if none is.
    """
    if most is not None and plan.peak > most:
        return _fit_budget(plan, most)
    if plan.in_place and most is None:
        return _choose_leaner(plan)
    best = plan
    for is_summed in KINDS:
        found = list(_find_tiled(plan, is_summed, TARGETS if most is None else LEAN, most))
        found = [each for each in found if most is None or each.peak <= most]
        best = _choose_faster(best, found)
    return best


def _choose_faster(plan: Plan, found: Sequence[Plan]) -> Plan:
    """Return the first of the fastest plans found if it is clearly faster, else the given plan."""
    whole = plan.find_time()
    seconds = [each.find_time() for each in found]
    least = min(seconds, default=whole)
    if least >= GAIN * whole:
        return plan
    return next(p for p, time in zip(found, seconds, strict=True) if time <= SAME * least)


def _choose_leaner(plan: Plan) -> Plan:
    """Add loops, one inside the other, that most reduce time and memory, as long as one does."""

    def score(each: Plan) -> float:
        peaks = [max(1, part.peak) for part in each.parts]
        return float(each.find_time() * geometric_mean(peaks) ** MEMORY)

    while len(plan.tiles) < DEEPEST:
        kinds = (_find_tiled(plan, is_summed, WIDER, None) for is_summed in KINDS)
        found = [each for kind in kinds for each in kind]
        weights = [score(each) for each in found]
        if min(weights, default=math.inf) >= GAIN * score(plan):
            break
        plan = found[weights.index(min(weights))]
    return plan


def _fit_budget(plan: Plan, most: int) -> Plan:
    """Return a plan within `most` elements, by one loop or nested ones; else the leanest."""
    least, leanest = plan.peak, plan
    best: Plan | None = None
    kinds = [_find_tiled(plan, is_summed, LEAN, most) for is_summed in KINDS]
    for kind in [*kinds, _find_nested(plan, most)]:
        found = [(each.peak, each) for each in kind]
        fitting = [each for count, each in found if count <= most]
        if best is not None:
            return _choose_faster(best, fitting)
        if fitting:
            best = min(fitting, key=lambda each: each.find_time())
            if best.tile is not None and not best.tile.running:
                return best
        least, leanest = min([(least, leanest), *found], key=lambda pair: pair[0])
    return best or leanest


def _find_tiled(
    plan: Plan, is_summed: bool, targets: Sequence[int], most: int | None
) -> Iterator[Plan]:
    """Yield the plan tiled along each possible index, with each of `targets`: elements of a block.

    Under a budget, `most`, also with as many steps in the loop as possible.
    """
    lengths = (False,) if most is None else (False, True)
    for made, _ in _list_loops(plan, (is_summed,), lengths, targets[0]):
        outer = [tile.target for tile in plan.tiles]
        is_shifting = any(t.is_shifting(op) for t in made.tiles for _, op in t.sliced)
        more = (SHIFTED,) if is_shifting and most is None else ()
        yield from (_retarget(made, *outer, target) for target in (*more, *targets))


def _list_loops(
    plan: Plan, kinds: Sequence[bool], lengths: Sequence[bool], target: int
) -> Iterator[tuple[Plan, bool]]:
    """Yield (the plan tiled along an index, whether with the longest loop), by index and kind."""
    region = find_region(plan)
    for index, is_summed, longest in product(find_indices(plan), kinds, lengths):
        body = find_body(region, index, is_summed=is_summed, longest=longest)
        made = None if body is None else make_tiled(plan, body, target)
        if made is not None:
            yield made, longest


def _retarget(plan: Plan, *targets: int) -> Plan:
    """Return the plan with new targets, elements in a block, for its loops, the outermost first."""
    tile = None
    for each, target in reversed(list(zip(plan.tiles, targets, strict=True))):
        tile = replace(each, target=target, inner=tile)
    return replace(plan, tile=tile)


def _find_nested(plan: Plan, most: int) -> Iterator[Plan]:
    """Yield the plan with nested loops for each pair of indices, in the largest blocks that fit."""
    for around, longest in _list_loops(plan, (False,), (False, True), OUTER[0]):
        lengths = _find_lengths(around)
        for made, _ in _list_loops(_retarget(around, lengths[0]), KINDS, (longest,), LEAN[0]):
            yield from _fit_nested(made, lengths, most)


def _find_lengths(plan: Plan) -> list[int]:
    """Return limits on elements that give distinct block lengths, below the whole if possible."""
    (tile,) = plan.tiles
    lengths = {target: _retarget(plan, target).complete(plan.sizes)[tile.block] for target in OUTER}
    first = {length: target for target, length in reversed(lengths.items())}
    first.pop(Storage(plan.sizes).extent(tile.index), None)
    return sorted(first.values(), reverse=True) or [OUTER[-1]]


def _fit_nested(plan: Plan, around: Sequence[int], most: int) -> Iterator[Plan]:
    """Yield, for each outer target in `around`, the plan with the largest inner blocks that fit.

    If none fits, yield the plan with the smallest blocks. Smaller outer blocks permit larger inner
    ones, so the search continues from the last inner size.
    """
    longer = list(LEAN)
    target = longer.pop()
    leanest = _retarget(plan, around[-1], target)
    if leanest.peak > most:
        yield leanest
        return
    for length in around:
        if _retarget(plan, length, target).peak > most:
            continue
        while longer and _retarget(plan, length, longer[-1]).peak <= most:
            target = longer.pop()
        yield _retarget(plan, length, target)


def find_region(plan: Plan) -> Region:
    """Return the steps in which a loop is sought: those of the plan, or of its loop if any."""
    taken = {*plan.names, *(name for tile in plan.tiles for name in tile.names)}
    steps, read = plan.steps, {name for op in plan.results for name in ops.find_reads(op)}
    if plan.tile is not None:
        steps = steps[plan.tile.first : plan.tile.last + 1]
        read = {name for name, _, _ in plan.tile.joined} | {r.name for r in plan.tile.running}
    return Region(steps, read, taken, plan.complete(plan.sizes))


def find_indices(plan: Plan) -> tuple[ir.Index, ...]:
    """Return the indices of the plan's steps with more than one position.

    Of a long plan with many indices, only those of the largest tensors.
    """
    steps, memory = find_region(plan).steps, Storage(plan.complete(plan.sizes))
    parts = [op for step in steps for op in ops.walk_ops(step.op)]
    found = [i for step in steps for i in step.axes]
    found += [i for op in parts for arg in op.args for i in arg.axes]
    cut = [ir.Size(tile.block) for tile in plan.tiles]  # a block is not cut again
    indices = [i for i in dict.fromkeys(found) if i.extent not in cut and memory.extent(i) > 1]
    most = max(1, MOST_OPERATIONS // len(parts))
    if len(indices) > most:
        large = sorted(parts, key=lambda op: -memory.count(find_true_axes(op)))
        wanted = list(dict.fromkeys(i for op in large for i in find_true_axes(op)))[:most]
        indices = [i for i in indices if i in wanted]
    return tuple(indices)


def make_tiled(plan: Plan, body: Body, target: int) -> Plan | None:
    """Return the plan whose body runs in a loop over blocks of at most `target` elements.

    None for a body that computes nothing. If the plan has a loop, the new one is nested in it.
    """
    around = plan.tile
    taken = find_region(plan).taken | body.names
    block = free_name("block" if around is None else "inner_block", taken)
    taken = {*taken, block}
    start = free_name("start", taken) if plan.in_place else ""
    taken = {*taken, start}
    steps = body.cut_steps(ir.Index(body.index.name, ir.Size(block)))
    unit = _find_unit(body, plan)
    if unit is None or not body.sliced or _cuts_flat(body):
        return None
    if around is not None and {r.name for r in around.running} & {s.name for s in body.inside}:
        return None  # an accumulator of the outer loop would see the last block only
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
    """Whether a step that is cut into blocks has size 1 along the index."""
    made = {step.name: step for step in body.before}
    return any(
        made[part.name].axes[part.axes.index(body.index)] not in find_true_axes(made[part.name].op)
        for _, op in body.sliced
        for part in ops.walk_ops(op)
        if isinstance(part, ops.Source) and part.name in made and body.index in part.axes
    )


def _find_unit(body: Body, plan: Plan) -> Polynomial | None:
    """Return the elements per position of `body.index` in a block's largest tensor, or None."""
    memory = Storage(plan.complete(plan.sizes))
    for step in (*body.before, *body.inside):
        memory.strides[step.name] = find_strides(step.op, memory)
    work = [op for step in body.inside for op in ops.walk_ops(step.op)]
    kept = [(find_true_axes(op), 1 + ops.is_integral(op)) for op in work if find_kept(op).terms]
    kept += [(arg.axes, 1) for op in work for arg in find_copied(op, memory)]
    units = [
        count_elements(i for i in axes if i is not body.index) * Polynomial.of(each)
        for axes, each in kept
        if body.index in axes
    ]
    return max(units, key=plan.at_sizes, default=None)


def check_memory(plan: Plan, most: int) -> None:
    """Raise `memory-short` if a plan needs more than `most` elements."""
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
