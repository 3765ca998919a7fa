"""Bodies of loops over blocks: the steps before, inside and after, and their accumulators."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from derive.ir import nodes as ir
from derive.plan import ops
from derive.plan.blocks.members import (
    Members,
    Region,
    expand_calls,
    find_blocks,
    find_members,
    has_index,
    to_leaf_key,
)
from derive.plan.calls import CellArgument, DtypeLimit, LocalName, TorchCall
from derive.plan.steps import Running, Start, Step, free_name, name_op

EXTREMES: dict[str, Start] = {"max": "-oo", "min": "oo"}  # with the accumulators' start values


@dataclass(frozen=True, slots=True)
class Body:
    """The steps before, inside and after a loop over blocks of `index`; what it cuts and joins."""

    index: ir.Index
    before: tuple[Step, ...]
    inside: tuple[Step, ...]
    after: tuple[Step, ...]
    sliced: tuple[tuple[str, ops.Op], ...]  # names of blocks in the loop, and the tensors they cut
    joined: tuple[str, ...]  # steps of the loop that are read after it
    running: tuple[Running, ...] = ()  # accumulators
    wide: str = ""  # name of the accumulators' dtype

    @property
    def names(self) -> set[str]:
        """Return the names of blocks, steps, accumulators and their dtype."""
        steps = {step.name for step in (*self.before, *self.inside, *self.after)}
        return {self.wide, *steps, *(name for name, _ in self.sliced)}

    def cut_steps(self, short: ir.Index) -> tuple[Step, ...]:
        """Return the steps of the loop on blocks: with `short`, of a block's extent, as index."""
        names = {to_leaf_key(op, self.index): name for name, op in self.sliced}
        inside = find_axis_positions(self.inside, self.index)

        def cut_step(step: Step) -> Step:
            leaves = find_blocks(step.op, self.index, inside)
            new = {leaf: _read_block(leaf, names[to_leaf_key(leaf, self.index)]) for leaf in leaves}
            return Step(
                step.name, ops.rename_indices(ops.exchange(step.op, new), {self.index: short})
            )

        return tuple(map(cut_step, self.inside))


def find_axis_positions(steps: Iterable[Step], index: ir.Index) -> dict[str, int]:
    """Return the axis of the index in each step that keeps it."""
    return {step.name: step.axes.index(index) for step in steps if index in step.axes}


def _read_block(leaf: ops.Op, name: str) -> ops.Source:
    return ops.Source(name, leaf.axes, leaf.kind if isinstance(leaf, ops.Source) else "real")


def find_body(
    region: Region, index: ir.Index, *, is_summed: bool, longest: bool = False
) -> Body | None:
    """Return the loop over a kept or summed index with the members of `find_members`, or None."""
    opened = expand_calls(region, index)
    members = find_members(opened, index, is_summed=is_summed, longest=longest)
    return None if members is None else _Loop(region, index, members).build_body(opened.steps)


@dataclass(frozen=True, slots=True)
class Peak:
    """The accumulators of the online softmax of one row: largest score, rescaling factor, sum."""

    peak: ops.Source
    rescale: ops.Source
    total: ops.Source


@dataclass
class _Loop:
    """The state while a loop is built."""

    region: Region
    index: ir.Index
    members: Members
    taken: set[str] = field(default_factory=set)
    before: list[Step] = field(default_factory=list)
    inside: list[Step] = field(default_factory=list)
    after: list[Step] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    peaks: dict[str, Peak] = field(default_factory=dict)  # of each normalized row, by name
    renamed: dict[str, str] = field(default_factory=dict)
    wide: str = ""

    def build_body(self, opened: Sequence[Step]) -> Body:
        """Return the loop; `opened` are the steps after `expand_calls`."""
        members = self.members
        self.taken = set(self.region.taken)
        self.wide = self._reserve_name("wide") if members.is_summed else ""
        for step, plain in zip(self.region.steps, opened, strict=True):
            if step.name in members.rows:
                self._emit_online_softmax(plain)
            elif step.name in members.inside:
                self._add_step(Step(step.name, self._substitute_weights(plain.op)))
            elif step.name in members.closing:
                sums = {op: self._emit_closing(op, step.name) for op in members.closing[step.name]}
                self.after.append(Step(step.name, ops.exchange(plain.op, sums)))
            else:
                (self.after if step.name in members.later else self.before).append(step)
        self._hoist_invariants()
        inside = tuple(self.inside)
        sliced = name_leaves(inside, self.index, self.taken)
        read = {
            *self.region.read,
            *(name for step in self.after for name in ops.find_reads(step.op)),
        }
        made = tuple(step.name for step in inside if step.name in self.members.inside.keys() & read)
        steps = (tuple(self.before), inside, tuple(self.after))
        return Body(self.index, *steps, sliced, made, tuple(self.running), self.wide)

    def _reserve_name(self, wanted: str) -> str:
        name = free_name(wanted, self.taken)
        self.taken.add(name)
        return name

    def _emit_step(self, wanted: str, op: ops.Op, kind: str = "real") -> ops.Source:
        """Append a step to the loop and return a read of it."""
        name = self._reserve_name(wanted)
        self.inside.append(Step(name, op))
        return ops.Source(name, op.axes, kind)

    def _add_accumulator(self, wanted: str, axes: tuple[ir.Index, ...], start: Start) -> ops.Source:
        """Declare an accumulator, which a step of the loop must update."""
        name = self._reserve_name(wanted)
        self.running.append(Running(name, axes, start))
        return ops.Source(name, axes, "real" if start in EXTREMES.values() else "wide")

    def _add_step(self, step: Step) -> None:
        """Append a step of the plan to the loop; a step equal to the weights becomes an alias."""
        if isinstance(step.op, ops.Source) and step.op.name in self.renamed.values():
            self.renamed[step.name] = step.op.name
        else:
            self.inside.append(step)

    def _substitute_weights(self, op: ops.Op) -> ops.Op:
        """Replace normalized rows in the operation by the weights, proportional to them."""
        parts = [part for part in ops.walk_ops(op) if isinstance(part, ops.Source)]
        new: dict[ops.Op, ops.Op] = {
            part: ops.Source(self.renamed[part.name], part.axes)
            for part in parts
            if part.name in self.renamed
        }
        return ops.exchange(op, new)

    def _emit_online_softmax(self, step: Step) -> None:
        """Emit the softmax weights of a block, and the accumulator of their sum."""
        scores = self._name_unless_view(self.members.scores[step.name], f"{step.name}_logits")
        peak = self._start_peak(scores, (self.index,))
        weights = self._emit_step("weights", ops.Cast(_exponentiate_scores(scores, peak.peak)))
        call = TorchCall(".sum", (CellArgument(0), -1), (("dtype", LocalName(self.wide)),))
        part = ops.Reduction("sum", weights, (self.index,))
        self._accumulate(peak.total, ops.Cell(call, (weights,), part, peak.total.axes), peak)
        self.peaks[step.name] = peak
        self.renamed[step.name] = weights.name

    def _hoist_invariants(self) -> None:
        """Move operations that are the same for every block in front of the loop."""
        own = {step.name for step in self.inside} | {each.name for each in self.running}
        new: dict[ops.Op, ops.Op] = {}
        for step in self.inside:
            for op in self._find_invariants(step.op, own):
                known = next((step.name for step in self.before if step.op is op), "")
                name = known or self._reserve_name(name_op(op, "part"))
                if not known:
                    self.before.append(Step(name, op))
                new[op] = ops.Source(name, op.axes)
        self.inside = [Step(step.name, ops.exchange(step.op, new)) for step in self.inside]

    def _find_invariants(self, op: ops.Op, own: Set[str]) -> Iterator[ops.Op]:
        """Yield the largest parts that are the same for every block, except views and masks."""
        if isinstance(op, (ops.Source, ops.Num)) or not op.axes:
            return
        if has_index(op, self.index) or ops.find_reads(op) & own:
            for arg in op.args:
                yield from self._find_invariants(arg, own)
            return
        if not _is_pure_view(op) and not ops.is_boolean(op):
            yield op

    def _name_unless_view(self, op: ops.Op, wanted: str) -> ops.Op:
        """Return a view as it is, any other operation as a named step."""
        return op if _is_pure_view(op) else self._emit_step(wanted, op)

    def _start_peak(
        self, scores: ops.Op, over: tuple[ir.Index, ...], *, clamp: bool = False
    ) -> Peak:
        """Emit the running maximum of scores, finite with `clamp`, and a factor to rescale sums."""
        rows = tuple(i for i in scores.axes if i not in over)
        total = self._add_accumulator("total", rows, "zero" if clamp else "empty")
        peak = self._add_accumulator("peak", rows, "lowest")
        places = tuple(scores.axes.index(i) - len(scores.axes) for i in over)
        where = places[0] if len(places) == 1 else places
        largest = TorchCall(".amax", (TorchCall(".detach", (CellArgument(1),)), where))
        call = TorchCall("torch.maximum", (CellArgument(0), largest))
        if clamp:  # oo - oo would be nan for a score of oo
            call = TorchCall(".clamp", (call,), (("max", DtypeLimit(LocalName(self.wide), "max")),))
        whole = ops.Apply("max", (peak, ops.Reduction("max", scores, over)), rows)
        higher = self._emit_step("higher", ops.Cell(call, (peak, scores), whole, rows), "wide")
        rescale = self._emit_step(
            "rescale", ops.Apply("exp", (ops.Apply("-", (peak, higher), rows),), rows)
        )
        self.inside.append(Step(peak.name, higher))
        return Peak(peak, rescale, total)

    def _accumulate(
        self, sums: ops.Source, part: ops.Op, peak: Peak | None, function: str = "+"
    ) -> None:
        """Emit the update of an accumulator by a block, rescaled if it has a peak."""
        before: ops.Op = sums
        if peak is not None:
            scale = ops.arrange(peak.rescale, sums.axes)
            before = ops.Apply("*", (sums, scale), sums.axes)
        self.inside.append(Step(sums.name, ops.Apply(function, (before, part), sums.axes)))

    def _emit_closing(self, closer: ops.Op, name: str) -> ops.Op:
        """Emit the accumulation of a fold over the index; return its value after the loop."""
        closer = self._substitute_weights(closer)
        axes = closer.axes
        count: ir.Expr | None = None
        match closer:
            case ops.Reduction("logsumexp", arg, over):
                return self._emit_logsumexp(arg, over, name)
            case ops.Reduction("max" | "min" as kind):
                value = self._add_accumulator(f"{name}_{kind}", axes, EXTREMES[kind])
                self._accumulate(value, closer, None, kind)
                return value
            case ops.Reduction("mean", arg, over):
                closer, count = (
                    ops.Reduction("sum", arg, over),
                    ir.Mul(tuple(i.extent for i in over)),
                )
        peak = self._find_peak(closer)
        value = self._add_accumulator(f"{name}_sum", axes, "zero")
        self._accumulate(value, closer, peak)
        found: ops.Op = value
        if peak is not None:
            found = ops.Apply("/", (found, ops.arrange(peak.total, axes)), axes)
        if count is not None:
            found = ops.Apply("/", (found, ops.Num(count)), axes)
        return ops.Cast(found)

    def _emit_logsumexp(self, arg: ops.Op, over: tuple[ir.Index, ...], name: str) -> ops.Op:
        """Emit the accumulation of a logsumexp; return its value after the loop."""
        scores = self._name_unless_view(arg, f"{name}_logits")
        peak = self._start_peak(scores, over, clamp=True)
        rows = peak.total.axes
        self._accumulate(
            peak.total, ops.Reduction("sum", _exponentiate_scores(scores, peak.peak), over), peak
        )
        logarithm = ops.Apply("log", (peak.total,), rows)
        return ops.Cast(ops.Apply("+", (peak.peak, logarithm), rows))

    def _find_peak(self, closer: ops.Op) -> Peak | None:
        """Return the accumulators of the row whose weights an operation reads, or None."""
        reads = ops.find_reads(closer)
        roots = self.members.roots.items()
        found = (root for name, root in roots if self.renamed.get(name, name) in reads)
        return next((self.peaks[root] for root in found if root in self.peaks), None)


def _is_pure_view(op: ops.Op) -> bool:
    return all(isinstance(part, ops.VIEWS) for part in ops.walk_ops(op))


def _exponentiate_scores(scores: ops.Op, peak: ops.Op) -> ops.Op:
    axes = scores.axes
    return ops.Apply("exp", (ops.Apply("-", (scores, ops.arrange(peak, axes)), axes),), axes)


def name_leaves(
    group: Sequence[Step], index: ir.Index, taken: Set[str]
) -> tuple[tuple[str, ops.Op], ...]:
    """Return pairs (name, leaf) of the leaves in the loop, `q_h` for the blocks of q along h."""
    found: dict[ops.Op, tuple[str, ops.Op]] = {}
    inside = find_axis_positions(group, index)
    for step in group:
        for leaf in find_blocks(step.op, index, inside):
            key = to_leaf_key(leaf, index)
            if key not in found:
                name = free_name(f"{name_op(leaf, group[-1].name)}_{index.name}", taken)
                found[key] = name, leaf
                taken = taken | {name}
    return tuple(found.values())
