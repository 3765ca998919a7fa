"""Loops over blocks of an index that is summed, with values that run from block to block.

    sum_j x_j = ((x_1 + x_2) + x_3) + ..             likewise prod, max, min
    sum_j softmax_j(s_j) v_j = acc / total           where, block by block,
        higher = max(peak, max_j s_j)                rescale = exp(peak - higher)
        total' = total * rescale + sum_j exp(s_j - higher)
        acc' = acc * rescale + sum_j exp(s_j - higher) v_j

The steps of the loop keep the index, up to those that sum over it; what a softmax over it gives may
be read by nothing that is not proportional to it and summed in the end. Milakov, Gimelshein 2018;
Rabe, Staats 2021; Dao et al. 2022.

A peak begins at the lowest finite number, not at -oo: a block of nothing but -oo then has the
weights exp(-oo) = 0, not nan. It is no part of the value, so no gradient flows through it. Sums run
in float32 at least, whatever the formula's dtype.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from derive.ir.nodes import MINUS_INFINITY, ONE, ZERO, Mul
from derive.plan.blocks.groups import (
    BoundError,
    Group,
    find_core,
    find_leaves,
    is_reading,
    name_leaves,
)
from derive.plan.naming import free_name
from derive.plan.ops import (
    VIEWS,
    Along,
    Apply,
    Arrange,
    Cast,
    Cell,
    Einsum,
    Expand,
    Fill,
    Given,
    Largest,
    Local,
    Num,
    Op,
    Reduction,
    Source,
    TorchCall,
    args_of,
    arrange,
    axes_of,
    exchange,
    find_reads,
    is_truth,
    is_whole,
    walk_ops,
)
from derive.plan.steps import Running, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.ir.nodes import Expr, Index
    from derive.plan.blocks.groups import Scope
    from derive.plan.steps import Start

CLOSING = ("sum", "mean", "prod", "max", "min", "logsumexp")


@dataclass
class Members:
    """What the steps around a loop over an index do; those in none of these come before it."""

    ops: dict[str, Op]  # of all steps
    empty_row: str  # where rows of nothing are nan, zeros put there would be lost in a quotient
    inside: dict[str, int] = field(default_factory=dict)  # the place in which each has the index
    rows: dict[str, tuple[Index, ...]] = field(default_factory=dict)  # of each softmax, its rows
    scores: dict[str, Op] = field(default_factory=dict)  # what it is the softmax of
    roots: dict[str, str] = field(default_factory=dict)  # what is proportional to which softmax
    axes: dict[str, tuple[Index, ...]] = field(default_factory=dict)  # of those
    closing: dict[str, tuple[Op, ...]] = field(default_factory=dict)  # what sums over it, in a step
    later: dict[str, None] = field(default_factory=dict)

    @property
    def late(self) -> set[str]:
        """What does not exist before the loop has ended."""
        return {*self.later, *self.closing}


def find_members(scope: Scope, index: Index, *, whole: bool) -> Members | None:
    """The members of the loop worth having, or with `whole` of the longest one; else None."""
    banned: dict[str, None] = {}
    while True:
        found = _sort_steps(scope, index, banned)
        out = dict.fromkeys(_find_needed(scope, found))
        if not out and not whole:
            out = dict.fromkeys(_find_idle(scope, found))
        if not out:
            return found if found.closing else None
        banned |= out


def _sort_steps(scope: Scope, index: Index, banned: Mapping[str, None]) -> Members:
    members = Members({step.name: step.op for step in scope.steps}, scope.empty_row)
    for step in scope.steps:
        try:
            if step.name in banned:
                raise BoundError
            _add(step, index, members)
        except BoundError:
            if find_reads(step.op) & (members.late | members.inside.keys()):
                members.later[step.name] = None
    return members


def _add(step: Step, index: Index, members: Members) -> None:
    """Sort a step into the loop; BoundError where it is no part of one."""
    if index not in step.axes:
        closers = tuple(dict.fromkeys(_find_closers(step.op, index)))
        for closer in closers:
            _check_closer(closer, index, members)
        if not closers:
            raise BoundError
        members.closing[step.name] = closers
        return
    if find_reads(step.op) & members.late:
        raise BoundError
    scores = find_scores(step.op, index, members)
    if scores is not None:
        find_leaves(scores, index, members.inside)
        if find_reads(scores) & members.roots.keys():
            raise BoundError
        members.scores[step.name] = scores
        members.rows[step.name] = tuple(i for i in step.axes if i is not index)
        root: str | None = step.name
    elif step.op in find_leaves(step.op, index, members.inside):
        raise BoundError
    else:
        root = find_root(step.op, members)
    if root is not None:
        members.roots[step.name], members.axes[step.name] = root, step.axes
    members.inside[step.name] = step.axes.index(index)


def find_scores(op: Op, index: Index, members: Members) -> Op | None:
    """What an operation is the softmax of along the index, be empty rows nan or zeros; or None."""
    match op:
        case Along("softmax", scores, over) if over is index:
            return scores
        case Fill(Along("softmax", scores, over)) if over is index and _is_own(op, scores, members):
            return scores
        case _:
            return None


def _is_own(fill: Fill, scores: Op, members: Members) -> bool:
    """Does it put zeros where the scores are -oo, and the weights 0 anyhow?"""
    if fill.value.value is not ZERO or members.empty_row != "zeros":
        return False
    if fill.where:
        return fill.mask is Apply("==", (scores, Num(MINUS_INFINITY)), axes_of(scores))
    bare = _strip(scores)
    match members.ops.get(bare.name, bare) if isinstance(bare, Source) else bare:
        case Fill(_, mask, Num(value), False) if value is MINUS_INFINITY:
            return _strip(mask) is _strip(fill.mask)
        case _:
            return False


def _strip(op: Op) -> Op:
    while isinstance(op, (Arrange, Expand)):
        op = op.arg
    return op


def find_root(op: Op, members: Members) -> str | None:
    """The softmax that an operation is proportional to, row by row; None if it reads none.

    BoundError where it reads one in another way.
    """
    if not find_reads(op) & members.roots.keys():
        return None
    roots: list[str | None]
    match op:
        case Source(name, axes, _) if axes == members.axes[name]:  # not under other letters
            roots = [members.roots[name]]
        case Arrange(arg) | Expand(arg) | Apply("neg", (arg,)) | Reduction("sum" | "mean", arg):
            roots = [find_root(arg, members)]
        case Fill(arg):
            roots = [find_root(arg, members)]
            if roots[0] is None or not _is_own(op, members.scores[roots[0]], members):
                raise BoundError
        case Einsum(args) | Apply("*", args):
            roots = [root for arg in args if (root := find_root(arg, members)) is not None]
        case Apply("/", (over, under)) if not find_reads(under) & members.roots.keys():
            roots = [find_root(over, members)]
        case Apply("+" | "-", args) if len({find_root(arg, members) for arg in args}) == 1:
            roots = [find_root(args[0], members)]
        case _:
            raise BoundError
    if len(roots) != 1 or roots[0] is None or not set(members.rows[roots[0]]) <= {*axes_of(op)}:
        raise BoundError
    return roots[0]


def _find_closers(op: Op, index: Index) -> Iterator[Op]:
    """The operations that sum over the index, or take a product or an extreme over it."""
    if index in axes_of(op):
        raise BoundError
    if any(index in axes_of(arg) for arg in args_of(op)):
        is_closing = isinstance(op, Einsum) or (isinstance(op, Reduction) and op.kind in CLOSING)
        if not is_closing or is_truth(op) or is_whole(op):
            raise BoundError
        yield op
    elif is_reading(op, index):
        for arg in args_of(op):
            yield from _find_closers(arg, index)


def _check_closer(closer: Op, index: Index, members: Members) -> None:
    if find_reads(closer) & members.late:
        raise BoundError
    for arg in args_of(closer):
        find_leaves(arg, index, members.inside)
    find_root(closer, members)


def open_calls(scope: Scope, index: Index) -> Scope:
    """The steps with the operations of every call of torch that sums over the index itself."""

    def open_step(step: Step) -> Step:
        cells = [part for part in walk_ops(step.op) if isinstance(part, Cell)]
        new: dict[Op, Op] = {c: c.whole for c in cells if _is_closing(c, index)}
        return Step(step.name, exchange(step.op, new)) if new else step

    return replace(scope, steps=tuple(map(open_step, scope.steps)))


def _is_closing(cell: Cell, index: Index) -> bool:
    return index not in cell.axes and any(index in axes_of(arg) for arg in cell.args)


def _find_needed(scope: Scope, members: Members) -> Iterator[str]:
    """The members that have to exist as a whole, since others than those in the loop read them."""
    read = set(scope.read)
    for step in scope.steps:
        if step.name in members.closing:
            sums: dict[Op, Op] = dict.fromkeys(members.closing[step.name], Num(ZERO))
            read |= find_reads(exchange(step.op, sums))
        elif step.name in members.later:
            read |= find_reads(step.op)
    return (name for name in members.inside if name in read)


def _find_idle(scope: Scope, members: Members) -> Iterator[str]:
    """The members that have to do with nothing large."""
    names = {*members.inside, *members.closing}
    core = find_core(scope, names)
    kept: set[str] = set()
    for step in scope.steps:
        if step.name in names and (step.name in core or find_reads(step.op) & kept):
            kept.add(step.name)
    return (step.name for step in scope.steps if step.name in names - kept)


EXTREMES: dict[str, Start] = {"max": "-oo", "min": "oo"}  # and where they begin


def find_fold(scope: Scope, index: Index, *, whole: bool = False) -> Group | None:
    """The steps worth a loop over an index that is summed, with its running values; else None."""
    opened = open_calls(scope, index)
    members = find_members(opened, index, whole=whole)
    return None if members is None else _Fold(scope, index, members).make(opened.steps)


@dataclass(frozen=True, slots=True)
class Peak:
    """The names that belong to one softmax."""

    peak: Source
    rescale: Source
    total: Source
    weights: Source | None = None


@dataclass
class _Fold:
    """A loop in the making."""

    scope: Scope
    index: Index
    members: Members
    taken: set[str] = field(default_factory=set)
    before: list[Step] = field(default_factory=list)
    inside: list[Step] = field(default_factory=list)
    after: list[Step] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    peaks: dict[str, Peak] = field(default_factory=dict)  # by the name of the softmax
    renamed: dict[str, str] = field(default_factory=dict)
    wide: str = ""

    def make(self, opened: Sequence[Step]) -> Group:
        """The group of the loop's steps; `opened` are all steps, without calls that sum."""
        self.taken = set(self.scope.taken)
        self.wide = self._name("wide")
        for step, plain in zip(self.scope.steps, opened, strict=True):
            if step.name in self.members.rows:
                self._soften(plain)
            elif step.name in self.members.inside:
                self._keep(Step(step.name, self._read(plain.op)))
            elif step.name in self.members.closing:
                sums = {op: self._close(op, step.name) for op in self.members.closing[step.name]}
                self.after.append(Step(step.name, exchange(plain.op, sums)))
            else:
                steps = self.after if step.name in self.members.later else self.before
                steps.append(step)
        inside = tuple(self.inside)
        sliced = name_leaves(inside, self.index, self.taken)
        groups = (tuple(self.before), inside, tuple(self.after))
        return Group(self.index, *groups, sliced, (), tuple(self.running), self.wide)

    def _name(self, wish: str) -> str:
        name = free_name(wish, self.taken)
        self.taken.add(name)
        return name

    def _add(self, wish: str, op: Op, kind: str = "real") -> Source:
        """A step of the loop."""
        name = self._name(wish)
        self.inside.append(Step(name, op))
        return Source(name, axes_of(op), kind)

    def _run(self, wish: str, axes: tuple[Index, ...], start: Start) -> Source:
        """A running value, which some step has to make anew."""
        name = self._name(wish)
        self.running.append(Running(name, axes, start))
        return Source(name, axes, "real" if start in EXTREMES.values() else "wide")

    def _keep(self, step: Step) -> None:
        """A step of blocks; one that is left with nothing but the weights has their name."""
        if isinstance(step.op, Source) and step.op.name in self.renamed.values():
            self.renamed[step.name] = step.op.name
        else:
            self.inside.append(step)

    def _read(self, op: Op) -> Op:
        """The operation with the weights in place of what they are proportional to.

        Weights are 0 where a score is -oo: no zeros have to be put there.
        """
        parts = [part for part in walk_ops(op) if isinstance(part, Source)]
        new: dict[Op, Op] = {
            part: Source(self.renamed[part.name], part.axes)
            for part in parts
            if part.name in self.renamed
        }
        fills = [part for part in walk_ops(op) if isinstance(part, Fill) and part.arg in new]
        return exchange(op, new | {part: new[part.arg] for part in fills})

    def _soften(self, step: Step) -> None:
        """The weights of a block, and their sum so far."""
        scores = self._show(self.members.scores[step.name], f"{step.name}_logits")
        peak = self._follow(scores, (self.index,))
        weights = self._add("weights", Cast(_raise(scores, peak.peak)))
        call = TorchCall(".sum", (Given(0), -1), (("dtype", Local(self.wide)),))
        part = Reduction("sum", weights, (self.index,))
        self._accumulate(peak.total, Cell(call, (weights,), part, peak.total.axes), peak)
        self.peaks[step.name] = peak
        self.renamed[step.name] = weights.name
        if self.scope.empty_row == "zeros":
            self.after.append(_fill_empty(peak.total))

    def _show(self, op: Op, wish: str) -> Op:
        """The operation by a name, unless it is a view."""
        if all(isinstance(part, VIEWS) for part in walk_ops(op)):
            return op
        return self._add(wish, op)

    def _follow(self, scores: Op, over: tuple[Index, ...], *, clamp: bool = False) -> Peak:
        """The peak so far, and what the sums so far have to be scaled by."""
        rows = tuple(i for i in axes_of(scores) if i not in over)
        zeros = self.scope.empty_row == "zeros" or clamp
        total = self._run("total", rows, "zero" if zeros else "empty")
        peak = self._run("peak", rows, "lowest")
        places = tuple(axes_of(scores).index(i) - len(axes_of(scores)) for i in over)
        where = places[0] if len(places) == 1 else places
        largest = TorchCall(".amax", (TorchCall(".detach", (Given(1),)), where))
        call = TorchCall("torch.maximum", (Given(0), largest))
        if clamp:  # a score of oo leaves a sum of oo
            call = TorchCall(".clamp", (call,), (("max", Largest(Local(self.wide))),))
        whole = Apply("max", (peak, Reduction("max", scores, over)), rows)
        higher = self._add("higher", Cell(call, (peak, scores), whole, rows), "wide")
        rescale = self._add("rescale", Apply("exp", (Apply("-", (peak, higher), rows),), rows))
        self.inside.append(Step(peak.name, higher))
        return Peak(peak, rescale, total)

    def _accumulate(self, sums: Source, part: Op, peak: Peak | None, function: str = "+") -> None:
        """The running value with what the block adds to it."""
        before: Op = sums
        if peak is not None:
            scale = arrange(peak.rescale, sums.axes)
            before = Apply("*", (sums, scale), sums.axes)
        self.inside.append(Step(sums.name, Apply(function, (before, part), sums.axes)))

    def _close(self, closer: Op, name: str) -> Op:
        """What to read after the loop for an operation that sums over its index."""
        closer = self._read(closer)
        axes = axes_of(closer)
        count: Expr | None = None
        match closer:
            case Reduction("logsumexp", arg, over):
                return self._close_logarithm(arg, over, name)
            case Reduction("max" | "min" as kind):
                value = self._run(f"{name}_{kind}", axes, EXTREMES[kind])
                self._accumulate(value, closer, None, kind)
                return value
            case Reduction("prod"):
                value = self._run(f"{name}_product", axes, "one")
                self._accumulate(value, closer, None, "*")
                return Cast(value)
            case Reduction("mean", arg, over):
                closer, count = Reduction("sum", arg, over), Mul(tuple(i.extent for i in over))
        peak = self._find_peak(closer)
        value = self._run(f"{name}_sum", axes, "zero")
        self._accumulate(value, closer, peak)
        found: Op = value
        if peak is not None:
            found = Apply("/", (found, arrange(peak.total, axes)), axes)
        if count is not None:
            found = Apply("/", (found, Num(count)), axes)
        return Cast(found)

    def _close_logarithm(self, arg: Op, over: tuple[Index, ...], name: str) -> Op:
        """The logarithm of a sum of exponentials, from its peak on."""
        scores = self._show(arg, f"{name}_logits")
        peak = self._follow(scores, over, clamp=True)
        rows = peak.total.axes
        self._accumulate(peak.total, Reduction("sum", _raise(scores, peak.peak), over), peak)
        logarithm = Apply("log", (peak.total,), rows)
        return Cast(Apply("+", (peak.peak, logarithm), rows))

    def _find_peak(self, closer: Op) -> Peak | None:
        """That of the softmax whose weights an operation reads."""
        reads = find_reads(closer)
        roots = {name: root for name, root in self.members.roots.items() if root in self.peaks}
        found = [root for name, root in roots.items() if self.renamed.get(name, name) in reads]
        return self.peaks[found[0]] if found else None


def _raise(scores: Op, peak: Op) -> Op:
    """The exponentials of the scores, of which the largest so far is 1."""
    axes = axes_of(scores)
    return Apply("exp", (Apply("-", (scores, arrange(peak, axes)), axes),), axes)


def _fill_empty(total: Source) -> Step:
    """Rows of nothing but -oo are 0 / 1."""
    is_empty = Apply("==", (total, Num(ZERO)), total.axes)
    return Step(total.name, Fill(total, is_empty, Num(ONE), True))
