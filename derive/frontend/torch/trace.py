"""The record of one run: fresh indices, equations in the order in which code made them.

What an op computes becomes `name[letters] = value` over accesses of earlier tensors. Masks,
positions and constants are no equations: they stay written out, and are put where they are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from derive.errors import refuse
from derive.frontend.torch.constants import recognise
from derive.frontend.torch.exprs import to_number
from derive.frontend.torch.memory import Memory, find_address
from derive.frontend.torch.numbers import (
    SymbolicFloat,
    SymbolicInt,
    Watch,
    make_int,
    plain,
    to_expr,
)
from derive.frontend.torch.places import count_nodes, put, tidy
from derive.frontend.torch.shadow import Buffer, Letters, Poison, Shadow, at
from derive.frontend.torch.spots import Spot, mark_spot
from derive.ir.nodes import ONE, Access, Along, Expr, Index, Infinity, Number, Reduce, Size, Tensor
from derive.ir.polynomial import Polynomial, evaluate_extent
from derive.ir.walk import substitute, walk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from derive.errors import DeriveError

LIGHT = 60  # nodes; a mask or position with more of them gets an equation of its own
SHADOW = "_derive_shadow"


class RestartError(BaseException):
    """These sizes have to be numbers; no `except Exception` of the user's may catch it."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = tuple(names)


class PoisonedError(Exception):
    """A value is asked for that cannot be told."""

    def __init__(self, error: DeriveError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class Step:
    """One equation and where it comes from."""

    tensor: Tensor
    letters: tuple[Index, ...]
    value: Expr
    spot: Spot


@dataclass(frozen=True)
class View:
    """A view with a name: what an element is, as an access of a step's tensor."""

    name: str
    letters: tuple[Index, ...]
    value: Access


class Trace:
    """What one run of the code is found to compute."""

    def __init__(self, sizes: Mapping[str, int], fixed: Sequence[str] = ()) -> None:
        self.sizes = dict(sizes)
        self.fixed: dict[Expr, Expr] = {
            Size(name): Number(sizes[name])  # type: ignore[arg-type]
            for name in fixed
        }
        self.watch = Watch()
        self.letters = Letters()
        self.steps: list[Step] = []
        self.spot = Spot()
        self.empty_rows: dict[str, None] = {}
        self.hints: dict[Expr, str] = {}
        self.failed: Exception | None = None
        self.memory = Memory()
        self.views: list[View] = []

    def extent(self, value: Expr | Polynomial | int) -> Expr:
        """An extent in its one form, sizes that are numbers put in."""
        if isinstance(value, Polynomial):
            value = value.to_expr()
        elif isinstance(value, int):
            value = to_expr(value)
        return Polynomial.of(substitute(value, self.fixed)).to_expr()

    def number(self, extent: Expr) -> int:
        """The extent in this run."""
        return evaluate_extent(extent, self.sizes)

    def to_int(self, extent: Expr) -> int:
        """The extent as the number that code is given."""
        return make_int(self.number(extent), Polynomial.of(extent), self.watch)

    def letter(self, extent: Expr | Polynomial | int, hint: str = "") -> Index:
        """A fresh index; it is called like its size where nothing else is known."""
        told = self.extent(extent)
        return self.letters.make(told, hint or self.hints.get(told, ""))

    def like(self, *indices: Index) -> tuple[Index, ...]:
        """Fresh indices with the same extents and hints."""
        return tuple(self.letters.copy(index) for index in indices)

    def unify(self, one: Expr, other: Expr) -> Expr:
        """Two extents that have to be equal; if they are so in this run only, sizes are fixed."""
        gap = Polynomial.of(one) - Polynomial.of(other)
        if not gap.terms:
            return one
        names = tuple(dict.fromkeys(a.name for a in walk(gap.to_expr()) if isinstance(a, Size)))
        if not names or self.number(one) != self.number(other):
            raise self.refuse("lift-unsure", "extents differ that torch takes for equal")
        for name in names:
            number = Polynomial.of(self.sizes[name]).to_expr()
            rest = substitute(gap.to_expr(), {Size(name): number})
            if not Polynomial.of(rest).terms:
                raise RestartError((name,))
        raise RestartError(names)

    def shadow(self, value: Any) -> Shadow:
        """What is known of a tensor or of a number."""
        if isinstance(value, (bool, int, float)):
            kind = (
                "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "real"
            )
            return self.constant(value, kind)
        if type(value).__module__ == "numpy":
            says = "a number or table of numpy does not tell which sizes it is made of"
            raise self.refuse("lift-constant", says, "use torch or math")
        found = value.__dict__.get(SHADOW)
        if found is None or found[0] is not self:
            return self._recognise(value)
        _, known, address = found
        if isinstance(known, Poison):
            raise PoisonedError(known.error)
        if find_address(value) != address:
            raise PoisonedError(self.refuse("lift-write", "a tensor was given other memory"))
        assert isinstance(known, Shadow)
        if known.buffer.poison is not None:
            raise PoisonedError(known.buffer.poison)
        return known

    def _recognise(self, tensor: Any) -> Shadow:
        shadow = recognise(tensor, self.letter)
        if shadow is None:
            says = f"a constant tensor of shape {tuple(tensor.shape)} comes from outside"
            help = "give it as an argument of the function"
            raise PoisonedError(self.refuse("lift-constant", says, help))
        return shadow

    def constant(self, value: Any, kind: str) -> Shadow:
        """A number as a tensor without axes."""
        from derive.ir.nodes import Truth

        if isinstance(value, bool):
            return Shadow((), (), Buffer((), Truth(value), kind))
        try:
            expr = to_expr(value)
        except ValueError:
            raise self.refuse("lift-op", f"the number {value} has no place in a formula") from None
        return Shadow((), (), Buffer((), substitute(expr, self.fixed), kind))

    def tie(self, tensor: Any, known: Shadow | Poison) -> None:
        """What is known of a tensor from now on."""
        setattr(tensor, SHADOW, (self, known, find_address(tensor)))
        if isinstance(known, Shadow):
            self.memory.note(tensor, known.buffer)

    def is_tied(self, tensor: Any) -> bool:
        """Has the tensor come out of this run?"""
        found = tensor.__dict__.get(SHADOW)
        return found is not None and found[0] is self

    def copy(self, shadow: Shadow) -> Shadow:
        """The same values in memory of their own."""
        axes = self.like(*shadow.letters)
        places = tuple(map(at, axes))
        return Shadow(axes, places, Buffer(axes, self.read(shadow, places), shadow.kind))

    def read(self, shadow: Shadow, places: Sequence[Expr]) -> Expr:
        """The element of a tensor at these places."""
        inner = tuple(put(place, shadow.letters, places) for place in shadow.places)
        return put(shadow.buffer.value, shadow.buffer.axes, inner)

    def read_number(self, shadow: Shadow, places: Sequence[Expr]) -> Expr:
        """The element as a number: truth values are 1 and 0."""
        return to_number(self.read(shadow, places), shadow.kind)

    def spread(self, shadow: Shadow, letters: Sequence[Index]) -> Expr:
        """The element under broadcasting: axes are matched from the last on."""
        own = tuple(letters[len(letters) - shadow.rank :])
        places = [
            at(a) if a.extent is ONE else at(b) for a, b in zip(shadow.letters, own, strict=True)
        ]
        return self.read(shadow, places)

    def broadcast(self, *shadows: Shadow) -> tuple[Index, ...]:
        """Fresh indices for the common shape."""
        rank = max((shadow.rank for shadow in shadows), default=0)
        letters: list[Index] = []
        for number in range(rank):
            chosen: Index | None = None
            for shadow in shadows:
                own = number - rank + shadow.rank
                if own < 0:
                    continue
                index = shadow.letters[own]
                if chosen is None or chosen.extent is ONE:
                    chosen = index
                elif index.extent is not ONE:
                    self.unify(self._open_one(chosen.extent, index), index.extent)
            assert chosen is not None
            letters.append(self.letters.copy(chosen))
        return tuple(letters)

    def _open_one(self, extent: Expr, other: Index) -> Expr:
        """A size that is 1 in this run is broadcast as a number."""
        values = self.number(extent), self.number(other.extent)
        if 1 in values and values[0] != values[1]:
            lone = extent if values[0] == 1 else other.extent
            names = [a.name for a in walk(lone) if isinstance(a, Size)]
            raise RestartError(tuple(dict.fromkeys(names)))
        return extent

    def make(self, letters: Sequence[Index], value: Expr, kind: str = "real") -> Shadow:
        """A new tensor with these values; a light one is no equation."""
        letters = tuple(letters)
        value = tidy(value)
        places = tuple(at(letter) for letter in letters)
        if _is_light(value, kind):
            return Shadow(letters, places, Buffer(letters, value, kind))
        return self.define(letters, value, kind)

    def define(self, letters: Sequence[Index], value: Expr, kind: str = "real") -> Shadow:
        """A new tensor by an equation."""
        letters = tuple(letters)
        tensor = Tensor(f"%{len(self.steps) + 1}", tuple(i.extent for i in letters), kind)
        self.steps.append(Step(tensor, letters, value, self.spot))
        axes = self.like(*letters)
        places = tuple(at(axis) for axis in axes)
        return Shadow(axes, places, Buffer(axes, Access(tensor, places), kind))

    def may_be_empty(self, value: Expr) -> bool:
        """Is there a -oo in it, or in the steps that it reads?"""
        values = {step.tensor: step.value for step in self.steps}
        todo, seen = [value], set[Tensor]()
        while todo:
            for part in walk(todo.pop()):
                if isinstance(part, Infinity):
                    return True
                if isinstance(part, Access) and part.tensor in values and part.tensor not in seen:
                    seen.add(part.tensor)
                    todo.append(values[part.tensor])
        return False

    def note_view(self, shadow: Shadow) -> None:
        """A view that goes into a variable of the code, as it is now."""
        if self.spot.name and shadow.kind == "real":
            value = self.read(shadow, shadow.letters)
            if isinstance(value, Access):
                self.views.append(View(self.spot.name, shadow.letters, value))

    def refuse(self, code: str, says: str, help: str = "") -> DeriveError:
        """A refusal that names the line of the code."""
        place = f"line {self.spot.line}: " if self.spot.line else ""
        facts = [f"in {self.spot.op}"] if self.spot.op else []
        return refuse(code, place + says, marks=mark_spot(self.spot), facts=facts, help=help)


def is_symbolic(value: Any) -> bool:
    """Does a number carry sizes?"""
    return isinstance(value, (SymbolicInt, SymbolicFloat))


def strip(value: Any) -> Any:
    """The number alone."""
    return plain(value)


def _is_light(value: Expr, kind: str) -> bool:
    parts = tuple(walk(value))
    if any(isinstance(part, (Reduce, Along)) for part in parts):
        return False
    reads = (part for part in parts if isinstance(part, Access) and part.tensor.kind == "real")
    if kind == "real" and any(True for _ in reads):
        return False
    return count_nodes(value) <= LIGHT
