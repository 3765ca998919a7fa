"""What is tried in turn until code runs: its likely programs at likely sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from derive.checker.bind import (
    Match,
    find_constructor,
    find_programs,
    match_slots,
)
from derive.checker.bind import (
    find_numbers as find_integers,
)
from derive.checker.draws import Draw, Draws, find_draws, make_draws
from derive.checker.load import CannotRunError, Code, finish_script
from derive.checker.program import Program
from derive.checker.remote import find_kind, where_it_lives
from derive.checker.runs import describe_error, make_module
from derive.checker.shapes import find_misfits, find_sources, solve_sizes, write_extent
from derive.checker.slots import Slot, find_slots, rank_sizes
from derive.checker.sources import evaluate_source, find_letters, find_tensors
from derive.checker.ties import Failures
from derive.errors import DeriveError
from derive.ir.nodes import ScalarInput, System
from derive.ir.polynomial import evaluate_extent
from derive.judge.samples import find_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from derive.checker.script import Script

MOST_SIZES = 12  # assignments of sizes that fit a module's shapes
MOST_INTEGERS = 60  # ways to fill in a constructor's integers
MOST_AT_TIES = 12  # programs, and ways to fill in integers, at sizes that are tied


@dataclass(frozen=True)
class Attempt:
    """Programs, the likeliest first, and the draws at which they are tried.

    `wider` are those at other sizes than a script's own, for one that does not depend on those.
    """

    programs: Iterable[Program]
    draws: Draws
    wider: Iterable[Attempt] = ()


@dataclass(frozen=True)
class Task:
    """Code and formula, and what is told of both."""

    code: Code
    system: System
    binds: Mapping[str, str]
    sizes: Mapping[str, int]
    failures: Failures


def find_attempts(task: Task) -> Iterator[Attempt]:
    """What to try, the likeliest first; the failures say what comes next."""
    kind = find_kind(task.code.target)
    if task.code.script is not None:
        yield from _try_script(task)
    elif kind == "class":
        yield from _try_class(task)
    elif kind == "module":
        yield from _try_module(task)
    else:
        yield from _try_function(task)
        if task.code.call is not None:  # the file calls it: with what its formula does not have
            yield from _try_script(replace(task, code=replace(task.code, script=task.code.call)))


def find_fixed(system: System, given: Mapping[str, int], program: Program) -> dict[str, int]:
    """Sizes that are told, and the defaults of keyword sizes that the code does not take."""
    taken = {*program.arguments.values(), *program.constructor.values()}
    defaults = {s.name: s.default for s in system.sizes if s.default and s.name not in taken}
    return {**defaults, **given}


def _try_function(task: Task) -> Iterator[Attempt]:
    programs = list(find_programs(task.code, task.system, task.binds))
    numbers = list(_name_numbers(task.code, task.system))
    told = find_fixed(task.system, task.sizes, programs[0])
    for draws in find_draws(task.system, told, numbers, task.failures):
        yield Attempt(programs, draws)
        programs = programs[:MOST_AT_TIES]


def _name_numbers(code: Code, system: System) -> Iterator[dict[str, int]]:
    """Sizes as the code's own numbers have them, by their usual names."""
    numbers = find_numbers(code)
    names = list(find_sizes(system))
    told: dict[str, int] = {}
    for called, value in numbers.items():
        ranked = rank_sizes(called, names)
        if ranked and ranked[0] not in told and rank_sizes(called, ["?", ranked[0]])[0] != "?":
            told[ranked[0]] = value
    if told:
        yield told
    for name in names:
        for value in dict.fromkeys(numbers.values()):
            yield {name: value}


def find_numbers(code: Code) -> dict[str, int]:
    """Whole numbers that the file or the closure has by name."""
    return {
        name: value
        for name, value in code.names.items()
        if type(value) is int and 0 < value <= 4096 and not name.startswith("__")
    }


def _try_module(task: Task) -> Iterator[Attempt]:
    """A module that is made: its shapes say the sizes."""
    system, binds = task.system, task.binds
    parameters = _find_parameters(task, make_draws(system, task.sizes).first)
    numbers = find_attributes(task.code.target)
    for program in find_programs(task.code, system, binds):
        given = {**program.parameters, **program.arguments}
        told = find_fixed(system, task.sizes, program)
        slots = [slot for slot in parameters if slot.name in program.parameters]
        untold = [slot for slot in slots if slot.name not in binds]  # what is told has its layout
        for solved in islice(solve_sizes(system, given, slots, numbers, told), MOST_SIZES):
            sources = find_sources(system, given, untold, solved)
            if sources is not None:
                yield Attempt([_place(program, sources)], make_draws(system, solved))


def _find_parameters(task: Task, draw: Draw) -> list[Slot]:
    """The parameters of a module; those of lazy layers get their shapes in a first call."""
    _, parameters = find_slots(task.code.target)
    if any(slot.shape is None for slot in parameters):
        for program in islice(find_programs(task.code, task.system, task.binds), 1):
            replace(program, parameters={}).run(draw.make_inputs(), draw.sizes)
        _, parameters = find_slots(task.code.target)
    return parameters


def _place(program: Program, sources: Mapping[str, str]) -> Program:
    return replace(program, parameters={**program.parameters, **sources})


@where_it_lives
def find_attributes(module: Any) -> dict[str, int]:
    """Whole numbers that a module and its parts keep."""
    found: dict[str, int] = {}
    for part in module.modules():
        for name, value in vars(part).items():
            if type(value) is int and 0 < value <= 1 << 16:
                found.setdefault(name, value)
    return found


def _try_class(task: Task) -> Iterator[Attempt]:
    """A class of modules: made at the sizes of each draw, so that it is judged at several."""
    code, system, binds = task.code, task.system, task.binds
    slots = find_constructor(code, binds)
    told = {slot.name: binds[slot.name] for slot in slots if slot.name in binds}
    open_slots = [slot for slot in slots if slot.name not in told]
    rest = {name: source for name, source in binds.items() if name not in told}
    match = Match({}, [], [s for s in system.inputs if isinstance(s, ScalarInput)])
    maker = Program(code, constructor=told)
    inner = replace(task, binds=rest)
    fixed = find_fixed(system, task.sizes, maker)
    integers = list(islice(find_integers(open_slots, match, system), MOST_INTEGERS))
    makers = [replace(maker, constructor={**told, **given}) for given in integers]
    draws = None
    for draws in find_draws(system, fixed, (), task.failures):
        yield Attempt(_make_modules(inner, makers, draws), draws)
    if draws is None:
        return
    try:  # a class that needs no arguments, with the sizes that it has in it
        module = _construct(makers[0] if makers else maker, draws)
    except CannotRunError:  # that no sizes fit is said already
        return
    yield from _try_module(replace(inner, code=replace(code, target=module)))


def _construct(maker: Program, draws: Draws) -> Any:
    sizes = draws.first.sizes
    values = draws.first.make_inputs()
    made = {n: evaluate_source(s, values, sizes, {}) for n, s in maker.constructor.items()}
    return construct(maker.code.target, made, maker.code.path)


@where_it_lives
def construct(target: Any, made: Mapping[str, Any], path: str) -> Any:
    """A module of a class, as it is used; CannotRunError where it cannot be made so."""
    try:
        return make_module(target, made)
    except (Exception, SystemExit) as error:  # whatever the user's constructor raises
        raise describe_error(error, path) from error


def _make_modules(task: Task, makers: Iterable[Program], draws: Draws) -> Iterator[Program]:
    """The programs of a class, for every way to fill in its integers."""
    values = draws.first.make_inputs()
    for maker in makers:
        try:
            module = _construct(maker, draws)
        except CannotRunError as error:  # integers that do not fit are not the ones that are meant
            task.failures.add(error)
            continue
        inner = replace(task, code=replace(maker.code, target=module))
        for program in _fit_module(inner, draws, values):
            yield replace(program, code=maker.code, constructor=maker.constructor, guessed=True)


def _fit_module(task: Task, draws: Draws, values: Mapping[str, Any]) -> Iterator[Program]:
    """The programs of a module, made for these sizes, whose parameters can be what they hold."""
    system, sizes = task.system, draws.first.sizes
    try:
        parameters = _find_parameters(task, draws.first)
        programs = list(find_programs(task.code, system, task.binds))
    except CannotRunError as error:
        task.failures.add(error)
        return
    except DeriveError as error:  # these integers make no parameter of a name that is bound
        task.failures.first = task.failures.first or CannotRunError(str(error))
        return
    for program in programs:
        given = program.parameters
        told = [slot for slot in parameters if slot.name in task.binds]
        chosen = [slot for slot in parameters if slot.name in given and slot not in told]
        clashes = list(find_misfits(program, (*told, *chosen), values, sizes))
        found = None if clashes else find_sources(system, given, chosen, sizes)
        if found is None:
            task.failures.add_misfit(clashes)
            return  # the other programs of this module give it the same parameters
        yield _place(program, found)


def _try_script(task: Task) -> Iterator[Attempt]:
    """A script: what it makes up at random, and what it lacks, are its arguments."""
    code, system, script = task.code, task.system, task.code.script
    assert script is not None
    for result in _find_results(code, system):
        match, slots = _match_script(task, script, result)
        for arguments in islice(_find_free_numbers(script, match, system, result), MOST_INTEGERS):
            yield from _try_script_with(task, replace(match, arguments=arguments), slots, result)


def _match_script(task: Task, script: Script, result: str) -> tuple[Match, list[Slot]]:
    """The tensors of the formula that stand for what a result is made from."""
    made_from = {*script.sources.get(result, script.arguments), *task.binds}
    made_from |= {name for name, _ in script.unused}  # it may have been meant to be read
    names = [name for name in script.arguments if name in made_from]
    names = [name for name in names if name not in (*script.filled, *script.called)]
    slots = [_to_slot(task.code, name, name not in script.made) for name in names]
    match = Match(dict(task.binds), list(find_tensors(task.system)), [])
    match_slots(match, slots)
    if not any(s.required for s in slots):
        match_slots(match, [replace(slot, required=True) for slot in slots])
    return match, slots


def _find_free_numbers(
    script: Script, match: Match, system: System, result: str
) -> Iterator[dict[str, str]]:
    """The arguments with those that are no tensor: numbers never given, results never made."""
    made_from = script.sources.get(result, script.arguments)
    free = [name for name in script.free if name in made_from and name not in match.arguments]
    empty = system.results[0].shape
    shape = ", ".join(write_extent(extent) for extent in empty)
    filled = {name: f"zeros({shape})" for name in free if name in script.filled}
    wanted = [Slot(name) for name in free if name not in (*script.filled, *script.called)]
    for given in find_integers(wanted, replace(match, scalars=[]), system):
        yield {**match.arguments, **filled, **given}


def _try_script_with(task: Task, match: Match, slots: list[Slot], result: str) -> Iterator[Attempt]:
    code, system, script = task.code, task.system, task.code.script
    assert script is not None
    names = tuple(name for name in match.arguments if name in script.arguments)
    finished = finish_script(code, names, result)
    program = Program(finished, match.arguments, letters=find_letters(system))
    shaped = [slot for slot in slots if slot.name in names and slot.shape is not None]
    told = find_fixed(system, task.sizes, program)
    if not shaped:
        named = list(_name_numbers(code, system))
        for draws in find_draws(system, told, named, task.failures):
            yield Attempt([program], draws)
    numbers = find_numbers(code)
    sizes = _find_number_sizes(script, match, system)
    wider = [program]
    if sizes:
        finished = finish_script(code, (*names, *sizes), result)
        wider.insert(0, replace(program, code=finished, arguments={**match.arguments, **sizes}))
    solutions = solve_sizes(system, match.arguments, shaped, numbers, told)
    fitting = (solved for solved in solutions if _is_held(match, shaped, system, solved))
    for solved in islice(fitting, MOST_SIZES):
        yield Attempt([program], make_draws(system, solved), _widen(wider, system, told))


def _is_held(match: Match, shaped: list[Slot], system: System, sizes: Mapping[str, int]) -> bool:
    """Does each tensor that the script makes have the shape of what it stands for?"""
    tensors = {tensor.name: tensor for tensor in find_tensors(system)}
    pairs = [(slot, tensors.get(match.arguments[slot.name])) for slot in shaped]
    return all(
        slot.shape == tuple(evaluate_extent(extent, sizes) for extent in tensor.shape)
        for slot, tensor in pairs
        if tensor is not None
    )


def _widen(programs: list[Program], system: System, told: Mapping[str, int]) -> Iterator[Attempt]:
    yield Attempt(programs, make_draws(system, told))


def _find_number_sizes(script: Script, match: Match, system: System) -> dict[str, str]:
    """The sizes that the script's numbers are, by the shapes of the tensors that it makes."""
    tensors = {tensor.name: tensor for tensor in find_tensors(system)}
    found: dict[str, set[str]] = {}
    for name, names in script.shapes.items():
        tensor = tensors.get(match.arguments.get(name, ""))
        if tensor is not None and len(names) == len(tensor.shape):
            for number, extent in zip(names, tensor.shape, strict=True):
                if number in script.numbers:
                    found.setdefault(number, set()).add(write_extent(extent))
    plain = find_sizes(system)
    sizes = {name: min(extents) for name, extents in found.items() if len(extents) == 1}
    return {name: size for name, size in sizes.items() if size in plain}


def _to_slot(code: Code, name: str, required: bool) -> Slot:
    value: Any = code.names.get(name)
    shape = tuple(value.shape) if hasattr(value, "shape") else None
    return Slot(name, required=required, shape=shape)


def _find_results(code: Code, system: System) -> list[str]:
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
