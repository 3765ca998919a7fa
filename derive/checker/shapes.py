"""Parameters of a module and tensors that a script makes have shapes: what they say of the sizes.

A parameter holds a formula's tensor with its indices in the formula's order, or in the order that
torch documents for its module: the weight of a linear layer holds W[e, h, d] as [h*d, e], output
first. Neighbours may be merged, and an axis of extent 1 may be added. What is found is a source
such as `W.permute(1, 2, 0).reshape(H*D, E)`, and the sizes: extents are set equal to the numbers
of the shapes, and where that leaves a choice, divisors of these numbers are tried.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from derive.checker.layouts import write_order
from derive.checker.sources import evaluate_source, find_names, find_tensors
from derive.checker.ties import Statement
from derive.ir.nodes import Access, Expr, Size, System, Tensor
from derive.ir.polynomial import Polynomial, evaluate_atom, evaluate_extent
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, find_free, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.checker.program import Program
    from derive.checker.slots import Slot

MOST_STEPS = 20_000  # of the search for sizes


@dataclass(frozen=True)
class Holder:
    """A slot with a shape, the tensor that it holds, and the order of the tensor's indices there.

    `groups` are the places that each axis merges, where that is known beforehand. What is told has
    the source that was told.
    """

    slot: Slot
    tensor: Tensor
    order: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    told: str = ""
    letters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The slot's shape."""
        return self.slot.shape or ()

    def find_equations(self) -> Iterator[tuple[Polynomial, int]]:
        """Products of extents, and the numbers that they have to be."""
        numbers = self.shape if self.groups else (prod(self.shape),)
        if ":" not in self.told:  # a slice has fewer elements
            yield from zip(self.find_extents(), numbers, strict=True)

    def find_extents(self) -> Iterator[Polynomial]:
        """The extent of each axis; of all together where it is not known what is merged."""
        for group in self.groups or (self.order,):
            parts = (Polynomial.of(self.tensor.shape[place]) for place in group)
            yield prod(parts, start=Polynomial.of(1))

    def measure(self, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
        """The shape that the slot is given at these sizes; None where that is not known."""
        import torch

        if not self.told:
            numbers = (e.evaluate(lambda a: evaluate_atom(a, sizes)) for e in self.find_extents())
            return tuple(int(number) for number in numbers)
        known = {self.tensor.name, *sizes, *self.letters[self.tensor.name]}
        unknown = [n for e in self.tensor.shape for n in _find_unknown(Polynomial.of(e), sizes)]
        if unknown or set(find_names(self.told)) - known:
            return None
        shape = [evaluate_extent(extent, sizes) for extent in self.tensor.shape]
        values = {self.tensor.name: torch.empty(shape, device="meta")}
        try:
            return tuple(evaluate_source(self.told, values, sizes, self.letters).shape)
        except (RuntimeError, ValueError, IndexError):  # a reshape that does not fit these sizes
            return ()

    def find_source(self, sizes: Mapping[str, int]) -> str | None:
        """How the tensor's elements lie in the slot at these sizes; None where they do not fit."""
        if self.told:
            return self.told if self.measure(sizes) in {None, self.shape} else None
        numbers = [evaluate_extent(extent, sizes) for extent in self.tensor.shape]
        groups: Sequence[Sequence[int]] | None = self.groups
        if not groups:
            found = group_places([numbers[place] for place in self.order], self.shape)
            groups = found and [[self.order[at] for at in group] for group in found]
        if groups is None or [prod(numbers[p] for p in g) for g in groups] != [*self.shape]:
            return None
        source = write_order(self.tensor.name, self.order)
        if all(len(group) == 1 for group in groups):
            return source
        extents = ["*".join(write_extent(self.tensor.shape[place]) for place in g) for g in groups]
        return f"{source}.reshape({', '.join(extent or '1' for extent in extents)})"


def write_extent(extent: object) -> str:
    """An extent as a source, in parentheses where it is no name and no number."""
    text = to_text(extent)  # type: ignore[arg-type]
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def find_holders(
    system: System,
    program: Program,
    slots: Sequence[Slot],
    orders: Mapping[str, tuple[int, ...]],
) -> list[Holder]:
    """The slots that hold a tensor of the formula; `orders` are those that are assumed, by slot."""
    by_name = {tensor.name: tensor for tensor in find_tensors(system)}
    given = {**program.arguments, **program.parameters}
    holders = []
    for slot in slots:
        source = given.get(slot.name, "")
        tensors = [by_name[name] for name in find_names(source or "0") if name in by_name]
        if slot.shape is None or len(tensors) != 1:
            continue
        if source == tensors[0].name and slot.name not in program.told:
            holders.append(_hold(system, tensors[0], slot, orders.get(slot.name)))
        else:
            places = tuple(range(len(tensors[0].shape)))
            letters = {tensors[0].name: (), **program.letters}
            holders.append(Holder(slot, tensors[0], places, (), source, letters))
    return holders


def _hold(system: System, tensor: Tensor, slot: Slot, assumed: tuple[int, ...] | None) -> Holder:
    places = range(len(tensor.shape))
    roles = find_roles(system, tensor) if slot.axes and assumed is None else ()
    summed = next((axis for axis in slot.axes if axis != "out"), "")
    known = [role if role in slot.axes else summed for role in roles]
    order = assumed or tuple(
        sorted(places, key=lambda p: slot.axes.index(known[p]) if known else p)
    )
    shape = slot.shape or ()
    if len(shape) == len(order):
        return Holder(slot, tensor, order, tuple((place,) for place in order))
    if len(shape) == len(slot.axes) and known:
        groups = (tuple(p for p in order if known[p] == axis) for axis in slot.axes)
        return Holder(slot, tensor, order, tuple(groups))
    return Holder(slot, tensor, order)


@lru_cache(maxsize=256)
def find_roles(system: System, tensor: Tensor) -> tuple[str, ...]:
    """What each place of a tensor does where it is first read, in the words of a slot's axes."""
    for equation in system.equations:
        kept = {index for place in equation.target.places for index in find_free(place)}
        accesses = list(find_accesses(equation.value))
        windows = {
            index
            for access in accesses
            if access.tensor is not tensor
            for place in access.places
            for index in find_free(place)
            if len(find_free(place)) > 1
        }
        for access in accesses:
            if access.tensor is tensor:
                return tuple(_find_role(place, kept, windows) for place in access.places)
    return ()


def _find_role(place: Expr, kept: set[Any], windows: set[Any]) -> str:
    free = {*find_free(place)}
    if any(isinstance(part, Access) for part in walk(place)):
        return "row"
    if free & kept:
        return "out"
    return "kernel" if free & windows else "in"


def find_sources(holders: Sequence[Holder], sizes: Mapping[str, int]) -> dict[str, str] | None:
    """The source of every slot at these sizes; None where a shape cannot be had."""
    found = {holder.slot.name: holder.find_source(sizes) for holder in holders}
    kept = {name: source for name, source in found.items() if source is not None}
    return kept if len(kept) == len(found) else None


def find_misfits(holders: Sequence[Holder], sizes: Mapping[str, int]) -> Iterator[Statement]:
    """The numbers that have to be equal for every slot to have the shape of what it is given."""
    for holder in holders:
        found = holder.measure(sizes)
        if found is None or holder.find_source(sizes) is not None:
            continue
        names = [_find_names(extent) for extent in holder.find_extents()]
        have = holder.shape if len(holder.shape) == len(found) else (prod(holder.shape),)
        if len(have) != len(found):
            found, names = (prod(found),), [()]
        for number, wanted, named in zip(have, found, names, strict=False):
            if number != wanted:
                yield Statement(number, wanted, () if holder.told else named)


def _find_names(extent: Polynomial) -> tuple[str, ...]:
    """The sizes whose product an extent is; none if it is something else."""
    match tuple(extent.terms.items()):
        case ((monomial, 1),) if all(isinstance(a, Size) and k == 1 for a, k in monomial):
            return tuple(atom.name for atom, _ in monomial if isinstance(atom, Size))
    return ()


def group_places(numbers: Sequence[int], shape: tuple[int, ...]) -> list[list[int]] | None:
    """Neighbours put together so that their products are the shape."""
    if prod(numbers) != prod(shape):
        return None
    groups: list[list[int]] = []
    at = 0
    for length in shape:
        group: list[int] = []
        have = 1
        while at < len(numbers) and (have < length or (not group and numbers[at] == length)):
            have *= numbers[at]
            group.append(at)
            at += 1
        if have != length:
            return None
        groups.append(group)
    while at < len(numbers) and numbers[at] == 1 and groups:
        groups[-1].append(at)
        at += 1
    return groups if at == len(numbers) else None


def solve_sizes(
    holders: Sequence[Holder], numbers: Sequence[int], known: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Sizes at which every slot can hold its tensor; `numbers` are those that the code has."""
    equations = [equation for holder in holders for equation in holder.find_equations()]
    values = {*(n for holder in holders for n in holder.shape), *numbers}
    values |= {a // b for a in values for b in values if b and a % b == 0}
    pool = sorted(value for value in values if value >= 1)
    for sizes in _solve(equations, pool, dict(known), [MOST_STEPS]):
        if find_sources(holders, sizes) is not None:
            yield sizes


def _solve(
    equations: Sequence[tuple[Polynomial, int]],
    pool: Sequence[int],
    sizes: dict[str, int],
    steps: list[int],
) -> Iterator[dict[str, int]]:
    """All ways to satisfy the equations: what has one unknown is solved, else numbers are tried."""
    steps[0] -= 1
    if steps[0] < 0:
        return
    open_ones = []
    for extent, number in equations:
        unknown = list(_find_unknown(extent, sizes))
        if not unknown:
            if extent.evaluate(lambda atom: evaluate_atom(atom, sizes)) != number:
                return
        else:
            open_ones.append((unknown, extent, number))
    if not open_ones:
        yield sizes
        return
    unknown, extent, number = min(open_ones, key=lambda one: len(one[0]))
    name = unknown[0]
    choices: Sequence[int] = pool
    linear = extent.split(Size(name)) if len(unknown) == 1 else None
    if linear is not None:
        factor, rest = (p.evaluate(lambda atom: evaluate_atom(atom, sizes)) for p in linear)
        value = (number - rest) / factor if factor else 0
        choices = [int(value)] if value == int(value) and value >= 1 else []
    for choice in choices:
        yield from _solve(equations, pool, {**sizes, name: choice}, steps)


def _find_unknown(extent: Polynomial, sizes: Mapping[str, int]) -> Iterator[str]:
    names = (p.name for atom in extent.atoms for p in walk(atom) if isinstance(p, Size))
    return (name for name in dict.fromkeys(names) if name not in sizes)
