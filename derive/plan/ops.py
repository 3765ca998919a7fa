"""The tensor operations of a plan: what one line of a generated function computes.

    op = Source(name, axes)                an argument or an earlier step
       | Num(value)                        a Python number over sizes and scalars
       | NumTensor(value, wide)            the same as a 0-d tensor
       | Iota(index) | Triangle(rows, columns, offset, upper)
       | Select(arg, place, at) | Slice(arg, place, index, start, step) | Flip(arg, place, index)
       | Pad(arg, place, index, before, value) | Unfold(arg, place, outer, inner, step)
       | Unflatten(arg, place, parts) | Diagonal(arg, first, second)
       | Take(arg, places, by, axes)       the positions of some places are told by tensors
       | Flatten(arg, start, end, index) | Arrange(arg, axes) | Expand(arg, axes)
       | Einsum(args, axes) | Apply(function, args, axes)
       | Reduction(kind, arg, over) | Along(kind, arg, index)
       | Fill(arg, mask, value, where) | Choose(condition, then, other, axes) | Cast(arg)
       | Recur(decay, added, first, axes, index, ..) | Fourier(arg, index, ..)
       | Gated(args, axes, told)           a recurrence that a cell makes
       | Cell(call, args, whole, axes, ..) one call of torch for several operations

Here, and only from here on, axes have an order: `axes_of(op)` is a tuple of indices. `Arrange` may
name axes that its argument lacks; they have size 1 there and broadcast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

from derive.analysis.integers import is_counted
from derive.ir import functions
from derive.ir import nodes as ir
from derive.ir.text import to_text
from derive.ir.walk import is_whole, walk


@ir.node
class Source:
    """A tensor by its name in the generated function."""

    name: str
    axes: tuple[ir.Index, ...]
    kind: str = "real"


@ir.node
class Num:
    """A Python number: an expression over sizes, scalars and constants."""

    value: ir.Expr


@ir.node
class NumTensor:
    """A number as a 0-d tensor, of the formula's dtype unless it is to be `wide`."""

    value: ir.Expr
    wide: bool = False  # float64: half precision has no sizes above 65504


@ir.node
class Iota:
    """The value of an index along its own axis, as integers."""

    index: ir.Index


@ir.node
class Triangle:
    """Truth values: columns - rows <= offset, or >= offset where `upper`."""

    rows: ir.Index
    columns: ir.Index
    offset: ir.Expr
    upper: bool


@ir.node
class Select:
    """One position of one place."""

    arg: Op
    place: int
    at: ir.Expr


@ir.node
class Slice:
    """Positions of one place, from `start` on in steps: as many as its index has."""

    arg: Op
    place: int
    index: ir.Index
    start: ir.Expr = ir.Number(Fraction(0))
    step: ir.Expr = ir.Number(Fraction(1))


@ir.node
class Flip:
    """One place counted from its end."""

    arg: Op
    place: int
    index: ir.Index


@ir.node
class Pad:
    """One place with zeros, or others, `before` it, and after it up to the extent of the index.

    Where there are fewer than none, positions are cut off.
    """

    arg: Op
    place: int
    index: ir.Index
    before: ir.Expr
    value: ir.Expr = ir.ZERO


@ir.node
class Unfold:
    """The windows of one place: `outer` counts them, a `step` apart; `inner`, last, runs in one."""

    arg: Op
    place: int
    outer: ir.Index
    inner: ir.Index
    step: ir.Expr


@ir.node
class Take:
    """The positions of some places told by integers, which are over one order of axes.

    As in torch their axes stand where the places are, or first where these are no neighbours.
    """

    arg: Op
    places: tuple[int, ...]
    by: tuple[Op, ...]
    axes: tuple[ir.Index, ...]


@ir.node
class Unflatten:
    """A merged place taken apart into its indices, slowest first."""

    arg: Op
    place: int
    parts: tuple[ir.Index, ...]


@ir.node
class Diagonal:
    """Two places read by the same index; it moves to the end."""

    arg: Op
    first: int
    second: int


@ir.node
class Flatten:
    """The axes from start to end merged into one index."""

    arg: Op
    start: int
    end: int
    index: ir.Index


@ir.node
class Arrange:
    """The same tensor with its axes in this order; axes it lacks have size 1."""

    arg: Op
    axes: tuple[ir.Index, ...]


@ir.node
class Expand:
    """The same tensor repeated along the axes it lacks."""

    arg: Op
    axes: tuple[ir.Index, ...]


@ir.node
class Einsum:
    """The product of the arguments, summed over the indices that are not in `axes`."""

    args: tuple[Op, ...]
    axes: tuple[ir.Index, ...]


@ir.node
class Apply:
    """An elementwise function of arguments whose axes are aligned."""

    function: str
    args: tuple[Op, ...]
    axes: tuple[ir.Index, ...]


@ir.node
class Reduction:
    """The argument reduced over some of its indices."""

    kind: str
    arg: Op
    over: tuple[ir.Index, ...]


@ir.node
class Along:
    """A function along one index, which stays, or a matrix of the matrix in two."""

    kind: str
    arg: Op
    index: ir.Index
    columns: ir.Index | None = None


@ir.node
class Fill:
    """The argument with a number wherever the mask is `where`."""

    arg: Op
    mask: Op
    value: Num
    where: bool


@ir.node
class Choose:
    """`then` where the condition holds, else `other`."""

    condition: Op
    then: Op
    other: Op
    axes: tuple[ir.Index, ...]


@ir.node
class Cast:
    """What it holds in the formula's dtype, or as another kind; `single`: float32 at least."""

    arg: Op
    kind: str = "real"


@ir.node
class Recur:
    """`decay` times the value one place before along the index, plus `added`.

    `first` stands before the first place. It `is_bounded` where no decay is above 1 or below -1. A
    decay that is the same at all places has an index of its own, of extent 1, in place of theirs.
    `chunk` is the keyword for how many places run one after the other.
    """

    decay: Op
    added: Op
    first: Op
    axes: tuple[ir.Index, ...]
    index: ir.Index
    chunk: str
    is_bounded: bool


@ir.node
class Gated:
    """What a recurrence with gates makes of its weights and of what it reads: `told`, over axes."""

    args: tuple[Op, ...]
    axes: tuple[ir.Index, ...]
    told: ir.Expr


@ir.node
class Fourier:
    """The Fourier transform, by torch's name of it, along an index, which becomes another one.

    Zeros fill the length; a sum back `is_plain` that is not divided by it.
    """

    arg: Op
    index: ir.Index
    to: ir.Index
    length: ir.Expr
    kind: str
    is_plain: bool = False


@ir.node
class Given:
    """An argument of a cell in its call, by its number."""

    place: int


@ir.node
class Local:
    """What a printed function knows by itself, by its name.

    `like` is the tensor that new ones are made like, `device` its device, `dtype` that of the
    formula; a loop brings along others.
    """

    name: str


@ir.node
class Pick:
    """Subscripts: ":" for all of a place, None for a new one, numbers."""

    arg: Operand
    at: tuple[str | int | None, ...]


@ir.node
class Extents:
    """The extents of the places from one to another, each an argument of its own."""

    arg: Operand
    start: int
    stop: int | None


@ir.node
class Limit:
    """A limit of a dtype: `max`, its largest finite number, or `tiny`, its least normal one."""

    dtype: Operand
    word: str


@ir.node
class TorchCall:
    """A function of torch, a method where its name begins with a dot, or a sign between two."""

    function: str
    args: tuple[Operand, ...]
    keywords: tuple[tuple[str, Operand], ...] = ()


# In a call a text stands for itself, in quotes; a tuple is one argument.
Operand: TypeAlias = (
    "Given | Local | Pick | Extents | Limit | TorchCall | tuple[Operand, ...] | str | int | float"
)
# The formula's dtype is float32 or float64; it is of real numbers; the argument is no tensor.
Condition: TypeAlias = Literal["wide", "real"] | Given


@ir.node
class Cell:
    """One call of torch that computes what several operations do, `whole`, on the arguments.

    Where torch's function does not take all that the operations do, it is used `when` the
    conditions hold, and the operations are written out beside it. Where torch's function does less
    than the operations, it walks over the indices of `volume`. What a reader has to know of it
    stands in `note`. Each entry of `scratch` has the indices of a tensor that torch's function
    makes beside its result. The indices in `filled` have to have a position. Through those of
    `single` torch goes one number after the other, for each entry of the result.
    """

    call: Operand
    args: tuple[Op, ...]
    whole: Op
    axes: tuple[ir.Index, ...]
    when: tuple[Condition, ...] = ()
    volume: tuple[ir.Index, ...] = ()
    note: str = ""
    scratch: tuple[tuple[ir.Index, ...], ...] = ()
    filled: tuple[ir.Index, ...] = ()
    single: tuple[ir.Index, ...] = ()


Op: TypeAlias = (
    Source
    | Num
    | NumTensor
    | Iota
    | Triangle
    | Select
    | Slice
    | Flip
    | Pad
    | Unfold
    | Take
    | Unflatten
    | Diagonal
    | Flatten
    | Arrange
    | Expand
    | Einsum
    | Apply
    | Reduction
    | Along
    | Fill
    | Choose
    | Cast
    | Recur
    | Gated
    | Fourier
    | Cell
)

OPS = get_args(Op)
VIEWS = (Source, Select, Slice, Unfold, Unflatten, Diagonal, Flatten, Arrange, Expand)


def axes_of(op: Op) -> tuple[ir.Index, ...]:
    """The indices of an operation's result, in order."""
    match op:
        case Source() | Arrange() | Einsum() | Apply():  # most are: asked first
            return op.axes
        case Num() | NumTensor():
            return ()
        case Iota(index):
            return (index,)
        case Triangle(rows, columns, _, _):
            return (rows, columns)
        case Select(arg, place, _):
            axes = axes_of(arg)
            return axes[:place] + axes[place + 1 :]
        case Slice(arg, place, index) | Flip(arg, place, index) | Pad(arg, place, index):
            axes = axes_of(arg)
            return (*axes[:place], index, *axes[place + 1 :])
        case Unfold(arg, place, outer, inner):
            axes = axes_of(arg)
            return (*axes[:place], outer, *axes[place + 1 :], inner)
        case Unflatten(arg, place, parts):
            axes = axes_of(arg)
            return axes[:place] + parts + axes[place + 1 :]
        case Diagonal(arg, first, second):
            axes = axes_of(arg)
            kept = tuple(a for k, a in enumerate(axes) if k not in (first, second))
            return (*kept, axes[first])
        case Flatten(arg, start, end, index):
            axes = axes_of(arg)
            return (*axes[:start], index, *axes[end + 1 :])
        case Fourier(arg, index, to):
            return tuple(to if a is index else a for a in axes_of(arg))
        case Reduction(_, arg, over):
            return tuple(a for a in axes_of(arg) if a not in over)
        case Along() | Fill() | Cast():
            return axes_of(op.arg)
    return op.axes


def merge_indices(parts: tuple[ir.Index, ...]) -> ir.Index:
    """One index for indices merged into one place, named by the place: `h*D + d`."""
    name = to_text(to_place(parts)).replace(" * ", "*")
    return ir.Index(name, ir.Mul(tuple(p.extent for p in parts)))


def flatten(op: Op, start: int, end: int, index: ir.Index | None = None) -> Op:
    """The axes from start to end merged into one index; what was taken apart is put together."""
    index = index or merge_indices(axes_of(op)[start : end + 1])
    match op:
        case Unflatten(arg, place, parts) if place == start and len(parts) == end - start + 1:
            return rename_indices(arg, {axes_of(arg)[place]: index})
        case Arrange(Unflatten(arg, place, parts), axes) if parts == axes[start : end + 1]:
            return arrange(
                rename_indices(arg, {axes_of(arg)[place]: index}),
                (*axes[:start], index, *axes[end + 1 :]),
            )
        case Flatten(arg, first, last) if start <= first <= end:
            return Flatten(arg, start, end + last - first, index)
    return Flatten(op, start, end, index)


def merge(op: Op, groups: Sequence[tuple[ir.Index, ...]]) -> Op:
    """The axes in the order of these groups, each of several merged into one."""
    op = arrange(op, tuple(index for group in groups for index in group))
    for k, group in reversed(list(enumerate(groups))):
        if len(group) > 1:
            start = sum(map(len, groups[:k]))
            op = flatten(op, start, start + len(group) - 1)
    return op


def to_place(parts: tuple[ir.Index, ...]) -> ir.Expr:
    """The place that merges the indices, slowest first."""
    terms: list[ir.Expr] = []
    for k, index in enumerate(parts):
        strides = tuple(p.extent for p in parts[k + 1 :])
        terms.append(ir.Mul((index, *strides)) if strides else index)
    return ir.sum_of(terms)


def args_of(op: Op) -> tuple[Op, ...]:
    """The operations it works on."""
    match op:
        case Einsum(args, _) | Apply(_, args, _) | Cell(_, args) | Gated(args):
            return args
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


def with_args(op: Op, args: tuple[Op, ...], new: Mapping[Op, Op] | None = None) -> Op:
    """The same operation on other arguments of the same axes; `new` for what a call computes."""
    if not args or (args == args_of(op) and new is None):
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
        case Choose() | Fill() | Recur():  # they stand first
            values |= zip(op.__match_args__, args, strict=False)
        case _:
            values["arg"] = args[0]
    return type(op)(*values.values())


def exchange(op: Op, new: Mapping[Op, Op]) -> Op:
    """The operation with some of those inside it exchanged."""
    if op in new:
        return new[op]
    return with_args(op, tuple(exchange(arg, new) for arg in args_of(op)), new)


def rename_indices(op: Op, new: Mapping[ir.Index, ir.Index]) -> Op:
    """The operation under other indices."""

    def each(value: Any) -> Any:
        if isinstance(value, ir.Index):
            return new.get(value, value)
        if isinstance(value, tuple):
            return tuple(map(each, value))
        return rename_indices(value, new) if isinstance(value, OPS) else value

    return type(op)(*(each(getattr(op, name)) for name in op.__match_args__))


def walk_ops(op: Op) -> Iterator[Op]:
    """The operation and all it works on, innermost first."""
    found, waiting = [], [op]
    while waiting:
        here = waiting.pop()
        found.append(here)
        waiting.extend(args_of(here))
    return reversed(found)


@lru_cache(maxsize=1 << 14)
def find_reads(op: Op) -> frozenset[str]:
    """The names that an operation reads."""
    return frozenset(part.name for part in walk_ops(op) if isinstance(part, Source))


def sort_axes(indices: Iterable[ir.Index], order: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
    """The indices in a preferred order; those it does not name come first, as they stand."""
    each = tuple(dict.fromkeys(indices))
    return tuple(sorted(each, key=lambda i: order.index(i) if i in order else -1))


def arrange(op: Op, axes: tuple[ir.Index, ...]) -> Op:
    """The operation's result with these axes in this order (those it lacks broadcast)."""
    if isinstance(op, Arrange) and {*op.axes} == {*axes_of(op.arg)}:
        op = op.arg
    here = axes_of(op)
    return op if not here or axes[len(axes) - len(here) :] == here else Arrange(op, axes)


def find_union(ops: Sequence[Op], order: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
    """All their axes, the widest operand's first where the order leaves it open."""
    widest = sorted(ops, key=lambda op: -len(axes_of(op)))
    return sort_axes((i for op in widest for i in axes_of(op)), order)


def align(ops: Sequence[Op], order: tuple[ir.Index, ...]) -> tuple[Op, ...]:
    """The operands over one order of axes, so that they broadcast."""
    axes = find_union(ops, order)
    return tuple(arrange(op, axes) for op in ops)


def combine(function: str, ops: Sequence[Op], order: tuple[ir.Index, ...]) -> Apply:
    """An elementwise function of operands that are brought over one order of axes."""
    args = align(ops, order)
    return Apply(function, args, find_union(args, order))


BOOLEANS = ("<", "<=", ">", ">=", "==", "!=", "and", "or", "not")


def is_number(expr: ir.Expr) -> bool:
    """Is it made of sizes, scalars and constants by arithmetic alone?"""
    kinds = (ir.Number, ir.Infinity, ir.Size, ir.Scalar, ir.Add, ir.Mul, ir.Pow)
    calls = {"pi", "I", "floordiv", "mod"}
    return all(
        part.function in calls if isinstance(part, ir.Call) else isinstance(part, kinds)
        for part in walk(expr)
    )


def is_integer(expr: ir.Expr) -> bool:
    """Is it arithmetic of indices and integers? It is computed in integers throughout.

    Positions above 256 have no bfloat16.
    """
    return is_counted(expr, brackets=False)


def strip_casts(op: Op, divides: bool = True) -> Op:
    """The operation on integers as they are; truth values alone become 0 and 1, which add up."""
    if isinstance(op, Cast):
        return op if op.kind == "int" else strip_casts(op.arg, divides)
    # a divisor that may be 0: torch raises for an integer, a float gives nan
    if divides and isinstance(op, NumTensor) and not op.wide and is_whole(op.value):
        return Cast(op, "int")
    args, numbers = [strip_casts(a, divides) for a in args_of(op)], (Num(ir.ONE), Num(ir.ZERO))
    function = op.function if isinstance(op, Apply) else "and"
    if function in {"-", "neg"} or (function not in BOOLEANS and all(map(is_boolean, args))):
        args = [Choose(a, *numbers, axes_of(a)) if is_boolean(a) else a for a in args]
    return with_args(op, tuple(args))


def is_boolean(op: Op) -> bool:
    """Does it hold truth values?"""
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
    return len(args_of(op)) == 1 and is_boolean(args_of(op)[0])


def is_complex(op: Op) -> bool:
    """Does it hold complex numbers?"""
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
    return any(map(is_complex, args_of(op)))


def to_source(name: str, op: Op) -> Source:
    """An operation by the name of the step that it is."""
    kinds = (("bool", is_boolean), ("int", is_integral), ("complex", is_complex))
    kind = next((kind for kind, test in kinds if test(op)), "real")
    return Source(name, axes_of(op), kind)


def is_integral(op: Op) -> bool:
    """Does it hold integers: places, index arithmetic, integer tensors?"""
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
    return bool(args_of(op)) and all(map(is_integral, args_of(op)))
