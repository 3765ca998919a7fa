"""The steps of a generated function, their names, and the loops over blocks that some run in.

A step that the formula does not name gets a name made from the names it does.
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

# Before the first block: 0, or 1 where there is no block; 1; the lowest finite number; infinities.
Start: TypeAlias = Literal["zero", "empty", "one", "lowest", "-oo", "oo"]


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the generated function: a name and the operation that gives it."""

    name: str
    op: ops.Op

    @property
    def axes(self) -> tuple[ir.Index, ...]:
        """The indices of the result, in order."""
        return ops.axes_of(self.op)


@dataclass(frozen=True, slots=True)
class Running:
    """A value that a loop carries from block to block; a step of the loop makes it anew."""

    name: str
    axes: tuple[ir.Index, ...]
    start: Start


@dataclass(frozen=True, slots=True)
class Carried:
    """A tensor that recurs: the list of its values, what that begins with, and what a turn adds."""

    name: str
    each: str
    first: tuple[ops.Op, ...]
    made: ops.Op
    before: tuple[tuple[str, int], ...]  # names in a turn, and how many turns before they were made
    skipped: int  # of the first that are no part of the tensor
    axis: int
    shape: tuple[ir.Expr, ...]  # of all values together
    last: str  # the name of its last value, where something reads that alone
    is_kept: bool  # whether something reads the others after the loop


@dataclass(frozen=True, slots=True)
class Scan:
    """Some of the steps run once for each place of an index, in turn."""

    index: ir.Index
    first: int  # of the steps in the loop
    last: int
    # A name in a turn, what it is a place of, which axis.
    sliced: tuple[tuple[str, ops.Op, int], ...]
    carried: tuple[Carried, ...]
    turn: str = ""  # the number of the turn, where a step reads it


@dataclass(frozen=True, slots=True)
class Tile:
    """Some of the steps run in a loop over blocks of an index, whose length is a keyword argument.

    The index of those steps has the extent `block`. A block is as long as keeps the largest tensor
    in it to `target` elements; each position adds `unit` elements to that tensor. An index that is
    summed leaves nothing to be joined: its loop has running values. Some of the steps may run in a
    loop of their own.
    """

    index: ir.Index
    block: str
    first: int  # of the steps in the loop
    last: int
    sliced: tuple[tuple[str, ops.Op], ...]  # the name of a block, and what it is a block of
    # A step, the list of its blocks or the whole of them, the place of the index.
    joined: tuple[tuple[str, str, int], ...]
    unit: Polynomial
    target: int
    running: tuple[Running, ...] = ()
    wide: str = ""  # the name of the dtype of the running sums: half precision would not do
    inner: Tile | None = None
    start: str = ""  # the name of a block's first position, where blocks are written into a whole
    # A step whose blocks are written into the whole that the loop around has of it, and the place.
    through: tuple[tuple[str, int], ...] = ()

    @property
    def blocks(self) -> Polynomial:
        """How many blocks there are, the last one counted by its share."""
        return Polynomial.of(ir.Mul((self.index.extent, ir.Pow(ir.Size(self.block), ir.MINUS_ONE))))

    def is_shifting(self, op: ops.Op) -> bool:
        """Are these windows, or a copy of some, and the loop goes over the positions in them?"""
        windows = (
            op.whole.arg if isinstance(op, ops.Cell) and isinstance(op.whole, ops.Arrange) else op
        )
        return isinstance(windows, ops.Unfold) and windows.inner is self.index

    @property
    def names(self) -> set[str]:
        """The names that the loop has beside those of its steps."""
        lists = {name for _, name, _ in self.joined}
        own = {self.block, self.wide, self.start, *(name for name, _ in self.sliced)}
        return lists | own - {""}

    def keep(self, kept: Sequence[bool], reads: Sequence[Set[str]]) -> Tile | None:
        """The loop among those steps alone that are kept; `reads` by step, and by the results."""
        first, last = sum(kept[: self.first]), sum(kept[: self.last + 1]) - 1
        if last < first:
            return None
        names = set[str]().union(*reads[self.last + 1 :])
        inner = self.inner and self.inner.keep(kept, reads)
        joined = tuple(each for each in self.joined if each[0] in names)
        through = tuple(each for each in self.through if each[0] in names)
        running = tuple(each for each in self.running if each.name in names)
        tile = replace(self, joined=joined, through=through, running=running)
        return replace(tile, first=first, last=last, inner=inner)

    @property
    def nest(self) -> tuple[Tile, ...]:
        """The loop and those inside it, outermost first."""
        return (self, *(self.inner.nest if self.inner is not None else ()))


LONGEST = 24
CUT = LONGEST + len("_scaled") + 1  # what is longer is too long with and without that ending
RESERVED = {"torch", "Tensor", *keyword.kwlist, *keyword.softkwlist, *dir(builtins)}
_WORDS = {"+": "plus", "-": "minus", "<": "mask", "<=": "mask", ">": "mask", ">=": "mask"}
_WORDS |= {"==": "mask", "!=": "mask", "and": "mask", "or": "mask", "not": "mask", "neg": "minus"}


def free_name(wanted: str, taken: Container[str]) -> str:
    """The name itself, or with a number, so that it is neither taken nor Python's own."""
    name = f"{wanted}_" if wanted in RESERVED else wanted
    numbered = (f"{wanted}_{k}" for k in range(2, 10**6))
    return name if name not in taken else next(n for n in numbered if n not in taken)


def name_op(op: ops.Op, target: str) -> str:
    """What a person might call it: `q_k` for q times k, `exp_x`, `max_x`, `causal`."""
    name = _describe(op)
    return name if name and len(name) <= LONGEST else f"{target}_{_role(op)}"


def name_part(part: ops.Op, whole: ops.Op, target: str) -> str:
    """What a part of a long line might be called: what a row is taken of, else by itself."""
    inside = whole
    while isinstance(inside, (ops.Along, ops.Fill)):
        inside = ops.args_of(inside)[0]
        if inside is part and isinstance(whole, ops.Along):
            return f"{target}_logits"
    return name_op(part, target)


@lru_cache(maxsize=1 << 14)
def _describe(op: ops.Op) -> str:
    """The words of an operation, cut where they are too long for a name anyhow."""
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
            return _join(words if len(words) == len(args) else ["sum", *words])
        case ops.Reduction(kind, arg, _):
            return _join([kind, _describe(arg)])
        case ops.Along(kind, arg, _):
            return _join([kind, _describe(arg)])
        case ops.Fill(arg, _, _, _):
            return _join([_describe(arg), "masked"])
        case ops.Pad(arg):
            return _join([_describe(arg).removesuffix("_padded"), "padded"])
        case ops.Flip(arg):
            return _join([_describe(arg), "reversed"])
        case ops.Fourier(arg):
            return _join([_describe(arg).removesuffix("_spectrum"), "spectrum"])
        case ops.Cell(_, _, whole):
            return _describe(whole)
        case ops.Choose():
            return ""
        case ops.Apply(function, args, _):
            return _describe_apply(function, args)
        case ops.Num():
            return ""
    return _describe(ops.args_of(op)[0]) if ops.args_of(op) else ""


def is_mask(op: ops.Op) -> bool:
    """Is it a factor of 0 and 1?"""
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
        return _join([word, "scaled"])
    if function == "pow":
        return _join([_describe(args[0]), "power"])
    words = [_describe(a) for a in tensors]
    if function in {"*", "/"}:
        return _join([words[0], "over", *words[1:]] if function == "/" and words else words)
    if function in {"+", "-"}:
        return _join([words[0], _WORDS[function], *words[1:]]) if words else ""
    return _join([_WORDS.get(function, function), *words])


def _join(words: list[str]) -> str:
    return "_".join(words) if words and all(words) else ""


def _role(op: ops.Op) -> str:
    match op:
        case ops.Einsum():
            return "product"
        case ops.Reduction(kind, _, _) | ops.Along(kind, _, _):
            return kind
    return "part"
