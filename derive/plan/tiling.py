"""Tiling: steps computed block by block along one index, so that what they make stays near.

A block of an index that every step of a group keeps (no step of it sums over it, nor normalises
along it) is computed by the same lines as the whole. Large intermediates then never exist as a
whole; and where a block is one position, its index no longer keeps the batch indices of a
contraction from being merged, so that torch copies no operand.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from derive.ir.nodes import MINUS_ONE, Index, Pow, Size
from derive.ir.polynomial import Polynomial
from derive.plan.costs import count_elements, find_kept, find_true_axes
from derive.plan.groups import Group, find_group
from derive.plan.machine import WIDTH, Machine
from derive.plan.naming import free_name
from derive.plan.ops import axes_of
from derive.plan.seconds import find_seconds
from derive.plan.steps import Plan, Step, Tile, walk_ops
from derive.plan.strides import Memory, find_copied, find_strides

if TYPE_CHECKING:
    from derive.plan.machine import Machine

TARGETS = (1 << 19, 1 << 20)  # elements of the largest tensor in a block: 2 and 4 MiB of float32
SAME = 1.05  # of the best time: among those the smaller block is taken
GAIN = 0.75  # of the time without a loop, above which a loop is not worth its lines


def tile(plan: Plan, machine: Machine, most: int | None = None) -> Plan:
    """The plan with a loop over blocks of one index where that is faster.

    With `most`, the elements that may be alive at once, a plan that keeps to it if there is one,
    else that with the fewest.
    """
    found = _find_tiled(plan, most)
    if most is not None:
        fitting = [each for each in (plan, *found) if count_peak(each) <= most]
        if not fitting:
            return min([plan, *found], key=count_peak)
        if plan not in fitting:
            return min(fitting, key=lambda each: time_plan(each, machine))
        found = fitting[1:]
    whole = time_plan(plan, machine)
    seconds = [time_plan(each, machine) for each in found]
    least = min(seconds, default=whole)
    if least >= GAIN * whole:
        return plan
    return next(p for p, time in zip(found, seconds, strict=True) if time <= SAME * least)


def count_peak(plan: Plan) -> int:
    """The elements alive at once at the plan's sizes."""
    return plan.at_sizes(plan.peak_elements)


def time_plan(plan: Plan, machine: Machine) -> float:
    """The seconds of a plan at its sizes."""
    memory = Memory(plan.complete(plan.sizes))
    at = plan.tile
    if at is None:
        return find_seconds(plan.steps, memory, machine)
    before, after = plan.steps[: at.first], plan.steps[at.last + 1 :]
    inside = plan.steps[at.first : at.last + 1]
    seconds = find_seconds(before, memory, machine)
    for name, op in at.sliced:
        memory.strides[name] = find_strides(op, memory)
    count = ceil(memory.extent(at.index) / memory.sizes[at.block])
    round_trip = machine.launch * (1 + len(at.sliced))
    seconds += count * (find_seconds(inside, memory, machine) + round_trip)
    for step in inside:
        memory.strides.pop(step.name)
    moved = sum(memory.count(step.axes) for step in inside if _is_joined(step, at))
    seconds += 2 * WIDTH * moved * count / machine.near
    return seconds + find_seconds(after, memory, machine)


def _is_joined(step: Step, at: Tile) -> bool:
    return any(step.name == name for name, _, _ in at.joined)


def _find_tiled(plan: Plan, most: int | None) -> list[Plan]:
    """The plan tiled along each index that allows it, by blocks of each size worth trying.

    Under a budget also with as many steps in the loop as can be.
    """
    indices = dict.fromkeys(i for step in plan.steps for i in step.axes)
    targets = TARGETS if most is None else tuple(1 << k for k in range(21, 2, -2))
    found = []
    for index in indices:
        for whole in (False,) if most is None else (False, True):
            memory = Memory(plan.sizes)
            if memory.extent(index) < 2:
                continue
            group = find_group(plan, index, memory, whole=whole)
            if group is not None:
                made = (make_tiled(plan, group, memory, target) for target in targets)
                found += [each for each in made if each is not None]
    return found


def make_tiled(plan: Plan, group: Group, memory: Memory, target: int) -> Plan | None:
    """The plan whose group runs in a loop over blocks of at most `target` elements.

    None for a group that makes nothing new.
    """
    taken = plan.names | {name for name, _ in group.sliced}
    block = free_name("block", taken)
    taken.add(block)
    steps = group.cut(Index(group.index.name, Size(block)))
    unit = _find_unit(group, plan, memory)
    if unit is None:
        return None
    joined = []
    for step in group.inside:
        if step.name in group.joined:
            name = free_name(f"{step.name}_blocks", taken)
            taken.add(name)
            joined.append((step.name, name, step.axes.index(group.index)))
    first = len(group.before)
    made = Tile(
        group.index,
        block,
        first,
        first + len(steps) - 1,
        group.sliced,
        tuple(joined),
        unit,
        target,
    )
    return replace(plan, steps=(*group.before, *steps, *group.after), tile=made)


def _find_unit(group: Group, plan: Plan, memory: Memory) -> Polynomial | None:
    """The elements that one position adds to the largest tensor made, or copied, in a block.

    None where nothing is made.
    """
    one = Polynomial.of(Pow(group.index.extent, MINUS_ONE))
    work = [op for step in group.inside for op in walk_ops(step.op)]
    kept = [find_kept(op) for op in work if group.index in find_true_axes(op)]
    kept = [count for count in kept if count.terms]
    copied = [arg for op in work for arg in find_copied(op, memory)]
    kept += [count_elements(axes_of(arg)) for arg in copied if group.index in axes_of(arg)]
    return max(kept, key=plan.at_sizes) * one if kept else None
