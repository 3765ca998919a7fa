"""The cost of a plan: operations and elements as polynomials over sizes, and seconds.

Strides determine what torch copies. torch.einsum brings two operands into the form of a batched
matrix product. It merges three groups of indices of each operand: those of both operands and the
result (batch), those of one operand alone, and those summed. If a group cannot be merged as a view,
einsum copies the whole operand. A normalized row and a flatten copy a non-contiguous operand. A
copy of a large operand costs more than the product.

Seconds follow the roofline model (Williams, Waterman, Patterson 2009): the longer of the operations
at the machine's rate and the bytes at the rate of cache or memory. Copies and a launch for each
operation are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import pairwise
from math import ceil, prod
from typing import TypeAlias

from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS, ROWS
from derive.ir.polynomial import Polynomial, add_all, evaluate_extent
from derive.plan import machine as rates
from derive.plan import ops
from derive.plan.calls import TorchCall
from derive.plan.machine import WIDTH, time_moved, time_pages, time_transform
from derive.plan.steps import Step, Tile

RECUR_FLOPS = 5  # the decay of a chunk (1), its end (2) and its values (2)
FOURIER_FLOPS = 25  # 2.5 * log2(length) for each real number, at length 1024


def count_elements(indices: Iterable[ir.Index]) -> Polynomial:
    """The product of the extents."""
    extents = (Polynomial.of(index.extent) for index in indices)
    return reduce(Polynomial.__mul__, extents, Polynomial.of(1))


def find_flops(op: ops.Op) -> Polynomial:
    """The scalar operations of one tensor operation; views count as none."""
    match op:
        case ops.Einsum(args, axes):
            spanned = dict.fromkeys(i for arg in args for i in arg.axes)
            each = 2 if len(args) > 1 and set(spanned) != set(axes) else 1
            return count_elements(spanned) * Polynomial.of(each)
        case ops.Along(columns=ir.Index(_, extent)) | ops.Reduction(
            "det" | "logdet", _, (ir.Index(_, extent), _)
        ):
            return count_elements(op.arg.axes) * Polynomial.of(extent)  # an elimination
        case ops.Along(kind, arg) | ops.Reduction(kind, arg):
            return count_elements(arg.axes) * Polynomial.of(ROWS[kind].operations)
        case ops.Apply() | ops.Choose() | ops.Fill() | ops.Cast():
            return count_elements(find_true_axes(op))
        case ops.Cell(volume=volume) if volume:
            return count_elements(volume)
        case ops.Recur():
            return count_elements(op.axes) * Polynomial.of(RECUR_FLOPS)
        case ops.Fourier(length=length):
            others = (i for i in op.axes if i is not op.to)
            return count_elements(others) * Polynomial.of(length) * Polynomial.of(FOURIER_FLOPS)
        case ops.Cell(_, args, whole):
            return add_all(map(find_flops, find_inner(whole, args)))
        case ops.Gated(args, (*places, _)):  # a weight and a sum at each place
            own = (arg.axes for arg in args if not {*places} & {*arg.axes})
            return add_all(map(count_elements, own)) * count_elements(places) * Polynomial.of(2)
    return Polynomial({})


def find_inner(whole: ops.Op, given: tuple[ops.Op, ...]) -> tuple[ops.Op, ...]:
    """The operations of a cell, each once, without its arguments."""
    return tuple(dict.fromkeys(_walk_inner(whole, given)))


def _walk_inner(whole: ops.Op, given: tuple[ops.Op, ...]) -> Iterator[ops.Op]:
    if whole not in given:
        yield whole
        for arg in whole.args:
            yield from _walk_inner(arg, given)


@lru_cache(maxsize=1 << 14)
def find_true_axes(op: ops.Op) -> tuple[ir.Index, ...]:
    """The axes without those that have size 1 for alignment."""
    match op:
        case ops.Arrange(arg, _):
            return find_true_axes(arg)
        case ops.Apply() | ops.Choose() | ops.Fill():
            parts = (i for arg in op.args for i in find_true_axes(arg))
            return tuple(dict.fromkeys(parts))
    return op.axes


@lru_cache(maxsize=1 << 14)
def find_kept(op: ops.Op) -> Polynomial:
    """The elements that the result keeps alive: none for a view.

    A cast of running sums is free as well: plans count float32, where it changes nothing.
    """
    if isinstance(op, (*ops.VIEWS, ops.Num)) or (
        isinstance(op, ops.Cast) and _reads_running(op.arg)
    ):
        return Polynomial({})
    return count_elements(find_true_axes(op)) * find_width(op)


def find_width(op: ops.Op) -> Polynomial:
    """The width of one entry in elements: 2 for integers and complex numbers, else 1."""
    return Polynomial.of(2 if ops.is_integral(op) or ops.is_complex(op) else 1)


def _reads_running(op: ops.Op) -> bool:
    """Whether the operation reads an accumulator of a loop."""
    if isinstance(op, ops.Source):
        return op.kind == "wide"
    return any(map(_reads_running, op.args))


def find_scratch(op: ops.Op) -> tuple[tuple[ir.Index, ...], ...]:
    """The axes of each temporary tensor that torch makes, besides the result and copies."""
    match op:
        case ops.Cell():
            return op.scratch
        case ops.Recur():  # the list of values, and their stack
            return (op.axes, op.axes)
        case ops.Reduction("det" | "logdet", arg, (row, column)):  # LU, pivots, a number
            rows = tuple(i for i in arg.axes if i != column)
            return (arg.axes, rows, tuple(i for i in rows if i != row))
        case ops.Along(arg=arg, index=row, columns=ir.Index() as column):  # info
            return (tuple(i for i in arg.axes if i not in (row, column)),)
        case ops.Fourier(arg, index, to, length, kind):
            others = tuple(i for i in op.axes if i is not to)
            is_made = kind == "irfft" or length != index.extent
            return ((*others, ir.Index("", length)),) if is_made else ()
        case ops.Reduction("logsumexp", arg, _):
            return (find_true_axes(arg),)
        case ops.Reduction("prod", arg, over):  # one index at a time, the last one first
            axes = arg.axes
            last = max(axes.index(i) for i in over)
            return ((*axes[:last], *axes[last + 1 :]),) if len(over) > 1 else ()
        case ops.Apply("/", (ops.Num(), under)):  # the reciprocal, times the number
            return (find_true_axes(under),)
    return ()


Strides: TypeAlias = tuple[int, ...]  # in elements, one for each of the axes


@dataclass
class Storage:
    """The extents at the sizes of a plan, and the strides of every named tensor."""

    sizes: Mapping[str, int]
    strides: dict[str, Strides] = field(default_factory=dict)
    _extents: dict[ir.Index, int] = field(default_factory=dict)
    again: int = 1  # the rate of reading over that of the cache; above 1 in a loop that rereads

    def extent(self, index: ir.Index) -> int:
        """The extent of an index as a number."""
        if index not in self._extents:
            self._extents[index] = evaluate_extent(index.extent, self.sizes)
        return self._extents[index]

    def count(self, axes: Iterable[ir.Index]) -> int:
        """The number of elements over these axes."""
        return prod(self.extent(i) for i in axes)

    def find_dense(
        self, axes: Sequence[ir.Index], order: Sequence[ir.Index] | None = None
    ) -> Strides:
        """The strides of a dense tensor stored in this order of axes, the last one contiguous."""
        step, found = 1, {}
        for index in reversed(order or axes):
            found[index] = step
            step *= max(1, self.extent(index))
        return tuple(found[i] for i in axes)

    def record_strides(self, made: Iterable[tuple[str, ops.Op]]) -> None:
        """Record the strides of the results of some operations, by name."""
        for name, op in made:
            self.strides[name] = find_strides(op, self)


def find_strides(op: ops.Op, memory: Storage) -> Strides:
    """The strides of the result, one for each of its axes."""
    axes = op.axes
    match op:
        case ops.Source(name):
            return memory.strides.get(name) or memory.find_dense(axes)
        case ops.Arrange(arg) | ops.Expand(arg):
            known = map_strides(arg, memory)
            return tuple(known.get(i, 0) for i in axes)
        case ops.Select(arg, place):
            strides = find_strides(arg, memory)
            return strides[:place] + strides[place + 1 :]
        case ops.Slice(arg, place, _, _, step):
            strides = find_strides(arg, memory)
            times = evaluate_extent(step, memory.sizes)
            return (*strides[:place], times * strides[place], *strides[place + 1 :])
        case ops.Unfold(arg, place, _, _, step):
            strides = find_strides(arg, memory)
            times = evaluate_extent(step, memory.sizes)
            outer = times * strides[place]
            return (*strides[:place], outer, *strides[place + 1 :], strides[place])
        case ops.Unflatten(arg, place, parts):
            strides = find_strides(arg, memory)
            inner = tuple(s * strides[place] for s in memory.find_dense(parts))
            return strides[:place] + inner + strides[place + 1 :]
        case ops.Diagonal(arg, first, second):
            strides = find_strides(arg, memory)
            kept = tuple(s for k, s in enumerate(strides) if k not in (first, second))
            return (*kept, strides[first] + strides[second])
        case ops.Flatten(arg, start, end):
            if find_copies(op, memory):
                return memory.find_dense(axes)
            strides = find_strides(arg, memory)
            return strides[:start] + strides[end:]
        case ops.Einsum(args):
            order = axes if is_matrix_product(op) else _order_product(args, axes)
            return memory.find_dense(axes, order)
        case ops.Along() | ops.Recur() | ops.Cell(whole=ops.Arrange()):
            return memory.find_dense(axes)
    return _follow_operands(op, memory)


def map_strides(op: ops.Op, memory: Storage) -> dict[ir.Index, int]:
    """The stride of each index of the result."""
    return dict(zip(op.axes, find_strides(op, memory), strict=True))


def _follow_operands(op: ops.Op, memory: Storage) -> Strides:
    """The strides of an elementwise result, which follow those of the operands.

    Two indices are ordered by the first operand that has strides for both, as in TensorIterator. If
    the strides are equal, the shorter index comes closer.
    """
    axes, args = op.axes, op.args
    is_each = isinstance(op, (ops.Apply, ops.Choose, ops.Fill, ops.Cast)) or (
        any(set(find_true_axes(op)) == set(find_true_axes(arg)) for arg in args)
    )
    if not is_each or isinstance(op, ops.Reduction):
        return memory.find_dense(axes)
    steps = [map_strides(a, memory) for a in args]
    order: list[ir.Index] = []  # smallest stride first
    for index in reversed(axes):
        order.append(index)
        here = len(order) - 1
        for place in range(here - 1, -1, -1):
            pairs = ((each.get(order[place], 0), each.get(index, 0)) for each in steps)
            longer = memory.extent(order[place]) - memory.extent(index)
            is_known = memory.extent(order[place]) > 1 and memory.extent(index) > 1
            gaps = (a - b or max(0, longer) for a, b in pairs if is_known and a and b)
            known = next(filter(None, gaps), 0)
            if known > 0:
                order[place], order[here] = order[here], order[place]
                here = place
            elif known < 0:
                break
    return memory.find_dense(axes, order[::-1])


def find_copied(op: ops.Op, memory: Storage) -> tuple[ops.Op, ...]:
    """The operands of a contraction that torch copies."""
    match op:
        case ops.Einsum((one, other), axes):
            groups = zip((one, other), _group_indices(one, other, axes), strict=True)
            return tuple(
                arg
                for arg, each in groups
                if _is_copied(arg, each, memory) or _overlaps(arg, each, memory)
            )
    return ()


def find_noncontiguous(op: ops.Op, memory: Storage) -> tuple[ops.Op, ...]:
    """The non-contiguous operands that a call reads entry by entry."""
    match op:
        case ops.Take(arg, _, (_,)):
            parts: tuple[ops.Op, ...] = (arg,)
        case ops.Cell(_, args, volume=volume):
            parts = tuple(arg for arg in args if arg.axes == volume != ())
        case _:
            return ()
    return tuple(p for p in parts if find_strides(p, memory) != memory.find_dense(p.axes))


def find_copies(op: ops.Op, memory: Storage) -> int:
    """The elements that torch copies for this operation alone, without its operands' copies."""
    return sum(map(memory.count, list_copies(op, memory)))


def list_copies(op: ops.Op, memory: Storage) -> tuple[tuple[ir.Index, ...], ...]:
    """The indices of each tensor that torch copies for this operation."""
    match op:
        case ops.Einsum():
            return tuple(arg.axes for arg in find_copied(op, memory))
        case ops.Flatten(arg, start, end):
            merged = arg.axes[start : end + 1]
            return (arg.axes,) if _is_copied(arg, (merged,), memory) else ()
        case ops.Along(_, arg) if find_strides(arg, memory) != memory.find_dense(arg.axes):
            return (arg.axes,)
    return ()


Groups: TypeAlias = tuple[tuple["ir.Index", ...], ...]


def _group_indices(one: ops.Op, other: ops.Op, axes: tuple[ir.Index, ...]) -> tuple[Groups, Groups]:
    """The groups of indices that einsum merges, for each operand: batch, its own, summed."""
    first, second = one.axes, other.axes
    batch = tuple(i for i in axes if i in first and i in second)
    shared = (i for i in first if i in second and i not in axes)
    summed = tuple(sorted(shared, key=lambda i: i.name))  # torch merges them by name
    left = tuple(i for i in axes if i in first and i not in second)
    right = tuple(i for i in axes if i in second and i not in first)
    return (batch, left, summed), (batch, right, summed)


def is_matrix_product(op: ops.Op) -> bool:
    """Whether a product is a matrix of two matrices: torch computes it in either axis order."""
    match op:
        case ops.Einsum((one, other), (row, column)):
            own = {row, column}, {*find_true_axes(one)} ^ {*find_true_axes(other)}
            is_whole = all(len(find_true_axes(a)) == len(a.axes) == 2 for a in op.args)
            return is_whole and own[0] == own[1]
    return False


def _order_product(args: tuple[ops.Op, ...], axes: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
    """The storage order of a product of two: batch, indices of the first, of the second operand."""
    if len(args) != 2:
        return axes
    (batch, left, _), (_, right, _) = _group_indices(args[0], args[1], axes)
    rest = tuple(i for i in axes if i not in (*batch, *left, *right))
    return (*batch, *left, *right, *rest)


def _is_copied(op: ops.Op, groups: Groups, memory: Storage) -> bool:
    """Whether some group of indices cannot be merged as a view."""
    strides = map_strides(op, memory)
    real = ([i for i in group if memory.extent(i) > 1] for group in groups)
    pairs = (pair for group in real for pair in pairwise(group))
    return any(strides[a] != strides[b] * memory.extent(b) for a, b in pairs)


def _has_gaps(op: ops.Op, groups: Groups, memory: Storage) -> bool:
    """Whether neither an operand's own indices nor the summed ones end with unit stride."""
    strides = map_strides(op, memory)
    ends = [[strides[i] for i in group if memory.extent(i) > 1][-1:] for group in groups[1:]]
    return any(ends) and [1] not in ends


def _overlaps(op: ops.Op, groups: Groups, memory: Storage) -> bool:
    """Whether the rows of the operand's matrices overlap in memory, as windows do."""
    strides = map_strides(op, memory)
    sides = [(min(strides[i] for i in g), memory.count(g)) for g in groups[1:] if g]
    (step, count), (other, rows) = sorted(sides) if len(sides) > 1 else [(0, 0), (0, 0)]
    return count > 1 and rows > 1 and 0 < other < step * count


SLOW = {"pow", *(name for name, row in FUNCTIONS.items() if row.is_slow)}
SLOW |= {word for word, row in ROWS.items() if row.is_slow}


def find_seconds(steps: Iterable[Step], memory: Storage) -> float:
    """The time of all steps in sequence; the strides of their results go into `memory`."""
    total = 0.0
    for step in steps:
        total += sum(time_op(op, memory) for op in ops.walk_ops(step.op))
        memory.strides[step.name] = find_strides(step.op, memory)
    return total


def time_op(op: ops.Op, memory: Storage) -> float:
    """The time of one operation without its operands."""
    copies = _time_copies(op, memory)
    if isinstance(op, (*ops.VIEWS, ops.Num)) and not copies:
        return 0.0
    made = memory.count(find_true_axes(op))
    moved = _count_bytes(op, memory) + sum(_count_bytes(arg, memory) for arg in op.args)
    if isinstance(op, ops.Along):
        moved += 2 * WIDTH * made
    work = 0.0 if isinstance(op, ops.Flatten) else _find_work(op, memory)
    pages = time_pages(_count_bytes(op, memory))
    return rates.LAUNCH + max(work, time_moved(moved, memory.again)) + pages + copies


def _count_bytes(op: ops.Op, memory: Storage) -> int:
    """The bytes of a result: one for a truth value, two floats for a complex number."""
    each = 1 if ops.is_boolean(op) else 2 * WIDTH if ops.is_complex(op) else WIDTH
    return memory.count(find_true_axes(op)) * each


def _time_copies(op: ops.Op, memory: Storage) -> float:
    """The time of the copies that torch makes for an operation."""
    match op:
        case ops.Einsum((one, other), axes):
            first, second = _group_indices(one, other, axes)
            orders = ((one, first), (other, (second[0], second[2], second[1])))
            copied = set(find_copied(op, memory))
            found = [(arg, [i for each in g for i in each]) for arg, g in orders if arg in copied]
            # A matrix without a unit stride is copied inside the product, one of a batch at a time.
            strided = [arg for arg, g in orders if arg not in copied and _has_gaps(arg, g, memory)]
        case ops.Flatten(arg) | ops.Along(_, arg) if find_copies(op, memory):
            found, strided = [(arg, list(arg.axes))], []
        case _:
            return 0.0
    each = rates.STRIDED / rates.EXPONENTIALS
    seconds = sum(memory.count(arg.axes) for arg in strided) * each
    for arg, order in found:
        count = memory.count(arg.axes)
        strides = map_strides(arg, memory)
        last = [strides[i] for i in order if memory.extent(i) > 1][-1:]
        apart = 0.0 if last in ([], [1]) else count * each
        moved = time_moved(2 * WIDTH * count, memory.again)
        seconds += max(moved, apart) + time_pages(WIDTH * count)
    return seconds


def _find_work(op: ops.Op, memory: Storage) -> float:
    """The seconds of an operation's arithmetic, without memory traffic, copies and launch."""
    each = 1 / rates.EXPONENTIALS
    match op:
        case ops.Einsum((one, other), axes):
            return _time_product(one, other, axes, memory)
        case ops.Apply("pow", (_, ops.Num(ir.Number(power)))) if power.denominator == 1:
            return 0.0
        case ops.Apply(kind) | ops.Along(kind) if kind in SLOW:
            return memory.count(find_true_axes(op)) * each
        case ops.Apply(kind) if kind in ops.BOOLEANS:
            return rates.COMPARED * memory.count(find_true_axes(op)) * each
        case ops.Cast(arg) if ops.is_boolean(arg):
            return rates.COMPARED * memory.count(find_true_axes(op)) * each
        case ops.Choose() | ops.Fill():
            mask, axes = op.args[0 if isinstance(op, ops.Choose) else 1], op.axes
            times = rates.MASKED if axes and axes[-1] in find_true_axes(mask) else rates.PICKED
            return times * memory.count(find_true_axes(op)) * each
        case ops.Apply() if _is_strided(op, memory):
            return rates.STRIDED * memory.count(find_true_axes(op)) * each
        case ops.Apply():
            return rates.RUN * memory.count(find_true_axes(op)) / _find_run(op, memory) * each
        case ops.Reduction(kind, arg) if kind in SLOW:
            return memory.count(arg.axes) * each
        case ops.Reduction(_, arg, over) if arg.axes[-1:] == over[-1:]:
            return rates.ROW * memory.count(op.axes) * each
        case ops.Triangle():
            return memory.count(op.axes) * each
        case ops.Gated():
            return float(find_flops(op).at(memory.sizes)) / rates.FLOPS
        case ops.Recur(axes=axes):
            return rates.CHUNKED * rates.LAUNCH + rates.RECURRED * memory.count(axes) * each
        case ops.Fourier():
            count, length = memory.count(find_true_axes(op)), memory.extent(ir.Index("", op.length))
            count = count // max(1, memory.extent(op.to)) * length
            strides = map_strides(op.arg, memory)
            spread = rates.STRIDED * count * each if strides[op.index] > 1 else 0.0
            is_padded = length != memory.extent(op.index) and "i" not in op.kind
            return spread + time_transform(count, length, op.kind, is_padded=is_padded)
        case ops.Take(arg, places):
            taken = memory.count(op.by[0].axes) if find_noncontiguous(op, memory) else 0
            run = max(1, memory.count(arg.axes[places[-1] + 1 :]))
            return (rates.TAKEN * taken + rates.PLACED * memory.count(op.axes) / run) * each
        case ops.Cell(TorchCall(".gather"), axes=axes):
            return rates.GATHERED * memory.count(axes) * each
        case ops.Cell(volume=volume) if volume:
            strided = rates.STRIDED * each if find_noncontiguous(op, memory) else 0.0
            return memory.count(volume) * (strided + rates.EACH / (memory.again * rates.CACHED))
        case ops.Cell(single=single) if single:
            times = rates.SINGLE * (memory.count(single) + rates.BEGUN)
            return times * memory.count(op.axes) * each
        case ops.Cell(_, args, whole):
            return sum(_time_inner(inner, memory) for inner in find_inner(whole, args))
    return 0.0


def _is_strided(op: ops.Op, memory: Storage) -> bool:
    """Whether an operand is strided along the index that is contiguous in the result."""
    axes = find_true_axes(op)
    made = map_strides(op, memory)
    last = next((i for i in axes if made[i] == 1 and memory.extent(i) > 1), None)
    args = [a for a in op.args if last in find_true_axes(a)]
    return last is not None and any(map_strides(a, memory)[last] not in (0, 1) for a in args)


def _find_run(op: ops.Op, memory: Storage) -> int:
    """The number of elements in torch's inner loop, over axes that merge for all operands."""
    made = map_strides(op, memory)
    axes = sorted((i for i in find_true_axes(op) if memory.extent(i) > 1), key=made.__getitem__)
    given = [map_strides(arg, memory) for arg in op.args if find_true_axes(arg)]
    run = 1
    for k, axis in enumerate(axes):
        if k and any(g.get(axis, 0) != g.get(axes[0], 0) * run for g in (made, *given)):
            break
        run *= memory.extent(axis)
    return run


def _time_inner(op: ops.Op, memory: Storage) -> float:
    """The time of an operation inside a call of torch, whose results stay in cache."""
    if isinstance(op, (*ops.VIEWS, ops.Num)):
        return 0.0
    spanned = op.arg.axes if isinstance(op, ops.Reduction) else find_true_axes(op)
    work = _find_work(op, memory)
    return max(work, memory.count(spanned) / (memory.again * rates.CACHED / rates.EACH))


def _time_product(one: ops.Op, other: ops.Op, axes: tuple[object, ...], memory: Storage) -> float:
    """The time of a contraction; thin matrices do not reach the full rate."""
    first, second = one.axes, other.axes
    spanned = dict.fromkeys((*first, *second))
    batch = memory.count(i for i in first if i in second and i in axes)
    rows = memory.count(i for i in first if i not in second)
    columns = memory.count(i for i in second if i not in first)
    thin = min(rows, columns)
    rate = rates.FLOPS * min(1.0, (thin + 1) / rates.NARROW)
    each = 8 if ops.is_complex(one) or ops.is_complex(other) else 2
    return each * memory.count(spanned) / rate + batch * rates.PRODUCT


def count_whole(step: Step, tiles: Sequence[Tile]) -> Polynomial:
    """The elements of a step's whole result, joined from the blocks of these loops."""
    count = count_elements(step.axes)
    for tile in tiles:
        if any(index.extent == ir.Size(tile.block) for index in step.axes):
            count = count * tile.blocks
    return count


def find_time(
    steps: Sequence[Step], tile: Tile | None, memory: Storage, places: tuple[int, int] | None = None
) -> float:
    """The seconds of the steps in the range `places` (else all), with the loop among them."""
    first, end = places or (0, len(steps))
    if tile is None:
        return find_seconds(steps[first:end], memory)
    seconds = find_seconds(steps[first : tile.first], memory)
    memory.record_strides(tile.sliced)
    inside = steps[tile.first : tile.last + 1]
    turn = rates.LAUNCH * (1 + len(tile.sliced))
    length = memory.sizes[tile.block]
    turns = ceil(memory.extent(tile.index) / length)
    # A loop over the positions inside windows reads the same entries again, from cache.
    is_again = turns > 1 and any(tile.is_shifting(op) for _, op in tile.sliced)
    outer, memory.again = memory.again, rates.AGAIN if is_again else memory.again
    turn += find_time(steps, tile.inner, memory, (tile.first, tile.last + 1))
    memory.again = outer
    seconds += turn * turns
    for step in inside:
        memory.strides.pop(step.name, None)
    # Tensors read or written by blocks come from beyond the cache; joining copies the blocks.
    for _, op in tile.sliced:
        near = map_strides(op, memory)
        read = memory.count((op.args[0] if tile.is_shifting(op) else op).axes)
        run = length * near.get(tile.index, read)
        seconds += _time_far(read, run)
        seconds += sum(time_op(part, memory) for part in ops.walk_ops(op))
    joined = [name for name, _, _ in tile.joined]
    for step in inside:
        if step.name in joined:
            count = count_whole(step, tile.nest)
            whole = int(count.at(memory.sizes))
            pages = (1 if tile.start else 2) * time_pages(WIDTH * whole)
            cut = [i.extent for i in step.axes].index(ir.Size(tile.block))
            run = length * memory.count(step.axes[cut + 1 :])
            seconds += _time_far(whole, run) + pages
            seconds += time_moved(2 * WIDTH * whole)
    return seconds + find_seconds(steps[tile.last + 1 : end], memory)


def _time_far(count: int, run: int) -> float:
    """The extra time of elements beyond the cache, of which `run` are contiguous."""
    far = 1 / rates.MEMORY - 1 / rates.CACHED if WIDTH * count > rates.CACHE else 0.0
    return count * (WIDTH * far + rates.ROW / max(1, run) / rates.EXPONENTIALS)
