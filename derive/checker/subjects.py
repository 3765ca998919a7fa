"""The candidate programs for each kind of code, and the sizes that the code fixes.

A function has the same programs at all sizes. The parameters of a module instance have shapes,
which determine sizes. A class is instantiated at each sample, with the numbers that make its
parameters fit. A script is a function of the tensors that it creates, whose shapes determine sizes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, product
from types import CodeType, FunctionType
from typing import Any

from derive.checker import bind, load, processes, runs
from derive.checker.bind import Task
from derive.checker.program import Program, evaluate_source
from derive.checker.reading import Script
from derive.checker.relations import Statement
from derive.checker.samples import Sample
from derive.checker.slots import NAMED, UNSAID, Slot, find_arguments, find_slots, rank_size, unwrap
from derive.errors import DeriveError
from derive.ir import nodes as ir
from derive.ir.text import write_extent
from derive.judge.samples import find_sizes
from derive.libraries import torch

Make = Callable[[Sample, list[list[Statement]]], Iterator[Program]]

MOST_SIZES = 256  # assignments of sizes that fit a module's shapes
MOST_MADE = 100  # instances of a class at one sample
MOST_FITTING = 12  # instances with fitting parameters to run
MOST_NUMBER = 4096  # largest number that may be a size


@dataclass(frozen=True)
class Subject:
    """One way to call the code: its programs, its numbers, and candidates for sizes."""

    groups: Sequence[Sequence[Mapping[str, int]]]  # candidates for fixed sizes, best group first
    # The programs at a sample, best name matches first; appends statements on sizes to its list.
    make: Make
    numbers: Mapping[str, int] = field(default_factory=dict)  # integers by name
    literals: Sequence[int] = ()  # integers without a name
    unfit: Sequence[Program] = ()  # programs whose parameters did not fit at the tried sizes
    is_provisional: bool = False  # whether the next subject is tried if this one disagrees

    def find_base(self) -> Mapping[str, int] | None:
        """The first candidate for the fixed sizes; None without one."""
        return next((base for group in self.groups for base in group), None)


def find_subjects(task: Task) -> Iterator[Subject]:
    """Yield the ways to call the code, which is a script, a class, or a function or module."""
    if task.code.script is not None:
        yield from _find_scripts(task)
    elif processes.find_kind(task.code.target) == "class":
        yield from _find_classes(task)
    else:
        yield from _find_function(task)


def _find_function(task: Task) -> Iterator[Subject]:
    """Yield the subjects of a function or a module instance, whose shapes determine the sizes."""
    asked = find_slots(task.code.target)
    numbers, literals = find_own_numbers(task.code)
    listed, others = bind.find_programs(task, asked)
    for programs in ([listed] * bool(listed)) + others:
        holders = bind.find_holders(task.system, programs[0], asked[1])
        groups = _solve(holders, numbers, task.find_fixed(programs[0]))
        make, is_guess = partial(_fit, programs, holders), programs is listed
        yield Subject(groups, make, numbers, literals, programs, is_provisional=is_guess)


def _fit(
    programs: list[Program], holders: list[bind.Holder], sample: Sample, _: object
) -> Iterator[Program]:
    """The programs if a sample's sizes are those of the parameters, else none."""
    return iter(programs if bind.is_fitting(holders, sample.sizes) else ())


def _solve(
    holders: Sequence[bind.Holder], numbers: Mapping[str, int], fixed: Mapping[str, int]
) -> list[list[Mapping[str, int]]]:
    """Groups of sizes that the shapes allow, best matches with the code's numbers first."""
    groups: dict[tuple[int, int], list[Mapping[str, int]]] = defaultdict(list)
    for sizes in islice(bind.solve_sizes(holders, [*numbers.values()], fixed), MOST_SIZES):
        said = sum(
            UNSAID - rank_size(called.rpartition(".")[2], name)
            for called, number in numbers.items()
            for name, size in sizes.items()
            if number == size
        )
        groups[len({*sizes.values()} & {*numbers.values()}), said].append(sizes)
    return [groups[key] for key in sorted(groups, reverse=True)]


def find_own_numbers(code: load.Code) -> tuple[dict[str, int], list[int]]:
    """The integers of the code: by name, and the literals."""
    if code.script is None:
        return find_numbers_of(code.target)
    public = {name: value for name, value in code.names.items() if not name.startswith("__")}
    return _keep_numbers(public), [n for n in load.find_literals(code) if isinstance(n, int)]


@processes.run_remotely
def find_numbers_of(target: Any) -> tuple[dict[str, int], list[int]]:
    """The integers of globals, closure, defaults and attributes by name, and the literals."""
    functions = find_functions(target)
    named = {name: value for function in functions for name, value in find_reads(function)}
    for function in functions[: len(functions) if isinstance(target, type) else 1]:
        named |= {each.name: each.default for each in find_arguments(function)}
    bodies = (body for function in functions for body in _find_bodies(function))
    literals = {n for body in bodies for n in body.co_consts if type(n) is int}
    if isinstance(target, torch.nn.Module):
        for path, part in target.named_modules():
            named |= {f"{path}.{name}" if path else name: v for name, v in vars(part).items()}
    return _keep_numbers(named), sorted(n for n in literals if 1 < n <= MOST_NUMBER)


def _keep_numbers(named: Mapping[str, Any]) -> dict[str, int]:
    return {n: v for n, v in named.items() if type(v) is int and 0 < v <= MOST_NUMBER}


_HOLDERS = (FunctionType, staticmethod, classmethod, property, type)


def find_functions(target: Any) -> list[FunctionType]:
    """The functions of a target and those that they read; none of torch's own."""
    found, left = list[FunctionType](), [target]
    for value in left:
        match value:
            case FunctionType():
                found.append(value)
                inner = [getattr(value, "__wrapped__", None), *(e for _, e in find_reads(value))]
            case staticmethod() | classmethod():
                inner = [value.__func__]
            case property():
                inner = [value.fget]
            case type():
                owners = (e for e in value.__mro__ if not e.__module__.startswith("torch"))
                inner = [each for owner in owners for each in vars(owner).values()]
            case _:
                parts = value.modules() if isinstance(value, torch.nn.Module) else [value]
                inner = [getattr(value, "__func__", None), *map(type, parts)]
        own = (e for e in inner if isinstance(e, _HOLDERS) and e not in left)
        left += (e for e in own if not (getattr(e, "__module__", "") or "").startswith("torch"))
    return found


def find_reads(function: Any) -> list[tuple[str, Any]]:
    """Names and values of the globals and closure cells that a function reads."""
    inner = unwrap(function)
    own = getattr(inner, "__globals__", {})
    read = dict.fromkeys(chain.from_iterable(body.co_names for body in _find_bodies(function)))
    found = [(name, own[name]) for name in read if name in own]
    cells = getattr(inner, "__closure__", None) or ()
    for name, cell in zip(inner.__code__.co_freevars if cells else (), cells, strict=True):
        with suppress(ValueError):  # an empty cell
            found.append((name, cell.cell_contents))
    return found


def _find_bodies(function: Any) -> list[CodeType]:
    """The code objects of a function and of its inner functions."""
    code = getattr(unwrap(function), "__code__", None)
    return [] if code is None else list_codes(code)


def list_codes(code: CodeType) -> list[CodeType]:
    """A code object and those of the functions inside."""
    found = [code]
    for body in found:
        found += [each for each in body.co_consts if isinstance(each, CodeType)]
    return found


@processes.run_remotely
def construct(target: Any, made: Mapping[str, Any], path: str) -> Any:
    """An instance of a class of modules; CannotRunError where the constructor fails."""
    try:
        return runs.make_module(target, made)
    except (Exception, SystemExit) as error:  # whatever the user's constructor raises
        raise runs.describe_error(error, path) from error


@processes.run_remotely
def construct_all(target: Any, given: Sequence[Mapping[str, Any]], path: str) -> list[Any]:
    """For each set of arguments the slots of the instance, or the CannotRunError, in order."""
    found: list[Any] = []
    for each in given:
        try:
            found.append(find_slots(construct(target, each, path)))
        except processes.CannotRunError as error:
            found.append(error)
    return found


def _find_classes(task: Task) -> Iterator[Subject]:
    """Yield the subjects of a class: instances for each sample, then one by its defaults."""
    code, system = task.code, task.system
    slots, scalars = bind.find_constructor(task)
    told = {slot.name: task.binds[slot.name] for slot in slots if slot.name in task.binds}
    rest = {name: source for name, source in task.binds.items() if name not in told}
    left = [slot for slot in slots if slot.name not in told]
    base = Program(code, constructor=told)
    inner, own = replace(task, binds=rest), find_own_numbers(code)
    for numbers in bind.assign_numbers(base, "constructor", left, scalars, system):
        makers, unfit = list(islice(numbers, MOST_MADE)), list[Program]()
        make = partial(_make_programs, inner, makers, unfit)
        yield Subject([[task.find_fixed(makers[0])]], make, *own, unfit)
    if not any(slot.required for slot in left):  # with default sizes
        with suppress(processes.CannotRunError, DeriveError):  # reported already
            given = {n: evaluate_source(s, {}, task.sizes, {}) for n, s in told.items()}
            module = construct(code.target, given, code.path)
            yield from _find_function(replace(inner, code=replace(code, target=module)))


def _make_programs(
    task: Task,
    makers: Sequence[Program],
    unfit: list[Program],
    sample: Sample,
    statements: list[list[Statement]],
) -> Iterator[Program]:
    """The programs of a class with fitting parameters at a sample.

    Where none fits in any order of axes, the misfits of shapes are statements on sizes.
    """
    said, fits, moved = list[list[Statement]](), 0, False
    refused: Exception | None = None
    for maker, made in _construct_new(task, makers, {**sample.make_inputs(), **sample.sizes}):
        if isinstance(made, processes.CannotRunError):
            said.append([*made.statements])
            refused = refused or made
            continue
        try:
            listed, others = bind.find_programs(task, made, maker)
        except DeriveError as error:  # a bound parameter does not exist with these numbers
            refused = refused or error
            continue
        programs = [*listed, *others[0]]
        holders = bind.find_holders(task.system, programs[0], made[1])
        if not bind.is_fitting(holders, sample.sizes):
            is_moved = all(holder.fits(sample.sizes, sort=sorted) for holder in holders)
            unfit.insert(0 if is_moved else len(unfit), programs[0])
            moved |= is_moved
            said.append([each for holder in holders for each in holder.find_misfits(sample.sizes)])
            continue
        yield from programs
        fits += 1
        if fits == MOST_FITTING:
            break
    if not fits:
        statements += [] if moved else said
        if refused is not None and not any(said):
            raise refused


def _construct_new(
    task: Task, makers: Sequence[Program], names: Mapping[str, Any]
) -> Iterator[tuple[Program, Any]]:
    """Pairs (maker, its instance's slots or error), one for each set of arguments made so far."""
    chosen: dict[tuple[Any, ...], tuple[Program, Mapping[str, Any]]] = {}
    for maker in makers:
        given = {n: evaluate_source(s, names, {}, {}) for n, s in maker.constructor.items()}
        key = tuple((name, type(each), each) for name, each in given.items())
        chosen.setdefault(key, (maker, given))
    new = {key: given for key, (_, given) in chosen.items() if key not in task.made}
    if new:
        made = construct_all(task.code.target, [*new.values()], task.code.path)
        task.made.update(zip(new, made, strict=True))
    return ((maker, task.made[key]) for key, (maker, _) in chosen.items())


def _find_scripts(task: Task) -> Iterator[Subject]:
    """Yield the subjects of a script: its random tensors and free names are the arguments."""
    code, script = task.code, task.code.script
    assert script is not None
    wanted = dict.fromkeys(tensor.name.lower() for tensor in task.system.results)
    tensors = [n for n in script.results if n not in code.names or hasattr(code.names[n], "dtype")]
    named = {name.lower(): name for name in reversed(tensors) if name.lower() in wanted}
    last = tensors[:1] or [""]  # the formula's results by name, else the last tensor
    found = [*named.values()][-1:]
    if len(named) == len(wanted):
        found = [", ".join(named[name] for name in wanted)]
    for result in [script.chosen] if script.chosen else dict.fromkeys([*found, *last]):
        yield from _find_script(task, script, result)


def _match_script(task: Task, script: Script, made_from: set[str]) -> tuple[bind.Match, list[Slot]]:
    """The pair (tensors matched with the formula's, slots for a script's tensors)."""
    match, sizes, slots = bind.Match(task), list(find_sizes(task.system)), list[Slot]()
    match.left, _ = match.find_left(ir.Tensor, ())
    left_out = {*match.found, *script.filled, *script.called}
    made_from = made_from | {name for name, _ in script.unused}  # perhaps meant to be read
    for name in (n for n in script.arguments if n in made_from and n not in left_out):
        shape = getattr(task.code.names.get(name), "shape", None)
        own = None if shape is None else tuple(shape)
        slots.append(Slot(name, required=name not in script.made, shape=own))
    match.assign_slots(slots, sizes)
    if not any(slot.required for slot in slots):
        match.assign_slots([replace(slot, required=True) for slot in slots], sizes)
    ranks = {tensor.name: len(tensor.shape) for tensor in task.system.tensors}
    for slot in slots:  # a tensor of another rank is not the one of this name
        rank = ranks.get(match.found.get(slot.name, ""))
        if slot.shape is not None and rank not in {None, len(slot.shape)}:
            del match.found[slot.name]
    return match, slots


def _find_script(task: Task, script: Script, result: str) -> Iterator[Subject]:
    """Yield the subjects of a script: at free sizes, then at those of its tensors."""
    code, system = task.code, task.system
    made_from = {*script.find_sources(result, script.arguments)}
    match, slots = _match_script(task, script, made_from)
    arguments = match.found
    free = [name for name in script.free if name in made_from and name not in arguments]
    zeros = f"zeros({write_extent(*system.results[0].shape)})"
    arguments |= {name: zeros for name in free if name in script.filled}
    wanted = [name for name in free if name not in (*script.filled, *script.called)]
    arguments |= _find_number_sizes(task, match, wanted)
    numbers = [Slot(name) for name in wanted if name not in arguments]
    names = tuple(name for name in arguments if name in script.arguments)
    base = task.start_program(arguments)

    def find_programs(sizes: Mapping[str, str]) -> list[Program]:
        every = (*names, *(slot.name for slot in numbers), *sizes)
        own = replace(base, code=load.finish_script(code, every, result))
        (made,) = bind.assign_numbers(own, "arguments", numbers, [], system)
        found = islice(made, MOST_MADE)
        return [replace(each, arguments={**each.arguments, **sizes}) for each in found]

    programs = find_programs({})
    shaped = [slot for slot in slots if slot.name in names and slot.shape is not None]
    fixed = task.find_fixed(programs[0])
    own, literals = find_own_numbers(code)
    groups = _solve(bind.find_holders(system, programs[0], shaped), own, fixed)
    if groups:
        sizes = _find_number_sizes(task, match, script.numbers)
        wide = [*(find_programs(sizes) if sizes else ()), *programs]
        yield Subject([[fixed]], lambda *_: iter(wide), is_provisional=True)
    yield Subject(groups or [[fixed]], lambda *_: iter(programs), own, literals)


def _find_number_sizes(task: Task, match: bind.Match, numbers: Sequence[str]) -> dict[str, str]:
    """The size that each number of a script is, from the shapes of the tensors that it creates."""
    script, system = task.code.script, task.system
    found: dict[str, set[str]] = defaultdict(set)
    for tensor in system.tensors:
        for name, names in script.shapes.items() if script is not None else ():
            if match.found.get(name) == tensor.name and len(names) == len(tensor.shape):
                for number, extent in zip(names, tensor.shape, strict=True):
                    found[number].add(write_extent(extent))
    sizes = {name: min(found[name]) for name in numbers if len(found[name]) == 1}
    return {name: size for name, size in sizes.items() if size in find_sizes(system)}


def find_sizes_by_name(numbers: Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
    """The values of sizes from the code's numbers with unambiguously matching names."""
    found: dict[str, int] = {}
    for rank, name in product(range(NAMED), names):
        same = {n for c, n in numbers.items() if rank_size(c.rpartition(".")[2], name) == rank}
        if len(same) == 1:
            found.setdefault(name, min(same))
    return found
