"""The peak memory of a plan: the elements alive at once, as a polynomial over sizes.

The result of a step stays alive to the end, or until its name is deleted. A loop holds all blocks
of its results, and one block of each other step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from derive.ir.polynomial import Polynomial, add_all
from derive.plan import ops
from derive.plan.cost import (
    Storage,
    count_elements,
    count_whole,
    find_kept,
    find_scratch,
    find_width,
    list_copies,
)
from derive.plan.steps import Step, Tile


def find_peak(
    steps: Sequence[Step],
    tile: Tile | None,
    sizes: Mapping[str, int],
    results: Iterable[ops.Op] = (),
    freed: Mapping[int, Sequence[str]] | None = None,
) -> Polynomial:
    """The peak of elements alive in a plan; the sizes include lengths of blocks.

    `freed` has the names deleted after a step. The `results` are computed while all else is alive.
    """
    counter = _Counter(steps, Storage(sizes), freed or {})
    alive = counter.count_alive((0, len(steps) - 1), tile, Amount((), 0))
    for op in results:
        alive = counter.count_op(op, alive)
    return add_all(counter.fullest.parts)


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of elements: its summands, and the number at the plan's sizes."""

    parts: tuple[Polynomial, ...]
    number: int | Fraction

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.parts + other.parts, self.number + other.number)

    def without(self, other: Amount) -> Amount:
        """The amount without the parts of another one; unchanged if it lacks one of them."""
        left = [*self.parts]
        for part in other.parts:
            if part not in left:
                return self  # the results of an inner loop are gone already
            left.remove(part)
        return Amount(tuple(left), self.number - other.number)


@dataclass(slots=True)
class _Counter:
    """A counter of the elements alive, from step to step, and of their peak."""

    steps: Sequence[Step]
    memory: Storage
    freed: Mapping[int, Sequence[str]]
    fullest: Amount = field(default_factory=lambda: Amount((), 0))
    kept: dict[ops.Op, Amount] = field(default_factory=dict)
    own: dict[str, Amount] = field(default_factory=dict)  # the result of each step

    def count_op(self, op: ops.Op, alive: Amount) -> Amount:
        """The elements alive after an operation; its operands are computed in turn."""
        held = alive
        for arg in op.args:
            held = self.count_op(arg, held)
        copies = [count_elements(axes) for axes in list_copies(op, self.memory)]
        made = map(count_elements, find_scratch(op))
        if isinstance(op, ops.VIEWS):
            held += self.to_amount(*(count * find_width(op) for count in copies))
            self._note_peak(held)
            return held
        if op not in self.kept:
            self.kept[op] = self.to_amount(find_kept(op))
        kept = self.kept[op]
        self._note_peak(held + kept + self.to_amount(*copies, *made))
        return alive + kept

    def _note_peak(self, alive: Amount) -> None:
        if alive.number > self.fullest.number:
            self.fullest = alive

    def to_amount(self, *parts: Polynomial) -> Amount:
        """The sum of polynomials as an amount."""
        sizes = self.memory.sizes
        counts = (p.at(sizes) for p in parts)
        return Amount(parts, sum(counts))

    def count_alive(
        self,
        places: tuple[int, int],
        tile: Tile | None,
        alive: Amount,
        passed: Collection[str] = (),
    ) -> Amount:
        """The elements alive after steps first to last; with `passed`, nothing is freed.

        The results of `passed` steps, blocks and accumulators, are counted with their loop.
        """
        place, last = places
        while place <= last:
            if tile is not None and place == tile.first:
                alive = self.count_loop(tile, alive)
                alive = alive if passed else self.free_names(tile.last, alive)
                place = tile.last + 1
                continue
            step = self.steps[place]
            after = self.count_op(step.op, alive)
            self.own[step.name] = after.without(alive)
            alive = alive if step.name in passed else after
            alive = alive if passed else self.free_names(place, alive)
            self.memory.record_strides([(step.name, step.op)])
            place += 1
        return alive

    def free_names(self, place: int, alive: Amount) -> Amount:
        """The elements alive after the names freed at a step are deleted."""
        for name in self.freed.get(place, ()):
            alive = alive.without(self.own[name])
        return alive

    def count_loop(self, tile: Tile, alive: Amount) -> Amount:
        """The elements alive after a loop; the last block of each step is still alive."""
        running = self.to_amount(*(count_elements(each.axes) for each in tile.running))
        names = [name for name, _, _ in tile.joined]
        inside = self.steps[tile.first : tile.last + 1]
        made = [step for step in inside if step.name in names]
        joined = self.to_amount(*(count_whole(step, tile.nest) for step in made))
        passed = [*names, *(each.name for each in tile.running)]
        alive += running + joined
        for _, op in tile.sliced:  # most are views
            alive = self.count_op(op, alive)
        self.memory.record_strides(tile.sliced)
        end = self.count_alive((tile.first, tile.last), tile.inner, alive, passed)
        if self.memory.extent(tile.index) > self.memory.sizes[tile.block]:
            for step in inside:
                self.count_op(step.op, end)  # the last turn's blocks are alive in the next turn
        if not tile.start:
            end += joined  # the list of blocks and the whole are both alive
        self._note_peak(end)
        self.own |= {step.name: self.to_amount(count_whole(step, tile.nest)) for step in made}
        return end
