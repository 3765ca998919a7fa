"""Bindings of arguments and parameters to tensors of the formula, with their layouts.

    1. explicit              --bind q=Q
    2. by name               Q, then q or _q, then query: the same core
    3. by order              the rest, in order; a boolean tensor goes to an argument named mask
    4. numbers               an argument that is no tensor is a size or a scalar: by name as above,
                             else every size is tried by running the code; an optional one keeps
                             its default, or is a size of its name that no shape determines

The outcome is a list of programs that differ in the numbers alone; `doubt` is the rank of the name
matches, 0 for certain. Arguments have the formula's layout. Other layouts, `W.T`,
`mask.unsqueeze(1)`, only serve to suggest a --bind: a guess never gives the verdict "same".

Parameters of a module and tensors that a script makes have shapes. A parameter holds a
tensor with its indices in the formula's order, or in the order that torch documents for the module:
the weight of a linear layer holds W[e, d] as [d, e], output first. The result is a source such as
`W.T`, and the sizes: extents are equated with the shapes. Where that leaves a choice, divisors of
the numbers in the shapes are tried.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations, islice, permutations, product
from math import prod
from typing import Any

from derive.checker.load import Code
from derive.checker.program import Program, check_binds, evaluate_source, find_indices, find_names
from derive.checker.relations import Statement
from derive.checker.slots import (
    NAMED,
    UNSAID,
    Slot,
    find_constructor_slots,
    find_core,
    find_slots,
    fold_name,
    rank_size,
)
from derive.errors import DeriveError
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, evaluate_extent
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, find_free, walk
from derive.judge.samples import find_sizes
from derive.libraries import torch

MOST_NUMBERS = 4096  # assignments of numbers to arguments that are sorted
MOST_PROGRAMS = 160  # programs to try


@dataclass
class Match:
    """Sources found so far, and the tensors and scalars of the formula not yet assigned."""

    arguments: dict[str, str]
    left: list[ir.Tensor]
    scalars: list[ir.ScalarInput]

    def assign_tensor(self, slot: Slot, tensor: ir.Tensor) -> None:
        """Assign a tensor to an argument."""
        self.arguments[slot.name] = tensor.name
        self.left.remove(tensor)


def find_programs(
    code: Code,
    system: ir.System,
    binds: Mapping[str, str],
    asked: tuple[Sequence[Slot], Sequence[Slot]] | None = None,
) -> list[Program]:
    """The programs of a function or a module instance, best matches of names first."""
    results = {system.results[0].name: binds["return"]} if "return" in binds else {}
    arguments, parameters = asked or find_slots(code.target)
    if not arguments and not parameters:
        arguments = [Slot(name) for name in binds if name != "return"]
    check_binds(binds, system, [slot.name for slot in (*arguments, *parameters)])
    binds = {name: source for name, source in binds.items() if name != "return"}
    bound = {name for source in binds.values() for name in find_names(source)}
    left = [tensor for tensor in system.tensors if tensor.name not in bound]
    scalars = [scalar for scalar in system.scalars if scalar.name not in bound]
    match = Match(dict(binds), left, scalars)
    slots = [slot for slot in arguments if slot.name not in binds]
    match_slots(match, slots, list(find_sizes(system)))
    twice = {fold_name(t.name): t.name for t in system.tensors if t.name in bound}
    for slot in slots:  # a second argument with the name of a bound tensor
        if slot.required and slot.name not in match.arguments and fold_name(slot.called) in twice:
            match.arguments[slot.name] = twice[fold_name(slot.called)]
    shapes = {slot.name: slot.shape for slot in parameters}
    told = {name: source for name, source in binds.items() if name in shapes}
    named = {scalar.name for scalar in system.scalars}
    told |= {n: f"tensor({s})" for n, s in told.items() if shapes[n] == () and s in named}
    given = {name: s for name, s in match.arguments.items() if name not in told}
    own = {**_match_parameters(match, parameters, system), **told}
    base = Program(
        code,
        given,
        own,
        indices=find_indices(system),
        results=results,
        names=tuple(tensor.name for tensor in system.results),
        told=tuple(binds),
    )
    untold = [size.name for size in system.sizes]  # sizes that no shape determines
    numbers = [
        slot
        for slot in slots
        if slot.name not in match.arguments
        and (slot.required or any(is_size_of(slot, size) for size in untold))
    ]
    optional = tuple(slot.name for slot in numbers if not slot.required)
    found = (
        replace(base, arguments={**base.arguments, **given}, doubt=doubt, optional=optional)
        for doubt, given in find_numbers(numbers, match.scalars, system)
    )
    return list(islice(found, MOST_PROGRAMS))


def is_size_of(slot: Slot, size: str) -> bool:
    """Whether an optional integer argument is named like a size."""
    return type(slot.default) is int and rank_size(slot.called, size) < NAMED


def _match_names(
    match: Match, slots: Sequence[Slot], spells: Sequence[Callable[[str], str]]
) -> None:
    """Assign tensors and scalars to slots of equal name, under each spelling in turn."""
    for spell in spells:
        for slot in slots:
            called = spell(slot.called)
            if slot.name in match.arguments or slot.is_flag or not called:
                continue
            tensors = [tensor for tensor in match.left if called == spell(tensor.name)]
            named = [scalar for scalar in match.scalars if called == spell(scalar.name)]
            if len(tensors) == 1:
                match.assign_tensor(slot, tensors[0])
            elif len(named) == 1:
                match.arguments[slot.name] = named[0].name
                match.scalars.remove(named[0])


def match_slots(match: Match, slots: Sequence[Slot], sizes: Sequence[str]) -> None:
    """Assign tensors and scalars to arguments: by name, then by core, then by order."""
    _match_names(match, slots, (str, fold_name, find_core))
    _match_mask(match, [slot for slot in slots if "mask" in slot.called.lower()])
    free = [s for s in slots if s.name not in match.arguments and s.required and not s.is_number]
    more = len(free) - len(match.left)

    def rank(slot: Slot) -> int:
        return min([rank_size(slot.called, size) for size in sizes], default=UNSAID)

    numbers = sorted([*reversed(free)], key=rank)[: max(0, more)]
    for slot in free:
        if match.left and slot not in numbers:
            match.assign_tensor(slot, match.left[0])
    _match_mask(match, [slot for slot in slots if not slot.required and slot.default is None])


def _match_mask(match: Match, slots: Sequence[Slot]) -> None:
    """Assign the only boolean tensor left to the only one of some arguments."""
    left = [slot for slot in slots if slot.name not in match.arguments]
    masks = [tensor for tensor in match.left if tensor.kind == "bool"]
    if len(masks) == 1 and len(left) == 1:
        match.assign_tensor(left[0], masks[0])


def find_numbers(
    numbers: Sequence[Slot], scalars: Sequence[ir.ScalarInput], system: ir.System
) -> Iterator[tuple[int, dict[str, str]]]:
    """Assignments of sizes and scalars to arguments with their doubt, best first.

    The doubt is the sum of the name ranks of required arguments; the others may keep their default.
    """
    named = {fold_name(scalar.name) for scalar in scalars}
    dropped = (s for s in numbers if s.is_probability and s.required)
    idle = {slot.name: "0.0" for slot in dropped if fold_name(slot.called) not in named}
    numbers = [slot for slot in numbers if slot.name not in idle]
    if len(numbers) == len(scalars) and all(slot.required for slot in numbers):
        given = {slot.name: scalar.name for slot, scalar in zip(numbers, scalars, strict=True)}
        yield 0, {**idle, **given}
        return
    any_required = any(slot.required for slot in numbers)
    sources = (*find_extents(system), *(scalar.name for scalar in scalars))
    choices = []
    for slot in numbers:
        known = [(rank_size(slot.called, source), source) for source in sources]
        if not slot.required:
            like = [each for each in known if each[0] < NAMED]
            known = [*(like or known * (not any_required)), (NAMED, "")]  # or the default
        ranked = sorted(known, key=lambda choice: choice[0])
        if ranked[0][0] == 0 and any(scalar.name == ranked[0][1] for scalar in scalars):
            ranked = ranked[:1]
        choices.append([(rank, place, source) for place, (rank, source) in enumerate(ranked)])

    def measure(pick: Sequence[tuple[int, int, str]]) -> tuple[int, int, int]:
        """Sum of the name ranks, number of repeated sources, sum of the places in the lists."""
        repeated = len(pick) - len({source for _, _, source in pick})
        return sum(rank for rank, _, _ in pick), repeated, sum(place for _, place, _ in pick)

    for pick in sorted(islice(product(*choices), MOST_NUMBERS), key=measure):
        both = list(zip(numbers, pick, strict=True))
        doubt = sum(rank for slot, (rank, _, _) in both if slot.required)
        yield doubt, {**idle, **{slot.name: source for slot, (_, _, source) in both if source}}


@lru_cache(maxsize=8)
def find_extents(system: ir.System) -> tuple[str, ...]:
    """The sizes and the merged extents of the formula, as sources."""
    names = list(find_sizes(system))
    for tensor in (*system.tensors, *(e.target.tensor for e in system.equations)):
        for extent in tensor.shape:
            if not isinstance(extent, ir.Size) and Polynomial.of(extent).constant is None:
                names.append(to_text(extent))
    names += [f"{one}*{other}" for one, other in combinations(sorted(find_sizes(system)), 2)]
    known: dict[tuple[str, ...], str] = {}
    for name in names:
        known.setdefault(tuple(sorted(name.replace(" ", "").split("*"))), name)
    return tuple(known.values())


def _match_parameters(
    match: Match, parameters: Sequence[Slot], system: ir.System
) -> dict[str, str]:
    """Sources of a module's parameters, by name, then by order: tensors in its layout, scalars."""
    own = Match(dict(match.arguments), [], match.scalars)
    lone = [s for s in parameters if s.shape == () and s.name not in own.arguments]
    _match_names(own, lone, (fold_name, find_core))  # these hold a scalar
    found = {s.name: f"tensor({own.arguments[s.name]})" for s in lone if s.name in own.arguments}
    own = Match(own.arguments | found, list(match.left), [])
    _match_names(own, parameters, (fold_name, find_core))
    rest = [slot for slot in parameters if slot.required and slot.name not in own.arguments]
    if len(rest) == len(own.left):
        own.arguments |= {s.name: tensor.name for s, tensor in zip(rest, own.left, strict=True)}
    by_name = {tensor.name: tensor for tensor in system.tensors}
    for slot in parameters:
        source = own.arguments.get(slot.name, "")
        if source in by_name:
            order = _find_order(system, by_name[source], slot.axes)
            own.arguments[slot.name] = write_order(source, order)
    return {name: s for name, s in own.arguments.items() if name not in match.arguments}


def find_constructor(code: Code, system: ir.System, binds: Mapping[str, str]) -> list[Slot]:
    """The constructor's arguments that are required, bound, or named like a scalar or size."""
    slots = find_constructor_slots(code.target)
    scalars = {fold_name(scalar.name) for scalar in system.scalars}
    tensors = {tensor.name for tensor in system.tensors}
    told = {n for n, s in binds.items() if not tensors & {*find_names(s)}}
    told |= {slot.name for slot in slots if slot.name in binds and not slot.is_flag}
    needed = [slot for slot in slots if slot.required or slot.name in told]
    named = [s for s in slots if s.is_number and fold_name(s.called) in scalars and s not in needed]
    sized = [s for s in slots if type(s.default) is int and s not in (*needed, *named)]
    if needed:  # keep only numbers named like a size
        sized = [s for s in sized if any(is_size_of(s, size) for size in find_sizes(system))]
    return [*needed, *named, *sized]


MOST_ORDERS = 24


def find_layouts(program: Program, system: ir.System) -> Iterator[dict[str, str]]:
    """Yield bindings with other layouts of the arguments and parameters that no --bind fixes."""
    by_name = {tensor.name: tensor for tensor in system.tensors}
    plain = {
        name: by_name[source.partition(".")[0]]
        for name, source in program.sources.items()
        if source.partition(".")[0] in by_name and name not in program.told
    }
    first = system.results[0]
    # A mask with axes of extent 1 added, up to the largest rank in the formula.
    made = (equation.target.tensor for equation in system.equations)
    most = max((len(tensor.shape) for tensor in (*system.tensors, *made)), default=0)
    for name, tensor in plain.items():
        for places in combinations(range(most), max(most - len(tensor.shape), 0)):
            if tensor.kind == "bool" and places:
                yield {name: tensor.name + "".join(f".unsqueeze({p})" for p in places)}
    # Those of one shape alike, then of one rank.
    groups: dict[Any, list[str]] = {}
    for measure in (tuple, len):
        for name, tensor in plain.items():
            key = name in program.parameters, measure(tensor.shape)
            groups.setdefault(key, []).append(name)
    for names in groups.values():
        rank = len(plain[names[0]].shape)
        for order in islice(permutations(range(rank)), 1, MOST_ORDERS):
            if all(is_layout(plain[name].shape, order) for name in names):
                moved = {name: write_order(plain[name].name, order) for name in names}
                # The result permuted like the arguments, where possible.
                is_alike = len(first.shape) == rank > 2 and is_layout(first.shape, order)
                if is_alike and order[-1] == rank - 1 and not program.results:
                    yield moved | {"return": write_order(first.name, order)}
                yield moved


def is_layout(shape: Sequence[Any], order: tuple[int, ...]) -> bool:
    """Whether the permutation keeps axes of equal extent in order."""
    # Exchanging two axes of equal extent is a mistake, not a layout.
    extents = [Polynomial.of(extent) for extent in shape]
    return not any(a > b and extents[a] == extents[b] for a, b in combinations(order, 2))


def write_order(name: str, order: tuple[int, ...]) -> str:
    """The source of a tensor with permuted axes."""
    if order == tuple(range(len(order))):
        return name
    if order == (1, 0):
        return f"{name}.T"
    return f"{name}.permute({', '.join(map(str, order))})"


MOST_STEPS = 20_000  # steps of the search for sizes


@dataclass(frozen=True)
class Holder:
    """A slot with a shape, the tensor that it holds, and the source of its values.

    `extents` are those of its axes; there are none for a source from --bind.
    """

    slot: Slot
    tensor: ir.Tensor
    source: str
    extents: tuple[Polynomial, ...] = ()
    indices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The slot's shape."""
        return self.slot.shape or ()

    def measure(self, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
        """The shape of the source at these sizes; None where unknown."""
        try:
            shape = [evaluate_extent(extent, sizes) for extent in self.tensor.shape]
            values = {self.tensor.name: torch.empty(shape, device="meta")}
            return tuple(evaluate_source(self.source, values, sizes, self.indices).shape)
        except (KeyError, DeriveError):  # a size that nothing determines
            return None
        except (RuntimeError, ValueError, IndexError):  # a reshape that does not fit these sizes
            return ()

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Whether the source has the slot's shape."""
        return self.measure(sizes) in {None, self.shape}

    def find_equations(self) -> list[tuple[Polynomial, int]]:
        """The extents with the numbers that they are equal to."""
        if self.extents:
            is_one = len(self.extents) == len(self.shape)
            return list(zip(self.extents, self.shape, strict=True)) if is_one else []
        if ":" in self.source:  # a slice has fewer elements
            return []
        parts = map(Polynomial.of, self.tensor.shape)
        return [(prod(parts, start=Polynomial.of(1)), prod(self.shape))]


def write_extent(extent: object) -> str:
    """The source of an extent, in parentheses unless a name or a number."""
    text = to_text(extent)  # type: ignore[arg-type]
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def find_holders(system: ir.System, program: Program, slots: Sequence[Slot]) -> list[Holder]:
    """The holders of slots whose source has one tensor."""
    by_name = {tensor.name: tensor for tensor in system.tensors}
    holders = []
    for slot in slots:
        source = program.sources.get(slot.name, "")
        tensors = [by_name[name] for name in find_names(source or "0") if name in by_name]
        if slot.shape is None or len(tensors) != 1:
            continue
        (tensor,) = tensors
        order = tuple(range(len(tensor.shape)))
        if slot.name not in program.told:
            order = _find_order(system, tensor, slot.axes)
        extents = tuple(Polynomial.of(tensor.shape[place]) for place in order)
        if source != write_order(tensor.name, order):
            extents = ()
        holders.append(Holder(slot, tensor, source, extents, program.indices))
    return holders


def _find_order(system: ir.System, tensor: ir.Tensor, axes: tuple[str, ...]) -> tuple[int, ...]:
    """The permutation of a tensor's axes into the order that torch documents, if it does."""
    summed = next((axis for axis in axes if axis != "out"), "")
    known = find_roles(system, tensor) if axes else ()
    roles = [role if role in axes else summed for role in known]
    return tuple(
        sorted(range(len(tensor.shape)), key=lambda p: axes.index(roles[p]) if roles else p)
    )


@lru_cache(maxsize=256)
def find_roles(system: ir.System, tensor: ir.Tensor) -> tuple[str, ...]:
    """The role of each axis at the tensor's first access: out, in, kernel or row."""
    for equation in system.equations:
        kept = {*find_free(equation.target)}
        accesses = list(find_accesses(equation.value))
        others = (place for a in accesses if a.tensor is not tensor for place in a.places)
        windows = {i for place in others if len(find_free(place)) > 1 for i in find_free(place)}

        def find_role(place: ir.Expr, kept: set[Any] = kept, windows: set[Any] = windows) -> str:
            free = {*find_free(place)}
            if any(isinstance(part, ir.Access) for part in walk(place)):
                return "row"
            return "out" if free & kept else "kernel" if free & windows else "in"

        for access in accesses:
            if access.tensor is tensor:
                return tuple(map(find_role, access.places))
    return ()


def is_fitting(holders: Sequence[Holder], sizes: Mapping[str, int]) -> bool:
    """Whether every slot has the shape of its source at these sizes."""
    return all(holder.fits(sizes) for holder in holders)


def find_misfits(holders: Sequence[Holder], sizes: Mapping[str, int]) -> Iterator[Statement]:
    """Statements of numbers that must be equal for every slot to fit its source."""
    for holder in holders:
        found, have = holder.measure(sizes), holder.shape
        if found is None or holder.fits(sizes):
            continue
        names = list(map(_find_names, holder.extents)) or [(1, ())] * len(found)
        if len(have) != len(found):
            have, found, names = (prod(have),), (prod(found),), [(1, ())]
        for number, wanted, (factor, named) in zip(have, found, names, strict=True):
            if number != wanted and number % factor == 0:
                yield Statement(number // factor, wanted // factor, named)


def _find_names(extent: Polynomial) -> tuple[int, tuple[str, ...]]:
    """The coefficient and sizes whose product is the extent; 1 and none if no such product."""
    match tuple(extent.terms.items()):
        case ((monomial, factor),) if all(isinstance(a, ir.Size) and k == 1 for a, k in monomial):
            if factor >= 1 and factor == int(factor):
                return int(factor), tuple(a.name for a, _ in monomial if isinstance(a, ir.Size))
    return 1, ()


def solve_sizes(
    holders: Sequence[Holder], numbers: Sequence[int], known: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Sizes at which every slot fits its tensor; `numbers` of the code are candidates."""
    equations = [equation for holder in holders for equation in holder.find_equations()]
    values = {*(n for holder in holders for n in holder.shape), *numbers}
    values |= {a // b for a in values for b in values if b and a % b == 0}
    pool = sorted(value for value in values if value >= 1)
    for sizes in _solve(equations, pool, dict(known), [MOST_STEPS]):
        if is_fitting(holders, sizes):
            yield sizes


def _solve(
    equations: Sequence[tuple[Polynomial, int]],
    pool: Sequence[int],
    sizes: dict[str, int],
    steps: list[int],
) -> Iterator[dict[str, int]]:
    """All solutions: a linear equation in one unknown is solved, else the pool is tried."""
    steps[0] -= 1
    if steps[0] < 0:
        return
    open_ones = []
    for extent, number in equations:
        unknown = list(_find_unknown(extent, sizes))
        if not unknown:
            if extent.at(sizes) != number:
                return
        else:
            open_ones.append((unknown, extent, number))
    if not open_ones:
        yield sizes
        return
    unknown, extent, number = min(open_ones, key=lambda one: len(one[0]))
    name = unknown[0]
    choices: Sequence[int] = pool
    linear = extent.split_linear(ir.Size(name)) if len(unknown) == 1 else None
    if linear is not None:
        factor, rest = (p.at(sizes) for p in linear)
        value = (number - rest) / factor if factor else 0
        choices = [int(value)] if value == int(value) and value >= 1 else []
    for choice in choices:
        yield from _solve(equations, pool, {**sizes, name: choice}, steps)


def _find_unknown(extent: Polynomial, sizes: Mapping[str, int]) -> Iterator[str]:
    names = (p.name for atom in extent.atoms for p in walk(atom) if isinstance(p, ir.Size))
    return (name for name in dict.fromkeys(names) if name not in sizes)
