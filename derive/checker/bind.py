"""Bindings of arguments and parameters to tensors of the formula, with their layouts.

    1. explicit              --bind q=Q
    2. by name               Q, then q or _q, then query: the same core
    3. by order              the rest, in order; a boolean tensor goes to an argument named mask
                             and those left over to one that the code uses as a list
    4. numbers               an argument that is no tensor is a size or a scalar: by name as above,
                             else every size is tried by running the code; an optional one keeps
                             its default, or is a size of its name that no shape determines, or a
                             scalar without an argument of its name

Where the code does not run, equal names and the order decide alone, and other arguments are taken
as numbers. The outcome is a list of programs that differ in the numbers alone; `doubt` is the rank
of the name matches, 0 for certain. Arguments have the formula's layout. Other layouts, `W.T`,
`mask.unsqueeze(1)`, only serve to suggest a --bind: a guess never gives the verdict "same".

Parameters of a module and tensors that a script makes have shapes. A parameter holds a
tensor with its indices in the formula's order, or in the order that torch documents for the module:
the weight of a linear layer holds W[e, d] as [d, e], output first. The result is a source such as
`W.T`, and the sizes: extents are equated with the shapes. Where that leaves a choice, divisors of
the numbers in the shapes are tried.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations, islice, permutations, product
from math import nan, prod
from typing import Any, TypeAlias

from derive.checker.load import Code
from derive.checker.program import Program, check_binds, evaluate_source, find_indices, find_names
from derive.checker.relations import Statement
from derive.checker.slots import (
    NAMED,
    UNSAID,
    Slot,
    find_core,
    find_kind,
    find_role,
    find_slots,
    fold_name,
    rank_size,
)
from derive.errors import DeriveError
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, evaluate_extent
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, find_free, find_size_names, walk
from derive.ir.walk import find_names as list_names
from derive.judge.samples import find_sizes
from derive.libraries import torch

Entry: TypeAlias = ir.Tensor | ir.ScalarInput

MOST_NUMBERS = 4096  # assignments of numbers to arguments that are sorted
MOST_PROGRAMS = 160  # programs to try
MOST_CHOICES = 6  # choices of the required arguments that are numbers
MOST_ORDERS = 24  # orders of the axes of a layout
MOST_STEPS = 20_000  # steps of the search for sizes
_PROBE = 10_007  # extent beyond the numbers of sources


@dataclass(frozen=True)
class Task:
    """Code and formula, with the user's bindings and sizes."""

    code: Code
    system: ir.System
    binds: Mapping[str, str]
    sizes: Mapping[str, int]
    made: dict[tuple[Any, ...], Any] = field(default_factory=dict)  # instances by arguments
    is_by_order: bool = False  # whether arguments are matched by equal names and order alone
    place: int = 0  # place of the choice of arguments that are numbers, likeliest first

    def list_others(self) -> Iterator["Task"]:
        """Yield the tasks in which arguments get other tensors, by order or by name."""
        for place, is_by_order in product(range(MOST_CHOICES), (True, False)):
            yield replace(self, is_by_order=is_by_order, place=place)

    @property
    def input_binds(self) -> dict[str, str]:
        """The user's bindings of arguments and parameters, without that of `return`."""
        return {name: source for name, source in self.binds.items() if name != "return"}

    def start_program(self, arguments: Mapping[str, str], maker: Program | None = None) -> Program:
        """The program with some arguments, the results' layout, and a maker's constructor."""
        first = self.system.results[0].name
        return replace(
            maker or Program(self.code),
            arguments=arguments,
            indices=find_indices(self.system),
            results={first: self.binds["return"]} if "return" in self.binds else {},
        )

    def find_fixed(self, program: Program) -> dict[str, int]:
        """The sizes the user gave, and the formula's defaults of those the code does not take."""
        taken = program.find_taken()
        sizes = ((s.name, s.default) for s in self.system.sizes if s.name not in taken)
        return {**{name: size for name, size in sizes if size}, **self.sizes}


class Match:
    """The sources of arguments so far, and the formula's tensors and scalars that are left."""

    def __init__(self, task: Task) -> None:
        self.found = task.input_binds
        self.bound = {name for source in self.found.values() for name in find_names(source)}
        alike = [find_role] if task.is_by_order else [find_core, find_kind]
        self.spells: list[Callable[[str], str]] = [str, fold_name, *alike]
        self.place = task.place
        system = task.system
        every: list[Entry] = [*system.tensors, *system.scalars]
        self.left = [entry for entry in every if entry.name not in self.bound]
        self.ordered: list[str] = []  # the arguments that are assigned by order

    def find_left(self, kind: Any, slots: Sequence[Slot]) -> tuple[list[Any], list[Slot]]:
        """The pair (entries of a kind not yet assigned, slots without an entry)."""
        free = [slot for slot in slots if slot.name not in self.found]
        return [entry for entry in self.left if isinstance(entry, kind)], free

    def assign(self, slots: Sequence[Slot], entries: Sequence[Entry]) -> None:
        """Assign entries to slots in order, as far as there are both."""
        for slot, entry in zip(slots, entries, strict=False):
            self.found[slot.name] = entry.name
            self.left.remove(entry)

    def assign_names(
        self, slots: Sequence[Slot], kinds: Sequence[type] = (ir.Tensor, ir.ScalarInput)
    ) -> None:
        """Assign tensors, else scalars, to slots of equal name, under each spelling in turn."""
        for spell, slot, kind in product(self.spells, slots, kinds):
            if called := spell(slot.called):
                entries, free = self.find_left(kind, [slot])
                named = [entry for entry in entries if spell(entry.name) == called]
                if slot.shape is not None and spell not in {str, fold_name}:
                    named = [entry for entry in named if _find_rank(entry) == len(slot.shape)]
                if len(named) == 1 and not slot.is_flag:
                    self.assign(free, named)

    def assign_slots(self, slots: Sequence[Slot], sizes: Sequence[str]) -> None:
        """Assign tensors to arguments: by name in any spelling, then masks, the rest in order."""
        self.assign_names(slots)
        self.assign_mask([slot for slot in slots if "mask" in slot.called.lower()])
        tensors, free = self.find_left(ir.Tensor, slots)
        free = [slot for slot in free if slot.required and not slot.is_number]

        def rank(slot: Slot) -> tuple[bool, int]:
            rank = min([rank_size(slot.called, size) for size in sizes], default=UNSAID)
            return not slot.is_count, rank

        ranked = sorted([*reversed(free)], key=rank)
        choices = combinations(ranked, max(0, len(free) - len(tensors)))
        numbers = [*islice(choices, self.place + 1)][-1]
        free = [slot for slot in free if slot not in numbers]
        self.ordered = [slot.name for slot, _ in zip(free, tensors, strict=False)]
        self.assign(free, tensors)
        self.assign_mask([slot for slot in slots if not slot.required and slot.default is None])

    def assign_mask(self, slots: Sequence[Slot]) -> None:
        """Assign the only boolean tensor left to the only one of some arguments."""
        tensors, free = self.find_left(ir.Tensor, slots)
        masks = [tensor for tensor in tensors if tensor.kind == "bool"]
        if len(masks) == len(free) == 1:
            self.assign(free, masks)

    def assign_parameters(self, parameters: Sequence[Slot]) -> None:
        """Assign scalars to parameters without axes and tensors to others, by name, then order."""
        lone = [slot for slot in parameters if slot.shape == ()]
        self.assign_names(lone, [ir.ScalarInput])
        self.assign_names(parameters, [ir.Tensor])
        tensors, rest = self.find_left(ir.Tensor, [slot for slot in parameters if slot.required])
        if len(rest) == len(tensors):
            ranks, wanted = [len(slot.shape or ()) for slot in rest], [*map(_find_rank, tensors)]
            if sorted(ranks) == sorted(wanted):
                rest.sort(key=lambda slot: len(slot.shape or ()))
                tensors.sort(key=_find_rank)
            self.assign(rest, tensors)


def _find_rank(entry: Entry) -> int:
    return len(entry.shape) if isinstance(entry, ir.Tensor) else 0


def find_programs(
    task: Task,
    asked: tuple[Sequence[Slot], Sequence[Slot]] | None = None,
    maker: Program | None = None,
) -> tuple[list[Program], list[list[Program]]]:
    """Programs with a list of tensors, if any; lists of others: scalars in order, then by names.

    `asked` are its arguments and parameters, if known; `maker` has its constructor's arguments.
    """
    system, told = task.system, task.input_binds
    arguments, parameters = asked or find_slots(task.code.target)
    any_number = next((slot.name for slot in arguments if slot.name.startswith("*")), "")
    slots = [slot for slot in arguments if slot.name != any_number]
    if not slots and not parameters:
        arguments = [*arguments, *map(Slot, told)]
    slots = [slot for slot in slots if slot.name not in told]
    check_binds(task.binds, system, [slot.name for slot in (*arguments, *parameters)])
    match = Match(task)
    match.assign_slots(slots, find_sizes(system))
    twice = {fold_name(t.name): t.name for t in system.tensors if t.name in match.bound}
    for slot in slots:  # a second argument with the name of a bound tensor
        if slot.required and slot.name not in match.found and fold_name(slot.called) in twice:
            match.found[slot.name] = twice[fold_name(slot.called)]
    own = {slot.name: slot for slot in parameters}
    given = {name: source for name, source in match.found.items() if name not in {*told} & {*own}}
    match.assign_parameters(parameters)
    new = [name for name in match.found if name not in given]
    base = replace(
        task.start_program(given, maker),
        parameters={
            name: _write_source(system, own[name], match.found[name], is_bound=name in told)
            for name in sorted(new, key=lambda name: name in told)
        },
        names=tuple(tensor.name for tensor in system.results),
    )
    tensors, _ = match.find_left(ir.Tensor, ())
    rest = ", ".join(tensor.name for tensor in tensors)
    if rest and any_number and any_number not in told:
        base = base.give("arguments", {any_number: f"[{rest}]"})
    untold = [size.name for size in system.sizes]  # sizes that no shape determines
    scalars, free = match.find_left(ir.ScalarInput, slots)
    numbers = [
        slot
        for slot in free
        if slot.required
        or any(is_size_of(slot, size) for size in untold)
        or (scalars and slot.may_be_scalar)
    ]
    assigned = assign_numbers(base, "arguments", numbers, scalars, system)
    found = [list(islice(programs, MOST_PROGRAMS)) for programs in assigned]
    listed = _find_list(match, slots, [tensor.name for tensor in tensors], task.code.source)
    return [each.give("arguments", listed) for each in found[-1] if listed], found


# Uses of a list that an argument is, with a last place.
_LIST = r"\b{0}\[(-1|{1})\]|\bin {0}\b|\*{0}\b|\w, \w+ = {0}\b(?!\.)|(cat|stack|dot)\({0}\b"


def _find_list(
    match: Match, slots: Sequence[Slot], rest: Sequence[str], source: str
) -> dict[str, str]:
    """The sources if the code uses an argument as a list that takes up the rest; {} if none.

    Arguments behind it that were assigned by order get the next tensors.
    """
    for slot in slots if rest else ():
        name, first = slot.name, match.found.get(slot.name, "")
        is_guess = name in match.ordered or fold_name(first) != fold_name(slot.called)
        if first and is_guess and re.search(_LIST.format(re.escape(name), len(rest)), source):
            behind = match.ordered[match.ordered.index(name) + 1 :] if name in match.ordered else ()
            every = [first, *(match.found[each] for each in behind), *rest]
            own = f"[{', '.join(every[: len(rest) + 1])}]"
            return {name: own, **dict(zip(behind, every[len(rest) + 1 :], strict=True))}
    return {}


def _write_source(system: ir.System, slot: Slot, source: str, *, is_bound: bool) -> str:
    """The source of a parameter: a scalar as a tensor, a tensor in the module's layout."""
    if slot.shape == () and any(scalar.name == source for scalar in system.scalars):
        return f"tensor({source})"
    tensor = next((each for each in system.tensors if each.name == source), None)
    if tensor is None or is_bound:
        return source
    return write_order(source, _find_order(system, tensor, slot.axes))


def is_size_of(slot: Slot, size: str) -> bool:
    """Whether an optional integer argument is named like a size."""
    return type(slot.default) is int and rank_size(slot.called, size) < NAMED


def assign_numbers(
    base: Program,
    kind: str,
    numbers: Sequence[Slot],
    scalars: Sequence[ir.ScalarInput],
    system: ir.System,
) -> list[Iterator[Program]]:
    """Iterators of `base` with numbers as arguments: scalars in order, if they fit; then ranked."""
    named = {fold_name(scalar.name) for scalar in scalars}
    dropped = (s for s in numbers if s.is_probability and s.required)
    idle = {slot.name: "0.0" for slot in dropped if fold_name(slot.called) not in named}
    numbers = [slot for slot in numbers if slot.name not in idle]
    needed = [slot.name for slot in numbers if slot.required]
    base = base.give(kind, idle)
    found = [_rank_programs(base, kind, numbers, scalars, system)]
    sizes = find_sizes(system) if kind == "constructor" else [s.name for s in system.sizes]
    is_named = any(
        fold_name(slot.called) in named
        if type(slot.default) is float
        else any(rank_size(slot.called, size) < NAMED for size in sizes)
        for slot in numbers
    )
    if needed and len(needed) == len(scalars) and not is_named:
        given = dict(zip(needed, (scalar.name for scalar in scalars), strict=True))
        found.insert(0, iter([base.give(kind, given)]))
    return found


def _rank_programs(
    base: Program,
    kind: str,
    numbers: Sequence[Slot],
    scalars: Sequence[ir.ScalarInput],
    system: ir.System,
) -> Iterator[Program]:
    """Yield the program with sizes and scalars for arguments of a kind, least doubt first.

    The doubt is the sum of the name ranks of required arguments; the others may keep their default.
    A default is written out where a scalar without an argument of its name has it too, or a like
    name: where that scalar gives another answer, the choice is open.
    """
    any_required = any(slot.required for slot in numbers)
    named = base.find_taken() | {fold_name(slot.called) for slot in numbers}
    read = {name for equation in system.equations for name in list_names(equation.value)}
    left = {
        scalar.name: float(scalar.default.value) if isinstance(scalar.default, ir.Number) else nan
        for scalar in scalars
        if scalar.name in read and not {scalar.name, fold_name(scalar.name)} & named
    }
    extents, names = find_extents(system), [scalar.name for scalar in scalars]

    def rank_sources(slot: Slot) -> list[tuple[int, int, str]]:
        """Triples (rank, place in this list, source), best first: rank 0 is the slot's own name."""
        known = {source: rank_size(slot.called, source) for source in (*extents, *names)}
        if not slot.required:
            is_int = type(slot.default) is int
            like = {s: n for s, n in known.items() if n < NAMED and (is_int or s in names)}
            if not like and not (is_int and kind == "constructor" and not any_required):
                known = {}
            alike = {} if is_int else like
            meant = [n for n, default in left.items() if n in alike or default == slot.default]
            known = {**(like or known), **dict.fromkeys(left, UNSAID), **dict.fromkeys(meant, 2)}
            known[repr(slot.default) if meant else ""] = NAMED
        ranked = sorted(known.items(), key=lambda choice: choice[1])
        if ranked[0][1] == 0 and ranked[0][0] in names:
            ranked = ranked[:1]
        return [(rank, place, source) for place, (source, rank) in enumerate(ranked)]

    def measure(pick: Sequence[tuple[int, int, str]]) -> tuple[int, int, int]:
        """The triple (sum of ranks, number of repeated sources, sum of places in the lists)."""
        ranks, places, chosen = zip(*pick, strict=True) if pick else ((), (), ())
        return sum(ranks), len(pick) - len({*chosen}), sum(places)

    choices = [rank_sources(slot) for slot in numbers]
    for pick in sorted(islice(product(*choices), MOST_NUMBERS), key=measure):
        both = list(zip(numbers, pick, strict=True))
        own = [source for slot, (_, _, source) in both if source in left and not slot.required]
        if len({*own}) < len(own):
            continue  # a scalar for two optional arguments
        doubt = base.doubt + sum(rank for slot, (rank, _, _) in both if slot.required)
        given = {slot.name: source for slot, (_, _, source) in both if source}
        optional = (
            s.name for s in numbers if not s.required and given.get(s.name) != repr(s.default)
        )
        yield replace(base.give(kind, given), doubt=doubt, optional=(*optional, *base.optional))


@lru_cache(maxsize=8)
def find_extents(system: ir.System) -> tuple[str, ...]:
    """The sizes, merged extents and products of two sizes, as sources: `H*D`."""
    sizes = find_sizes(system)
    tensors = (*system.tensors, *(equation.target.tensor for equation in system.equations))
    extents = (extent for tensor in tensors for extent in tensor.shape)
    names = [*sizes, *(to_text(e) for e in extents if Polynomial.of(e).constant is None)]
    names += [f"{one}*{other}" for one, other in combinations(sorted(sizes), 2)]
    known: dict[tuple[str, ...], str] = {}
    for name in names:
        known.setdefault(tuple(sorted(name.replace(" ", "").split("*"))), name)
    return tuple(known.values())


def find_constructor(task: Task) -> tuple[list[Slot], list[ir.ScalarInput]]:
    """The pair (constructor's arguments: required, bound or maybe numbers; scalars left for it)."""
    system, binds = task.system, task.binds
    slots, others = find_slots(task.code.target)
    scalars = {fold_name(scalar.name) for scalar in system.scalars}
    tensors = {tensor.name for tensor in system.tensors}
    told = {n for n, s in binds.items() if not tensors & {*find_names(s)}}
    told |= {slot.name for slot in slots if slot.name in binds and not slot.is_flag}
    needed = [slot for slot in slots if slot.required or slot.name in told]
    named = [s for s in slots if s.is_number and fold_name(s.called) in scalars and s not in needed]
    sized = [s for s in slots if type(s.default) is int and s not in (*needed, *named)]
    if needed:  # keep only numbers named like a size
        sized = [s for s in sized if any(is_size_of(s, size) for size in find_sizes(system))]
    here, there = ({fold_name(slot.called) for slot in each} for each in (slots, others))
    like = [s for s in slots if any(rank_size(s.called, scalar) < NAMED for scalar in scalars)]
    free = [s for s in slots if s.may_be_scalar and (s.is_number or s in like)]
    free *= not scalars <= here | there
    left = [
        s for s in system.scalars if fold_name(s.name) in here or fold_name(s.name) not in there
    ]
    return [*dict.fromkeys((*needed, *named, *sized, *free))], left


def find_layouts(program: Program, task: Task) -> Iterator[dict[str, str]]:
    """Yield bindings with other layouts of the arguments and parameters that no --bind fixes."""
    system = task.system
    tensors = {tensor.name: tensor for tensor in system.tensors}
    heads = {name: source.partition(".")[0] for name, source in program.sources.items()}
    plain = {n: tensors[h] for n, h in heads.items() if h in tensors and n not in task.binds}
    # A mask with axes of extent 1 added, up to the largest rank in the formula.
    made = (equation.target.tensor for equation in system.equations)
    most = max((len(tensor.shape) for tensor in (*system.tensors, *made)), default=0)
    for name, tensor in plain.items():
        for places in combinations(range(most), max(most - len(tensor.shape), 0)):
            if tensor.kind == "bool" and places:
                yield {name: tensor.name + "".join(f".unsqueeze({p})" for p in places)}
    # Those of one shape alike, then of one rank.
    groups: dict[Any, list[str]] = {}
    measures: tuple[Callable[[Any], Any], ...] = (tuple, len)
    for measure, (name, tensor) in product(measures, plain.items()):
        groups.setdefault((name in program.parameters, measure(tensor.shape)), []).append(name)
    first = system.results[0]
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
    """The source of a tensor with permuted axes: `W.T`, `x.permute(2, 0, 1)`."""
    if order == tuple(range(len(order))):
        return name
    return f"{name}.T" if order == (1, 0) else f"{name}.permute({', '.join(map(str, order))})"


def _find_order(system: ir.System, tensor: ir.Tensor, axes: tuple[str, ...]) -> tuple[int, ...]:
    """The tensor's axis numbers in the order of the documented `axes`; 0, 1, .. if unknown."""
    summed = next((axis for axis in axes if axis != "out"), "")
    known = find_roles(system, tensor) if axes else ()
    roles = [axes.index(role if role in axes else summed) for role in known]
    return tuple(sorted(range(len(tensor.shape)), key=lambda p: roles[p] if roles else p))


@lru_cache(maxsize=256)
def find_roles(system: ir.System, tensor: ir.Tensor) -> tuple[str, ...]:
    """The role of each axis at the tensor's first access: out, in, kernel or row; () if unread."""
    for equation in system.equations:
        accesses = list(find_accesses(equation.value))
        own = next((access for access in accesses if access.tensor is tensor), None)
        if own is None:
            continue
        kept = {*find_free(equation.target)}
        others = (place for a in accesses if a.tensor is not tensor for place in a.places)
        windows = {i for place in others if len(find_free(place)) > 1 for i in find_free(place)}
        free = [{*find_free(place)} for place in own.places]
        rows = [any(isinstance(part, ir.Access) for part in walk(place)) for place in own.places]
        return tuple(
            "row" if row else "out" if each & kept else "kernel" if each & windows else "in"
            for row, each in zip(rows, free, strict=True)
        )
    return ()


@dataclass(frozen=True)
class Holder:
    """The shape of a parameter, the formula's tensor in its source, and the source."""

    shape: tuple[int, ...]
    tensor: ir.Tensor
    source: str
    indices: Mapping[str, tuple[str, ...]]

    def measure(
        self, sizes: Mapping[str, int], shape: Sequence[int] = ()
    ) -> tuple[int, ...] | None:
        """The source's shape at these sizes or for this `shape`; None if unknown, () if invalid."""
        try:
            own = shape or [evaluate_extent(extent, sizes) for extent in self.tensor.shape]
            values = {self.tensor.name: torch.empty(own, device="meta")}
            return tuple(evaluate_source(self.source, values, sizes, self.indices).shape)
        except (KeyError, DeriveError):  # a size that nothing determines
            return None
        except (RuntimeError, ValueError, IndexError):  # a reshape that does not fit these sizes
            return ()

    def fits(self, sizes: Mapping[str, int], sort: Callable[..., Any] = tuple) -> bool:
        """Whether the source may have the slot's shape, both compared after `sort`."""
        found = self.measure(sizes)
        return found is None or sort(found) == sort(self.shape)

    def find_extents(self) -> list[Polynomial]:
        """The extents of the source's axes; none where it does more than permute."""
        probe = [*range(_PROBE, _PROBE + len(self.tensor.shape))]
        found = self.measure({}, probe) or ()
        order = [number - _PROBE for number in found] if sorted(found) == probe else []
        return [Polynomial.of(self.tensor.shape[place]) for place in order]

    def find_equations(self) -> list[tuple[Polynomial, int]]:
        """Pairs (extent, number it must be), for each axis or for the product; [] if unknown."""
        if extents := self.find_extents():
            is_one = len(extents) == len(self.shape)
            return list(zip(extents, self.shape, strict=True)) if is_one else []
        if ":" in self.source:  # a slice has fewer elements
            return []
        parts = map(Polynomial.of, self.tensor.shape)
        return [(prod(parts, start=Polynomial.of(1)), prod(self.shape))]

    def find_misfits(self, sizes: Mapping[str, int]) -> Iterator[Statement]:
        """Statements of numbers that must be equal for the source to have the shape."""
        found, have = self.measure(sizes), self.shape
        if found is None or found == have:
            return
        names = list(map(_split_extent, self.find_extents())) or [(1, ())] * len(found)
        if len(have) != len(found):
            have, found, names = (prod(have),), (prod(found),), [(1, ())]
        for number, wanted, (factor, named) in zip(have, found, names, strict=True):
            if number != wanted and number % factor == 0:
                yield Statement(number // factor, wanted // factor, named)


def _split_extent(extent: Polynomial) -> tuple[int, tuple[str, ...]]:
    """The coefficient and sizes whose product is the extent; 1 and none if no such product."""
    match tuple(extent.terms.items()):
        case ((monomial, factor),) if all(isinstance(a, ir.Size) and k == 1 for a, k in monomial):
            if factor >= 1 and factor == int(factor):
                return int(factor), tuple(a.name for a, _ in monomial if isinstance(a, ir.Size))
    return 1, ()


def find_holders(system: ir.System, program: Program, slots: Sequence[Slot]) -> list[Holder]:
    """The holders of slots whose source has one tensor."""
    holders = []
    for slot in slots:
        source = program.sources.get(slot.name, "0")
        names = find_names(source)
        tensors = [tensor for tensor in system.tensors if tensor.name in names]
        if slot.shape is not None and len(tensors) == 1:
            holders.append(Holder(slot.shape, tensors[0], source, program.indices))
    return holders


def is_fitting(holders: Sequence[Holder], sizes: Mapping[str, int]) -> bool:
    """Whether every source may have its slot's shape at these sizes."""
    return all(holder.fits(sizes) for holder in holders)


def solve_sizes(
    holders: Sequence[Holder], numbers: Sequence[int], known: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Sizes at which every slot fits its tensor; `numbers` of the code are candidates.

    A linear equation in one unknown is solved; else all the candidates are tried.
    """
    equations = [equation for holder in holders for equation in holder.find_equations()]
    values = {*(n for holder in holders for n in holder.shape), *numbers}
    values |= {a // b for a in values for b in values if b and a % b == 0}
    pool = sorted(value for value in values if value >= 1)
    waiting = [dict(known)]
    for _ in range(MOST_STEPS):
        if not waiting:
            return
        sizes = waiting.pop()
        rows = [
            ([name for name in find_size_names(*extent.atoms) if name not in sizes], extent, number)
            for extent, number in equations
        ]
        left = [row for row in rows if row[0]]
        if any(extent.at(sizes) != number for names, extent, number in rows if not names):
            continue
        if not left:
            if is_fitting(holders, sizes):
                yield sizes
            continue
        names, extent, number = min(left, key=lambda row: len(row[0]))
        choices: Sequence[int] = pool
        linear = extent.split_linear(ir.Size(names[0])) if len(names) == 1 else None
        if linear is not None:
            factor, rest = (part.at(sizes) for part in linear)
            value = (number - rest) / factor if factor else 0
            choices = [int(value)] if value == int(value) and value >= 1 else []
        waiting += ({**sizes, names[0]: choice} for choice in reversed(choices))
