"""Folds: which steps make a loop over blocks of an index that is summed.

    sum_j x_j = ((x_1 + x_2) + x_3) + ..             likewise prod, max, min
    sum_j softmax_j(s_j) v_j = acc / total           where, block by block,
        higher = max(peak, max_j s_j)                rescale = exp(peak - higher)
        total' = total * rescale + sum_j exp(s_j - higher)
        acc' = acc * rescale + sum_j exp(s_j - higher) v_j

The steps of the loop keep the index, up to those that sum over it; what a softmax over it gives may
be read by nothing that is not proportional to it and summed in the end. The running values are in
`plan.running`. Milakov, Gimelshein 2018; Rabe, Staats 2021; Dao et al. 2022.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from derive.ir.nodes import MINUS_INFINITY, ZERO
from derive.plan.groups import BoundError, find_core, find_leaves, is_reading
from derive.plan.numbers import is_truth, is_whole
from derive.plan.ops import (
    Along,
    Apply,
    Arrange,
    Cell,
    Einsum,
    Expand,
    Fill,
    Num,
    Op,
    Reduction,
    Source,
    args_of,
    axes_of,
    exchange,
)
from derive.plan.steps import Step, find_reads, walk_ops

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from derive.ir.nodes import Index
    from derive.plan.groups import Scope

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
