"""The body of a loop over blocks of an index: its steps, and values that run from block to block.

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

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from derive.ir import nodes as ir
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
from derive.plan.steps import Running, Start, Step, free_name, name_op

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
    """The names that belong to one softmax."""

    peak: ops.Source
    rescale: ops.Source
    total: ops.Source
    weights: ops.Source | None = None


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
    peaks: dict[str, Peak] = field(default_factory=dict)  # by the name of the softmax
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
        is_view = all(isinstance(part, ops.VIEWS) for part in ops.walk_ops(op))
        if not is_view and not ops.is_boolean(op):
            yield op

    def _show(self, op: ops.Op, wanted: str) -> ops.Op:
        """The operation by a name, unless it is a view."""
        if all(isinstance(part, ops.VIEWS) for part in ops.walk_ops(op)):
            return op
        return self._add(wanted, op)

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
            call = ops.TorchCall(".clamp", (call,), (("max", ops.Largest(ops.Local(self.wide))),))
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
        """That of the softmax whose weights an operation reads."""
        reads = ops.find_reads(closer)
        roots = {name: root for name, root in self.members.roots.items() if root in self.peaks}
        found = [root for name, root in roots.items() if self.renamed.get(name, name) in reads]
        return self.peaks[found[0]] if found else None


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
