"""The tensor operations of a plan: what one line of a generated function computes.

    op = Source(name, axes)                an argument or an earlier step
       | Num(value)                        a Python number over sizes and scalars
       | NumTensor(value, wide)            a number as a 0-d tensor
       | Iota(index) | Triangle(rows, columns, offset, upper)
       | Select(arg, place, at) | Slice(arg, place, index, start, step) | Flip(arg, place, index)
       | Pad(arg, place, index, before, value) | Unfold(arg, place, outer, inner, step)
       | Unflatten(arg, place, parts) | Diagonal(arg, first, second)
       | Take(arg, places, by, axes)       advanced indexing by integer tensors
       | Flatten(arg, start, end, index) | Arrange(arg, axes) | Expand(arg, axes)
       | Einsum(args, axes) | Apply(function, args, axes)
       | Reduction(kind, arg, over) | Along(kind, arg, index)
       | Fill(arg, mask, value, where) | Choose(condition, then, other, axes) | Cast(arg)
       | Recur(decay, added, first, axes, index, ..) | Fourier(arg, index, ..)
       | Gated(args, axes, value)          a recurrence with gates, inside a cell
       | Cell(call, args, whole, axes, ..) one call of torch for several operations

The axes of an operation have an order: `op.axes` is a tuple of indices. A `place` is the number
of an axis. `Arrange` may name axes that its argument lacks: they have size 1 and broadcast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias, get_args

from derive.analysis.places import merge_place
from derive.ir import functions
from derive.ir import nodes as ir
from derive.ir.text import to_text
from derive.ir.walk import is_whole
from derive.plan.calls import Condition, Operand


class Operation:
    """The base of all operations: the operands `args`, and the indices of the result in order."""

    __slots__ = ("args", "axes")
    args: tuple[Op, ...]
    axes: tuple[ir.Index, ...]

    def complete(self: Any) -> None:
        """Set `args` and `axes` where they are no fields of the class."""
        for name, find in (("args", _find_args), ("axes", _find_axes)):
            if name not in self.__match_args__:
                object.__setattr__(self, name, find(self))


@ir.node
class Source(Operation):
    """A tensor by its name in the generated function; the kind "wide" is an accumulator's."""

    name: str
    axes: tuple[ir.Index, ...]
    kind: str = "real"


@ir.node
class Num(Operation):
    """A Python number: an expression over sizes, scalars and constants."""

    value: ir.Expr


@ir.node
class NumTensor(Operation):
    """A number as a 0-d tensor, in the formula's dtype or in float64 (`wide`)."""

    value: ir.Expr
    wide: bool = False  # half precision cannot hold sizes above 65504


@ir.node
class Iota(Operation):
    """The integers 0, 1, .. along the axis of an index."""

    index: ir.Index


@ir.node
class Triangle(Operation):
    """Truth values: columns - rows <= offset, or >= offset for an `upper` triangle."""

    rows: ir.Index
    columns: ir.Index
    offset: ir.Expr
    upper: bool


@ir.node
class Select(Operation):
    """One position of an axis, as Tensor.select."""

    arg: Op
    place: int
    at: ir.Expr


@ir.node
class Slice(Operation):
    """A strided slice of an axis: start, start + step, .. for each position of the index."""

    arg: Op
    place: int
    index: ir.Index
    start: ir.Expr = ir.Number(Fraction(0))
    step: ir.Expr = ir.Number(Fraction(1))


@ir.node
class Flip(Operation):
    """The argument with the axis at `place` reversed, now of `index`."""

    arg: Op
    place: int
    index: ir.Index


@ir.node
class Pad(Operation):
    """An axis with `before` entries of padding in front, and padding up to the extent of the index.

    A negative amount of padding cuts off positions.
    """

    arg: Op
    place: int
    index: ir.Index
    before: ir.Expr
    value: ir.Expr = ir.ZERO


@ir.node
class Unfold(Operation):
    """The windows of an axis, `step` apart: `outer` numbers them, `inner` is a new last axis."""

    arg: Op
    place: int
    outer: ir.Index
    inner: ir.Index
    step: ir.Expr


@ir.node
class Take(Operation):
    """Advanced indexing of some axes by integer tensors, which share one order of axes.

    As in torch, their axes replace the indexed axes if those are adjacent, else they come first.
    """

    arg: Op
    places: tuple[int, ...]
    by: tuple[Op, ...]
    axes: tuple[ir.Index, ...]


@ir.node
class Unflatten(Operation):
    """A merged axis split into the axes of its parts, slowest first."""

    arg: Op
    place: int
    parts: tuple[ir.Index, ...]


@ir.node
class Diagonal(Operation):
    """The diagonal of two axes, as a new last axis."""

    arg: Op
    first: int
    second: int


@ir.node
class Flatten(Operation):
    """The axes from start to end merged into one index."""

    arg: Op
    start: int
    end: int
    index: ir.Index


@ir.node
class Arrange(Operation):
    """A permutation of the axes of a tensor; missing axes have size 1."""

    arg: Op
    axes: tuple[ir.Index, ...]


@ir.node
class Expand(Operation):
    """A tensor repeated along the axes that it lacks."""

    arg: Op
    axes: tuple[ir.Index, ...]


@ir.node
class Einsum(Operation):
    """The product of the arguments, summed over the indices that are not in `axes`."""

    args: tuple[Op, ...]
    axes: tuple[ir.Index, ...]


@ir.node
class Apply(Operation):
    """An elementwise function of arguments whose axes are aligned."""

    function: str
    args: tuple[Op, ...]
    axes: tuple[ir.Index, ...]


@ir.node
class Reduction(Operation):
    """The argument reduced over some of its indices by `kind`, such as sum or logsumexp."""

    kind: str
    arg: Op
    over: tuple[ir.Index, ...]


@ir.node
class Along(Operation):
    """A function that keeps its index, as softmax; with `columns`, one of a matrix, as inverse."""

    kind: str
    arg: Op
    index: ir.Index
    columns: ir.Index | None = None


@ir.node
class Fill(Operation):
    """The argument with a number at the entries at which the mask equals `where`."""

    arg: Op
    mask: Op
    value: Num
    where: bool


@ir.node
class Choose(Operation):
    """`then` where the condition holds, else `other`."""

    condition: Op
    then: Op
    other: Op
    axes: tuple[ir.Index, ...]


@ir.node
class Cast(Operation):
    """A cast to the formula's dtype ("real"), float32 at least ("single"), float64 ("wide"), .."""

    arg: Op
    kind: str = "real"


@ir.node
class Recur(Operation):
    """A linear recurrence: `decay` times the previous value along the index, plus `added`.

    `first` is the initial value. The recurrence `is_bounded` if all decays are between -1 and 1. A
    constant decay has an index of extent 1 instead of the index of the recurrence. `chunk` is the
    keyword argument, or the number, for the length of chunks.
    """

    decay: Op
    added: Op
    first: Op
    axes: tuple[ir.Index, ...]
    index: ir.Index
    chunk: str
    is_bounded: bool


@ir.node
class Gated(Operation):
    """The result of a recurrence with gates, over its input and weights."""

    args: tuple[Op, ...]
    axes: tuple[ir.Index, ...]
    value: ir.Expr  # the equation's right side, which describes the result


@ir.node
class Fourier(Operation):
    """A Fourier transform along `index`; `to` is the index of the result, `kind` torch's name.

    The argument is padded with zeros to the length. An inverse one that `is_plain` is not scaled.
    """

    arg: Op
    index: ir.Index
    to: ir.Index
    length: ir.Expr
    kind: str
    is_plain: bool = False


@ir.node
class Cell(Operation):
    """One call of torch in place of several operations, `whole`, on the arguments.

    The call is used where the conditions `when` hold; else the operations, which are printed too.
    """

    call: Operand
    args: tuple[Op, ...]
    whole: Op
    axes: tuple[ir.Index, ...]
    when: tuple[Condition, ...] = ()
    volume: tuple[ir.Index, ...] = ()  # the iteration space, if not that of `whole`
    note: str = ""  # a remark for the reader of the file
    scratch: tuple[tuple[ir.Index, ...], ...] = ()  # the indices of each temporary tensor
    filled: tuple[ir.Index, ...] = ()  # indices whose extent must not be 0
    single: tuple[ir.Index, ...] = ()  # indices walked one number at a time for each entry


Leaf: TypeAlias = Source | Num | NumTensor | Iota | Triangle
View: TypeAlias = Select | Slice | Unfold | Unflatten | Diagonal | Flatten | Arrange | Expand
Copy: TypeAlias = Flip | Pad | Take
Elementwise: TypeAlias = Apply | Choose | Fill | Cast
AlongAxes: TypeAlias = Einsum | Reduction | Along | Recur | Gated | Fourier
Op: TypeAlias = Leaf | View | Copy | Elementwise | AlongAxes | Cell

OPS = get_args(Op)
VIEWS = (Source, Select, Slice, Unfold, Unflatten, Diagonal, Flatten, Arrange, Expand)


def _find_args(op: Any) -> tuple[Op, ...]:
    match op:
        case Choose(condition, then, other, _):
            return (condition, then, other)
        case Fill(arg, mask, _, _):
            return (arg, mask)
        case Take(arg, _, by):
            return (arg, *by)
        case Recur(decay, added, first):
            return (decay, added, first)
        case Source() | Num() | NumTensor() | Iota() | Triangle():
            return ()
    return (op.arg,)


def _find_axes(op: Op) -> tuple[ir.Index, ...]:
    """The indices of an operation's result, in order."""
    match op:
        case Num() | NumTensor():
            return ()
        case Iota(index):
            return (index,)
        case Triangle(rows, columns, _, _):
            return (rows, columns)
        case Select(arg, place, _):
            return arg.axes[:place] + arg.axes[place + 1 :]
        case Slice(arg, place, index) | Flip(arg, place, index) | Pad(arg, place, index):
            return (*arg.axes[:place], index, *arg.axes[place + 1 :])
        case Unfold(arg, place, outer, inner):
            return (*arg.axes[:place], outer, *arg.axes[place + 1 :], inner)
        case Unflatten(arg, place, parts):
            return arg.axes[:place] + parts + arg.axes[place + 1 :]
        case Diagonal(arg, first, second):
            kept = tuple(a for k, a in enumerate(arg.axes) if k not in (first, second))
            return (*kept, arg.axes[first])
        case Flatten(arg, start, end, index):
            return (*arg.axes[:start], index, *arg.axes[end + 1 :])
        case Fourier(arg, index, to):
            return tuple(to if a is index else a for a in arg.axes)
        case Reduction(_, arg, over):
            return tuple(a for a in arg.axes if a not in over)
        case Along() | Fill() | Cast():
            return op.arg.axes
    return op.axes


def merge_indices(parts: tuple[ir.Index, ...]) -> ir.Index:
    """The index of a merged axis, named after its position: `h*D + d`."""
    name = to_text(merge_place(parts)).replace(" * ", "*")
    return ir.Index(name, ir.Mul(tuple(p.extent for p in parts)))


def flatten(op: Op, start: int, end: int, index: ir.Index | None = None) -> Op:
    """The axes from start to end merged into one index; this undoes an Unflatten."""
    index = index or merge_indices(op.axes[start : end + 1])
    match op:
        case Unflatten(arg, place, parts) if place == start and len(parts) == end - start + 1:
            return rename_indices(arg, {arg.axes[place]: index})
        case Arrange(Unflatten(arg, place, parts), axes) if parts == axes[start : end + 1]:
            return arrange(
                rename_indices(arg, {arg.axes[place]: index}),
                (*axes[:start], index, *axes[end + 1 :]),
            )
        case Flatten(arg, first, last) if start <= first <= end:
            return Flatten(arg, start, end + last - first, index)
    return Flatten(op, start, end, index)


def merge(op: Op, groups: Sequence[tuple[ir.Index, ...]]) -> Op:
    """The axes in the order of these groups, with each group merged into one axis."""
    op = arrange(op, tuple(index for group in groups for index in group))
    for k, group in reversed(list(enumerate(groups))):
        if len(group) > 1:
            start = sum(map(len, groups[:k]))
            op = flatten(op, start, start + len(group) - 1)
    return op


def with_args(op: Op, args: tuple[Op, ...], new: Mapping[Op, Op] | None = None) -> Op:
    """The operation on other arguments; `new` maps further operations inside a cell's `whole`."""
    if not args or (args == op.args and new is None):
        return op
    values: dict[str, Any] = {name: getattr(op, name) for name in op.__match_args__}
    match op:
        case Einsum() | Apply() | Gated():
            values["args"] = args
        case Cell():
            new = {**(new or {}), **dict(zip(op.args, args, strict=True))}
            values |= {"args": args, "whole": exchange(op.whole, new)}
        case Take():
            values |= {"arg": args[0], "by": args[1:]}
        case Choose() | Fill() | Recur():  # the operands are the first fields
            values |= zip(op.__match_args__, args, strict=False)
        case _:
            values["arg"] = args[0]
    return type(op)(*values.values())


def exchange(op: Op, new: Mapping[Op, Op]) -> Op:
    """The operation with some of its parts replaced."""
    if op in new:
        return new[op]
    return with_args(op, tuple(exchange(arg, new) for arg in op.args), new)


def rename_indices(op: Op, new: Mapping[ir.Index, ir.Index]) -> Op:
    """The operation with other indices."""

    def rename_field(value: Any) -> Any:
        if isinstance(value, ir.Index):
            return new.get(value, value)
        if isinstance(value, tuple):
            return tuple(map(rename_field, value))
        return rename_indices(value, new) if isinstance(value, OPS) else value

    return type(op)(*(rename_field(getattr(op, name)) for name in op.__match_args__))


def walk_ops(op: Op) -> Iterator[Op]:
    """The operation and all its operands, innermost first."""
    found, waiting = [], [op]
    while waiting:
        found.append(waiting.pop())
        waiting.extend(found[-1].args)
    return reversed(found)


@lru_cache(maxsize=1 << 14)
def find_reads(op: Op) -> frozenset[str]:
    """The names that an operation reads."""
    return frozenset(part.name for part in walk_ops(op) if isinstance(part, Source))


def sort_axes(indices: Iterable[ir.Index], order: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
    """The indices in a preferred order; indices missing from it come first, in their own order."""
    return tuple(sorted(dict.fromkeys(indices), key=lambda i: order.index(i) if i in order else -1))


def arrange(op: Op, axes: tuple[ir.Index, ...]) -> Op:
    """The result with its axes in this order; missing axes have size 1."""
    if isinstance(op, Arrange) and {*op.axes} == {*op.arg.axes}:
        op = op.arg
    here = op.axes
    return op if not here or axes[len(axes) - len(here) :] == here else Arrange(op, axes)


def find_union(ops: Sequence[Op], order: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
    """The axes of all operands in the given order; other axes first, the widest operand's first."""
    widest = sorted(ops, key=lambda op: -len(op.axes))
    return sort_axes((i for op in widest for i in op.axes), order)


def align(ops: Sequence[Op], order: tuple[ir.Index, ...]) -> tuple[Op, ...]:
    """The operands with aligned axes, so that they broadcast."""
    axes = find_union(ops, order)
    return tuple(arrange(op, axes) for op in ops)


def combine(function: str, ops: Sequence[Op], order: tuple[ir.Index, ...]) -> Apply:
    """An elementwise function of the operands, whose axes are aligned in this order."""
    args = align(ops, order)
    return Apply(function, args, find_union(args, order))


BOOLEANS = ("<", "<=", ">", ">=", "==", "!=", "and", "or", "not")


def strip_casts(op: Op, divides: bool = True) -> Op:
    """The operation on integers without casts; truth values in arithmetic become 0 and 1.

    Without `divides`, 0-d tensors stay floats: an integer divisor 0 raises, a float one gives nan.
    """
    if isinstance(op, Cast):
        return op if op.kind == "int" else strip_casts(op.arg, divides)
    if divides and isinstance(op, NumTensor) and not op.wide and is_whole(op.value):
        return Cast(op, "int")
    args, numbers = [strip_casts(a, divides) for a in op.args], (Num(ir.ONE), Num(ir.ZERO))
    function = op.function if isinstance(op, Apply) else "and"
    if function in {"-", "neg"} or (function not in BOOLEANS and all(map(is_boolean, args))):
        args = [Choose(a, *numbers, a.axes) if is_boolean(a) else a for a in args]
    return with_args(op, tuple(args))


def is_boolean(op: Op) -> bool:
    """Whether the entries are truth values."""
    match op:
        case Source(_, _, kind):
            return kind == "bool"
        case Triangle():
            return True
        case Apply(function, _, _):
            return function in BOOLEANS
        case Cast():
            return False
        case Reduction(kind, arg, _):
            return kind in {"max", "min"} and is_boolean(arg)
        case Choose(_, then, other):
            return is_boolean(then) and is_boolean(other)
        case Take(arg):
            return is_boolean(arg)
    return len(op.args) == 1 and is_boolean(op.args[0])


def is_complex(op: Op) -> bool:
    """Whether the entries are complex numbers."""
    match op:
        case Source(_, _, kind):
            return kind == "complex"
        case Num(value) | NumTensor(value):
            return functions.is_complex(value)
        case Cast(arg, kind):
            return kind == "complex" or is_complex(arg)
        case Fourier(kind=kind):
            return kind != "irfft"
        case Apply(function) if function in BOOLEANS or (
            function in functions.FUNCTIONS and functions.FUNCTIONS[function].is_real
        ):
            return False
    return any(map(is_complex, op.args))


def to_source(name: str, op: Op) -> Source:
    """A read of the step with this name and operation."""
    kinds = (("bool", is_boolean), ("int", is_integral), ("complex", is_complex))
    kind = next((kind for kind, test in kinds if test(op)), "real")
    return Source(name, op.axes, kind)


def is_integral(op: Op) -> bool:
    """Whether the entries are integers: positions, index arithmetic, or integer tensors."""
    match op:
        case Source(_, _, kind) | Cast(_, kind):
            return kind == "int"
        case Iota() | Reduction("argmax"):
            return True
        case Apply(function) if function in BOOLEANS or function == "/":
            return False
        case Num(ir.Add(parts) | ir.Mul(parts)):
            return all(is_integral(Num(part)) for part in parts)
        case Num(value):
            return isinstance(value, (ir.Size, ir.Number))
        case Reduction("sum", arg) if is_boolean(arg):
            return True
        case NumTensor() | Fourier():
            return False
        case Cell(whole=whole):
            return is_integral(whole)
        case Choose(_, then, other) | Fill(then, _, other):
            return is_integral(then) and is_integral(other)
    return bool(op.args) and all(map(is_integral, op.args))
