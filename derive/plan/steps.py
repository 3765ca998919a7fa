"""The steps of a generated function, their names, and the loops around some of them.

A step that the formula does not name is named after its operands: `q_k`, `exp_x`.
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Container, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_size_names
from derive.plan import ops

# Initial values of a loop: 0; 0, but 1 without any block; the lowest finite number; infinities.
Start: TypeAlias = Literal["zero", "empty", "lowest", "-oo", "oo"]


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the generated function: a name and its operation."""

    name: str
    op: ops.Op

    @property
    def axes(self) -> tuple[ir.Index, ...]:
        """The indices of the result, in order."""
        return self.op.axes


@dataclass(frozen=True, slots=True)
class Running:
    """An accumulator of a loop over blocks; the step of the same name updates it."""

    name: str
    axes: tuple[ir.Index, ...]
    start: Start


@dataclass(frozen=True, slots=True)
class Carried:
    """A state of a recurrence, which the loop collects in a list."""

    name: str
    each: str  # the name of the list
    first: tuple[ops.Op, ...]  # the values before the loop
    made: ops.Op  # the value that an iteration appends
    before: tuple[tuple[str, int], ...]  # names of previous values, and their lags
    skipped: int  # initial values that are not part of the tensor
    axis: int  # the axis of the loop in the tensor
    shape: tuple[ir.Expr, ...]  # the shape of the tensor
    last: str  # the name of the last value; "" if nothing reads it alone
    is_kept: bool  # whether other values are read after the loop


@dataclass(frozen=True, slots=True)
class Scan:
    """The loop of a recurrence over the positions of an index."""

    index: ir.Index
    first: int  # the number of the first step in the loop
    last: int
    # A name in the loop, the operation that it is a slice of, and the sliced axis.
    sliced: tuple[tuple[str, ops.Op, int], ...]
    carried: tuple[Carried, ...]
    turn: str = ""  # the name of the turn's number; "" if no step reads it


@dataclass(frozen=True, slots=True)
class Tile:
    """A loop over blocks of an index, whose length is a keyword argument.

    In the steps of the loop, the index has the extent `block`. The default limits the largest
    tensor in it to `target` elements. Over a summed index, accumulators stand for joined blocks.
    """

    index: ir.Index
    block: str  # the keyword argument
    first: int  # the number of the first step in the loop
    last: int
    sliced: tuple[tuple[str, ops.Op], ...]  # the name of a block, and the sliced operation
    # A step, the name of the list of its blocks or of the whole tensor, and the axis of the index.
    joined: tuple[tuple[str, str, int], ...]
    unit: Polynomial  # elements of the largest tensor for each position of a block
    target: int
    running: tuple[Running, ...] = ()
    wide: str = ""  # the name of the dtype of the accumulators, if half precision needs another
    inner: Tile | None = None  # a loop inside this one
    start: str = ""  # the name of a block's first position, if blocks are written in place
    # A step whose blocks are written into a tensor of the outer loop, and the axis.
    through: tuple[tuple[str, int], ...] = ()

    @property
    def blocks(self) -> Polynomial:
        """The number of blocks; a shorter last block counts as a fraction."""
        return Polynomial.of(ir.Mul((self.index.extent, ir.Pow(ir.Size(self.block), ir.MINUS_ONE))))

    def is_shifting(self, op: ops.Op) -> bool:
        """Whether an operation is windows, or a copy of them, and the loop runs within a window."""
        windows = (
            op.whole.arg if isinstance(op, ops.Cell) and isinstance(op.whole, ops.Arrange) else op
        )
        return isinstance(windows, ops.Unfold) and windows.inner is self.index

    @property
    def names(self) -> set[str]:
        """The names that the loop defines, without its steps."""
        lists = {name for _, name, _ in self.joined}
        own = {self.block, self.wide, self.start, *(name for name, _ in self.sliced)}
        return lists | own - {""}

    def keep_steps(self, kept: Sequence[bool], reads: Sequence[Set[str]]) -> Tile | None:
        """The loop restricted to the kept steps; None if none is in it.

        `reads` are the names that each step and each result reads.
        """
        first, last = sum(kept[: self.first]), sum(kept[: self.last + 1]) - 1
        if last < first:
            return None
        names = set[str]().union(*reads[self.last + 1 :])
        inner = self.inner and self.inner.keep_steps(kept, reads)
        joined = tuple(each for each in self.joined if each[0] in names)
        through = tuple(each for each in self.through if each[0] in names)
        running = tuple(each for each in self.running if each.name in names)
        tile = replace(self, joined=joined, through=through, running=running)
        return replace(tile, first=first, last=last, inner=inner)

    @property
    def nest(self) -> tuple[Tile, ...]:
        """The loop and those inside it, outermost first."""
        return (self, *(self.inner.nest if self.inner is not None else ()))


LONGEST = 24  # characters of a name
CUT = LONGEST + len("_scaled") + 1  # longer names are too long even without this suffix
RESERVED = {"torch", "Tensor", *keyword.kwlist, *keyword.softkwlist, *dir(builtins)}
_WORDS = {"+": "plus", "-": "minus", "<": "mask", "<=": "mask", ">": "mask", ">=": "mask"}
_WORDS |= {"==": "mask", "!=": "mask", "and": "mask", "or": "mask", "not": "mask", "neg": "minus"}


def free_name(wanted: str, taken: Container[str]) -> str:
    """The name, with a number or an underscore if it is taken or reserved by Python."""
    name = f"{wanted}_" if wanted in RESERVED else wanted
    numbered = (f"{wanted}_{k}" for k in range(2, 10**6))
    return name if name not in taken else next(n for n in numbered if n not in taken)


def name_op(op: ops.Op, target: str) -> str:
    """A readable name for an operation: `q_k` for q times k, `exp_x`, `max_x`, `causal`."""
    name = _describe(op)
    return name if name and len(name) <= LONGEST else f"{target}_{_name_role(op)}"


def name_part(part: ops.Op, whole: ops.Op, target: str) -> str:
    """A readable name for a part of a long line; the input of a normalized row is `.._logits`."""
    inside = whole
    while isinstance(inside, (ops.Along, ops.Fill)):
        inside = inside.args[0]
        if inside is part and isinstance(whole, ops.Along):
            return f"{target}_logits"
    return name_op(part, target)


@lru_cache(maxsize=1 << 14)
def _describe(op: ops.Op) -> str:
    """A name in words for an operation, truncated to CUT characters; "" if it has none."""
    return _find_words(op)[:CUT]


def _find_words(op: ops.Op) -> str:
    match op:
        case ops.Source(name, _, _):
            return name
        case ops.Iota(index):
            return index.name
        case ops.Triangle(_, _, _, upper):
            return "anticausal" if upper else "causal"
        case ops.Einsum(args, _):
            words = [_describe(a).removesuffix("_scaled") for a in args if not is_mask(a)]
            return _join_words(words if len(words) == len(args) else ["sum", *words])
        case ops.Reduction(kind, arg, _):
            return _join_words([kind, _describe(arg)])
        case ops.Along(kind, arg, _):
            return _join_words([kind, _describe(arg)])
        case ops.Fill(arg, _, _, _):
            return _join_words([_describe(arg), "masked"])
        case ops.Pad(arg):
            return _join_words([_describe(arg).removesuffix("_padded"), "padded"])
        case ops.Flip(arg):
            return _join_words([_describe(arg), "reversed"])
        case ops.Fourier(arg):
            return _join_words([_describe(arg).removesuffix("_spectrum"), "spectrum"])
        case ops.Cell(_, _, whole):
            return _describe(whole)
        case ops.Choose():
            return ""
        case ops.Apply(function, args, _):
            return _describe_apply(function, args)
        case ops.Num():
            return ""
    return _describe(op.args[0]) if op.args else ""


def is_mask(op: ops.Op) -> bool:
    """Whether an operation is a boolean mask cast to zeros and ones."""
    return isinstance(op, ops.Cast) and ops.is_boolean(op.arg)


def _describe_apply(function: str, args: tuple[ops.Op, ...]) -> str:
    tensors = [a for a in args if _describe(a)]
    if _WORDS.get(function) == "mask":
        return "mask"
    if len(tensors) == 1 and function in {"*", "/"}:
        word = _describe(tensors[0])
        counts = isinstance(args[-1], ops.Num) and find_size_names(args[-1].value)
        if function == "/" and counts and word.startswith("sum_"):
            return word.replace("sum_", "mean_", 1)
        return _join_words([word, "scaled"])
    if function == "pow":
        return _join_words([_describe(args[0]), "power"])
    words = [_describe(a) for a in tensors]
    if function in {"*", "/"}:
        return _join_words([words[0], "over", *words[1:]] if function == "/" and words else words)
    if function in {"+", "-"}:
        return _join_words([words[0], _WORDS[function], *words[1:]]) if words else ""
    return _join_words([_WORDS.get(function, function), *words])


def _join_words(words: list[str]) -> str:
    return "_".join(words) if words and all(words) else ""


def _name_role(op: ops.Op) -> str:
    match op:
        case ops.Einsum():
            return "product"
        case ops.Reduction(kind, _, _) | ops.Along(kind, _, _):
            return kind
    return "part"
