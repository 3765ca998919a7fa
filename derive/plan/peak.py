"""The memory of a plan: the elements that are alive at once, as a polynomial over sizes.

What a step makes stays alive to the end, or until its name is let go of. A loop holds the blocks of
what it makes, and one block of everything else.
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
    """Elements alive together at the fullest moment of a plan; the sizes have those of blocks.

    `results` are made of the steps when all of these are there but the `freed` ones, by the place
    after which they are let go of.
    """
    counter = _Counter(steps, Storage(sizes), freed or {})
    alive = counter.count_steps((0, len(steps) - 1), tile, Amount((), 0))
    for op in results:
        alive = counter.compute(op, alive)
    return add_all(counter.fullest.parts)


@dataclass(frozen=True, slots=True)
class Amount:
    """Elements that are alive: what adds up to them, and their number at the plan's sizes."""

    parts: tuple[Polynomial, ...]
    number: int | Fraction

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.parts + other.parts, self.number + other.number)

    def without(self, other: Amount) -> Amount:
        """The parts that are in no other amount."""
        left = [*self.parts]
        for part in other.parts:
            if part not in left:
                return self  # what a loop inside another one made went with it
            left.remove(part)
        return Amount(tuple(left), self.number - other.number)


@dataclass(slots=True)
class _Counter:
    """What is alive at each moment of a plan, one after the other."""

    steps: Sequence[Step]
    memory: Storage
    freed: Mapping[int, Sequence[str]]
    fullest: Amount = field(default_factory=lambda: Amount((), 0))
    kept: dict[ops.Op, Amount] = field(default_factory=dict)
    own: dict[str, Amount] = field(default_factory=dict)  # what a step made

    def compute(self, op: ops.Op, alive: Amount) -> Amount:
        """What is alive after an operation; its operands are computed one after the other."""
        held = alive
        for arg in ops.args_of(op):
            held = self.compute(arg, held)
        copies = [count_elements(axes) for axes in list_copies(op, self.memory)]
        made = map(count_elements, find_scratch(op))
        if isinstance(op, ops.VIEWS):
            held += self.weigh(*(count * find_width(op) for count in copies))
            self._note(held)
            return held
        if op not in self.kept:
            self.kept[op] = self.weigh(find_kept(op))
        kept = self.kept[op]
        self._note(held + kept + self.weigh(*copies, *made))
        return alive + kept

    def _note(self, alive: Amount) -> None:
        if alive.number > self.fullest.number:
            self.fullest = alive

    def weigh(self, *parts: Polynomial) -> Amount:
        """An amount of elements."""
        sizes = self.memory.sizes
        counts = (p.at(sizes) for p in parts)
        return Amount(parts, sum(counts))

    def count_steps(
        self,
        places: tuple[int, int],
        tile: Tile | None,
        alive: Amount,
        passed: Collection[str] = (),
    ) -> Amount:
        """What is alive after the steps from one place to another.

        Steps that are `passed` on from block to block are counted with the loop.
        """
        place, last = places
        while place <= last:
            if tile is not None and place == tile.first:
                alive = self.count_loop(tile, alive)
                alive = alive if passed else self.free(tile.last, alive)
                place = tile.last + 1
                continue
            step = self.steps[place]
            after = self.compute(step.op, alive)
            self.own[step.name] = after.without(alive)
            alive = alive if step.name in passed else after
            alive = alive if passed else self.free(place, alive)
            self.memory.note([(step.name, step.op)])
            place += 1
        return alive

    def free(self, place: int, alive: Amount) -> Amount:
        """What is left where names are let go of."""
        for name in self.freed.get(place, ()):
            alive = alive.without(self.own[name])
        return alive

    def count_loop(self, tile: Tile, alive: Amount) -> Amount:
        """What is alive after a loop: what its steps made last has names still."""
        running = self.weigh(*(count_elements(each.axes) for each in tile.running))
        names = [name for name, _, _ in tile.joined]
        inside = self.steps[tile.first : tile.last + 1]
        made = [step for step in inside if step.name in names]
        joined = self.weigh(*(count_whole(step, tile.nest) for step in made))
        passed = [*names, *(each.name for each in tile.running)]
        alive += running + joined
        for _, op in tile.sliced:  # most are views
            alive = self.compute(op, alive)
        self.memory.note(tile.sliced)
        end = self.count_steps((tile.first, tile.last), tile.inner, alive, passed)
        if self.memory.extent(tile.index) > self.memory.sizes[tile.block]:
            for step in inside:
                self.compute(step.op, end)  # the next turn begins beside what the last one leaves
        if not tile.start:
            end += joined  # the list of blocks, and then the whole
        self._note(end)
        self.own |= {step.name: self.weigh(count_whole(step, tile.nest)) for step in made}
        return end
