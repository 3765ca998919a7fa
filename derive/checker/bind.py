"""Which argument of the code is which tensor of the formula: by what is told, by name, by order.

The outcome is a list of programs, the likeliest first; the first one that runs is judged. Another
layout of a tensor is tried only where the code does not run with the formula's own, and never one
that exchanges two indices of the same extent: such an exchange is a mistake, not a layout. The
results go along only where batches change places, [B, H, S, D] and [B, S, H, D]: a product of
matrices taken the wrong way round is not the same code in another layout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, islice, permutations, product
from typing import TYPE_CHECKING, Any

from derive.checker.load import Code
from derive.checker.program import Program
from derive.checker.slots import (
    Slot,
    find_constructor_slots,
    find_core,
    find_slots,
    fold,
    is_size_name,
    rank_sizes,
)
from derive.checker.sources import check_source, find_letters, find_names, find_tensors
from derive.errors import refuse, suggest
from derive.ir.nodes import ScalarInput, Size, System, Tensor
from derive.ir.polynomial import Polynomial
from derive.ir.text import to_text
from derive.judge.samples import find_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MOST_PROGRAMS = 160  # that are tried before the code is said not to run


@dataclass
class Match:
    """Sources found so far, and the formula's tensors that are left."""

    arguments: dict[str, str]
    left: list[Tensor]
    scalars: list[ScalarInput]


def find_programs(code: Code, system: System, binds: Mapping[str, str]) -> Iterator[Program]:
    """The programs to try for a function or for a module that is already made."""
    sizes = find_sizes(system)
    results = {name: source for name, source in binds.items() if name == "return"}
    binds = {name: source for name, source in binds.items() if name != "return"}
    for source in binds.values():
        check_source(source, system, sizes)
    arguments, parameters = find_slots(code.target)
    if not arguments and not parameters and binds:
        arguments = [Slot(name) for name in binds]
    _check_names(binds, arguments, parameters)
    match = _start(system, binds)
    slots = [slot for slot in arguments if slot.name not in binds]
    match_slots(match, slots)
    if not arguments and not parameters:  # a builtin: by order alone
        for number, tensor in enumerate(list(match.left)):
            match.arguments[f"argument_{number + 1}"] = tensor.name
        match.left = []
    own = {slot.name for slot in parameters}
    told = {name: source for name, source in binds.items() if name in own}
    given = {name: s for name, s in match.arguments.items() if name not in told}
    names = tuple(tensor.name for tensor in system.results)
    base = Program(code, given, told, letters=find_letters(system), results=results, names=names)
    numbers = [s for s in slots if s.required and s.name not in match.arguments]
    yield from islice(_finish(base, match, parameters, numbers, system), MOST_PROGRAMS)


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


def match_slots(match: Match, slots: Sequence[Slot]) -> None:
    """Give tensors and scalars to arguments: by name, then by core, then by order."""
    for same in (lambda a, b: a == b, lambda a, b: fold(a) == fold(b), _is_same_core):
        for slot in slots:
            if slot.name not in match.arguments:
                _give_by_name(match, slot, same)
    for slot in slots:
        if slot.name not in match.arguments and "mask" in slot.called.lower():
            masks = [tensor for tensor in match.left if tensor.kind == "bool"]
            masks = masks or [t for t in match.left if "mask" in t.name.lower() or t.name == "M"]
            if len(masks) == 1:
                _give(match, slot, masks[0])
    free = [s for s in slots if s.name not in match.arguments and not s.is_number]
    free = [
        s for s in free if s.required and not (is_size_name(s.called) and _is_spare(free, match))
    ]
    for slot in free:
        if match.left and slot.name not in match.arguments:
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


def _is_spare(free: Sequence[Slot], match: Match) -> bool:
    """Are there more arguments than tensors left, so that one named like a size is a size?"""
    return len(free) > len(match.left)


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


def _finish(
    base: Program,
    match: Match,
    parameters: Sequence[Slot],
    numbers: Sequence[Slot],
    system: System,
) -> Iterator[Program]:
    """The programs with every integer that a size may be, every layout that may be meant."""
    for given in find_numbers(numbers, match, system):
        whole = replace(base, arguments={**base.arguments, **given}, guessed=bool(given))
        if parameters or match.left:
            own = {**_match_parameters(match, parameters), **base.parameters}
            module = replace(whole, parameters=own)
            yield module
            yield from _find_paddings(module, system)
            continue
        yield whole
    for given in islice(find_numbers(numbers, match, system), 2):
        whole = replace(base, arguments={**base.arguments, **given})
        if not parameters and not base.code.is_einsum:
            yield from _find_layouts(whole, system)


def find_numbers(numbers: Sequence[Slot], match: Match, system: System) -> Iterator[dict[str, str]]:
    """The sizes and scalars that integer arguments may be, the likeliest first."""
    extents = find_extents(system)
    choices = []
    for slot in numbers:
        scalars = [scalar.name for scalar in match.scalars]
        ranked = rank_sizes(slot.called, list(extents))
        choices.append([*scalars, *ranked] if slot.hint == "float" else [*ranked, *scalars])
    if not choices:
        yield {}
        return
    names = [slot.name for slot in numbers]
    order = sorted(
        islice(product(*(range(len(choice)) for choice in choices)), 4096), key=sum
    )  # the likeliest of each first
    for picks in order:
        taken = [choice[pick] for choice, pick in zip(choices, picks, strict=True)]
        yield dict(zip(names, taken, strict=True))


@lru_cache(maxsize=8)
def find_extents(system: System) -> tuple[str, ...]:
    """The sizes and the merged extents of the formula, as sources."""
    names = list(find_sizes(system))
    for tensor in (*find_tensors(system), *(e.target.tensor for e in system.equations)):
        for extent in tensor.shape:
            if not isinstance(extent, Size) and Polynomial.of(extent).constant is None:
                names.append(to_text(extent))
    merged = [f"{one}*{other}" for one in find_sizes(system) for other in find_sizes(system)]
    known = list(dict.fromkeys(names))
    return (*known, *(each for each in merged if each not in known and _is_ordered(each)))


def _is_ordered(source: str) -> bool:
    one, other = source.split("*")
    return one < other


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


def _find_layouts(program: Program, system: System) -> Iterator[Program]:
    """The same program with one tensor, or all of one shape, in another order of indices."""
    plain = find_plain(program, system)
    yield from _find_paddings(program, system)
    groups: dict[tuple[object, ...], list[str]] = {}
    for argument, tensor in plain.items():
        groups.setdefault(tensor.shape, []).append(argument)
    for shape, arguments in groups.items():
        for order in _find_orders(shape):
            new = {arg: write_order(plain[arg].name, order) for arg in arguments}
            yield replace(program, arguments={**program.arguments, **new}, layout=True)
    ranks = {len(tensor.shape) for tensor in plain.values()}
    for rank in sorted(ranks):
        for order in islice(permutations(range(rank)), 1, 24):
            same = {a: t for a, t in plain.items() if len(t.shape) == rank}
            if not all(is_layout(tensor.shape, order) for tensor in same.values()):
                continue
            new = {arg: write_order(tensor.name, order) for arg, tensor in same.items()}
            results = {
                t.name: write_order(t.name, order)
                for t in system.results
                if len(t.shape) == rank and is_layout(t.shape, order)
            }
            moved = replace(program, arguments={**program.arguments, **new}, layout=True)
            if rank > 2 and order[-1] == rank - 1 and results:
                yield replace(moved, results={**program.results, **results})
            yield moved


def find_plain(program: Program, system: System) -> dict[str, Tensor]:
    """The arguments that are given a tensor as it is."""
    by_name = {tensor.name: tensor for tensor in find_tensors(system)}
    return {name: by_name[s] for name, s in program.arguments.items() if s in by_name}


def _find_paddings(program: Program, system: System) -> Iterator[Program]:
    """A mask with an index of extent 1 where the others, or what is made of them, have one more."""
    plain = find_plain(program, system)
    made = (equation.target.tensor for equation in system.equations)
    most = max((len(tensor.shape) for tensor in (*plain.values(), *made)), default=0)
    for argument, tensor in plain.items():
        rank = len(tensor.shape)
        if tensor.kind != "bool" or rank >= most:
            continue
        for places in combinations(range(most), most - rank):
            source = tensor.name + "".join(f".unsqueeze({place})" for place in places)
            yield replace(program, arguments={**program.arguments, argument: source}, layout=True)


def _find_orders(shape: tuple[Any, ...]) -> Iterator[tuple[int, ...]]:
    orders = islice(permutations(range(len(shape))), 1, 24)
    return (order for order in orders if is_layout(shape, order))


def is_layout(shape: Sequence[Any], order: tuple[int, ...]) -> bool:
    """Does the order keep indices of one extent in their own order?"""
    for one, first in enumerate(order):
        for second in order[one + 1 :]:
            if Polynomial.of(shape[first]) == Polynomial.of(shape[second]) and first > second:
                return False
    return True


def write_order(name: str, order: tuple[int, ...]) -> str:
    """The source of a tensor in another order of its indices."""
    if order == tuple(range(len(order))):
        return name
    if order == (1, 0):
        return f"{name}.T"
    return f"{name}.permute({', '.join(map(str, order))})"


def find_constructor(code: Code, binds: Mapping[str, str]) -> list[Slot]:
    """What the class of a module has to be told to be made."""
    slots = find_constructor_slots(code.target)
    required = [slot for slot in slots if slot.required or slot.name in binds]
    return required or [slot for slot in slots if type(slot.default) is int]
