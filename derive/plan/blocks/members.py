"""Selection of the steps that run in a loop over blocks of an index.

A step in the loop keeps the index and computes a block of its result from blocks of its operands.
In a loop over a summed index, the last steps may sum over it. Readers of a row that is normalized
over the index must then be proportional to it, and be summed in the end.
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
    """Steps to search for a loop: those of a plan, or those of an outer loop."""

    steps: tuple[Step, ...]
    read: Set[str]  # names that are read after the steps
    taken: Set[str]  # names in use
    sizes: Mapping[str, int]

    @cached_property
    def work(self) -> dict[str, tuple[int, int]]:
        """Return, for each step, the most elements that an operation (copies, computes)."""
        memory, found = Storage(self.sizes), {}
        for step in self.steps:
            parts = list(ops.walk_ops(step.op))
            copied = max(find_copies(op, memory) for op in parts)
            made = [op for op in parts if not isinstance(op, ops.VIEWS)]
            most = max((memory.count(find_true_axes(op)) for op in made), default=0)
            found[step.name] = copied, most
            memory.strides[step.name] = find_strides(step.op, memory)
        return found


class NotPointwiseError(Exception):
    """The operation is not pointwise along the index, so it cannot run on blocks."""


@dataclass
class Members:
    """The roles of steps in and after a loop over an index; steps without a role come before it."""

    is_summed: bool  # whether the last steps may sum over the index
    inside: dict[str, int] = field(default_factory=dict)  # the axis of the index in each step
    # Steps that normalize a row along the index: their other indices, and their arguments.
    rows: dict[str, tuple[ir.Index, ...]] = field(default_factory=dict)
    scores: dict[str, ops.Op] = field(default_factory=dict)
    # Steps that are proportional to a normalized row: the step of that row, and their axes.
    roots: dict[str, str] = field(default_factory=dict)
    axes: dict[str, tuple[ir.Index, ...]] = field(default_factory=dict)
    closing: dict[str, tuple[ops.Op, ...]] = field(default_factory=dict)  # sums over the index
    later: dict[str, None] = field(default_factory=dict)  # other steps after the loop

    @property
    def late(self) -> set[str]:
        """Return the steps whose values exist after the loop only."""
        return {*self.later, *self.closing}


def find_members(
    region: Region, index: ir.Index, *, is_summed: bool, longest: bool = False
) -> Members | None:
    """Return the members of a loop: the large steps and those between them; None without such.

    With `longest`, return all steps that can be in it.
    """
    if is_summed:
        large = {name for name, work in region.work.items() if max(work) >= LARGE}
        small = [] if longest else _find_idle_steps(region, region.work.keys(), large)
        banned = dict.fromkeys(small)
        while True:
            found = _sort_steps(region, index, banned, is_summed=True)
            out = dict.fromkeys(_find_unknown(region, found))
            if not out and not longest:
                names = {*found.inside, *found.closing}
                core = find_core(region, names, LARGE)
                out = dict.fromkeys(_find_idle_steps(region, names, core))
            if not out:
                return found if found.closing else None
            banned |= out
    found = _sort_steps(region, index, {}, is_summed=False)
    core = find_core(region, found.inside)
    shared = _find_shared_steps(region.steps, found)
    if shared:  # computing these before the loop may admit more of the other steps
        others = _sort_steps(region, index, shared, is_summed=False)
        wider = find_core(region, others.inside)
        if len(wider) > len(core):
            found, core = others, wider
    if not found.inside or not (core or longest):
        return None
    if not longest:
        _trim_ends(region.steps, found, core)
    return found


def _sort_steps(
    region: Region, index: ir.Index, banned: Collection[str], *, is_summed: bool
) -> Members:
    members = Members(is_summed)
    for step in region.steps:
        try:
            if step.name in banned:
                raise NotPointwiseError
            _sort_step(step, index, members)
        except NotPointwiseError:
            if ops.find_reads(step.op) & (members.late | members.inside.keys()):
                members.later[step.name] = None
    return members


def _sort_step(step: Step, index: ir.Index, members: Members) -> None:
    """Assign a step to the loop; raise NotPointwiseError if it cannot be part of it."""
    if index not in step.axes:
        if not members.is_summed:
            raise NotPointwiseError
        closers = tuple(dict.fromkeys(_find_closers(step.op, index)))
        if not closers or any(ops.find_reads(each) & members.late for each in closers):
            raise NotPointwiseError
        for closer in closers:
            for arg in closer.args:
                find_leaves(arg, index, members.inside)
            find_proportional_row(closer, members)
        members.closing[step.name] = closers
        return
    if ops.find_reads(step.op) & members.late:
        raise NotPointwiseError
    scores = match_normalized_row(step.op, index) if members.is_summed else None
    if scores is not None:
        find_leaves(scores, index, members.inside)
        if ops.find_reads(scores) & members.roots.keys():
            raise NotPointwiseError
        members.scores[step.name] = scores
        members.rows[step.name] = tuple(i for i in step.axes if i is not index)
        root: str | None = step.name
    elif _is_view(step.op, find_leaves(step.op, index, members.inside)):
        raise NotPointwiseError  # a view: the loop would compute nothing
    else:
        root = find_proportional_row(step.op, members)
    if root is not None:
        members.roots[step.name], members.axes[step.name] = root, step.axes
    members.inside[step.name] = step.axes.index(index)


def _is_view(op: ops.Op, leaves: Collection[ops.Op]) -> bool:
    """Whether the operation is a leaf or a view of leaves."""
    if op in leaves or isinstance(op, ops.Source):
        return op in leaves
    return isinstance(op, ops.VIEWS) and all(_is_view(arg, leaves) for arg in op.args)


def match_normalized_row(op: ops.Op, index: ir.Index) -> ops.Op | None:
    """Return the argument of a normalization along the index, or None."""
    match op:
        case ops.Along(kind, scores, over) if over is index and ROWS[kind].normalizes:
            return scores
    return None


def find_proportional_row(op: ops.Op, members: Members) -> str | None:
    """Return the step of the normalized row that an operation is proportional to; None without one.

    Raise NotPointwiseError if the operation depends on a normalized row in another way.
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
            roots = [find_proportional_row(arg, members)]
        case ops.Einsum(args) | ops.Apply("*", args):
            roots = [
                root for arg in args if (root := find_proportional_row(arg, members)) is not None
            ]
        case ops.Apply("/", (over, under)) if not ops.find_reads(under) & members.roots.keys():
            roots = [find_proportional_row(over, members)]
        case ops.Apply("+" | "-", args) if (
            len({find_proportional_row(arg, members) for arg in args}) == 1
        ):
            roots = [find_proportional_row(args[0], members)]
        case _:
            raise NotPointwiseError
    if len(roots) != 1 or roots[0] is None or not set(members.rows[roots[0]]) <= {*op.axes}:
        raise NotPointwiseError
    return roots[0]


def _find_closers(op: ops.Op, index: ir.Index) -> Iterator[ops.Op]:
    """Yield contractions, sums, means, max or min over the index, or raise NotPointwiseError."""
    if index in op.axes:
        raise NotPointwiseError
    if any(index in arg.axes for arg in op.args):
        is_closing = isinstance(op, ops.Einsum) or (
            isinstance(op, ops.Reduction) and op.kind in {*FOLDS, "mean"} - {"prod"}
        )
        if not is_closing or ops.is_boolean(op) or ops.is_integral(op):
            raise NotPointwiseError
        yield op
    elif has_index(op, index):
        for arg in op.args:
            yield from _find_closers(arg, index)


def _find_unknown(region: Region, members: Members) -> Iterator[str]:
    """Yield the members that are read outside of the loop but are unknown until it ends.

    Without closing steps, yield all that are read outside: their readers may then become closing.
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


def _find_idle_steps(region: Region, names: Set[str], core: Set[str]) -> list[str]:
    """Return the named steps that neither are in the core nor depend on a named step that is."""
    kept: set[str] = set()
    for step in region.steps:
        if step.name in names and (step.name in core or ops.find_reads(step.op) & kept):
            kept.add(step.name)
    return [step.name for step in region.steps if step.name in names - kept]


def find_core(region: Region, inside: Collection[str], least: int = 0) -> set[str]:
    """Return the members that copy something large, or compute or read at least `least` elements.

    Without `least`, the threshold is half of the largest tensor that a member computes.
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


def _find_shared_steps(steps: Sequence[Step], members: Members) -> set[str]:
    """Return the members that steps after the loop read, and the members these depend on."""
    inside = members.inside.keys()
    later = (step for step in steps if step.name in members.later)
    shared = {name for step in later for name in ops.find_reads(step.op)} & inside
    for step in reversed(steps):
        if step.name in shared:
            shared |= ops.find_reads(step.op) & inside
    return shared


def _trim_ends(steps: Sequence[Step], members: Members, core: Set[str]) -> None:
    """Remove members at either end of the loop that are not in the core."""
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
    """Return the leaves of an operation, as `find_leaves` does; it may also sum over the index."""
    if index in op.axes or not has_index(op, index):
        return find_leaves(op, index, inside)
    return tuple(leaf for arg in op.args for leaf in find_blocks(arg, index, inside))


def has_index(op: ops.Op, index: ir.Index) -> bool:
    """Whether any part of the operation has the index."""
    return index in _find_inside(op)


@lru_cache(maxsize=1 << 14)
def _find_inside(op: ops.Op) -> frozenset[ir.Index]:
    return frozenset(index for part in ops.walk_ops(op) for index in part.axes)


def find_leaves(op: ops.Op, index: ir.Index, inside: Mapping[str, int]) -> tuple[ops.Op, ...]:
    """Return the tensors or views from outside of the loop whose blocks an operation reads.

    `inside` are the tensors that exist as blocks only, with the axis of the index in each. Raise
    NotPointwiseError if the operation is not pointwise along the index.
    """
    if not has_index(op, index):
        if ops.find_reads(op) & inside.keys():
            raise NotPointwiseError
        return ()
    axes = op.axes
    is_row = isinstance(op, ops.Along) and index in (op.index, op.columns)
    if axes.count(index) != 1 or is_row:
        raise NotPointwiseError
    if isinstance(op, ops.Source) and op.name in inside:
        if axes.index(index) != inside[op.name]:
            raise NotPointwiseError  # the block is along another axis
        return ()
    is_made_here = all(index not in arg.axes for arg in op.args)
    if isinstance(op, ops.Cell) and not is_made_here:
        return _find_call_leaves(op, index, inside)
    if isinstance(op, ops.Take) and index in op.arg.axes and any(index in b.axes for b in op.by):
        raise NotPointwiseError  # the positions count from the start of the whole tensor
    if isinstance(op, (ops.Arrange, ops.Expand)) and is_made_here:
        return find_leaves(op.arg, index, inside)  # expanded along the index
    if isinstance(op, (ops.Source, ops.Diagonal)) or is_made_here:
        if ops.find_reads(op) & inside.keys():
            raise NotPointwiseError
        return (op,)
    return tuple(leaf for arg in op.args for leaf in find_leaves(arg, index, inside))


def _find_call_leaves(
    cell: ops.Cell, index: ir.Index, inside: Mapping[str, int]
) -> tuple[ops.Op, ...]:
    """Return the leaves of a call whose operations are pointwise and read its arguments only.

    That they read nothing else is checked as if all arguments were outside of the loop.
    """

    def find_given(outside: Mapping[str, int]) -> list[ops.Op]:
        return [leaf for arg in cell.args for leaf in find_leaves(arg, index, outside)]

    given = {to_leaf_key(leaf, index) for leaf in find_given({})}
    if not {to_leaf_key(leaf, index) for leaf in find_leaves(cell.whole, index, {})} <= given:
        raise NotPointwiseError
    return (*find_given(inside), *find_leaves(cell.whole, index, inside))


def to_leaf_key(op: ops.Op, index: ir.Index) -> ops.Op:
    """Return a key of the leaf that ignores the names of a tensor's other indices."""
    if not isinstance(op, ops.Source):
        return op
    return ops.Source(op.name, tuple(i if i is index else _ANY for i in op.axes), op.kind)


def expand_calls(region: Region, index: ir.Index) -> Region:
    """Replace calls that cannot run on blocks by their operations.

    These are calls that sum over the index, or depend on positions in the whole tensor.
    """

    def expand_step(step: Step) -> Step:
        cells = [part for part in ops.walk_ops(step.op) if isinstance(part, ops.Cell)]
        new: dict[ops.Op, ops.Op] = {
            c: c.whole if c.whole.axes == c.axes else ops.Arrange(c.whole, c.axes)
            for c in cells
            if _depends_on_whole(c, index)
        }
        return Step(step.name, ops.exchange(step.op, new)) if new else step

    return replace(region, steps=tuple(map(expand_step, region.steps)))


def _depends_on_whole(cell: ops.Cell, index: ir.Index) -> bool:
    parts = (
        part for part in ops.walk_ops(cell.whole) if isinstance(part, (ops.Iota, ops.Triangle))
    )
    is_closing = index not in cell.axes and any(index in arg.axes for arg in cell.args)
    return is_closing or any(index in part.axes for part in parts)
