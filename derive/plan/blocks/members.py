"""Which steps run in a loop over blocks of an index: those that keep it, or sum over it at last.

A step in the loop has the index among those of its result, and computes a block of that from
blocks. Where the loop is to sum over the index, the last steps of it need not have it; what a
normalized row over it gives may be read by nothing that is not proportional to it and summed in the
end.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from derive.ir import nodes as ir
from derive.ir.functions import FOLDS, ROWS
from derive.plan import ops
from derive.plan.cost import Storage, find_copies, find_strides, find_true_axes
from derive.plan.steps import Step

LARGE = 1 << 19  # elements from which a tensor is worth a loop: 2 MiB of float32
_ANY = ir.Index("_", ir.ONE)


@dataclass(frozen=True)
class Region:
    """Steps among which a loop is looked for: those of a plan, or those of a loop."""

    steps: tuple[Step, ...]
    read: Set[str]  # what is read after them
    taken: Set[str]  # names
    sizes: Mapping[str, int]
    empty_row: str  # what a normalized row of nothing is: zeros, nan

    @cached_property
    def work(self) -> dict[str, tuple[int, int]]:
        """Of each step the elements that it copies, and those of the largest tensor it makes."""
        memory, found = Storage(self.sizes), {}
        for step in self.steps:
            parts = list(ops.walk_ops(step.op))
            copied = max(find_copies(op, memory) for op in parts)
            made = [op for op in parts if not isinstance(op, ops.VIEWS)]
            most = max((memory.count(find_true_axes(op)) for op in made), default=0)
            found[step.name] = copied, most
            memory.strides[step.name] = find_strides(step.op, memory)
        return found


class BoundError(Exception):
    """An operation sums over the index, normalises along it, or reads it under another index."""


@dataclass
class Members:
    """What the steps around a loop over an index do; those in none of these come before it."""

    parts: dict[str, ops.Op]  # of all steps
    is_summed: bool  # may the last steps sum over the index?
    empty_row: str  # where rows of nothing are nan, zeros put there would be lost in a quotient
    inside: dict[str, int] = field(default_factory=dict)  # the place in which each has the index
    rows: dict[str, tuple[ir.Index, ...]] = field(default_factory=dict)  # of each that normalizes
    scores: dict[str, ops.Op] = field(default_factory=dict)  # what it is taken of
    roots: dict[str, str] = field(default_factory=dict)  # what is proportional to which of them
    axes: dict[str, tuple[ir.Index, ...]] = field(default_factory=dict)  # of those
    # The operations of a step that sum over the index.
    closing: dict[str, tuple[ops.Op, ...]] = field(default_factory=dict)
    later: dict[str, None] = field(default_factory=dict)

    @property
    def late(self) -> set[str]:
        """What does not exist before the loop has ended."""
        return {*self.later, *self.closing}


def find_members(
    region: Region, index: ir.Index, *, is_summed: bool, longest: bool = False
) -> Members | None:
    """The members of the loop worth having, or of the longest one; None where there is none."""
    if is_summed:
        banned = {} if longest else dict.fromkeys(_find_small(region))
        while True:
            found = _sort_steps(region, index, banned, is_summed=True)
            out = dict.fromkeys(_find_needed(region, found))
            if not out and not longest:
                out = dict.fromkeys(_find_idle(region, found))
            if not out:
                return found if found.closing else None
            banned |= out
    found = _sort_steps(region, index, {}, is_summed=False)
    core = find_core(region, found.inside)
    shared = _find_shared(region.steps, found)
    if shared:  # these before the loop may let more of the others into it
        others = _sort_steps(region, index, shared, is_summed=False)
        wider = find_core(region, others.inside)
        if len(wider) > len(core):
            found, core = others, wider
    if not found.inside or not (core or longest):
        return None
    if not longest:
        _trim(region.steps, found, core)
    return found


def _sort_steps(
    region: Region, index: ir.Index, banned: Collection[str], *, is_summed: bool
) -> Members:
    parts = {step.name: step.op for step in region.steps}
    members = Members(parts, is_summed, region.empty_row)
    for step in region.steps:
        try:
            if step.name in banned:
                raise BoundError
            _add(step, index, members)
        except BoundError:
            if ops.find_reads(step.op) & (members.late | members.inside.keys()):
                members.later[step.name] = None
    return members


def _add(step: Step, index: ir.Index, members: Members) -> None:
    """Sort a step into the loop; BoundError where it is no part of one."""
    if index not in step.axes:
        if not members.is_summed:
            raise BoundError
        closers = tuple(dict.fromkeys(_find_closers(step.op, index)))
        if not closers or any(ops.find_reads(each) & members.late for each in closers):
            raise BoundError
        for closer in closers:
            for arg in ops.args_of(closer):
                find_leaves(arg, index, members.inside)
            find_root(closer, members)
        members.closing[step.name] = closers
        return
    if ops.find_reads(step.op) & members.late:
        raise BoundError
    scores = find_scores(step.op, index, members) if members.is_summed else None
    if scores is not None:
        find_leaves(scores, index, members.inside)
        if ops.find_reads(scores) & members.roots.keys():
            raise BoundError
        members.scores[step.name] = scores
        members.rows[step.name] = tuple(i for i in step.axes if i is not index)
        root: str | None = step.name
    elif _is_view(step.op, find_leaves(step.op, index, members.inside)):
        raise BoundError  # nothing would be computed in the loop
    else:
        root = find_root(step.op, members)
    if root is not None:
        members.roots[step.name], members.axes[step.name] = root, step.axes
    members.inside[step.name] = step.axes.index(index)


def _is_view(op: ops.Op, leaves: Collection[ops.Op]) -> bool:
    """Is it one of these, or a view of one?"""
    if op in leaves or isinstance(op, ops.Source):
        return op in leaves
    return isinstance(op, ops.VIEWS) and all(_is_view(arg, leaves) for arg in ops.args_of(op))


def find_scores(op: ops.Op, index: ir.Index, members: Members) -> ops.Op | None:
    """What an operation normalizes along the index, be empty rows nan or zeros; or None."""
    match op:
        case ops.Along(kind, scores, over) if over is index and ROWS[kind].normalizes:
            return scores
        case ops.Fill(ops.Along() as row):
            given = find_scores(row, index, members)
            return given if given is not None and _is_own(op, given, members) else None
    return None


def _is_own(fill: ops.Fill, scores: ops.Op, members: Members) -> bool:
    """Does it put zeros where the scores are -oo, and the weights 0 anyhow?"""
    if fill.value.value is not ir.ZERO or members.empty_row != "zeros":
        return False
    if fill.where:
        return fill.mask is ops.Apply(
            "==", (scores, ops.Num(ir.MINUS_INFINITY)), ops.axes_of(scores)
        )
    match _look(scores, members):
        case ops.Fill(_, mask, ops.Num(value), False) if value is ir.MINUS_INFINITY:
            return _look(mask, members) is _look(fill.mask, members)
    return False


def _look(op: ops.Op, members: Members) -> ops.Op:
    """What a name stands for, without the order of its axes."""
    while isinstance(op, (ops.Arrange, ops.Expand)):
        op = op.arg
    if not isinstance(op, ops.Source) or op.name not in members.parts:
        return op
    made = members.parts[op.name]
    return ops.rename_indices(made, dict(zip(ops.axes_of(made), op.axes, strict=True)))


def find_root(op: ops.Op, members: Members) -> str | None:
    """The normalized row that an operation is proportional to, row by row; None if it reads none.

    BoundError where it reads one in another way.
    """
    if not ops.find_reads(op) & members.roots.keys():
        return None
    roots: list[str | None]
    match op:
        case ops.Source(name, axes, _) if axes == members.axes[name]:  # not under other indices
            roots = [members.roots[name]]
        case (
            ops.Arrange(arg)
            | ops.Expand(arg)
            | ops.Apply("neg", (arg,))
            | ops.Reduction("sum" | "mean", arg)
        ):
            roots = [find_root(arg, members)]
        case ops.Fill(arg):
            roots = [find_root(arg, members)]
            if roots[0] is None or not _is_own(op, members.scores[roots[0]], members):
                raise BoundError
        case ops.Einsum(args) | ops.Apply("*", args):
            roots = [root for arg in args if (root := find_root(arg, members)) is not None]
        case ops.Apply("/", (over, under)) if not ops.find_reads(under) & members.roots.keys():
            roots = [find_root(over, members)]
        case ops.Apply("+" | "-", args) if len({find_root(arg, members) for arg in args}) == 1:
            roots = [find_root(args[0], members)]
        case _:
            raise BoundError
    if len(roots) != 1 or roots[0] is None or not set(members.rows[roots[0]]) <= {*ops.axes_of(op)}:
        raise BoundError
    return roots[0]


def _find_closers(op: ops.Op, index: ir.Index) -> Iterator[ops.Op]:
    """The operations that sum over the index, or take a product or an extreme over it."""
    if index in ops.axes_of(op):
        raise BoundError
    if any(index in ops.axes_of(arg) for arg in ops.args_of(op)):
        is_closing = isinstance(op, ops.Einsum) or (
            isinstance(op, ops.Reduction) and op.kind in {*FOLDS, "mean"}
        )
        if not is_closing or ops.is_boolean(op) or ops.is_integral(op):
            raise BoundError
        yield op
    elif is_reading(op, index):
        for arg in ops.args_of(op):
            yield from _find_closers(arg, index)


def _find_needed(region: Region, members: Members) -> Iterator[str]:
    """The members that are not known before the loop ends, and that others than it read.

    Where nothing closes, all that others read: what reads them may close once they are known.
    """
    read = set(region.read)
    known = members.roots if members.closing else members.inside
    for step in reversed(region.steps):
        if step.name in members.closing:
            sums: dict[ops.Op, ops.Op] = dict.fromkeys(members.closing[step.name], ops.Num(ir.ZERO))
            read |= ops.find_reads(ops.exchange(step.op, sums))
        elif step.name in members.later:
            read |= ops.find_reads(step.op)
        elif step.name in known and step.name in read:
            read |= ops.find_reads(step.op)
            yield step.name


def _find_small(region: Region) -> Iterator[str]:
    """The steps that have to do with nothing large, wherever a loop is."""
    kept: set[str] = set()
    for step in region.steps:
        if max(region.work[step.name]) >= LARGE or ops.find_reads(step.op) & kept:
            kept.add(step.name)
        else:
            yield step.name


def _find_idle(region: Region, members: Members) -> Iterator[str]:
    """The members that have to do with nothing large."""
    names = {*members.inside, *members.closing}
    core = find_core(region, names, LARGE)
    kept: set[str] = set()
    for step in region.steps:
        if step.name in names and (step.name in core or ops.find_reads(step.op) & kept):
            kept.add(step.name)
    return (step.name for step in region.steps if step.name in names - kept)


def find_core(region: Region, inside: Collection[str], least: int = 0) -> set[str]:
    """The members that copy something large, or make or read one of at least so many elements.

    Without a number it is one of the largest.
    """
    work = region.work
    least = least or max(LARGE, max((work[name][1] for name in inside), default=0) // 2)
    large = {name for name, (_, made) in work.items() if made >= least}
    return {
        step.name
        for step in region.steps
        if step.name in inside
        and (step.name in large or work[step.name][0] >= LARGE or ops.find_reads(step.op) & large)
    }


def _find_shared(steps: Sequence[Step], members: Members) -> set[str]:
    """The members that steps after them read, and what those members read in turn."""
    inside = members.inside.keys()
    later = (step for step in steps if step.name in members.later)
    shared = {name for step in later for name in ops.find_reads(step.op)} & inside
    for step in reversed(steps):
        if step.name in shared:
            shared |= ops.find_reads(step.op) & inside
    return shared


def _trim(steps: Sequence[Step], members: Members, core: Set[str]) -> None:
    """Let go of the members at either end that have nothing to do with what is large."""
    inside = members.inside
    for step in steps:
        if step.name in inside.keys() - core and not ops.find_reads(step.op) & inside.keys():
            del inside[step.name]
    for step in reversed(steps):
        reads = ops.find_reads(step.op) & inside.keys()
        is_read = any(step.name in ops.find_reads(s.op) for s in steps if s.name in inside)
        if step.name in inside.keys() - core and not is_read and len(reads) == 1:
            del inside[step.name]
            members.later[step.name] = None


def find_blocks(op: ops.Op, index: ir.Index, inside: Mapping[str, int]) -> tuple[ops.Op, ...]:
    """The leaves of an operation that may also sum over the index; see `find_leaves`."""
    if index in ops.axes_of(op) or not is_reading(op, index):
        return find_leaves(op, index, inside)
    return tuple(leaf for arg in ops.args_of(op) for leaf in find_blocks(arg, index, inside))


def is_reading(op: ops.Op, index: ir.Index) -> bool:
    """Has any part of it the index?"""
    return index in _find_inside(op)


@lru_cache(maxsize=1 << 14)
def _find_inside(op: ops.Op) -> frozenset[ir.Index]:
    return frozenset(index for part in ops.walk_ops(op) for index in ops.axes_of(part))


def find_leaves(op: ops.Op, index: ir.Index, inside: Mapping[str, int]) -> tuple[ops.Op, ...]:
    """What of an operation is a block of something outside; BoundError where it is not pointwise.

    A leaf is a tensor from outside, or a view of one, whose axes have the index. `inside` are the
    tensors that exist in blocks alone, and the place in which each has the index.
    """
    if not is_reading(op, index):
        if ops.find_reads(op) & inside.keys():
            raise BoundError
        return ()
    axes = ops.axes_of(op)
    is_row = isinstance(op, ops.Along) and index in (op.index, op.columns)
    if axes.count(index) != 1 or is_row:
        raise BoundError
    if isinstance(op, ops.Source) and op.name in inside:
        if axes.index(index) != inside[op.name]:
            raise BoundError  # its rows are asked for, and its columns are at hand
        return ()
    is_made_here = all(index not in ops.axes_of(arg) for arg in ops.args_of(op))
    if isinstance(op, ops.Cell) and not is_made_here:
        return _find_given(op, index, inside)
    if (
        isinstance(op, ops.Take)
        and index in ops.axes_of(op.arg)
        and any(index in ops.axes_of(b) for b in op.by)
    ):
        raise BoundError  # the positions are those in the whole, and a block has others
    if isinstance(op, (ops.Arrange, ops.Expand)) and is_made_here:
        return find_leaves(op.arg, index, inside)  # of size 1 along the index, or as the block is
    if isinstance(op, (ops.Source, ops.Diagonal)) or is_made_here:
        if ops.find_reads(op) & inside.keys():
            raise BoundError
        return (op,)
    return tuple(leaf for arg in ops.args_of(op) for leaf in find_leaves(arg, index, inside))


def _find_given(cell: ops.Cell, index: ir.Index, inside: Mapping[str, int]) -> tuple[ops.Op, ...]:
    """The leaves of a call, whose operations have to be pointwise and to make nothing.

    Whether they do hangs on the call alone, not on what of its arguments is inside the loop.
    """

    def find_given(outside: Mapping[str, int]) -> list[ops.Op]:
        return [leaf for arg in cell.args for leaf in find_leaves(arg, index, outside)]

    given = {to_leaf_key(leaf, index) for leaf in find_given({})}
    if not {to_leaf_key(leaf, index) for leaf in find_leaves(cell.whole, index, {})} <= given:
        raise BoundError
    return (*find_given(inside), *find_leaves(cell.whole, index, inside))


def to_leaf_key(op: ops.Op, index: ir.Index) -> ops.Op:
    """The leaf; a tensor cut at the same place is the same under whatever indices."""
    if not isinstance(op, ops.Source):
        return op
    return ops.Source(op.name, tuple(i if i is index else _ANY for i in op.axes), op.kind)


def open_calls(region: Region, index: ir.Index) -> Region:
    """The steps with the operations of every call of torch that is not one of blocks alone.

    It sums over the index itself, or asks at which position of the whole it is.
    """

    def open_step(step: Step) -> Step:
        cells = [part for part in ops.walk_ops(step.op) if isinstance(part, ops.Cell)]
        new: dict[ops.Op, ops.Op] = {c: _write_out(c) for c in cells if _is_of_whole(c, index)}
        return Step(step.name, ops.exchange(step.op, new)) if new else step

    return replace(region, steps=tuple(map(open_step, region.steps)))


def _write_out(cell: ops.Cell) -> ops.Op:
    """The operations with all axes of the call's result, those of one position too."""
    is_equal = ops.axes_of(cell.whole) == cell.axes
    return cell.whole if is_equal else ops.Arrange(cell.whole, cell.axes)


def _is_of_whole(cell: ops.Cell, index: ir.Index) -> bool:
    parts = (
        part for part in ops.walk_ops(cell.whole) if isinstance(part, (ops.Iota, ops.Triangle))
    )
    is_closing = index not in cell.axes and any(index in ops.axes_of(arg) for arg in cell.args)
    return is_closing or any(index in ops.axes_of(part) for part in parts)
