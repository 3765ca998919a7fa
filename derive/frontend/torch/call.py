"""One call of a torch function: its arguments, torch's result, and the memory that it writes into.

An op is a row of a table in `ops/`: its names in torch, its meaning, and examples. A row is either
a function under `@op`, which returns the result's expression, or a composite in the list ROWS:

    @op("cumsum", "x[B, S]: torch.cumsum(x, -1)")
    def _cumsum(call): ..
    composite("dist", lambda x, y: (x - y).norm(), "x, y[S]: torch.dist(x, y)")

A composite is a definition by other torch functions, which runs in place of the call. In an example
the part before the colon declares tensors, the rest is Python whose last statement is the result;
one parametrised test lifts every example and compares the values with torch's.

A write through an unknown tensor makes every buffer in its memory unknown. So does a write that
reads elements that it overwrites, because its result depends on the order in which torch visits
them. A view maps its indices to places of the buffer. A write inverts that map: for each place of
the buffer, whether the view reaches it, and from which indices.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import SimpleNamespace
from typing import Any

from derive.analysis.affine import divide, modulo, to_linear, to_place
from derive.analysis.facts import is_positive
from derive.frontend.torch import exprs
from derive.frontend.torch.trace import Shadow, Trace, find_address, kind_of
from derive.ir import nodes as ir
from derive.ir.polynomial import NOTHING, Polynomial, split_steps
from derive.ir.walk import walk
from derive.libraries import torch

_MISSING = object()


@dataclass(frozen=True)
class Call:
    """A call of a torch function and its result."""

    trace: Trace
    name: str
    args: tuple[Any, ...]
    named: dict[str, Any]
    out: Any

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument given at this position or by this name, else the default."""
        if position < len(self.args):
            return self.args[position]
        return self.named.get(name, default)

    def shadow(self, position: int, name: str = "input") -> Shadow:
        """The symbolic value of a tensor argument; DeriveError if it is no tensor."""
        value = self.argument(position, name, _MISSING)
        if value is _MISSING or value is None:
            raise self.trace.refuse("lift-op", f"{self.name} is called in a way that is not known")
        return self.trace.shadow(value)

    @property
    def kind(self) -> str:
        """The kind of the result's elements."""
        return kind_of(self.out)

    def axis(self, position: int, rank: int, default: Any = None, name: str = "dim") -> int:
        """An axis argument as a number >= 0, for a tensor of this rank; DeriveError if absent."""
        value = self.argument(position, name, default)
        if value is None:
            raise self.trace.refuse("lift-op", f"{self.name} without a dimension is not known")
        return int(value) % max(rank, 1)

    def axes(self, position: int, rank: int) -> tuple[int, ...]:
        """The axes of a reduction as numbers >= 0; all axes if the call names none."""
        value = self.argument(position, "dim")
        if value is None or value in ((), []):
            return tuple(range(rank))
        if isinstance(value, int):
            value = (value, *(a for a in self.args[position + 1 :] if type(a) is int))
        return tuple(int(each) % max(rank, 1) for each in value)

    def list_numbers(self, position: int, name: str) -> tuple[Any, ...]:
        """Arguments given one by one or as one tuple: `view(2, 3)`, `view((2, 3))`."""
        if name in self.named:
            value = self.named[name]
        else:
            rest = self.args[position:]
            value = rest[0] if len(rest) == 1 and isinstance(rest[0], (tuple, list)) else rest
        return (value,) if isinstance(value, int) else tuple(value)

    def flag(self, position: int, name: str) -> bool:
        """A Boolean argument; False if it is not given."""
        return bool(self.argument(position, name))


Act = Callable[[Call], Any]


@dataclass(frozen=True)
class Op:
    """A function of torch: its names, examples, and what it computes, by `act` or `definition`."""

    names: str
    act: Act | None
    examples: tuple[str, ...]
    is_view: bool = False  # whether the result may share memory with the first argument
    is_write: bool = False  # whether it writes into its first argument
    definition: Callable[..., Any] | None = None


def composite(names: str, definition: Callable[..., Any], *examples: str) -> Op:
    """A row whose meaning is a Python function that calls other torch functions."""
    return Op(names, None, examples, definition=definition)


def op(
    names: str, *examples: str, is_view: bool = False, is_write: bool = False
) -> Callable[[Act], Op]:
    """A decorator that turns a function of a call into a row of the table."""
    return lambda act: Op(names, act, examples, is_view, is_write)


def find_fields(found: Any) -> dict[str, Any] | None:
    """The fields of a dictionary, dataclass, named tuple or namespace; None for other values."""
    if isinstance(found, Mapping):
        return {str(name): value for name, value in found.items()}
    if is_dataclass(found) and not isinstance(found, type):
        return {each.name: getattr(found, each.name, None) for each in fields(found)}
    if isinstance(found, tuple) and hasattr(found, "_asdict"):
        return dict(found._asdict())
    return dict(vars(found)) if isinstance(found, SimpleNamespace) else None


def find_tensors(found: Any) -> Iterator[Any]:
    """The torch tensors in nested lists and tuples, in order."""
    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, (tuple, list)):
        for each in found:
            yield from find_tensors(each)


def is_reading_what_it_writes(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether a call overwrites elements that it also reads, other than each at its own place."""
    out = tuple(find_tensors(named.get("out")))
    if out:
        elementwise = hasattr(torch.Tensor, f"{name}_")
        return any(
            is_overlapping(one, other) or (_is_shared(one, other) and not elementwise)
            for one in out
            for other in find_tensors(args)
        )
    target = args[0]
    if name == "__setitem__":
        region = args[0][args[1]]
        target = region if _is_shared(region, args[0]) else args[0]
    return any(is_overlapping(target, other) for other in find_tensors(args[1:]))


def _is_shared(one: Any, other: Any) -> bool:
    return find_address(one) == find_address(other) != 0


def is_overlapping(one: Any, other: Any) -> bool:
    """Whether two tensors share memory, so that an element has different places in the two."""
    if not _is_shared(one, other):
        return False
    layouts = [(t.storage_offset(), tuple(t.shape), t.stride(), t.dtype) for t in (one, other)]
    if layouts[0] == layouts[1]:
        return False
    if one.dtype != other.dtype:
        return True
    length = one.untyped_storage().nbytes() // one.element_size()
    counted = torch.arange(length)
    places = [
        counted.as_strided(t.shape, t.stride(), t.storage_offset()).flatten() for t in (one, other)
    ]
    return bool(torch.isin(*places).any())


def write_through(trace: Trace, target: Shadow, value: Shadow) -> None:
    """Record `target.copy_(value)`; the value is broadcast to the target's shape."""
    buffer = target.buffer
    condition, indices = _invert(trace, target)
    new = trace.read_broadcast(value, target.indices)
    new = new if buffer.kind == "bool" else exprs.to_number(new)
    placed = exprs.substitute_at(new, target.indices, indices)
    buffer.value = exprs.tidy(exprs.choose(condition, placed, buffer.value))
    if buffer.kind in {"real", "complex"} and not isinstance(buffer.value, (ir.Access, ir.Number)):
        # An equation of its own: later writes read it by name.
        made = trace.define(buffer.axes, buffer.value, buffer.kind)
        buffer.value = exprs.substitute_at(made.buffer.value, made.indices, buffer.axes)


def _invert(trace: Trace, target: Shadow) -> tuple[ir.Expr, tuple[ir.Expr, ...]]:
    """Return (condition, places) for a view `target` of a buffer, both over the buffer's axes.

    The condition holds where the view contains the buffer's element; the places are the element's
    in the view. On each axis the view reads start + step * index for one index, or no index.
    """
    conditions: list[ir.Expr] = []
    found: dict[ir.Index, ir.Expr] = {}
    for axis, place in zip(target.buffer.axes, target.places, strict=True):
        start = to_linear(exprs.substitute_at(place, tuple(found), tuple(found.values())))
        inside = [i for i in target.indices if any(i in walk(atom) for atom in start.atoms)]
        if not inside:
            conditions.append(exprs.decide("==", axis, to_place(start)))
            continue
        (index, *others) = inside
        step = split_steps(start)[0].get(index, NOTHING)
        start = start - Polynomial.of(index) * step
        if others or any(index in walk(atom) for atom in start.atoms) or not is_positive(step):
            raise trace.refuse("lift-write", "a write into such a view is not known")
        gap = to_linear(axis) - start
        if step != Polynomial.of(1):
            conditions.append(exprs.decide("==", to_place(modulo(gap, step)), ir.ZERO))
        found[index] = to_place(divide(gap, step))
        conditions.append(exprs.within(found[index], index.extent))
    if any(i not in found and trace.number(i.extent) != 1 for i in target.indices):
        raise trace.refuse("lift-write", "a write into an expanded view is not known")
    return ir.all_of(*conditions), tuple(found.get(index, ir.ZERO) for index in target.indices)
