"""The symbolic values of tensors while code runs, and the record of the run.

    Buffer   one piece of memory: axes -> value   the value is an access of an equation's tensor, or
                                                  the expression of a mask, position or constant
    Shadow   one tensor: indices -> places        its element at `indices` is that of its buffer at
                                                  `places`

Views share a buffer and differ in their places; a write changes the buffer's value for all of them.
What an op computes becomes an equation `name[indices] = value` over earlier tensors, a step. Masks,
positions and constants are inlined instead. A constant tensor of the code is known where all its
elements are one number, where it is a triangle, and where it counts up.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Self

from derive.analysis.affine import simplify_place
from derive.errors import DeriveError, refuse
from derive.frontend.torch import exprs, numbers
from derive.frontend.torch.code import Spot, mark_spot
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, evaluate_extent
from derive.ir.walk import find_size_names, substitute, walk
from derive.libraries import torch


def kind_of(tensor: Any) -> str:
    """The kind of a tensor's elements: real, int, bool or complex."""
    if tensor.dtype is torch.bool:
        return "bool"
    if tensor.is_complex():
        return "complex"
    return "real" if tensor.is_floating_point() else "int"


@dataclass(eq=False)
class Buffer:
    """One piece of memory: its element for each value of its axes; a write changes `value`."""

    axes: tuple[ir.Index, ...]
    value: ir.Expr
    kind: str  # real | int | bool | complex
    unknown: DeriveError | None = None  # reason why the value is unknown


def find_address(tensor: Any) -> int:
    """The address of a tensor's memory; 0 if it has none."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (AttributeError, NotImplementedError, RuntimeError):
        return 0


@dataclass(frozen=True, eq=False)
class Shadow:
    """The symbolic value of a tensor: at `indices` the element of a buffer at `places`."""

    indices: tuple[ir.Index, ...]
    places: tuple[ir.Expr, ...]
    buffer: Buffer

    @classmethod
    def of(cls, indices: Sequence[ir.Index], value: ir.Expr, kind: str) -> Self:
        """The tensor with this value at the indices, in a new buffer."""
        axes = tuple(indices)
        return cls(axes, tuple(map(at, axes)), Buffer(axes, value, kind))

    @property
    def shape(self) -> tuple[ir.Expr, ...]:
        """The extents of the axes."""
        return tuple(index.extent for index in self.indices)

    @property
    def kind(self) -> str:
        """The kind of the elements: real, int, bool or complex."""
        return self.buffer.kind

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.indices)


def hint_of(index: ir.Index) -> str:
    """The preferred name of an index: i of `i~3`."""
    return index.name.partition("~")[0]


def at(index: ir.Index) -> ir.Expr:
    """An index as a place; 0 for an axis of length 1."""
    return ir.ZERO if index.extent is ir.ONE else index


def _find_value(tensor: Any, indices: Sequence[ir.Index]) -> ir.Expr | None:
    """The element of a constant tensor at its indices; None if no pattern is recognised."""
    if not tensor.numel():
        return None
    first = tensor.flatten()[0]
    if bool((tensor == first).all()):
        return _to_constant(first.item())
    if tensor.dim() == 1:
        steps = tensor[1:] - tensor[:-1] if kind_of(tensor) != "bool" else None
        if steps is not None and bool((steps == steps[0]).all()):
            slope, start = exprs.from_float(steps[0].item()), exprs.from_float(tensor[0].item())
            return exprs.add(exprs.multiply(slope, at(indices[0])), start)
        return _write_out(tensor, indices)
    if tensor.dim() < 2 or bool(tensor.isnan().any()):
        return None
    rows, columns = tensor.shape[-2:]
    table = tensor.reshape(-1, rows, columns)
    if not bool((table == table[0]).all()):
        return None
    gap = torch.arange(columns) - torch.arange(rows)[:, None]
    for offset in range(1 - rows, columns):
        inside, outside = table[0][gap <= offset], table[0][gap > offset]
        if bool((inside == inside[0]).all()) and bool((outside == outside[0]).all()):
            values = (_to_constant(inside[0].item()), _to_constant(outside[0].item()))
            far = exprs.subtract(at(indices[-1]), at(indices[-2]))
            condition = exprs.compare("<=", far, numbers.to_expr(offset))
            if tensor.dtype is not torch.bool:
                return exprs.choose(condition, *values)
            return condition if values[0] is ir.TRUE else exprs.negate_truth(condition)
    return _write_out(tensor, indices)


def _write_out(tensor: Any, indices: Sequence[ir.Index]) -> ir.Expr | None:
    """The element of a short constant vector as a choice by position; None for other tensors."""
    if tensor.dim() != 1 or tensor.numel() > 4:
        return None
    values = [_to_constant(each) for each in tensor.tolist()]
    if any(value in (ir.TRUE, ir.FALSE) for value in values):
        return None
    return exprs.choose_element(indices[0], values)


def _to_constant(value: Any) -> ir.Expr:
    return ir.Truth(value) if isinstance(value, bool) else exprs.from_float(value)


MOST_INLINED = 60  # nodes; a mask or position with more of them gets an equation of its own
SHADOW = "_derive_shadow"  # attribute of a torch tensor that holds its Shadow


class RestartError(BaseException):
    """Request to rerun with sizes fixed; no `except Exception` may catch it."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = tuple(names)


@dataclass(frozen=True)
class View:
    """A view assigned to a variable of the code: its element is an access of a step's tensor."""

    name: str
    indices: tuple[ir.Index, ...]
    value: ir.Access


def _fold_numbers(extent: ir.Expr) -> Polynomial:
    """The extent as a polynomial, with quotients of numbers such as `12//2` computed."""
    calls = (part for part in walk(extent) if isinstance(part, ir.Call))
    constant = (call for call in calls if not find_size_names(call))
    return Polynomial.of(substitute(extent, {call: simplify_place(call) for call in constant}))


class Trace:
    """The record of one run of the code."""

    def __init__(self, sizes: Mapping[str, int], fixed: Sequence[str] = ()) -> None:
        self.sizes = dict(sizes)
        self.fixed: dict[ir.Expr, ir.Expr] = {
            ir.Size(name): ir.Number(sizes[name])  # type: ignore[arg-type]
            for name in fixed
        }
        self.watch = numbers.Watch()
        self.numbers = count(1)  # for names of indices
        self.steps: dict[ir.Tensor, ir.Equation] = {}
        self.names: dict[ir.Tensor, str] = {}  # variables of the code, by step
        self.magnitudes: dict[ir.Tensor, float] = {}  # largest integers, by step
        self.spot = Spot()
        self.empty_rows: dict[str, None] = {}
        self.failed: Exception | None = None
        self.buffers: dict[int, dict[Buffer, None]] = {}  # by address
        self.kept: list[Any] = []  # kept alive, so that no address is reused in one run
        self.views: list[View] = []
        self.depth = 0  # number of composites being run, whose steps get no variable's name

    def extent(self, value: ir.Expr | Polynomial | int) -> ir.Expr:
        """The canonical form of an extent, with numbers for fixed sizes."""
        if isinstance(value, Polynomial):
            value = value.to_expr()
        elif hasattr(value, "__index__"):  # numpy's integers are no ints
            value = numbers.to_expr(value if isinstance(value, int) else int(value))
        return _fold_numbers(substitute(value, self.fixed)).to_expr()

    def number(self, extent: ir.Expr) -> int:
        """The number that an extent is in this run."""
        return evaluate_extent(extent, self.sizes)

    def to_int(self, extent: ir.Expr) -> int:
        """The extent as the symbolic integer that the code receives."""
        return numbers.make_int(self.number(extent), Polynomial.of(extent), self.watch)

    def index(self, extent: ir.Expr | Polynomial | int, hint: str = "") -> ir.Index:
        """A fresh index, under a unique name that begins with its preferred one."""
        return self.fresh_indices(ir.Index(hint, self.extent(extent)))[0]

    def fresh_indices(self, *indices: ir.Index) -> tuple[ir.Index, ...]:
        """Fresh indices with the same extents and preferred names."""
        names = (f"{hint_of(index)}~{next(self.numbers)}" for index in indices)
        return tuple(ir.Index(name, i.extent) for name, i in zip(names, indices, strict=True))

    def unify(self, one: ir.Expr, other: ir.Expr) -> ir.Expr:
        """The common form of two extents that must be equal.

        RestartError, to fix sizes, if they are equal in this run only; DeriveError if they differ.
        """
        gap = Polynomial.of(one) - Polynomial.of(other)
        if not gap.terms:
            return one
        names = find_size_names(gap.to_expr())
        if not names or self.number(one) != self.number(other):
            raise self.refuse("lift-unsure", "extents differ that torch takes for equal")
        for name in names:
            number = Polynomial.of(self.sizes[name]).to_expr()
            if not _fold_numbers(substitute(gap.to_expr(), {ir.Size(name): number})).terms:
                raise RestartError((name,))
        raise RestartError(names)

    def shadow(self, value: Any) -> Shadow:
        """The symbolic value of a tensor or a number; DeriveError if it is unknown."""
        if isinstance(value, (bool, int, float, complex)):
            kinds = {bool: "bool", int: "int", float: "real", complex: "complex"}
            return self.constant(value, next(kinds[k] for k in kinds if isinstance(value, k)))
        found = value.__dict__.get(SHADOW)
        if found is None or found[0] is not self:
            indices = tuple(self.index(int(length)) for length in value.shape)
            element = None if value.is_complex() else _find_value(value.detach(), indices)
            if element is None:
                says = f"a constant tensor of shape {tuple(value.shape)} comes from outside"
                help = "give it as an argument of the function"
                raise self.refuse("lift-constant", says, help)
            return Shadow.of(indices, element, kind_of(value))
        _, known, address = found
        if isinstance(known, DeriveError):
            raise known
        if find_address(value) != address:
            raise self.refuse("lift-write", "a tensor was given other memory")
        assert isinstance(known, Shadow)
        if known.buffer.unknown is not None:
            raise known.buffer.unknown
        return known

    def constant(self, value: Any, kind: str) -> Shadow:
        """A number as a tensor without axes; DeriveError for nan."""
        if isinstance(value, bool):
            return Shadow.of((), ir.Truth(value), kind)
        try:
            expr = numbers.to_expr(value)
        except ValueError:
            raise self.refuse("lift-op", f"the number {value} has no place in a formula") from None
        return Shadow.of((), substitute(expr, self.fixed), kind)

    def attach(self, tensor: Any, known: Shadow | DeriveError) -> None:
        """Set the symbolic value of a tensor, or the reason why it is unknown."""
        setattr(tensor, SHADOW, (self, known, find_address(tensor)))
        if isinstance(known, Shadow):
            self.buffers.setdefault(find_address(tensor), {})[known.buffer] = None
            self.kept.append(tensor.detach())

    def mark_unknown(self, tensor: Any, reason: DeriveError, but: Buffer | None = None) -> None:
        """Mark the values of the buffers in a tensor's memory as unknown, except `but`."""
        for buffer in self.buffers.get(find_address(tensor), {}):
            if buffer is not but:
                buffer.unknown = reason

    def is_known(self, tensor: Any) -> bool:
        """Whether the tensor is tracked by this run."""
        found = getattr(tensor, "__dict__", {}).get(SHADOW)
        return found is not None and found[0] is self

    def copy(self, shadow: Shadow) -> Shadow:
        """The same tensor in a new buffer."""
        axes = self.fresh_indices(*shadow.indices)
        return Shadow.of(axes, self.read_element(shadow, tuple(map(at, axes))), shadow.kind)

    def read_element(self, shadow: Shadow, places: Sequence[ir.Expr]) -> ir.Expr:
        """The element of a tensor at these places."""
        inner = tuple(exprs.substitute_at(place, shadow.indices, places) for place in shadow.places)
        return exprs.substitute_at(shadow.buffer.value, shadow.buffer.axes, inner)

    def read_number(self, shadow: Shadow, places: Sequence[ir.Expr]) -> ir.Expr:
        """The element of a tensor at these places as a number: 1 and 0 for truth values."""
        return exprs.to_number(self.read_element(shadow, places))

    def read_fresh(self, shadow: Shadow) -> tuple[tuple[ir.Index, ...], ir.Expr]:
        """The pair (fresh indices of a tensor, its element there as a number)."""
        indices = self.fresh_indices(*shadow.indices)
        return indices, self.read_number(shadow, tuple(map(at, indices)))

    def read_broadcast(self, shadow: Shadow, indices: Sequence[ir.Index]) -> ir.Expr:
        """A tensor's element at indices of a broadcast shape, whose last axes are the tensor's."""
        own = tuple(indices[len(indices) - shadow.rank :])
        places = [
            at(a) if a.extent is ir.ONE else at(b) for a, b in zip(shadow.indices, own, strict=True)
        ]
        return self.read_element(shadow, places)

    def broadcast(self, *shadows: Shadow) -> tuple[ir.Index, ...]:
        """Fresh indices for the shape to which tensors are broadcast."""
        rank = max((shadow.rank for shadow in shadows), default=0)
        axes = [[*shadow.indices][::-1] for shadow in shadows]
        last = ([own[k] for own in axes if k < len(own)] for k in range(rank))
        return tuple(self.join_axes(each) for each in [*last][::-1])

    def join_axes(self, axes: Sequence[ir.Index]) -> ir.Index:
        """A fresh index for axes that are broadcast together.

        RestartError, to fix the size, if an axis is repeated because a size is 1 in this run.
        """
        chosen, *others = axes
        for index in others:
            if chosen.extent is ir.ONE:
                chosen = index
            elif index.extent is not ir.ONE:
                here, there = self.number(chosen.extent), self.number(index.extent)
                if here != there and 1 in {here, there}:
                    one = chosen if here == 1 else index
                    raise RestartError(find_size_names(one.extent))
                self.unify(chosen.extent, index.extent)
        return self.fresh_indices(chosen)[0]

    def make_tensor(
        self, indices: Sequence[ir.Index], value: ir.Expr, kind: str = "real"
    ) -> Shadow:
        """A new tensor with this value; a short mask, position or constant gets no equation."""
        value = exprs.tidy(value)
        if _is_inlined(value, kind):
            return Shadow.of(indices, value, kind)
        return self.define(indices, value, kind)

    def define(self, indices: Sequence[ir.Index], value: ir.Expr, kind: str = "real") -> Shadow:
        """A new tensor, defined by an equation."""
        indices = tuple(indices)
        tensor = ir.Tensor(f"%{len(self.steps) + 1}", tuple(i.extent for i in indices), kind)
        self.steps[tensor] = ir.Equation(ir.Access(tensor, indices), value)
        self.names[tensor] = self.spot.name
        if kind == "int":
            self.magnitudes[tensor] = numbers.find_magnitude(value, self.magnitudes)
        axes = self.fresh_indices(*indices)
        return Shadow.of(axes, ir.Access(tensor, tuple(map(at, axes))), kind)

    def bound_integers(self, shadow: Shadow) -> float:
        """A bound on the absolute values of an integer tensor's entries."""
        return numbers.find_magnitude(self.read_number(shadow, shadow.indices), self.magnitudes)

    def may_be_empty(self, value: ir.Expr) -> bool:
        """Whether -oo occurs in the value or the steps it reads, so that a softmax may be empty."""
        todo, seen = [value], set[ir.Tensor]()
        while todo:
            for part in walk(todo.pop()):
                if isinstance(part, ir.Infinity):
                    return True
                read = part.tensor if isinstance(part, ir.Access) else None
                if read in self.steps and read not in seen:
                    seen.add(read)
                    todo.append(self.steps[read].value)
        return False

    def note_view(self, shadow: Shadow) -> None:
        """Record a view that is assigned to a variable of the code."""
        if self.spot.name and shadow.kind == "real":
            value = self.read_element(shadow, shadow.indices)
            if isinstance(value, ir.Access):
                self.views.append(View(self.spot.name, shadow.indices, value))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A context in which calls are those of a composite's definition, not of the code."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def note_result(self, found: Any) -> Any:
        """Record the result of a composite for the code's variable; return it."""
        if not self.depth > 1 and self.is_known(found):
            with suppress(DeriveError):
                self.note_view(self.shadow(found))
        return found

    def refuse(self, code: str, says: str, help: str = "") -> DeriveError:
        """The error with this code and message at the current line of the user's code."""
        place = f"line {self.spot.line}: " if self.spot.line else ""
        facts = [f"in {self.spot.op}"] if self.spot.op else []
        return refuse(code, place + says, marks=mark_spot(self.spot), facts=facts, help=help)


def _is_inlined(value: ir.Expr, kind: str) -> bool:
    parts = tuple(walk(value))
    if any(isinstance(part, (ir.Reduce, ir.Along)) for part in parts):
        return False
    kinds = {"real", "complex"}
    is_read = any(isinstance(part, ir.Access) and part.tensor.kind in kinds for part in parts)
    if kind in kinds and is_read:
        return False
    return exprs.count_nodes(value) <= MOST_INLINED


def remap(shadow: Shadow, indices: Sequence[ir.Index], olds: Sequence[ir.Expr]) -> Shadow:
    """The view with new indices, whose element is the old view's at the places `olds`."""
    places = tuple(
        exprs.substitute_at(place, shadow.indices, tuple(olds)) for place in shadow.places
    )
    return Shadow(tuple(indices), places, shadow.buffer)
