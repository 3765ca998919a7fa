"""What may be judged: the programs of code of each kind, and the sizes that it fixes by itself.

A function has the same programs at all sizes. The parameters of a module that is made have shapes,
which say sizes. A class is made anew at each sample, with the numbers that make its parameters fit.
A script is a function of the tensors that it makes, whose shapes say sizes.
"""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from types import CodeType
from typing import TYPE_CHECKING, Any

from derive.checker.bind import (
    Match,
    find_constructor,
    find_holders,
    find_misfits,
    find_numbers,
    find_programs,
    find_sources,
    match_slots,
    rank_source,
    solve_sizes,
    write_default,
    write_extent,
)
from derive.checker.load import Code, find_literals, finish_script
from derive.checker.processes import (
    CannotRunError,
    find_kind,
    where_it_lives,
)
from derive.checker.program import Program, evaluate_source, find_indices, find_names, find_tensors
from derive.checker.relations import Statement, set_sizes
from derive.checker.runs import INIT, describe_error, make_module
from derive.checker.samples import make_samples
from derive.checker.slots import UNSAID, Slot, find_arguments, find_slots, parse_text, rank_size
from derive.errors import DeriveError
from derive.ir import nodes as ir
from derive.judge.samples import find_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from derive.checker.reading import Script
    from derive.checker.samples import Sample

    Orders = Mapping[str, tuple[int, ...]]
    Make = Callable[[Sample, list[list[Statement]]], Iterator[Program]]

MOST_SIZES = 256  # assignments of sizes that fit a module's shapes
MOST_MADE = 100  # modules that are made of a class at one sample
MOST_FITTING = 32  # of these, whose parameters fit, that are run
_PRIMES = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179)
_OUTSIDE = {"random", "secrets", "time", "datetime", "os", "socket", "numpy.random", "uuid"}
MOST_NUMBER = 4096  # beyond it a number is no size that a sample could have


@dataclass(frozen=True)
class Task:
    """Code and formula, and what is told of both."""

    code: Code
    system: ir.System
    binds: Mapping[str, str]
    sizes: Mapping[str, int]
    init: str = ""  # the arguments of a constructor, which read the formula's sizes
    made: dict[tuple[Any, ...], Made] = field(default_factory=dict)  # by a constructor's arguments


@dataclass(frozen=True)
class Subject:
    """Code as it may be called.

    `groups` are sizes that it fixes: one of the first group, if the code runs at any of them.
    `make` gives the programs at a sample, those first whose names tell most, and adds what the code
    says of sizes. `numbers` are whole numbers that the code has by name, `literals` those that
    stand in it. `parameters` may lie in another order than the one that is stated. A script may
    also be judged at sizes that are not its own, `wider`. `make_unsaid` gives programs with numbers
    that neither a name nor a shape says, where others have those that one says. `guessed` are
    numbers that code lacks and of which nobody says what they are, "n=H".
    """

    groups: Sequence[Sequence[Mapping[str, int]]]
    make: Make
    numbers: Mapping[str, int] = field(default_factory=dict)
    literals: Sequence[int] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    wider: Subject | None = None
    make_unsaid: Make | None = None
    guessed: tuple[str, ...] = ()

    def find_base(self) -> Mapping[str, int] | None:
        """The first of the sizes that it fixes."""
        return next((base for group in self.groups for base in group), None)


def find_subjects(task: Task, orders: Orders) -> Iterator[Subject]:
    """The code as a function of the formula's tensors; parameters of some orders are assumed."""
    kind = find_kind(task.code.target)
    if task.code.script is not None:
        yield from _find_scripts(task)
    elif kind == "class":
        yield from _find_classes(task, orders)
    else:
        yield _find_module(task, orders) if kind == "module" else _find_function(task)
        if task.code.call is not None:  # the file calls it: with what its formula does not have
            yield from _find_scripts(replace(task, code=replace(task.code, script=task.code.call)))


def find_fixed(system: ir.System, given: Mapping[str, int], program: Program) -> dict[str, int]:
    """Sizes that are told, and the defaults of keyword sizes that the code does not take."""
    taken = program.find_taken()
    defaults = {s.name: s.default for s in system.sizes if s.default and s.name not in taken}
    return {**defaults, **given}


def _find_function(task: Task) -> Subject:
    programs = find_programs(task.code, task.system, task.binds)
    fixed = find_fixed(task.system, task.sizes, programs[0])
    return Subject([[fixed]], partial(_give, programs), *find_own_numbers(task.code))


def _give(programs: Sequence[Program], _: Sample, __: list[list[Statement]]) -> Iterator[Program]:
    return iter(programs)


def _find_module(task: Task, orders: Orders) -> Subject:
    """A module that is made: its shapes say the sizes."""
    system = task.system
    samples = make_samples(system, task.sizes)
    parameters = [] if samples is None else _list_parameters(task, samples.first)
    programs = find_programs(task.code, system, task.binds)
    holders = find_holders(system, programs[0], parameters, orders)
    fixed = find_fixed(system, task.sizes, programs[0])
    own, literals = find_own_numbers(task.code)
    numbers = {**own, **find_attributes(task.code.target)}
    solved = list(islice(solve_sizes(holders, [*numbers.values()], fixed), MOST_SIZES))
    names = {name for holder in holders for name in _name_extents(holder.tensor)}

    def make(sample: Sample, _: list[list[Statement]]) -> Iterator[Program]:
        sources = find_sources(holders, sample.sizes)
        for program in programs if sources is not None else ():
            yield replace(program, parameters={**program.parameters, **(sources or {})})

    ordered = _group_sizes(solved, numbers, names)
    held = {holder.slot.name: holder.tensor.name for holder in holders if not holder.told}
    return Subject(ordered, make, numbers, literals, held)


def _list_parameters(task: Task, sample: Sample) -> list[Slot]:
    """The parameters of a module; those of lazy layers get their shapes in a first call."""
    _, parameters = find_slots(task.code.target)
    if any(slot.shape is None for slot in parameters):
        for program in find_programs(task.code, task.system, task.binds)[:1]:
            replace(program, parameters={}).run(sample.make_inputs(), sample.sizes)
        _, parameters = find_slots(task.code.target)
    return parameters


def _name_extents(tensor: Any) -> Iterator[str]:
    from derive.ir import nodes as ir
    from derive.ir.walk import walk

    return (p.name for extent in tensor.shape for p in walk(extent) if isinstance(p, ir.Size))


def _group_sizes(
    solved: Sequence[Mapping[str, int]], numbers: Mapping[str, int], names: Collection[str]
) -> list[list[Mapping[str, int]]]:
    """The assignments, those first of which the code's numbers and their names say most."""
    groups: dict[tuple[int, int], list[Mapping[str, int]]] = defaultdict(list)
    for sizes in solved:
        own = {name: size for name, size in sizes.items() if name in names}
        said = sum(
            UNSAID - rank_size(called.rpartition(".")[2], name)
            for called, number in numbers.items()
            for name, size in own.items()
            if number == size
        )
        groups[len({*own.values()} & {*numbers.values()}), said].append(sizes)
    return [groups[key] for key in sorted(groups, reverse=True)]


def find_own_numbers(code: Code) -> tuple[dict[str, int], list[int]]:
    """Whole numbers of the code: those that it reads by name, and those that it has as extents."""
    if code.script is None:
        named, literals = find_numbers_of(code.target)
    else:
        public = {name: value for name, value in code.names.items() if not name.startswith("__")}
        named = _keep_numbers(public)
        literals = [n for n in find_literals(code) if isinstance(n, int)]
    stated = _find_extents(code.source)
    return named, [n for n in literals if n in stated]


# What torch, einops and Python take extents, counts of pieces or lengths by. A number elsewhere,
# as the place of an index or a power, says nothing of sizes.
_TAKES_EXTENTS = {
    *("arange", "broadcast_to", "chunk", "empty", "expand", "eye", "full", "linspace", "narrow"),
    *("new_empty", "new_full", "new_ones", "new_zeros", "ones", "rand", "randn", "range"),
    *("rearrange", "repeat", "repeat_interleave", "reshape", "resize", "split", "tile"),
    *("tensor_split", "unflatten", "unfold", "view", "zeros"),
}


def _find_extents(source: str) -> set[int]:
    """The whole numbers that stand where code says an extent."""
    found: set[int] = set()
    for node in ast.walk(parse_text(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
                parts = [*node.args, *(each.value for each in node.keywords)]
                parts = parts if name in _TAKES_EXTENTS else []
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                parts = [value]
            case ast.Compare(left, _, others):
                parts = [left, *others]
            case ast.BinOp(left, ast.FloorDiv() | ast.Mod() | ast.Mult(), right):
                parts = [left, right]
            case ast.Slice(lower, upper, step):
                parts = [each for each in (lower, upper, step) if each is not None]
            case ast.arguments(defaults=defaults, kw_defaults=named):
                parts = [*defaults, *(each for each in named if each is not None)]
            case _:
                continue
        inside = [e for part in parts for e in getattr(part, "elts", (part,))]
        found |= {e.value for e in inside if isinstance(e, ast.Constant) and type(e.value) is int}
    return found


@where_it_lives
def find_numbers_of(target: Any) -> tuple[dict[str, int], list[int]]:
    """Whole numbers of the file, the closure and the defaults, by name, and the literals."""
    functions = _find_functions(target)
    bodies = list(dict.fromkeys(chain.from_iterable(map(_find_bodies, functions))))
    named: dict[str, Any] = {}
    for function in functions:
        named |= dict(_find_reads(function))
    for function in functions[: len(functions) if isinstance(target, type) else 1]:
        named |= {each.name: each.default for each in find_arguments(function)}
    literals = {n for body in bodies for n in body.co_consts if type(n) is int}
    return _keep_numbers(named), sorted(n for n in literals if 1 < n <= MOST_NUMBER)


@where_it_lives
def find_outside(target: Any) -> tuple[str, ...]:
    """The modules of chance, time and system that code reads, by name."""
    functions = _find_functions(target)
    read = [value for function in functions for _, value in _find_reads(function)]
    names = (getattr(value, "__name__", "") for value in read if inspect.ismodule(value))
    return tuple(dict.fromkeys(name for name in names if name in _OUTSIDE))


def _keep_numbers(named: Mapping[str, Any]) -> dict[str, int]:
    return {n: v for n, v in named.items() if type(v) is int and 0 < v <= MOST_NUMBER}


def _find_functions(target: Any) -> list[Any]:
    """What is called: the function or the methods, and functions of the same file."""
    import torch

    kind = target if isinstance(target, type) else type(target)
    found = [target]
    if issubclass(kind, torch.nn.Module):
        owners = [each for each in kind.__mro__ if each not in torch.nn.Module.__mro__]
        found = [f for each in owners for f in vars(each).values() if inspect.isfunction(f)]
    for function in found:
        read = (value for _, value in _find_reads(function))
        found += [each for each in read if inspect.isfunction(each) and each not in found]
    return found


def _find_reads(function: Any) -> list[tuple[str, Any]]:
    """What a function reads from its file and from around it, by name."""
    inner = inspect.unwrap(function)
    inner = getattr(inner, "__func__", inner)
    own = getattr(inner, "__globals__", {})
    read = dict.fromkeys(chain.from_iterable(body.co_names for body in _find_bodies(function)))
    found = [(name, own[name]) for name in read if name in own]
    cells = getattr(inner, "__closure__", None) or ()
    for name, cell in zip(inner.__code__.co_freevars if cells else (), cells, strict=True):
        with suppress(ValueError):  # a cell that is empty yet
            found.append((name, cell.cell_contents))
    return found


def _find_bodies(function: Any) -> list[CodeType]:
    """The compiled body of a function, and of those inside it."""
    inner = inspect.unwrap(function)
    found = [b for b in [getattr(getattr(inner, "__func__", inner), "__code__", None)] if b]
    for body in found:
        found += [each for each in body.co_consts if isinstance(each, CodeType)]
    return found


@where_it_lives
def find_attributes(module: Any) -> dict[str, int]:
    """Whole numbers that a module and its parts keep, by their dotted names."""
    return {
        f"{path}.{name}" if path else name: value
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if type(value) is int and 0 < value <= MOST_NUMBER
    }


@where_it_lives
def construct(target: Any, made: Mapping[str, Any], path: str) -> Any:
    """A module of a class, as it is used; CannotRunError where it cannot be made so."""
    try:
        return make_module(target, made)
    except (Exception, SystemExit) as error:  # whatever the user's constructor raises
        raise describe_error(error, path) from error


@dataclass(frozen=True)
class Made:
    """What a module asks for that was made of a class, or why none could be made."""

    arguments: tuple[Slot, ...] = ()
    parameters: tuple[Slot, ...] = ()
    failure: CannotRunError | None = None

    @property
    def shapes(self) -> tuple[tuple[str, tuple[int, ...] | None], ...]:
        """The parameters' shapes by name."""
        return tuple((slot.name, slot.shape) for slot in self.parameters)


@where_it_lives
def construct_all(target: Any, given: Sequence[Mapping[str, Any]], path: str) -> list[Made]:
    """What the modules ask for that a class makes of each of these arguments."""
    found = []
    for each in given:
        try:
            arguments, parameters = find_slots(construct(target, each, path))
            found.append(Made(tuple(arguments), tuple(parameters)))
        except CannotRunError as error:
            found.append(Made(failure=error))
    return found


def _find_classes(task: Task, orders: Orders) -> Iterator[Subject]:
    """A class of modules: made at the sizes of each sample, so that it is judged at several."""
    code, system = task.code, task.system
    slots = [] if task.init else find_constructor(code, system, task.binds)
    told = {slot.name: task.binds[slot.name] for slot in slots if slot.name in task.binds}
    rest = {name: source for name, source in task.binds.items() if name not in told}
    scalars = [each for each in system.inputs if isinstance(each, ir.ScalarInput)]
    open_slots = [slot for slot in slots if slot.name not in told]
    makers = []
    for doubt, given in islice(find_numbers(open_slots, scalars, system), MOST_MADE):
        unsaid = frozenset(
            slot.name
            for slot in open_slots
            if rank_source(slot, given[slot.name], scalars) >= UNSAID
            and (slot.required or given[slot.name] != write_default(slot))
            and not slot.is_probability
        )
        optional = tuple(slot.name for slot in open_slots if not slot.required)
        makers.append(_Maker({**told, **given}, doubt, unsaid, optional))
    if task.init:
        makers = [_Maker({INIT: f"init({task.init!r})"}, 0, frozenset(), ())]
    inner = replace(task, binds=rest)
    made = _Class(inner, makers, orders)
    fixed = find_fixed(system, task.sizes, Program(code, constructor=makers[0].sources))
    yield Subject(
        [[fixed]], made.make, *find_own_numbers(code), made.parameters, make_unsaid=made.make_unsaid
    )
    if not task.init and not any(
        slot.required for slot in open_slots
    ):  # with the sizes that it has in it
        with suppress(CannotRunError, DeriveError):  # that it cannot be made is said already
            given = {n: evaluate_source(s, {}, task.sizes, {}) for n, s in told.items()}
            module = construct(code.target, given, code.path)
            yield _find_module(replace(inner, code=replace(code, target=module)), orders)


@dataclass(frozen=True)
class _Maker:
    """Sources of a constructor's arguments, and those of which no name says them."""

    sources: Mapping[str, str]
    doubt: int
    unsaid: frozenset[str]
    optional: tuple[str, ...]


@dataclass
class _Class:
    """A class of modules, and the ways to fill in what its constructor asks for."""

    task: Task
    makers: Sequence[_Maker]
    orders: Orders
    parameters: dict[str, str] = field(default_factory=dict)  # and the tensors that they hold
    shaped: set[str] = field(default_factory=set)  # numbers on which shapes of parameters depend
    held: set[str] | None = None  # sizes of the tensors that they hold, once a module is made

    def make(self, sample: Sample, statements: list[list[Statement]]) -> Iterator[Program]:
        """The programs whose parameters fit at a sample, of numbers that names or shapes tell."""
        if self.held is None:
            self._look(sample)
        return self._make(self._split()[0], sample, statements)

    def make_unsaid(self, sample: Sample, statements: list[list[Statement]]) -> Iterator[Program]:
        """The others that fit: neither a name nor a shape says one of their numbers."""
        return self._make(self._split()[1], sample, statements)

    def _look(self, sample: Sample) -> None:
        """Make all that can be, to see which numbers the shapes of parameters tell."""
        for _, given, made in self._construct(self.makers, sample, sample.make_inputs()):
            with suppress(CannotRunError, DeriveError):
                programs, parameters = self._find_programs(given, made, sample)
                holders = find_holders(self.task.system, programs[0], parameters, {})
                self.held = {name for each in holders for name in _name_extents(each.tensor)}
                return

    def _split(self) -> tuple[list[_Maker], list[_Maker]]:
        """The ways that leave the fewest numbers untold, and the others."""
        untold = [self._count_untold(maker) for maker in self.makers]
        said = [m for m, count in zip(self.makers, untold, strict=True) if count == min(untold)]
        return said, [maker for maker in self.makers if maker not in said]

    def _count_untold(self, maker: _Maker) -> int:
        """The numbers that no name says, nor a parameter that has such an extent."""
        shaped = {
            name
            for name in maker.unsaid & self.shaped
            if {*find_names(maker.sources[name])} <= (self.held or set())
        }
        return len(maker.unsaid - shaped)

    def _make(
        self, makers: Sequence[_Maker], sample: Sample, statements: list[list[Statement]]
    ) -> Iterator[Program]:
        values, said, fits = sample.make_inputs(), list[list[Statement]](), 0
        refused: Exception | None = None
        for maker, given, made in self._construct(makers, sample, values):
            try:
                programs, parameters = self._find_programs(given, made, sample)
            except DeriveError as error:  # these numbers make no parameter of a name that is bound
                refused = refused or error
                continue
            except CannotRunError as error:  # numbers that do not fit are not those that are meant
                said.append([*error.statements])
                refused = refused or error
                continue
            sources = self._find_sources(parameters, programs[0], sample, said)
            if sources is None:
                continue
            for each in programs:
                yield replace(
                    each,
                    code=self.task.code,
                    constructor=maker.sources,
                    parameters={**each.parameters, **sources},
                    doubt=each.doubt + maker.doubt,
                    optional=maker.optional,
                )
            fits += 1
            if fits == MOST_FITTING:
                break
        if not fits:
            statements += said
            if refused is not None and not any(said):
                raise refused

    def _construct(
        self, makers: Sequence[_Maker], sample: Sample, values: Mapping[str, Any]
    ) -> list[tuple[_Maker, Mapping[str, Any], Made]]:
        """What is made of each, in one request; of those that are the same at all sizes, one."""
        code, known = self.task.code, self.task.made
        free = dict(zip(sample.sizes, _PRIMES, strict=False))
        general = set_sizes({**sample.sizes, **free, **sample.fixed}, sample.relations)
        chosen: dict[tuple[Any, ...], tuple[_Maker, Mapping[str, Any], tuple[Any, ...]]] = {}
        for maker in makers:
            given, everywhere = (
                {
                    n: evaluate_source(s, {**values, **sizes}, {}, {})
                    for n, s in maker.sources.items()
                }
                for sizes in (sample.sizes, general)
            )
            key = tuple((name, type(each), each) for name, each in given.items())
            chosen.setdefault((key, tuple(everywhere.values())), (maker, given, key))
        new = {key: given for _, given, key in chosen.values() if key not in known}
        if new:
            found = construct_all(code.target, [*new.values()], code.path)
            known.update(zip(new, found, strict=True))
        self.shaped |= _find_shaped(known)
        return [(maker, given, known[key]) for maker, given, key in chosen.values()]

    def _find_programs(
        self, given: Mapping[str, Any], made: Made, sample: Sample
    ) -> tuple[list[Program], Sequence[Slot]]:
        if made.failure is not None:
            raise made.failure
        task, parameters = self.task, made.parameters
        if any(slot.shape is None for slot in parameters):
            module = construct(task.code.target, given, task.code.path)
            own = replace(task, code=replace(task.code, target=module))
            parameters = tuple(_list_parameters(own, sample))
        asked = made.arguments, parameters
        return find_programs(task.code, task.system, task.binds, asked), parameters

    def _find_sources(
        self,
        parameters: Sequence[Slot],
        program: Program,
        sample: Sample,
        said: list[list[Statement]],
    ) -> dict[str, str] | None:
        holders = find_holders(self.task.system, program, parameters, self.orders)
        self.parameters.update({h.slot.name: h.tensor.name for h in holders if not h.told})
        sources = find_sources(holders, sample.sizes)
        if sources is None:
            said.append(list(find_misfits(holders, sample.sizes)))
        return sources


def _find_shaped(known: Mapping[tuple[Any, ...], Made]) -> set[str]:
    """The arguments of a constructor that alone make a parameter's shape another."""
    shapes: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for key, made in known.items():
        for place, (name, *_) in enumerate(key if made.failure is None else ()):
            shapes[name, key[:place], key[place + 1 :]].add(made.shapes)
    return {name for (name, *_), found in shapes.items() if len(found) > 1}


def _find_scripts(task: Task) -> Iterator[Subject]:
    """A script: what it makes up at random, and what it lacks, are its arguments."""
    code, system, script = task.code, task.system, task.code.script
    assert script is not None
    for result in _find_results(code, system):
        match, slots = _match_script(task, script, result)
        for guessed, arguments in islice(
            _find_free_numbers(script, match, system, result), MOST_MADE
        ):
            chosen = replace(match, arguments=arguments)
            yield replace(_find_script(task, chosen, slots, result), guessed=guessed)


def _match_script(task: Task, script: Script, result: str) -> tuple[Match, list[Slot]]:
    """The tensors of the formula that stand for what a result is made from."""
    told = {name: source for name, source in task.binds.items() if name != "return"}
    made_from = {*script.sources.get(result, script.arguments), *told}
    made_from |= {name for name, _ in script.unused}  # it may have been meant to be read
    names = [name for name in script.arguments if name in made_from and name not in told]
    names = [name for name in names if name not in (*script.filled, *script.called)]
    values = {name: getattr(task.code.names.get(name), "shape", None) for name in names}
    shapes = {n: tuple(shape) for n, shape in values.items() if shape is not None}
    slots = [Slot(n, required=n not in script.made, shape=shapes.get(n)) for n in names]
    bound = {name for source in told.values() for name in find_names(source)}
    left = [tensor for tensor in find_tensors(task.system) if tensor.name not in bound]
    match = Match(told, left, [])
    sizes = list(find_sizes(task.system))
    match_slots(match, slots, sizes)
    if not any(s.required for s in slots):
        match_slots(match, [replace(slot, required=True) for slot in slots], sizes)
    return match, slots


def _find_free_numbers(
    script: Script, match: Match, system: ir.System, result: str
) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """The arguments with those that are no tensor: numbers never given, results never made."""
    made_from = script.sources.get(result, script.arguments)
    free = [name for name in script.free if name in made_from and name not in match.arguments]
    empty = system.results[0].shape
    shape = ", ".join(write_extent(extent) for extent in empty)
    filled = {name: f"zeros({shape})" for name in free if name in script.filled}
    wanted = [name for name in free if name not in (*script.filled, *script.called)]
    shaped = _find_number_sizes(script, match, system, wanted)
    known = {**shaped, **_find_named(wanted, system, shaped)}
    open_slots = [Slot(name) for name in wanted if name not in known]
    for _, given in find_numbers(open_slots, [], system):
        guessed = tuple(f"{name}={source}" for name, source in given.items())
        yield guessed, {**match.arguments, **filled, **known, **given}


def _find_named(
    wanted: Sequence[str], system: ir.System, known: Mapping[str, str]
) -> dict[str, str]:
    """The numbers of which the name says one size best, and none that another is known to be."""
    found: dict[str, str] = {}
    for name in wanted:
        sizes = [size for size in find_sizes(system) if size not in known.values()]
        ranks = {size: rank_size(name, size) for size in sizes}
        best = [size for size in sizes if ranks[size] == min(ranks.values())]
        if name not in known and len(best) == 1 and ranks[best[0]] < UNSAID:
            found[name] = best[0]
    return found


def _find_script(task: Task, match: Match, slots: list[Slot], result: str) -> Subject:
    code, system, script = task.code, task.system, task.code.script
    assert script is not None
    names = tuple(name for name in match.arguments if name in script.arguments)
    finished = finish_script(code, names, result)
    laid = task.binds.get("return")
    program = Program(
        finished,
        match.arguments,
        indices=find_indices(system),
        results={system.results[0].name: laid} if laid else {},
        told=tuple(task.binds),
    )
    shaped = [slot for slot in slots if slot.name in names and slot.shape is not None]
    fixed = find_fixed(system, task.sizes, program)
    numbers, literals = find_own_numbers(code)
    holders = find_holders(system, program, shaped, {})
    solved = list(islice(solve_sizes(holders, [*numbers.values()], fixed), MOST_SIZES))
    ordered = _group_sizes(solved, numbers, {*find_sizes(system)}) or [[fixed]]
    sizes = _find_number_sizes(script, match, system, script.numbers)
    wider = [program]
    if sizes:
        finished = finish_script(code, (*names, *sizes), result)
        wider.insert(0, replace(program, code=finished, arguments={**match.arguments, **sizes}))
    return Subject(
        ordered,
        partial(_give, [program]),
        numbers,
        literals,
        wider=Subject([[fixed]], partial(_give, wider)) if solved else None,
    )


def _find_number_sizes(
    script: Script, match: Match, system: ir.System, numbers: Sequence[str]
) -> dict[str, str]:
    """The sizes that a script's numbers are, by the shapes of the tensors that it makes."""
    tensors = {tensor.name: tensor for tensor in find_tensors(system)}
    found: dict[str, set[str]] = {}
    for name, names in script.shapes.items():
        tensor = tensors.get(match.arguments.get(name, ""))
        if tensor is not None and len(names) == len(tensor.shape):
            for number, extent in zip(names, tensor.shape, strict=True):
                if number in numbers:
                    found.setdefault(number, set()).add(write_extent(extent))
    plain = find_sizes(system)
    sizes = {name: min(extents) for name, extents in found.items() if len(extents) == 1}
    return {name: size for name, size in sizes.items() if size in plain}


def _find_results(code: Code, system: ir.System) -> list[str]:
    """The names that may be the result: one of the formula's, else the last tensor assigned."""
    script = code.script
    assert script is not None
    if script.chosen:
        return [script.chosen]
    wanted = {tensor.name.lower() for tensor in system.results}
    known = [
        name
        for name in script.results
        if name not in code.names or hasattr(code.names[name], "dtype")
    ]
    named = [name for name in known if name.lower() in wanted]
    return list(dict.fromkeys([*named[:1], *known[:1], *([] if known else [""])]))


def find_sizes_by_name(numbers: Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
    """The sizes that the code's numbers are, where their names say so and do not contradict."""
    ranked = sorted(
        (rank_size(called.rpartition(".")[2], name), called, name)
        for called in numbers
        for name in names
    )
    found: dict[str, int] = {}
    for rank, called, name in ranked:
        same = {numbers[c] for r, c, n in ranked if n == name and r == rank}
        if rank < 3 and name not in found and len(same) == 1:
            found[name] = numbers[called]
    return found
