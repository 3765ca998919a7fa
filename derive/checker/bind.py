"""Which argument of the code is which tensor of the formula: what its name and its place say.

    1. what is told          --bind q=Q
    2. by name               Q, then q or _q, then query: the same core
    3. by place              what is left, in order; a truth value goes to an argument named a mask
    4. numbers               an argument that is no tensor is a size or a scalar: by name as above,
                             else each size may be meant, and running the code decides

The outcome is a list of programs that differ in the numbers alone; `doubt` says how little their
names tell. No tensor is laid in another order here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, islice, product
from typing import TYPE_CHECKING, Any

from derive.checker.load import Code
from derive.checker.program import Program
from derive.checker.slots import (
    UNSAID,
    Slot,
    find_constructor_slots,
    find_core,
    find_slots,
    fold,
    rank_size,
)
from derive.checker.sources import check_source, find_letters, find_names, find_tensors
from derive.errors import refuse, suggest
from derive.ir.nodes import ScalarInput, Size, System, Tensor
from derive.ir.polynomial import Polynomial
from derive.ir.text import to_text
from derive.judge.samples import find_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MOST_NUMBERS = 4096  # ways to fill in numbers that are put in order
MOST_PROGRAMS = 160  # that are tried


@dataclass
class Match:
    """Sources found so far, and the formula's tensors and scalars that are left."""

    arguments: dict[str, str]
    left: list[Tensor]
    scalars: list[ScalarInput]


def find_programs(
    code: Code,
    system: System,
    binds: Mapping[str, str],
    asked: tuple[Sequence[Slot], Sequence[Slot]] | None = None,
) -> list[Program]:
    """The programs of a function or of a module that is made, those first whose names tell most.

    `asked` are the arguments and parameters that it asks for, where these are known.
    """
    sizes = find_sizes(system)
    results = {system.results[0].name: binds["return"]} if "return" in binds else {}
    for source in results.values():
        check_source(source, system, (*sizes, *(result.name for result in system.results)))
    binds = {name: source for name, source in binds.items() if name != "return"}
    for source in binds.values():
        check_source(source, system, sizes)
    arguments, parameters = asked or find_slots(code.target)
    if not arguments and not parameters and binds:
        arguments = [Slot(name) for name in binds]
    _check_names(binds, arguments, parameters)
    match = _start(system, binds)
    slots = [slot for slot in arguments if slot.name not in binds]
    match_slots(match, slots, list(sizes))
    if not arguments and not parameters:  # a builtin: by order alone
        for number, tensor in enumerate(list(match.left)):
            match.arguments[f"argument_{number + 1}"] = tensor.name
        match.left = []
    names = {slot.name for slot in parameters}
    told = {name: source for name, source in binds.items() if name in names}
    given = {name: s for name, s in match.arguments.items() if name not in told}
    own = {**_match_parameters(match, parameters), **told}
    base = Program(
        code,
        given,
        own,
        letters=find_letters(system),
        results=results,
        names=tuple(tensor.name for tensor in system.results),
        told=tuple(binds),
    )
    numbers = [s for s in slots if s.required and s.name not in match.arguments]
    found = (
        replace(base, arguments={**base.arguments, **given}, doubt=doubt)
        for doubt, given in find_numbers(numbers, match.scalars, system)
    )
    return list(islice(found, MOST_PROGRAMS))


def _start(system: System, binds: Mapping[str, str]) -> Match:
    bound = {name for source in binds.values() for name in find_names(source)}
    left = [tensor for tensor in find_tensors(system) if tensor.name not in bound]
    scalars = [s for s in system.inputs if isinstance(s, ScalarInput) and s.name not in bound]
    return Match(dict(binds), left, scalars)


def _check_names(
    binds: Mapping[str, str], arguments: Sequence[Slot], parameters: Sequence[Slot]
) -> None:
    known = [slot.name for slot in (*arguments, *parameters)]
    for name in binds:
        if name not in known:
            raise refuse(
                "bind-unknown",
                f"the code has no argument or parameter {name}",
                facts=[f"it has {', '.join(known)}"] if known else (),
                help=suggest(name, known),
            )


def match_slots(match: Match, slots: Sequence[Slot], sizes: Sequence[str]) -> None:
    """Give tensors and scalars to arguments: by name, then by core, then by order."""
    for same in (lambda a, b: a == b, lambda a, b: fold(a) == fold(b), _is_same_core):
        for slot in slots:
            if slot.name not in match.arguments:
                _give_by_name(match, slot, same)
    for slot in slots:
        if slot.name not in match.arguments and "mask" in slot.called.lower():
            masks = [tensor for tensor in match.left if tensor.kind == "bool"]
            masks = masks or [t for t in match.left if "mask" in t.name.lower()]
            if len(masks) == 1:
                _give(match, slot, masks[0])
    free = [s for s in slots if s.name not in match.arguments and s.required and not s.is_number]
    more = len(free) - len(match.left)
    named = {
        s.name: min([rank_size(s.called, size) for size in sizes], default=UNSAID) for s in free
    }
    last = [*reversed(free)]
    numbers = sorted(last, key=lambda slot: named[slot.name])[: max(0, more)]
    for slot in free:
        if match.left and slot not in numbers:
            _give(match, slot, match.left[0])
    _match_optional(match, slots)


def _match_optional(match: Match, slots: Sequence[Slot]) -> None:
    """A single mask that is left goes to the single argument that may be None."""
    open_slots = [
        slot
        for slot in slots
        if slot.name not in match.arguments and not slot.required and slot.default is None
    ]
    masks = [tensor for tensor in match.left if tensor.kind == "bool"]
    if len(masks) == 1 and len(open_slots) == 1:
        _give(match, open_slots[0], masks[0])


def _is_same_core(one: str, other: str) -> bool:
    return bool(find_core(one)) and find_core(one) == find_core(other)


def _give_by_name(match: Match, slot: Slot, same: Any) -> None:
    tensors = [tensor for tensor in match.left if same(slot.called, tensor.name)]
    if len(tensors) == 1:
        _give(match, slot, tensors[0])
        return
    scalars = [scalar for scalar in match.scalars if same(slot.called, scalar.name)]
    if len(scalars) == 1:
        match.arguments[slot.name] = scalars[0].name
        match.scalars.remove(scalars[0])


def _give(match: Match, slot: Slot, tensor: Tensor) -> None:
    match.arguments[slot.name] = tensor.name
    match.left.remove(tensor)


def find_numbers(
    numbers: Sequence[Slot], scalars: Sequence[ScalarInput], system: System
) -> Iterator[tuple[int, dict[str, str]]]:
    """The sizes and scalars that arguments may be, and how little their names say so, best first.

    As many scalars as arguments are taken in order. Two arguments that are given one size come
    after those that are not.
    """
    if len(numbers) == len(scalars):
        yield 0, {slot.name: scalar.name for slot, scalar in zip(numbers, scalars, strict=True)}
        return
    choices = []
    for slot in numbers:
        extents = (*find_extents(system), *(scalar.name for scalar in scalars))
        known = [(rank_source(slot, source, scalars), source) for source in extents]
        ranked = sorted(known, key=lambda choice: choice[0])
        choices.append([(rank, place, source) for place, (rank, source) in enumerate(ranked)])
    picks = islice(product(*choices), MOST_NUMBERS)
    for pick in sorted(picks, key=_measure):
        sources = [source for _, _, source in pick]
        yield _measure(pick)[0], dict(zip((s.name for s in numbers), sources, strict=True))


def rank_source(slot: Slot, source: str, scalars: Sequence[ScalarInput]) -> int:
    """How little a slot's name says that it is this size or scalar."""
    if slot.hint == "float" and any(scalar.name == source for scalar in scalars):
        return 0
    return rank_size(slot.called, source)


def _measure(pick: Sequence[tuple[int, int, str]]) -> tuple[int, int, int]:
    """How little names say, how many are the same, and how far down the lists they stand."""
    repeated = len(pick) - len({source for _, _, source in pick})
    return sum(rank for rank, _, _ in pick), repeated, sum(place for _, place, _ in pick)


@lru_cache(maxsize=8)
def find_extents(system: System) -> tuple[str, ...]:
    """The sizes and the merged extents of the formula, as sources."""
    names = list(find_sizes(system))
    for tensor in (*find_tensors(system), *(e.target.tensor for e in system.equations)):
        for extent in tensor.shape:
            if not isinstance(extent, Size) and Polynomial.of(extent).constant is None:
                names.append(to_text(extent))
    names += [f"{one}*{other}" for one, other in combinations(sorted(find_sizes(system)), 2)]
    known: dict[tuple[str, ...], str] = {}
    for name in names:
        known.setdefault(tuple(sorted(name.replace(" ", "").split("*"))), name)
    return tuple(known.values())


def _match_parameters(match: Match, parameters: Sequence[Slot]) -> dict[str, str]:
    """The parameters of a module by name and order, each under the name of its tensor alone."""
    left = list(match.left)
    found: dict[str, str] = {}
    for same in (lambda a, b: fold(a) == fold(b), _is_same_core):
        for slot in parameters:
            names = [tensor for tensor in left if same(slot.name, tensor.name)]
            if slot.name not in found and slot.name not in match.arguments and len(names) == 1:
                found[slot.name] = names[0].name
                left.remove(names[0])
    rest = [s for s in parameters if s.name not in found and s.name not in match.arguments]
    if len(rest) == len(left):
        found |= {slot.name: tensor.name for slot, tensor in zip(rest, left, strict=True)}
    return found


def find_constructor(code: Code, binds: Mapping[str, str]) -> list[Slot]:
    """What the class of a module has to be told to be made."""
    slots = find_constructor_slots(code.target)
    required = [slot for slot in slots if slot.required or slot.name in binds]
    return required or [slot for slot in slots if type(slot.default) is int]
