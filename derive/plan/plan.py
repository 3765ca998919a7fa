"""A plan: the steps of a generated function in order, and their cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from statistics import geometric_mean

from derive.ir import nodes as ir
from derive.ir.pieces import to_compact
from derive.ir.polynomial import Polynomial, add_all
from derive.plan import ops
from derive.plan.calls import LocalName, TorchCall
from derive.plan.cost import (
    Storage,
    find_flops,
    find_inner,
    find_seconds,
    find_time,
    find_true_axes,
)
from derive.plan.machine import LAUNCH, WIDTH, time_returned
from derive.plan.path import Order
from derive.plan.peak import find_peak
from derive.plan.steps import Scan, Step, Tile

LARGE = 1 << 20  # bytes of a tensor of which the cache of a core cannot hold two
# Length of a chunk of a linear recurrence: shorter chunks take more work, longer ones more launches
# at small sizes. Of 512 to 32768 places with 1 to 1024 values, decays by
# scalar, row, place or both, one thread: 8 beats 16 by up to a quarter below 64 values, and 16
# beats 8 by up to a sixth above; 32 is worse by up to a half.
RECUR_CHUNK = 8
SUBSCRIPTS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


# Length of a chunk of a running sum of products: of 16 to 256, on one thread and with 16 to
# 64 rows and columns, none was faster by more than a quarter.
PRODUCT_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Regime:
    """Another plan, with fewer operations where a size is below, or above, `number`."""

    size: str
    is_below: bool
    number: int
    plan: Plan

    def __str__(self) -> str:
        """The condition on the size, such as `S < 16`."""
        return f"{self.size} {'<' if self.is_below else '>'} {self.number}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in order, the operations of the results, and the sizes of the plan."""

    system: ir.System
    steps: tuple[Step, ...]
    results: tuple[ops.Op, ...]
    sizes: Mapping[str, int]
    notes: tuple[str, ...] = ()
    tile: Tile | None = None
    scans: tuple[Scan, ...] = ()  # the loops of recurrences
    # Keyword arguments for chunk lengths that no operation names, as in `chunks`.
    lengths: Mapping[str, tuple[ir.Index, int]] = field(default_factory=dict)
    regimes: tuple[Regime, ...] = ()
    orders: tuple[Order, ...] = ()  # contraction orders of three or more factors
    is_matmul: bool = False  # contractions are printed as products of matrices, not as einsum
    uses: tuple[tuple[str, ...], ...] = ()  # for each use, the results that it computes
    in_place: bool = False  # whether blocks may be written into the whole tensor
    frees: int | None = None  # bytes from which tensors are deleted after their last use

    def __repr__(self) -> str:
        return f"<Plan {self.describe()}>"

    def __str__(self) -> str:
        """The steps with their einsum strings and operations, then the costs of the plan."""
        lines = [self.describe()]
        for step in self.steps:
            strings = ", ".join(self.find_einsums(step)) or "no einsum"
            shape = to_compact(*(index.extent for index in step.axes))
            flops = self.at_sizes(self.count_flops(step))
            lines.append(f"    {step.name}[{shape}]    {strings}    {flops:,} flops")
        lines += [
            f"flops: {self.flops} = {self.at_sizes(self.flops):,}",
            f"peak elements: {self.peak_elements} = {self.peak:,}",
        ]
        return "\n".join(lines)

    def describe(self) -> str:
        """The formula's name, the sizes and the names of the steps: `f at N=8: h, y`."""
        at = " ".join(f"{size}={number}" for size, number in self.sizes.items())
        steps = ", ".join(step.name for step in self.steps)
        return f"{self.system.name}{f' at {at}' if at else ''}: {steps}"

    @property
    def freed(self) -> Mapping[int, tuple[str, ...]]:
        """The names that are deleted after a step, by the number of the step.

        With `frees` above 0, only large tensors are deleted, and only if a tensor as large is made
        later, which then reuses cached memory.
        """
        if self.frees is None or self.scans or self.uses:
            return {}
        found = find_freed(self.steps, self.tile, self.results)
        if not self.frees:
            return found
        memory, large, last = Storage(self.complete(self.sizes)), set[str](), 0
        for place, step in enumerate(self.steps):
            parts = [part for part in ops.walk_ops(step.op) if not isinstance(part, ops.VIEWS)]
            counts = [WIDTH * memory.count(find_true_axes(part)) for part in parts]
            if max(counts, default=0) >= self.frees:
                last = place
            if WIDTH * memory.count(step.axes) >= self.frees:
                large.add(step.name)
        chosen = {place: tuple(filter(large.__contains__, names)) for place, names in found.items()}
        return {place: names for place, names in chosen.items() if names and place < last}

    @property
    def einsums(self) -> tuple[str, ...]:
        """The einsum strings over the user's subscripts, in order of the steps."""
        return self.find_einsums(*self.steps)

    def find_einsums(self, *steps: Step) -> tuple[str, ...]:
        """The einsum strings of some of the steps, innermost first."""
        subscripts = find_subscripts(self.steps, calls=True)
        found = (op for step in steps for op in find_products(step.op))
        return tuple(to_equation(op, subscripts) for op in found if has_letters(op))

    @property
    def flops(self) -> Polynomial:
        """Multiplications, additions and function values, as a polynomial over sizes."""
        return add_all(self.count_flops(step) for step in self.steps)

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """The loops, each inside the one before."""
        return () if self.tile is None else self.tile.nest

    @property
    def chunks(self) -> dict[str, tuple[ir.Index, int]]:
        """The keyword arguments for lengths of chunks, with the index and the default of each."""
        found = {**self.lengths}
        for op in (part for step in self.steps for part in ops.walk_ops(step.op)):
            match op:
                case ops.Recur() if not op.chunk.isdigit():
                    found[op.chunk] = (op.index, RECUR_CHUNK)
                case ops.Cell(
                    TorchCall(keywords=(("chunk", LocalName(name)),)), axes=(*_, index, _)
                ):
                    found[name] = (index, PRODUCT_CHUNK)
        return found

    def count_flops(self, step: Step) -> Polynomial:
        """The operations of one step, over all blocks and turns of its loops."""
        place = self.steps.index(step)
        total = add_all(find_flops(op) for op in ops.walk_ops(step.op))
        for tile in self.tiles:
            if tile.first <= place <= tile.last:
                total = total * tile.blocks
        for scan in self.scans:
            if scan.first <= place <= scan.last:
                total = total * Polynomial.of(scan.index.extent)
        return total

    @property
    def peak_elements(self) -> Polynomial:
        """The peak of elements alive, at the sizes of the plan.

        Named steps stay alive to the end unless they are deleted. Within a line, an operation's
        result, its operands, and torch's copies and temporaries are alive. A loop holds the blocks
        of its results, its running values, and one block of each other step, which stays alive
        when the next turn begins. Views and arguments are not counted. A recurrence that runs turn
        by turn counts twice, as a list and as one tensor.
        """
        sizes = self.complete(self.sizes)
        peak = find_peak(self.steps, self.tile, sizes, self.results, self.freed)
        carried = [each for scan in self.scans for each in scan.carried if each.is_kept]
        lists = (Polynomial.of(ir.Mul((*each.shape, ir.Number(Fraction(2))))) for each in carried)
        return peak + add_all(lists)

    @property
    def peak(self) -> int:
        """The peak of elements alive as a number, at the sizes of the plan."""
        return self.at_sizes(self.peak_elements)

    def find_time(self) -> float:
        """The estimated seconds at the plan's sizes; for several uses, their geometric mean."""
        if self.uses:
            return geometric_mean(LAUNCH + part.find_time() for part in self.parts)
        memory = Storage(self.complete(self.sizes))
        seconds = find_time(self.steps, self.tile, memory)
        for scan in self.scans:
            turn = find_seconds(self.steps[scan.first : scan.last + 1], memory)
            seconds += (memory.extent(scan.index) - 1) * (turn + LAUNCH)
        return seconds + time_returned(WIDTH * self.peak)

    @property
    def parts(self) -> tuple[Plan, ...]:
        """The plan of each use; without uses, the plan itself."""
        return tuple(self.restrict(names) for names in self.uses) or (self,)

    def restrict(self, names: Collection[str]) -> Plan:
        """The plan of the results with these names alone."""
        pairs = zip(self.system.results, self.results, strict=True)
        results = tuple(op for tensor, op in pairs if tensor.name in names)
        needed = {name for op in results for name in ops.find_reads(op)}
        for step in (*reversed(self.steps), *reversed(self.steps)):  # a loop reads its own values
            if step.name in needed:
                needed |= ops.find_reads(step.op) | {
                    name
                    for tile in self.tiles
                    for each, op in tile.sliced
                    if each in ops.find_reads(step.op)
                    for name in ops.find_reads(op)
                }
        kept = [step.name in needed for step in self.steps]
        reads = [ops.find_reads(step.op) if step.name in needed else set() for step in self.steps]
        tile = self.tile and self.tile.keep_steps(kept, [*reads, *map(ops.find_reads, results)])
        steps = tuple(step for step in self.steps if step.name in needed)
        return replace(self, steps=steps, results=results, tile=tile, uses=())

    @property
    def names(self) -> set[str]:
        """All names in the generated function except those that loops add."""
        names = {entry.name for entry in (*self.system.inputs, *self.system.sizes)}
        return names | set(self.sizes) | {step.name for step in self.steps}

    def complete(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes, with the lengths of chunks and blocks added."""
        found = {**{name: usual for name, (_, usual) in self.lengths.items()}, **sizes}
        for tile in self.tiles:
            if tile.block not in found:
                unit = int(tile.unit.at(found))
                extent = int(Polynomial.of(tile.index.extent).at(found))
                found[tile.block] = max(1, min(tile.target // max(1, unit), extent))
        return found

    def at_sizes(self, polynomial: Polynomial, sizes: Mapping[str, int] | None = None) -> int:
        """A cost as a number, at these sizes or at those of the plan."""
        return int(polynomial.at(self.complete(sizes or self.sizes)))


def find_root(op: ops.Op) -> ops.Op:
    """The operand below any views."""
    while isinstance(op, ops.VIEWS) and not isinstance(op, ops.Source):
        (op, *_) = op.args
    return op


def find_products(op: ops.Op) -> Iterator[ops.Einsum]:
    """The contractions of an operation, innermost first, including those of calls of torch."""
    for arg in op.args:
        yield from find_products(arg)
    if isinstance(op, ops.Cell):
        inner = (part for part in find_inner(op.whole, op.args) if isinstance(part, ops.Einsum))
        yield from reversed(list(inner))
    elif isinstance(op, ops.Einsum):
        yield op


def find_subscripts(steps: Iterable[Step], *, calls: bool = False) -> dict[ir.Index, str]:
    """A letter for each index of the einsums: its own name if that is a letter, else a free one.

    With `calls`, also for indices of einsums inside calls of torch. A letter means one index in the
    whole plan, as long as there are letters enough.
    """
    find = find_products if calls else ops.walk_ops
    einsums = [op for step in steps for op in find(step.op) if isinstance(op, ops.Einsum)]
    return _assign_subscripts(tuple(dict.fromkeys(i for op in einsums for i in _indices_of(op))))


def _indices_of(op: ops.Einsum) -> tuple[ir.Index, ...]:
    return tuple(dict.fromkeys(i for arg in op.args for i in arg.axes))


def _assign_subscripts(indices: tuple[ir.Index, ...]) -> dict[ir.Index, str]:
    subscripts = {i: i.name for i in indices if len(i.name) == 1 and i.name in SUBSCRIPTS}
    free = [c for c in SUBSCRIPTS if c not in subscripts.values()]
    for index in indices:
        if index not in subscripts and free:
            subscripts[index] = next((c for c in index.name if c in free), free[0])
            free.remove(subscripts[index])
    return subscripts


def find_freed(
    steps: Sequence[Step], tile: Tile | None, results: Iterable[ops.Op]
) -> dict[int, tuple[str, ...]]:
    """The names whose last use is at each step, without tensors local to a loop.

    A loop reads until its last step. A view keeps its base alive.
    """
    last: dict[str, int] = {}
    inside = range(tile.first, tile.last + 1) if tile is not None else range(0)
    left, sliced = {step.name for step in steps}, list[ops.Op]()
    if tile is not None:
        joined = {name for name, _, _ in tile.joined}
        left -= {steps[place].name for place in inside} - joined
        sliced = [op for each in tile.nest for _, op in each.sliced]
        left -= {name for op in sliced for name in ops.find_reads(op)}  # the last block is a view
    for place, step in enumerate(steps):
        end = inside[-1] if place in inside else place
        for op in (step.op, *(sliced if place in inside else ())):
            last |= dict.fromkeys((step.name, *ops.find_reads(op)), end)
    for step in reversed(steps):
        root = find_root(step.op)
        if isinstance(root, ops.Source):
            last[root.name] = max(last[root.name], last[step.name])
    kept = {name for op in results for name in ops.find_reads(op)}
    freed: dict[int, tuple[str, ...]] = {}
    for step in steps:
        place = last[step.name]
        if step.name in left and step.name not in kept and place < len(steps) - 1:
            freed[place] = (*freed.get(place, ()), step.name)
    return freed


def has_letters(op: ops.Einsum) -> bool:
    """Whether torch has a letter for each index of an einsum."""
    return len(_indices_of(op)) <= len(SUBSCRIPTS)


def to_equation(op: ops.Einsum, subscripts: Mapping[ir.Index, str]) -> str:
    """The einsum string; letters of its own where there are too few for the whole plan."""
    indices = _indices_of(op)
    if any(index not in subscripts for index in indices):
        subscripts = _assign_subscripts(indices)
    inputs = ",".join("".join(subscripts[i] for i in arg.axes) for arg in op.args)
    return f"{inputs}->{''.join(subscripts[i] for i in op.axes)}"


def fix_chunks(plan: Plan) -> Plan:
    """The plan with the default lengths of chunks instead of keyword arguments."""
    lengths = {name: usual for name, (_, usual) in plan.chunks.items()}

    def fix_op(op: ops.Op) -> ops.Op:
        op = ops.with_args(op, tuple(map(fix_op, op.args)))
        match op:
            case ops.Cell(TorchCall(keywords=(("chunk", LocalName(name)),)) as call):
                return replace(op, call=replace(call, keywords=(("chunk", lengths[name]),)))
        return op

    return replace(plan, steps=tuple(replace(step, op=fix_op(step.op)) for step in plan.steps))
